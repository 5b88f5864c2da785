/** Logging in, staying logged in, logging out, and resetting a forgotten password. */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { forbidden, invalidCredentials, invalidOtp, ServiceError } from '../../base/errors.js';
import type { Identities } from '../access/identities.js';
import { digestToken, familyOf, makeRefreshToken, type Tokens } from '../access/tokens.js';
import type { Config } from '../config/config.js';
import type { AttemptOutcome, LoginLimit } from './login-backoff.js';
import type { LoginAccount, LoginClient, Logins, SessionHolder, SessionKind } from './logins.js';
import type { Mailer } from './mailer.js';
import { assertPassword, hashPassword, verifyAccount } from './passwords.js';
import { stepOf } from './second-factor.js';

export interface AuthenticationServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly tokens: Tokens;
  readonly logins: Logins;
  readonly loginLimit: LoginLimit;
  readonly mailer: Mailer;
}

interface LoginCredentials {
  readonly email: string;
  readonly password: string;
  /** The one-time password, or null if none was sent. */
  readonly otp: string | null;
}

/** The tokens with which a client stays logged in. */
export interface IssuedTokens {
  /** Signed; of a session it is all there is. */
  readonly accessToken: string;
  /** The refresh token, or null if the login is a session. */
  readonly refreshToken: string | null;
  readonly expiresMs: number;
}

/** For the link to a new password. */
export const RESET_LIFETIME_MS = 86_400_000;

export async function login(
  credentials: LoginCredentials,
  kind: SessionKind,
  client: LoginClient,
  services: AuthenticationServices,
): Promise<IssuedTokens> {
  const isGuess = (error: unknown): boolean => isFailedGuess(error, credentials.otp);
  return attempted({ account: credentials.email, client, isGuess }, services, async () => {
    const account = await verify(credentials, client, services);
    const otpStep = await verifySecondFactor(account, credentials.otp, services);
    return beginSession({ account, otpStep }, kind, client, services);
  });
}

/** An attempt to log in. */
interface LoginAttempt {
  /** The account that it tries. */
  readonly account: string;
  readonly client: LoginClient;
  /** Whether it failed because of what it brought. */
  readonly isGuess: (error: unknown) => boolean;
}

/** Attempts are limited, and take the same time however they fail. */
export async function attempted(
  { account, client, isGuess }: LoginAttempt,
  services: AuthenticationServices,
  work: () => Promise<IssuedTokens>,
): Promise<IssuedTokens> {
  const { loginLimit } = services;
  const attempt = { address: client.ip, account };
  await loginLimit.attempt(attempt.address);
  await loginLimit.enter(attempt);
  // A client that did not wait gets no result, and causes no more work.
  if (client.aborted) throw invalidCredentials();
  const takeBack = async (outcome: AttemptOutcome): Promise<void> => {
    await loginLimit.settle(attempt, outcome);
    await loginLimit.forgive(attempt.address);
  };
  const begun = performance.now();
  try {
    const issued = await work();
    await takeBack('good');
    return issued;
  } catch (error) {
    if (!isGuess(error)) await takeBack('void');
    // Refused because of others, whatever the account is.
    if (error instanceof ServiceError && (error.status === 429 || error.status === 503)) throw error;
    await stall(begun, services.config.LOGIN_STALL_TIME);
    throw error;
  }
}

/** For users whom a provider has identified: it also asks for second factors. */
export async function signIn(
  user: string,
  kind: SessionKind,
  client: LoginClient,
  services: AuthenticationServices,
): Promise<IssuedTokens> {
  const account = await services.logins.get(user);
  if (account?.status !== 'active') throw invalidCredentials();
  return beginSession({ account, otpStep: null }, kind, client, services);
}

/** Whether an attempt failed because of what it brought; a missing one-time password is a question. */
function isFailedGuess(error: unknown, otp: string | null): boolean {
  if (!(error instanceof ServiceError)) return false;
  return error.code === 'INVALID_CREDENTIALS' || (error.code === 'INVALID_OTP' && otp !== null);
}

