/** Passwords: stored as argon2id hashes, and checked against the policy of the settings. */
import { randomBytes } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { requestsExceeded, ServiceError, serviceUnavailable, unprocessable } from '../../base/errors.js';
import { growingCache } from '../../base/growing-cache.js';
import { Limiter, OWN_TURN } from '../../base/limiter.js';
import { networkOf } from '../access/addresses.js';

/** A hash keeps a processor busy for tens of milliseconds by design, so that only a few are made at the same time. */
const HASHED_AT_ONCE = 2;
const RETRY_MS = 1_000;

/** After this time half of a network's hashes are forgotten. */
const HALF_LIFE_MS = 10_000;
const MAX_REMEMBERED = 10_000;

/**
 * Hashes in turn. The network with the fewest hashes of late is next: one that sends many passwords at once delays itself, and hardly
 * anybody else.
 */
class HashQueue {
  readonly #turns: Limiter;
  /** The logarithm of the hashes of each network, plus the half-lives that have passed: so it needs no update as time passes. */
  readonly #ranks = growingCache<number>(MAX_REMEMBERED);

  constructor(limits: { readonly waitTimeout: number; readonly maxWaiting: number }) {
    const refusal = (isBusiest: boolean): Error =>
      isBusiest ? requestsExceeded({ limit: limits.maxWaiting }, RETRY_MS) : tooMany();
    this.#turns = new Limiter(HASHED_AT_ONCE, { ...limits, share: HASHED_AT_ONCE, refusal });
  }

