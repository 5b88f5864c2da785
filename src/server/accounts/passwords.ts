/** Passwords: stored as argon2id hashes, and checked against the policy of the settings. */
import { randomBytes } from 'node:crypto';
import { Worker } from 'node:worker_threads';
import { requestsExceeded, ServiceError, serviceUnavailable, unprocessable } from '../../base/errors.js';
import { growingCache } from '../../base/growing-cache.js';
import { networkOf } from '../access/addresses.js';

interface HashLimits {
  readonly atOnce: number;
  /** Waiting, of all sources and of one source. */
  readonly waiting: number;
  readonly waitingPerSource: number;
  /** A hash that has waited longer is refused. */
  readonly maxWaitMs: number;
}

/** After this time half of a source's hashes are forgotten. */
const HALF_LIFE_MS = 10_000;
const MAX_REMEMBERED = 10_000;

interface Waiting {
  readonly source: string;
  readonly hasLeft: () => boolean;
  readonly begin: () => void;
  readonly refuse: (error: Error) => void;
}

/**
 * The queue of passwords that wait to be hashed. A hash keeps a processor busy for tens of milliseconds by design, so only a few run at the
 * same time, and only so many wait. The next one is that of the source with the fewest hashes of late: a source that sends many at
 * once delays itself, and hardly anybody else.
 */
class HashQueue {
  /** In the order of arrival. */
  readonly #waiting = new Set<Waiting>();
  /** The hashes that sources have asked for lately, and when the last one was. */
  readonly #recent = growingCache<{ count: number; at: number }>(MAX_REMEMBERED);
  #running = 0;

  constructor(private readonly limits: HashLimits) {}

  /** `address` is the client's; '' for the service itself. Rejects at once where too many wait, and after the longest wait. */
  async run<Result>(address: string, hasLeft: () => boolean, work: () => Promise<Result>): Promise<Result> {
    const source = networkOf(address);
    this.#count(source);
    if (this.#running < this.limits.atOnce) this.#running++;
    else await this.#wait(source, hasLeft);
    try {
      return await work();
    } finally {
      // On the next turn of the event loop: without the native library, hashes block it.
      setImmediate(() => this.#next());
    }
  }

  #wait(source: string, hasLeft: () => boolean): Promise<void> {
    this.#makeRoom(source);
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(entry);
      };
      const entry: Waiting = {
        source,
        hasLeft,
        begin: () => {
          settle();
          resolve();
        },
        refuse: (error) => {
          settle();
          reject(error);
        },
      };
      const timer = setTimeout(() => entry.refuse(tooMany()), this.limits.maxWaitMs);
      this.#waiting.add(entry);
    });
  }

  /** If the queue is full, removes the last hash of the busiest source, unless the new hash has the same source. */
  #makeRoom(source: string): void {
    const { waiting, waitingPerSource } = this.limits;
    const own = [...this.#waiting].filter((each) => each.source === source).length;
    if (own >= waitingPerSource) throw requestsExceeded({ limit: waitingPerSource }, RETRY_MS);
    if (this.#waiting.size < waiting) return;
    const last = this.#busiest();
    if (!last || this.#load(last.source) <= this.#load(source)) throw tooMany();
    last.refuse(requestsExceeded({ limit: waiting }, RETRY_MS));
  }

  #busiest(): Waiting | null {
    let found: Waiting | null = null;
    for (const each of this.#waiting) if (!found || this.#load(each.source) >= this.#load(found.source)) found = each;
    return found;
  }

  #next(): void {
    let found: Waiting | null = null;
    for (const each of this.#waiting) {
      if (each.hasLeft()) each.refuse(tooMany());
      else if (!found || this.#load(each.source) < this.#load(found.source)) found = each;
    }
    if (found) found.begin();
    else this.#running--;
  }

  #load(source: string): number {
    const recent = this.#recent.get(source);
    return recent ? recent.count * 0.5 ** ((performance.now() - recent.at) / HALF_LIFE_MS) : 0;
  }

  #count(source: string): void {
    this.#recent.set(source, { count: this.#load(source) + 1, at: performance.now() });
  }
}

const RETRY_MS = 1_000;

const tooMany = (): Error => serviceUnavailable('passwords', 'Too many passwords are waiting to be checked');

/** Logins, and passwords that users choose for themselves. */
const logins = new HashQueue({ atOnce: 2, waiting: 64, waitingPerSource: 32, maxWaitMs: 10_000 });

/** Hashed values in items. The callers were allowed to write them, and a request may have thousands, two at a time. */
const writes = new HashQueue({ atOnce: 2, waiting: 1_000, waitingPerSource: 500, maxWaitMs: 30_000 });

const neverLeaves = (): boolean => false;

/** Hashes a password for the client at `address`, in turn with the others that wait. */
export function hashPassword(password: string, address: string): Promise<string> {
  return logins.run(address, neverLeaves, async () => (await argon2()).hash(password));
}

export function hashWritten(secret: string, address: string): Promise<string> {
  return writes.run(address, neverLeaves, async () => (await argon2()).hash(secret));
}

let unusedHash: Promise<string> | null = null;

/** Takes as long for a user who does not exist, or has no password, as for one who does. */
export function verifyPassword(stored: string | null, password: string, address: string): Promise<boolean> {
  return logins.run(address, neverLeaves, () => matchesHash(stored, password));
}

interface Visitor {
  readonly ip: string;
  /** Whether the client has disconnected. */
  hasLeft(): boolean;
}

/** Looks the account up when its turn has come: a flood of logins must not fill the connections either. */
export function verifyAccount<Account extends { readonly password: string | null }>(
  find: () => Promise<Account | null>,
  password: string,
  { ip, hasLeft }: Visitor,
): Promise<{ account: Account | null; matches: boolean }> {
  return logins.run(ip, hasLeft, async () => {
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

/** Checks that wait for their turn: each may take as long as a pattern may. */
const MAX_WAITING = 32;

let last: Promise<unknown> = Promise.resolve();
let waiting = 0;

/**
 * In a thread of its own, one after the other: a pattern that backtracks without an end blocks no request and can be stopped. The
 * patterns are those of JavaScript, as clients write them; PostgreSQL reads some of them otherwise.
 */
function matches({ source, flags }: RegExp, texts: readonly string[]): Promise<boolean> {
  if (waiting >= MAX_WAITING)
    return Promise.reject(serviceUnavailable('passwords', 'Too many passwords are waiting to be checked'));
  waiting++;
  const result = last
    .then(() => match({ source, flags, texts }))
    .finally(() => {
      waiting--;
    });
  last = result.catch(() => {});
  return result;
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