/** Unknown, wrong, suspended and locked look the same and take the same time. */
async function verify(
  { email, password }: LoginCredentials,
  client: LoginClient,
  { logins }: AuthenticationServices,
): Promise<LoginAccount> {
  const { account, matches } = await verifyAccount(() => logins.find(email), password, client);
  if (account && matches && account.status === 'active' && !account.locked) return account;
  if (!account?.locked) await logins.fail(email);
  throw invalidCredentials();
}

/** A missing one-time password is a question, a wrong one an attempt. */
async function verifySecondFactor(
  account: LoginAccount,
  otp: string | null,
  { logins }: AuthenticationServices,
): Promise<number | null> {
  if (account.tfa_secret === null) return null;
  const step = otp === null ? null : stepOf(account.tfa_secret, otp);
  if (step !== null) return step;
  if (otp !== null) await logins.fail(account.email);
  throw invalidOtp();
}

/** `otpStep` is that of the one-time password which was sent, or null. */
async function beginSession(
  { account, otpStep }: { readonly account: LoginAccount; readonly otpStep: number | null },
  kind: SessionKind,
  client: LoginClient,
  services: AuthenticationServices,
): Promise<IssuedTokens> {
  const { config, logins } = services;
  // Users who may not sign in from this address get no session.
  await services.identities.resolve(account.id, client.ip);
  const { token, ...session } = newSession(kind, config);
  const begun = await logins.begin({ user: account.id, kind, ...session, otpStep, client });
  if (!begun) throw otpStep === null ? invalidCredentials() : invalidOtp();
  return issue(account, { kind, token }, client, services);
}

/** A login session that has begun, or was renewed. */
interface OpenSession {
  readonly kind: SessionKind;
  /** The refresh token, or the name of the session. */
  readonly token: string;
}

export function newSession(kind: SessionKind, config: Config) {
  const secret = makeRefreshToken();
  const digest = digestToken(secret);
  const family = kind === 'session' ? randomBytes(16) : (familyOf(secret) as Buffer);
  const lifetime = kind === 'session' ? config.SESSION_COOKIE_TTL : config.REFRESH_TOKEN_TTL;
  return { digest, family: family.toString('hex'), lifetime, token: kind === 'session' ? digest : secret };
}

async function issue(
  { id, tfa_secret }: { readonly id: string; readonly tfa_secret: string | null | undefined },
  session: OpenSession,
  client: LoginClient,
  { config, identities, tokens }: AuthenticationServices,
): Promise<IssuedTokens> {
  const { role, application, administrator, enforceTfa } = await identities.resolve(id, client.ip);
  const described = { role, app_access: application, admin_access: administrator };
  const description = enforceTfa && tfa_secret === null ? { ...described, enforce_tfa: true as const } : described;
  return issueWith(session, config, (name, expiresMs) => tokens.signAccess(id, name, description, expiresMs));
}

/** For callers who come in by a share. */
export function issueShare(
  { id, role }: { readonly id: string; readonly role: string | null },
  session: OpenSession,
  { config, tokens }: Pick<AuthenticationServices, 'config' | 'tokens'>,
): Promise<IssuedTokens> {
  return issueWith(session, config, (name, expiresMs) => tokens.signShare(id, role, name, expiresMs));
}

/** `sign` gets the name of the session, or null for a refresh token. */
async function issueWith(
  { kind, token }: OpenSession,
  config: Config,
  sign: (name: string | null, expiresMs: number) => Promise<string>,
): Promise<IssuedTokens> {
  const isSession = kind === 'session';
  const expiresMs = isSession ? config.SESSION_COOKIE_TTL : config.ACCESS_TOKEN_TTL;
  const accessToken = await sign(isSession ? token : null, expiresMs);
  return { accessToken, refreshToken: isSession ? null : token, expiresMs };
}

/** Exchanges a refresh token, or the signed token of a session, for the next one. */
export function refresh(
  kind: SessionKind,
  token: string,
  client: LoginClient,
  services: AuthenticationServices,
): Promise<IssuedTokens> {
  return kind === 'session' ? renewSession(token, client, services) : exchangeToken(token, client, services);
}

