/** The second factor: time-based one-time passwords as every authenticator application makes them (SHA-1, 6 digits, 30 s). */
import { Secret, TOTP } from 'otpauth';

const PERIOD_S = 30;
/** Steps that a clock may be off, either way. */
const WINDOW_STEPS = 1;

export interface SecondFactor {
  readonly secret: string;
  readonly otpauth_url: string;
}

export function makeSecondFactor(issuer: string, label: string): SecondFactor {
  const secret = new Secret({ size: 20 });
  return { secret: secret.base32, otpauth_url: totpOf(secret, issuer, label).toString() };
}

/** Base32 of at least ten bytes. */
export function isSecret(text: string): boolean {
  return /^[A-Z2-7]{16,128}$/.test(text);
}

/** The step that a password belongs to: each is good once. Null for a wrong one. */
export function stepOf(secret: string, otp: string): number | null {
  if (!/^\d{6}$/.test(otp) || !isSecret(secret)) return null;
  const now = Date.now();
  const delta = totpOf(Secret.fromBase32(secret)).validate({ token: otp, timestamp: now, window: WINDOW_STEPS });
  return delta === null ? null : Math.floor(now / 1_000 / PERIOD_S) + delta;
}

function totpOf(secret: Secret, issuer = '', label = ''): TOTP {
  return new TOTP({ issuer, label, algorithm: 'SHA1', digits: 6, period: PERIOD_S, secret });
}
