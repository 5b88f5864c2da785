/** The second factor of an account: made, confirmed, and given up. */

import { invalidCredentials, invalidPayload } from '../base/errors.js';
import type { LoginLimit } from './login-backoff.js';
import type { LoginAccount, Logins } from './logins.js';
import { isSecret, makeSecondFactor, type SecondFactor, stepOf } from './otp.js';
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