async function exchangeToken(
  token: string,
  client: LoginClient,
  services: AuthenticationServices,
): Promise<IssuedTokens> {
  const family = familyOf(token);
  if (!family) throw invalidCredentials();
  const next = makeRefreshToken(family);
  const old = { digest: digestToken(token), family: family.toString('hex') };
  const { config, logins } = services;
  const holder = await logins.refresh(old, digestToken(next), config.REFRESH_TOKEN_TTL, client);
  if (holder === null) throw invalidCredentials();
  return issueTo(holder, { kind: 'refresh', token: next }, client, services);
}

async function renewSession(
  token: string,
  client: LoginClient,
  services: AuthenticationServices,
): Promise<IssuedTokens> {
  const { config, logins } = services;
  const session = await sessionOf(token, services);
  if (session === null) throw invalidCredentials();
  const times = { lifetime: config.SESSION_COOKIE_TTL, grace: config.SESSION_REFRESH_GRACE_PERIOD };
  const renewed = await logins.renew(session, digestToken(makeRefreshToken()), times, client);
  if (!renewed) throw invalidCredentials();
  return issueTo(renewed, { kind: 'session', token: renewed.token }, client, services);
}

async function issueTo(
  { user, share, role }: SessionHolder,
  session: OpenSession,
  client: LoginClient,
  services: AuthenticationServices,
): Promise<IssuedTokens> {
  if (share !== null) return issueShare({ id: share, role }, session, services);
  if (user === null) throw invalidCredentials();
  const account = await services.logins.get(user);
  return issue({ id: user, tfa_secret: account?.tfa_secret }, session, client, services);
}

/** The name of the session that a signed token belongs to, or null if the token is not valid. */
async function sessionOf(token: string, { tokens }: AuthenticationServices): Promise<string | null> {
  return tokens.verifyAccess(token).then(
    (claims) => claims.session,
    () => null,
  );
}

/** Without a session, logging out succeeds as well. */
export async function logout(kind: SessionKind, token: string, services: AuthenticationServices): Promise<void> {
  const digest = kind === 'session' ? await sessionOf(token, services) : digestToken(token);
  if (digest !== null) await services.logins.end(digest);
}

/** Ends the same, after the same time, whether there is such a user or not. */
export async function requestPasswordReset(
  email: string,
  linkWith: (token: string) => string,
  client: LoginClient,
  { config, logins, tokens, loginLimit, mailer }: AuthenticationServices,
): Promise<void> {
  await loginLimit.attempt(client.ip);
  const begun = performance.now();
  const account = await logins.find(email);
  if (account?.status === 'active') {
    const link = linkWith(await signReset(account, tokens));
    const text = `A new password was requested for your account. Choose it here:\n\n${link}\n\nThe link works once and expires in 24 hours. If you did not request it, ignore this email.`;
    void mailer({ to: account.email, subject: 'Reset your password', text, link });
  }
  await stall(begun, config.LOGIN_STALL_TIME);
}

/** The token is valid until the password changes. */
export function signReset(
  { email, password }: LoginAccount,
  tokens: AuthenticationServices['tokens'],
): Promise<string> {
  const claims = { email, mark: digestToken(password ?? '') };
  return tokens.signMail('password-reset', claims, RESET_LIFETIME_MS);
}

/** `token` is that of the link in the mail. */
export async function resetPassword(
  token: string,
  password: string,
  client: LoginClient,
  { tokens, logins, loginLimit }: AuthenticationServices,
): Promise<void> {
  await loginLimit.attempt(client.ip);
  const { email, mark } = await tokens.verifyMail('password-reset', token);
  await assertPassword(await logins.passwordPolicy(), password);
  if (!(await logins.resetPassword(email, mark, await hashPassword(password, client.ip)))) throw forbidden();
  await loginLimit.forgive(client.ip);
}

/** Waits until at least so much time has passed: the response time must reveal nothing. */
export async function stall(begun: number, leastMs: number): Promise<void> {
  const left = leastMs - (performance.now() - begun);
  if (left > 0) await sleep(left);
}