  /** The address of the client is '' for the service itself. */
  run<Result>(client: Visitor, work: () => Promise<Result>): Promise<Result> {
    const caller = networkOf(client.ip);
    return this.#turns.run({ caller, rank: this.#count(caller), client }, () =>
      // The next one begins in another turn of the event loop: without the native library, hashes block it.
      work().finally(nextTurn),
    );
  }

  #count(network: string): number {
    const time = performance.now() / HALF_LIFE_MS;
    const rank = time + Math.log2(2 ** ((this.#ranks.get(network) ?? Number.NEGATIVE_INFINITY) - time) + 1);
    this.#ranks.set(network, rank);
    return rank;
  }
}

const tooMany = (): Error => serviceUnavailable('passwords', 'Too many passwords are waiting to be checked');

/** Logins, and passwords that users choose for themselves. */
const logins = new HashQueue({ waitTimeout: 10_000, maxWaiting: 64 });

/** Hashed values in items. The callers were allowed to write them, and a request may have thousands, two at a time. */
const writes = new HashQueue({ waitTimeout: 30_000, maxWaiting: 1_000 });

/** Hashes a password for the client at `address`, in turn with the others that wait. */
export function hashPassword(password: string, address: string): Promise<string> {
  return logins.run(waitingAt(address), async () => (await argon2()).hash(password));
}

export function hashWritten(secret: string, address: string): Promise<string> {
  return writes.run(waitingAt(address), async () => (await argon2()).hash(secret));
}

let unusedHash: Promise<string> | null = null;

/** Takes as long for a user who does not exist, or has no password, as for one who does. */
export function verifyPassword(stored: string | null, password: string, address: string): Promise<boolean> {
  return logins.run(waitingAt(address), () => matchesHash(stored, password));
}

interface Visitor {
  readonly ip: string;
  /** Whether the client has disconnected. */
  readonly aborted: boolean;
}

function waitingAt(ip: string): Visitor {
  return { ip, aborted: false };
}

/** Looks the account up when its turn has come: a flood of logins must not fill the connections either. */
export function verifyAccount<Account extends { readonly password: string | null }>(
  find: () => Promise<Account | null>,
  password: string,
  client: Visitor,
): Promise<{ account: Account | null; matches: boolean }> {
  return logins.run(client, async () => {
    const account = await find();
    return { account, matches: await matchesHash(account?.password ?? null, password) };
  });
}

async function matchesHash(stored: string | null, password: string): Promise<boolean> {
  const { hash, verify } = await argon2();
  unusedHash ??= hash(randomBytes(16));
  const usable = stored?.startsWith('$argon2') ? stored : null;
  const matches = await verify(usable ?? (await unusedHash), password).catch(() => false);
  return usable !== null && matches;
}

/**
 * argon2id with 19 MiB and two passes. The binary of a platform is an optional dependency of its package. Without it WebAssembly
 * hashes, which takes longer, and on the event loop.
 */
interface Argon2 {
  hash(password: string | Buffer): Promise<string>;
  /** Rejects what is no hash. */
  verify(hash: string, password: string): Promise<boolean>;
}

async function load(): Promise<Argon2> {
  try {
    const { hash, verify } = await import('@node-rs/argon2');
    return { hash: (password) => hash(password), verify: (stored, password) => verify(stored, password) };
  } catch {
    return loadPortable();
  }
}

export async function loadPortable(): Promise<Argon2> {
  const { argon2id, argon2Verify } = await import('hash-wasm');
  const cost = { parallelism: 1, iterations: 2, memorySize: 19_456, hashLength: 32, outputType: 'encoded' as const };
  return {
    hash: (password) => argon2id({ ...cost, password, salt: randomBytes(16) }),
    verify: (hash, password) => argon2Verify({ hash, password }),
  };
}

let loaded: Promise<Argon2> | null = null;

export function argon2(): Promise<Argon2> {
  loaded ??= load();
  return loaded;
}

/** A policy is a regular expression, with or without slashes. Returns null if there is none, and undefined if it is invalid. */
export function readPolicy(policy: string | null): RegExp | null | undefined {
  if (policy === null || policy === '') return null;
  const match = /^\/(.*)\/([a-z]*)$/s.exec(policy);
  try {
    return new RegExp(match?.[1] ?? policy, match?.[2]?.replaceAll('g', ''));
  } catch {
    return undefined;
  }
}

/** Rejects if a password does not meet the policy. */
export async function assertPassword(policy: string | null, ...passwords: readonly string[]): Promise<void> {
  const pattern = readPolicy(policy);
  if (pattern === undefined) throw unprocessable('The setting "auth_password_policy" must be a regular expression');
  if (pattern === null || (await matches(pattern, passwords))) return;
  const extensions = { collection: 'service_users', field: 'password', type: 'regex', path: [] };
  throw new ServiceError(
    'FAILED_VALIDATION',
    'Validation failed for field "password". Value doesn\'t have the correct format.',
    extensions,
  );
}

/** The time limit of a pattern: some take longer than a lifetime for a string of thirty characters. */
const MATCH_TIMEOUT_MS = 500;
/** The time limit of the start of a thread, on a busy machine. */
const START_TIMEOUT_MS = 10_000;

const MATCH_PROGRAM = `
  const { parentPort, workerData: { source, flags, texts } } = require('node:worker_threads');
  const pattern = new RegExp(source, flags);
  parentPort.postMessage(texts.every((text) => text.search(pattern) >= 0));
`;

const matchTurns = new Limiter(1, { waitTimeout: 10_000, maxWaiting: 32, refusal: tooMany });

/**
 * In a thread of its own, one after the other: a pattern that backtracks without an end blocks no request and can be stopped. The
 * patterns are those of JavaScript, as clients write them; PostgreSQL reads some of them otherwise.
 */
function matches({ source, flags }: RegExp, texts: readonly string[]): Promise<boolean> {
  return matchTurns.run(OWN_TURN, () => match({ source, flags, texts }));
}

interface MatchInput {
  readonly source: string;
  readonly flags: string;
  readonly texts: readonly string[];
}

function match(workerData: MatchInput): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(MATCH_PROGRAM, { eval: true, workerData, env: {} });
    const finish = (outcome: () => void): void => {
      clearTimeout(timer);
      outcome();
      void worker.terminate();
    };
    const stop = (): void =>
      finish(() =>
        reject(unprocessable('The regular expression in the setting "auth_password_policy" takes too long to match')),
      );
    let timer = setTimeout(stop, START_TIMEOUT_MS);
    worker.once('online', () => {
      clearTimeout(timer);
      timer = setTimeout(stop, MATCH_TIMEOUT_MS);
    });
    worker.once('message', (met: boolean) => finish(() => resolve(met)));
    worker.once('error', (error) => finish(() => reject(error)));
  });
}
