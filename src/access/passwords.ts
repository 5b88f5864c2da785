/** Passwords are kept as argon2id hashes, with the library's defaults (19 MiB, two passes). */
import { randomBytes } from 'node:crypto';
import { Worker } from 'node:worker_threads';
import { hash, verify } from '@node-rs/argon2';
import { ServiceError, serviceUnavailable, unprocessable } from '../errors.js';

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

/** Rejects where a password does not meet the policy. */
export async function assertPassword(policy: string | null, ...passwords: readonly string[]): Promise<void> {
  const pattern = readPolicy(policy);
  if (pattern === undefined) throw unprocessable('The setting "auth_password_policy" is not a regular expression');
  if (pattern === null || (await matches(pattern, passwords))) return;
  const extensions = { collection: 'service_users', field: 'password', type: 'regex', path: [] };
  throw new ServiceError(
    'FAILED_VALIDATION',
    'Validation failed for field "password". Value doesn\'t have the correct format.',
    extensions,
  );
}

/** Milliseconds that a pattern may take: some take longer than a lifetime for a text of thirty characters. */
const PATTERN_TIME = 500;
/** And that a thread may take to begin, on a busy machine. */
const START_TIME = 10_000;

const TEST = `
  const { parentPort, workerData: { source, flags, texts } } = require('node:worker_threads');
  const pattern = new RegExp(source, flags);
  parentPort.postMessage(texts.every((text) => text.search(pattern) >= 0));
`;

/** Checks that wait for their turn: each may take as long as a pattern may. */
const MOST_WAITING = 32;

let last: Promise<unknown> = Promise.resolve();
let waiting = 0;

/**
 * In a thread of its own, one after the other: a pattern that backtracks without an end blocks nobody and can be stopped. The
 * patterns are those of JavaScript, as clients write them; PostgreSQL reads some of them otherwise.
 */
function matches({ source, flags }: RegExp, texts: readonly string[]): Promise<boolean> {
  if (waiting >= MOST_WAITING)
    return Promise.reject(serviceUnavailable('passwords', 'Too many passwords wait to be checked'));
  waiting++;
  const result = last
    .then(() => test({ source, flags, texts }))
    .finally(() => {
      waiting--;
    });
  last = result.catch(() => {});
  return result;
}

interface Tested {
  readonly source: string;
  readonly flags: string;
  readonly texts: readonly string[];
}

function test(workerData: Tested): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(TEST, { eval: true, workerData, env: {} });
    const give = (outcome: () => void): void => {
      clearTimeout(timer);
      outcome();
      void worker.terminate();
    };
    const stop = (): void =>
      give(() => reject(unprocessable('The setting "auth_password_policy" takes too long to be matched')));
    let timer = setTimeout(stop, START_TIME);
    worker.once('online', () => {
      clearTimeout(timer);
      timer = setTimeout(stop, PATTERN_TIME);
    });
    worker.once('message', (met: boolean) => give(() => resolve(met)));
    worker.once('error', (error) => give(() => reject(error)));
  });
}
