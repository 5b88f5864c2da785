/** /auth: logging in, staying in, logging out, and getting back in. */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { build } from 'fast-json-stringify';
import type { Identities } from '../access/identity.js';
import type { Mailer } from '../access/mailer.js';
import { stepOf } from '../access/otp.js';
import { assertPassword, hashPassword, verifyPassword } from '../access/passwords.js';
import { digestToken, familyOf, makeRefreshToken, type Tokens } from '../access/tokens.js';
import type { LoginAccount, Logins, SessionKind } from '../accounts/logins.js';
import type { Config } from '../config.js';
import { forbidden, invalidCredentials, invalidOtp, invalidPayload, ServiceError } from '../errors.js';
import type { AttemptOutcome } from '../http/backoff.js';
import type { CookieKind, Cookies } from '../http/cookies.js';
import type { Exchange } from '../http/exchange.js';
import type { LoginLimit } from '../http/limiter.js';
import { jsonText, noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import { clientOf, linkTo, readBody, readChoice, readEmail, readText } from './credentials.js';

export interface AuthServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly tokens: Tokens;
  readonly logins: Logins;
  readonly cookies: Cookies;
  readonly loginLimit: LoginLimit;
  readonly mailer: Mailer;
  /** Where the service is reached, for links. */
  readonly publicUrl: () => string;
}

const MODES = ['json', 'cookie', 'session'] as const;
type Mode = (typeof MODES)[number];

/** Milliseconds that a link to a new password is good. */
const RESET_LIFETIME = 86_400_000;

export function authRoutes(services: AuthServices): Route[] {
  return [
    { method: 'GET', path: '/auth', handle: () => jsonText('{"data":[],"disableDefault":false}') },
    { method: 'POST', path: '/auth/login', handle: (exchange) => login(exchange, services) },
    { method: 'POST', path: '/auth/login/default', handle: (exchange) => login(exchange, services) },
    { method: 'POST', path: '/auth/refresh', handle: (exchange) => refresh(exchange, services) },
    { method: 'POST', path: '/auth/logout', handle: (exchange) => logout(exchange, services) },
    { method: 'POST', path: '/auth/password/request', handle: (exchange) => requestPassword(exchange, services) },
    { method: 'POST', path: '/auth/password/reset', handle: (exchange) => resetPassword(exchange, services) },
  ];
}

async function login(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  const email = readEmail(body);
  const password = readText(body, 'password');
  const otp = body['otp'] === undefined || body['otp'] === null ? null : readText(body, 'otp');
  const mode = readChoice(body, 'mode', MODES) ?? 'json';
  const { loginLimit } = services;
  const attempt = { address: exchange.address, account: email };
  await loginLimit.attempt(attempt.address);
  await loginLimit.enter(attempt);
  // Who did not wait for it is told nothing, and costs nothing more.
  if (exchange.aborted) throw invalidCredentials();
  const takeBack = async (outcome: AttemptOutcome): Promise<void> => {
    await loginLimit.settle(attempt, outcome);
    await loginLimit.forgive(attempt.address);
  };
  const begun = performance.now();
  try {
    const account = await verify(email, password, services);
    const otpStep = await verifySecondFactor(account, otp, services);
    const reply = await enter(exchange, services, mode, account, otpStep);
    await takeBack('good');
    return reply;
  } catch (error) {
    if (!isGuess(error, otp)) await takeBack('void');
    await stall(begun, services.config.LOGIN_STALL_TIME);
    throw error;
  }
}

/** Whether an attempt failed because of what it brought; a missing one-time password is a question. */
function isGuess(error: unknown, otp: string | null): boolean {
  if (!(error instanceof ServiceError)) return false;
  return error.code === 'INVALID_CREDENTIALS' || (error.code === 'INVALID_OTP' && otp !== null);
}

