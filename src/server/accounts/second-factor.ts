/**
 * The second factor of an account: enabled and disabled by time-based one-time passwords, as authenticator applications generate them
 * (SHA-1, 6 digits, 30 s).
 */
import { Secret, TOTP } from 'otpauth';
import { invalidCredentials, invalidPayload } from '../../base/errors.js';
import type { LoginLimit } from './login-backoff.js';
import type { LoginAccount, Logins } from './logins.js';
import { verifyPassword } from './passwords.js';

export interface SecondFactorServices {
  readonly logins: Logins;
  readonly loginLimit: LoginLimit;
}

/** Nothing is stored yet: the secret counts once its owner has shown to hold it. */
export async function generateSecondFactor(
  user: string,
  password: string,
  address: string,
  { logins, loginLimit }: SecondFactorServices,
): Promise<SecondFactor> {
  const account = await accountOf(user, logins);
  await loginLimit.attempt(address);
  if (!(await verifyPassword(account.password, password, address))) throw invalidCredentials();
  await loginLimit.forgive(address);
  if (account.tfa_secret !== null) throw invalidPayload('A second factor is already active');
  return makeSecondFactor('Lateral', account.email);
}

export async function enableSecondFactor(
  user: string,
  secret: string,
  otp: string,
  { logins }: SecondFactorServices,
): Promise<void> {
  const account = await accountOf(user, logins);
  if (account.tfa_secret !== null) throw invalidPayload('A second factor is already active');
  if (!isSecret(secret)) throw invalidPayload('"secret" must come from POST /users/me/tfa/generate');
  if (stepOf(secret, otp) === null) throw invalidPayload('"otp" is wrong');
  await logins.setSecondFactor(account.id, secret);
}

export async function disableSecondFactor(
  user: string,
  otp: string,
  address: string,
  { logins, loginLimit }: SecondFactorServices,
): Promise<void> {
  const account = await accountOf(user, logins);
  if (account.tfa_secret === null) throw invalidPayload('No second factor is active');
  await loginLimit.attempt(address);
  const step = stepOf(account.tfa_secret, otp);
  if (step === null || !(await logins.useStep(account.id, step))) throw invalidPayload('"otp" is wrong');
  await loginLimit.forgive(address);
  await logins.setSecondFactor(account.id, null);
}

async function accountOf(user: string, logins: Logins): Promise<LoginAccount> {
  const account = await logins.get(user);
  if (!account) throw invalidCredentials();
  return account;
}

const PERIOD_S = 30;
/** Steps that a clock may be off, either way. */
const WINDOW_STEPS = 1;

interface SecondFactor {
  readonly secret: string;
  readonly otpauth_url: string;
}

function makeSecondFactor(issuer: string, label: string): SecondFactor {
  const secret = new Secret({ size: 20 });
  return { secret: secret.base32, otpauth_url: totpOf(secret, issuer, label).toString() };
}

/** Base32 of at least ten bytes. */
function isSecret(text: string): boolean {
  return /^[A-Z2-7]{16,128}$/.test(text);
}

/** The time step of a one-time password, or null if the password is wrong. Each step can be used once. */
export function stepOf(secret: string, otp: string): number | null {
  if (!/^\d{6}$/.test(otp) || !isSecret(secret)) return null;
  const now = Date.now();
  const delta = totpOf(Secret.fromBase32(secret)).validate({ token: otp, timestamp: now, window: WINDOW_STEPS });
  return delta === null ? null : Math.floor(now / 1_000 / PERIOD_S) + delta;
}

function totpOf(secret: Secret, issuer = '', label = ''): TOTP {
  return new TOTP({ issuer, label, algorithm: 'SHA1', digits: 6, period: PERIOD_S, secret });
}
