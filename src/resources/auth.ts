/** /auth: signing in, staying signed in, signing out, and a new password. */
import { build } from 'fast-json-stringify';
import {
  type AuthenticationServices,
  type IssuedTokens,
  login,
  logout,
  refresh,
  requestPasswordReset,
  resetPassword,
} from '../accounts/authentication.js';
import type { SessionKind } from '../accounts/logins.js';
import { invalidPayload } from '../errors.js';
import type { Cookies } from '../http/cookies.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import { clientOf, linkTo, readBody, readChoice, readEmail, readText } from './credentials.js';

export interface AuthServices extends AuthenticationServices {
  readonly cookies: Cookies;
  /** Where the service is reached, for links. */
  readonly publicUrl: () => string;
}

/** How a client gets its tokens: in the body, the refresh token as a cookie, or a session as a cookie. */
const MODES = ['json', 'cookie', 'session'] as const;
type Mode = (typeof MODES)[number];

export function authRoutes(services: AuthServices): Route[] {
  return [
    { method: 'GET', path: '/auth', handle: () => jsonText('{"data":[],"disableDefault":false}') },
    { method: 'POST', path: '/auth/login', handle: (exchange) => postLogin(exchange, services) },
    { method: 'POST', path: '/auth/login/default', handle: (exchange) => postLogin(exchange, services) },
    { method: 'POST', path: '/auth/refresh', handle: (exchange) => postRefresh(exchange, services) },
    { method: 'POST', path: '/auth/logout', handle: (exchange) => postLogout(exchange, services) },
    { method: 'POST', path: '/auth/password/request', handle: (exchange) => postResetRequest(exchange, services) },
    { method: 'POST', path: '/auth/password/reset', handle: (exchange) => postReset(exchange, services) },
  ];
}

function sessionKindOf(mode: Mode): SessionKind {
  return mode === 'session' ? 'session' : 'refresh';
}

async function postLogin(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  const credentials = {
    email: readEmail(body),
    password: readText(body, 'password'),
    otp: body['otp'] === undefined || body['otp'] === null ? null : readText(body, 'otp'),
  };
  const mode = readChoice(body, 'mode', MODES) ?? 'json';
  const issued = await login(credentials, sessionKindOf(mode), clientOf(exchange), services);
  return tokenReply(exchange, mode, issued, services);
}

const tokensBody = build({
  type: 'object',
  properties: {
    data: {
      type: 'object',
      properties: {
        access_token: { type: 'string' },
        refresh_token: { type: 'string' },
        expires: { type: 'integer' },
      },
    },
  },
});

function tokenReply(exchange: Exchange, mode: Mode, issued: IssuedTokens, { cookies }: AuthServices): Reply {
  const { accessToken: access_token, refreshToken, expiresMs: expires } = issued;
  if (mode === 'session')
    return withCookie(jsonText(tokensBody({ data: { expires } })), cookies.set(exchange, 'session', access_token));
  const refresh_token = refreshToken ?? '';
  if (mode === 'json') return withCookie(jsonText(tokensBody({ data: { access_token, refresh_token, expires } })));
  const reply = jsonText(tokensBody({ data: { access_token, expires } }));
  return withCookie(reply, cookies.set(exchange, 'refresh', refresh_token));
}

/** For the caller alone. */
function withCookie(reply: Reply, ...cookies: readonly string[]): Reply {
  return { ...reply, secret: true, ...(cookies.length === 0 ? {} : { headers: { 'Set-Cookie': cookies } }) };
}

interface PresentedToken {
  readonly mode: Mode;
  /** A refresh token, or the signed token of a session. */
  readonly token: string;
}

/** Which session is meant: by the body, or by a cookie. */
async function readToken(exchange: Exchange, { cookies }: AuthServices): Promise<PresentedToken> {
  const json = await exchange.json();
  const body = json === undefined ? {} : readBody(json);
  const given =
    body['refresh_token'] === undefined || body['refresh_token'] === null ? '' : readText(body, 'refresh_token');
  const mode = readChoice(body, 'mode', MODES) ?? (given === '' ? 'cookie' : 'json');
  const names: Readonly<Record<Mode, string>> = {
    json: '',
    cookie: cookies.refreshName,
    session: cookies.sessionName,
  };
  const token = mode === 'json' ? given : given || exchange.cookie(names[mode]);
  if (token === '') throw invalidPayload(mode === 'session' ? 'There is no session' : '"refresh_token" is required');
  return { mode, token };
}

async function postRefresh(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const { mode, token } = await readToken(exchange, services);
  try {
    const issued = await refresh(sessionKindOf(mode), token, clientOf(exchange), services);
    return tokenReply(exchange, mode, issued, services);
  } catch (error) {
    exchange.cookieRefused = mode === 'session';
    throw error;
  }
}

async function postLogout(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const { mode, token } = await readToken(exchange, services);
  const kind = sessionKindOf(mode);
  await logout(kind, token, services);
  return mode === 'json' ? noContent : withCookie(noContent, services.cookies.clear(exchange, kind));
}

async function postResetRequest(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  const email = readEmail(body);
  const linkWith = linkTo(
    body,
    'reset_url',
    services.config.PASSWORD_RESET_URL_ALLOW_LIST,
    () => `${services.publicUrl()}/reset-password`,
  );
  await requestPasswordReset(email, linkWith, clientOf(exchange), services);
  return noContent;
}

async function postReset(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  await resetPassword(readText(body, 'token'), readText(body, 'password'), clientOf(exchange), services);
  return noContent;
}