/** Unknown, wrong, suspended and locked look the same and take the same time. */
async function verify(email: string, password: string, { logins }: AuthServices): Promise<LoginAccount> {
  const account = await logins.find(email);
  const matches = await verifyPassword(account?.password ?? null, password);
  if (account && matches && account.status === 'active' && !account.locked) return account;
  if (!account?.locked) await logins.fail(email);
  throw invalidCredentials();
}

/** A missing one-time password is a question, a wrong one an attempt. */
async function verifySecondFactor(
  account: LoginAccount,
  otp: string | null,
  { logins }: AuthServices,
): Promise<number | null> {
  if (account.tfa_secret === null) return null;
  const step = otp === null ? null : stepOf(account.tfa_secret, otp);
  if (step !== null) return step;
  if (otp !== null) await logins.fail(account.email);
  throw invalidOtp();
}

async function enter(
  exchange: Exchange,
  services: AuthServices,
  mode: Mode,
  account: LoginAccount,
  otpStep: number | null,
): Promise<Reply> {
  const { config, logins } = services;
  // Who may not come in from here gets no session.
  await services.identities.resolve(account.id, exchange.address);
  const kind: SessionKind = mode === 'session' ? 'session' : 'refresh';
  const secret = makeRefreshToken();
  const digest = digestToken(secret);
  const family = kind === 'session' ? randomBytes(16) : (familyOf(secret) as Buffer);
  const lifetime = kind === 'session' ? config.SESSION_COOKIE_TTL : config.REFRESH_TOKEN_TTL;
  const begun = await logins.begin({
    user: account.id,
    kind,
    digest,
    family: family.toString('hex'),
    lifetime,
    otpStep,
    client: clientOf(exchange),
  });
  if (!begun) throw otpStep === null ? invalidCredentials() : invalidOtp();
  const token = kind === 'session' ? digest : secret;
  return grant(exchange, services, mode, account.id, token, account.tfa_secret === null);
}

