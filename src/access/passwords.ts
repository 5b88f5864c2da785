/** Passwords are kept as argon2id hashes, with the library's defaults (19 MiB, two passes). */
import { randomBytes } from 'node:crypto';
import { hash, verify } from '@node-rs/argon2';
import { ServiceError, unprocessable } from '../errors.js';

export function hashPassword(password: string): Promise<string> {
  return hash(password);
}

let nobody: Promise<string> | null = null;

/** Takes as long for a user who does not exist, or has no password, as for one who does. */
export async function verifyPassword(stored: string | null, password: string): Promise<boolean> {
  nobody ??= hash(randomBytes(16));
  const usable = stored?.startsWith('$argon2') ? stored : null;
  const matches = await verify(usable ?? (await nobody), password).catch(() => false);
  return usable !== null && matches;
}

/** A policy is a regular expression, with or without slashes. Null for none, undefined for one that cannot be read. */
export function readPolicy(policy: string | null): RegExp | null | undefined {
  if (policy === null || policy === '') return null;
  const match = /^\/(.*)\/([a-z]*)$/s.exec(policy);
  try {
    return new RegExp(match?.[1] ?? policy, match?.[2]?.replaceAll('g', ''));
  } catch {
    return undefined;
  }
}

export function assertPassword(policy: string | null, password: string): void {
  const pattern = readPolicy(policy);
  if (pattern === undefined) throw unprocessable('The setting "auth_password_policy" is not a regular expression');
  if (pattern === null || pattern.test(password)) return;
  const extensions = { collection: 'service_users', field: 'password', type: 'regex', path: [] };
  throw new ServiceError(
    'FAILED_VALIDATION',
    'Validation failed for field "password". Value doesn\'t have the correct format.',
    extensions,
  );
}
