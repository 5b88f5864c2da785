/** /auth: log in with a password or an OpenID Connect provider, refresh, log out, and set a new password. */

import { invalidPayload } from '../../../base/errors.js';
import {
  type AuthenticationServices,
  type IssuedTokens,
  login,
  logout,
  refresh,
  requestPasswordReset,
  resetPassword,
} from '../../accounts/authentication.js';
import type { ResolveUser } from '../../accounts/external-users.js';
import type { SessionKind } from '../../accounts/logins.js';
import type { Cookies } from '../../http/cookies.js';
import type { Exchange } from '../../http/exchange.js';
import { jsonText } from '../../http/reply.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes, route } from '../action.js';
import {
  allowedPages,
  clientOf,
  linkTo,
  readBody,
  readChoice,
  readEmail,
  readOptionalText,
  readText,
} from '../body-fields.js';
import { BOOLEAN, EMAIL, list, MODE, MODES, object, ok, RECORD, ref, STRING } from '../openapi/json-schema.js';

export interface AuthServices extends AuthenticationServices {
  readonly cookies: Cookies;
  /** Where the service is reached, for links. */
  readonly publicUrl: () => string;
  /** Paths of pages on which users set passwords. */
  readonly pages: () => readonly string[];
  readonly resolveUser: ResolveUser;
}

/** Login methods other than the password. */
export interface OtherLogins {
  /** As GET /auth lists them. */
  readonly providers: readonly unknown[];
  /** Whether logins with a password are refused. */
  readonly replacePasswords: boolean;
}

export const NO_OTHER_LOGINS: OtherLogins = { providers: [], replacePasswords: false };

type Mode = (typeof MODES)[number];

const CREDENTIALS = object({ email: EMAIL, password: STRING, mode: MODE, otp: STRING }, ['email', 'password']);
const RENEWAL = object({ refresh_token: STRING, mode: MODE });
export const NEW_PASSWORD = object({ token: STRING, password: STRING }, ['token', 'password']);
export const SINGLE_USE = 'The token of a link works once.';

export function authRoutes(services: AuthServices, others: OtherLogins): ApiRoute[] {
  const action = actionRoutes(services);
  const login = { summary: 'Log in', body: CREDENTIALS, data: ref('Tokens') };
  const logins = [
    action('POST /auth/login', postLogin, { ...login, graphql: { name: 'auth_login', once: true } }),
    action('POST /auth/login/default', postLogin, login),
  ];
  return [
    route(
      'GET /auth',
      () => jsonText(JSON.stringify({ data: others.providers, disableDefault: others.replacePasswords })),
      {
        summary: 'Login methods other than the password',
        answers: [ok(object({ data: list(RECORD), disableDefault: BOOLEAN }))],
      },
    ),
    ...(others.replacePasswords ? [] : logins),
    action('POST /auth/refresh', postRefresh, {
      summary: 'Renew a login',
      body: RENEWAL,
      optional: true,
      data: ref('Tokens'),
      graphql: { name: 'auth_refresh', once: true },
    }),
    action('POST /auth/logout', postLogout, {
      summary: 'Log out',
      body: RENEWAL,
      optional: true,
      graphql: { name: 'auth_logout' },
    }),
    action('POST /auth/password/request', postResetRequest, {
      summary: 'Request an email with a link to set a new password',
      body: object({ email: EMAIL, reset_url: STRING }, ['email']),
      graphql: { name: 'auth_password_request', once: true },
    }),
    action('POST /auth/password/reset', postReset, {
      summary: `Set a new password. ${SINGLE_USE}`,
      body: NEW_PASSWORD,
      graphql: { name: 'auth_password_reset', once: true },
    }),
  ];
}

export function sessionKindOf(mode: Mode): SessionKind {
  return mode === 'session' ? 'session' : 'refresh';
}

async function postLogin(request: ActionRequest, services: AuthServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  const credentials = {
    email: readEmail(body),
    password: readText(body, 'password'),
    otp: readOptionalText(body, 'otp'),
  };
  const mode = readChoice(body, 'mode', MODES) ?? 'json';
  const issued = await login(credentials, sessionKindOf(mode), clientOf(request.client), services);
  return tokenResult(request.client, mode, issued, services);
}

export function tokenResult(
  client: Exchange,
  mode: Mode,
  issued: IssuedTokens,
  { cookies }: AuthServices,
): ActionResult {
  const { accessToken: access_token, refreshToken, expiresMs: expires } = issued;
  if (mode === 'session') return { data: { expires }, ...withCookie(cookies.set(client, 'session', access_token)) };
  const refresh_token = refreshToken ?? '';
  if (mode === 'json') return { data: { access_token, refresh_token, expires }, secret: true };
  return { data: { access_token, expires }, ...withCookie(cookies.set(client, 'refresh', refresh_token)) };
}

/** A result that sets a cookie. Caches may not keep it. */
function withCookie(cookie: string): ActionResult {
  return { secret: true, headers: { 'Set-Cookie': [cookie] } };
}

interface PresentedToken {
  readonly mode: Mode;
  /** A refresh token, or the signed token of a session. */
  readonly token: string;
}

/** Reads the session's token from the body or a cookie. */
async function readToken(request: ActionRequest, { cookies }: AuthServices): Promise<PresentedToken> {
  const json = await request.json();
  const body = json === undefined ? {} : readBody(json);
  const refreshToken = readOptionalText(body, 'refresh_token') ?? '';
  const mode = readChoice(body, 'mode', MODES) ?? (refreshToken === '' ? 'cookie' : 'json');
  const names: Readonly<Record<Mode, string>> = {
    json: '',
    cookie: cookies.refreshName,
    session: cookies.sessionName,
  };
  const token = mode === 'json' ? refreshToken : refreshToken || request.client.cookie(names[mode]);
  if (token === '') throw invalidPayload(mode === 'session' ? 'There is no session' : '"refresh_token" is required');
  return { mode, token };
}

async function postRefresh(request: ActionRequest, services: AuthServices): Promise<ActionResult> {
  const { mode, token } = await readToken(request, services);
  try {
    const issued = await refresh(sessionKindOf(mode), token, clientOf(request.client), services);
    return tokenResult(request.client, mode, issued, services);
  } catch (error) {
    request.client.cookieRefused = mode === 'session';
    throw error;
  }
}

async function postLogout(request: ActionRequest, services: AuthServices): Promise<ActionResult> {
  const { mode, token } = await readToken(request, services);
  const kind = sessionKindOf(mode);
  await logout(kind, token, services);
  return mode === 'json' ? {} : withCookie(services.cookies.clear(request.client, kind));
}

async function postResetRequest(request: ActionRequest, services: AuthServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  const email = readEmail(body);
  const linkWith = linkTo(
    body,
    'reset_url',
    allowedPages(services.config.PASSWORD_RESET_URL_ALLOW_LIST, services),
    () => `${services.publicUrl()}/reset-password`,
  );
  await requestPasswordReset(email, linkWith, clientOf(request.client), services);
  return {};
}

async function postReset(request: ActionRequest, services: AuthServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  await resetPassword(readText(body, 'token'), readText(body, 'password'), clientOf(request.client), services);
  return {};
}