const grantBody = build({
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

/** `token` is the refresh token, or the name of the session. */
async function grant(
  exchange: Exchange,
  { config, identities, tokens, cookies }: AuthServices,
  mode: Mode,
  user: string,
  token: string,
  withoutTfa: boolean,
): Promise<Reply> {
  const { role, application, administrator, enforceTfa } = await identities.resolve(user, exchange.address);
  const described = { role, app_access: application, admin_access: administrator };
  const description = enforceTfa && withoutTfa ? { ...described, enforce_tfa: true as const } : described;
  if (mode === 'session') {
    const expires = config.SESSION_COOKIE_TTL;
    const value = await tokens.signAccess(user, token, description, expires);
    return withCookie(jsonText(grantBody({ data: { expires } })), cookies.set(exchange, 'session', value));
  }
  const expires = config.ACCESS_TOKEN_TTL;
  const access_token = await tokens.signAccess(user, null, description, expires);
  if (mode === 'json')
    return withCookie(jsonText(grantBody({ data: { access_token, refresh_token: token, expires } })));
  return withCookie(jsonText(grantBody({ data: { access_token, expires } })), cookies.set(exchange, 'refresh', token));
}

/** For the caller alone. */
function withCookie(reply: Reply, ...cookies: readonly string[]): Reply {
  return { ...reply, secret: true, ...(cookies.length === 0 ? {} : { headers: { 'Set-Cookie': cookies } }) };
}

interface Renewal {
  readonly mode: Mode;
  /** A refresh token, or the signed token of a session. */
  readonly token: string;
}

/** Which session is meant: by the body, or by a cookie. */
async function readRenewal(exchange: Exchange, { cookies }: AuthServices): Promise<Renewal> {
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

async function refresh(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const { mode, token } = await readRenewal(exchange, services);
  try {
    return mode === 'session'
      ? await renewSession(exchange, services, token)
      : await exchangeToken(exchange, services, mode, token);
  } catch (error) {
    exchange.cookieRefused = mode === 'session';
    throw error;
  }
}

async function exchangeToken(
  exchange: Exchange,
  services: AuthServices,
  mode: Exclude<Mode, 'session'>,
  token: string,
): Promise<Reply> {
  const family = familyOf(token);
  if (!family) throw invalidCredentials();
  const next = makeRefreshToken(family);
  const old = { digest: digestToken(token), family: family.toString('hex') };
  const { config, logins } = services;
  const user = await logins.refresh(old, digestToken(next), config.REFRESH_TOKEN_TTL, clientOf(exchange));
  if (user === null) throw invalidCredentials();
  return grant(exchange, services, mode, user, next, await lacksSecondFactor(user, services));
}

async function renewSession(exchange: Exchange, services: AuthServices, token: string): Promise<Reply> {
  const { config, logins } = services;
  const session = await sessionOf(token, services);
  if (session === null) throw invalidCredentials();
  const times = { lifetime: config.SESSION_COOKIE_TTL, grace: config.SESSION_REFRESH_GRACE_PERIOD };
  const renewed = await logins.renew(session, digestToken(makeRefreshToken()), times, clientOf(exchange));
  if (!renewed) throw invalidCredentials();
  const withoutTfa = await lacksSecondFactor(renewed.user, services);
  return grant(exchange, services, 'session', renewed.user, renewed.token, withoutTfa);
}

async function lacksSecondFactor(user: string, { logins }: AuthServices): Promise<boolean> {
  return (await logins.get(user))?.tfa_secret === null;
}

/** The name of the session that a signed token belongs to; null where the token is no good. */
async function sessionOf(token: string, { tokens }: AuthServices): Promise<string | null> {
  return tokens.verifyAccess(token).then(
    (claims) => claims.session,
    () => null,
  );
}

/** Whoever has no session any more is logged out too. */
async function logout(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const { mode, token } = await readRenewal(exchange, services);
  const digest = mode === 'session' ? await sessionOf(token, services) : digestToken(token);
  if (digest !== null) await services.logins.end(digest);
  const kind: CookieKind = mode === 'session' ? 'session' : 'refresh';
  return mode === 'json' ? noContent : withCookie(noContent, services.cookies.clear(exchange, kind));
}

/** Answers the same, after the same time, whether there is such a user or not. */
async function requestPassword(exchange: Exchange, services: AuthServices): Promise<Reply> {
  const { config, logins, tokens, mailer: post } = services;
  const body = readBody(await exchange.json());
  const email = readEmail(body);
  const page = linkTo(
    body,
    'reset_url',
    config.PASSWORD_RESET_URL_ALLOW_LIST,
    () => `${services.publicUrl()}/reset-password`,
  );
  await services.loginLimit.attempt(exchange.address);
  const begun = performance.now();
  const account = await logins.find(email);
  if (account?.status === 'active') {
    const claims = { email: account.email, mark: digestToken(account.password ?? '') };
    const link = page(await tokens.signMail('password-reset', claims, RESET_LIFETIME));
    const text = `Somebody, we hope you, asked for a new password. Choose it here:\n\n${link}\n\nThe link works once, until tomorrow.`;
    void post({ to: account.email, subject: 'Your new password', text, link });
  }
  await stall(begun, config.LOGIN_STALL_TIME);
  return noContent;
}

async function resetPassword(exchange: Exchange, { tokens, logins, loginLimit }: AuthServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  const token = readText(body, 'token');
  const password = readText(body, 'password');
  await loginLimit.attempt(exchange.address);
  const { email, mark } = await tokens.verifyMail('password-reset', token);
  await assertPassword(await logins.passwordPolicy(), password);
  if (!(await logins.resetPassword(email, mark, await hashPassword(password)))) throw forbidden();
  await loginLimit.forgive(exchange.address);
  return noContent;
}

async function stall(begun: number, least: number): Promise<void> {
  const left = least - (performance.now() - begun);
  if (left > 0) await sleep(left);
}
