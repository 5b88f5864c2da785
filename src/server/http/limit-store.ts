/**
 * Counts requests for the limits: in the memory of this instance, or in a store that several instances share. If the store fails or
 * does not answer in time, no request is refused for it: each instance uses its own counts until the store is back.
 */
import { RateLimiterMemory, RateLimiterPostgres, RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { StartError } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { within } from '../../base/time-limit.js';
import type { Config } from '../config/config.js';
import type { Database } from '../postgres/pools/database.js';

/** Rejects with a `RateLimiterRes` when there were too many. */
export interface Counter {
  readonly points: number;
  consume(key: string): Promise<unknown>;
  /** Takes one back. */
  reward(key: string): Promise<unknown>;
}

interface Counted {
  readonly name: string;
  readonly points: number;
  readonly seconds: number;
  /** Whether a key that has used up its points is refused without asking the store: not if points may be given back. */
  readonly isFinal: boolean;
}

export interface LimitStore {
  counter(counted: Counted): Counter;
  close(): Promise<void>;
}

export const memoryStore: LimitStore = { counter: inMemory, close: async () => {} };

/** Milliseconds that the store may take to answer, and the pause after a failure before it is asked again. */
const STORE_TIMEOUT_MS = 500;
const STORE_PAUSE_MS = 1_000;

export async function openLimitStore(config: Config, database: Database, observe: Observer): Promise<LimitStore> {
  if (config.RATE_LIMITER_STORE === 'memory') return memoryStore;
  const state = new StoreState(config.RATE_LIMITER_STORE, observe);
  const insured = (make: (counted: Counted) => Counter) => (counted: Counted) =>
    insure(make(counted), inMemory(counted), state);
  if (config.RATE_LIMITER_STORE === 'postgres')
    return { counter: insured((counted) => inPostgres(counted, database)), close: async () => {} };
  const url = config.RATE_LIMITER_REDIS_URL;
  if (url === null) throw new StartError('RATE_LIMITER_STORE=redis needs RATE_LIMITER_REDIS_URL');
  const { createClient } = await import('@redis/client');
  const client = createClient({
    url,
    disableOfflineQueue: true,
    socket: { connectTimeout: STORE_TIMEOUT_MS * 2, reconnectStrategy: STORE_PAUSE_MS },
  });
  client.on('error', (error: unknown) => state.failed(error));
  // The client keeps trying to connect; until then, counts are kept in memory.
  client.connect().catch((error: unknown) => state.failed(error));
  const inRedis = (counted: Counted): Counter =>
    new RateLimiterRedis({
      ...settingsOf(counted),
      storeClient: client,
      useRedisPackage: true,
      rejectIfRedisNotReady: true,
    });
  return { counter: insured(inRedis), close: async () => client.destroy() };
}

/** Deletes expired counts. */
export async function deleteExpiredCounts(database: Database): Promise<void> {
  await database.rows('delete from service_rate_limits where expire < $1', [String(Date.now())]);
}

function inMemory({ points, seconds }: Counted): Counter {
  return new RateLimiterMemory({ points, duration: seconds });
}

function settingsOf({ name, points, seconds, isFinal }: Counted) {
  const settings = { keyPrefix: `lateral:${name}`, points, duration: seconds };
  return isFinal ? { ...settings, inMemoryBlockOnConsumed: points } : settings;
}

/** The library writes the statement; the names in it are quoted there, but not escaped. */
function inPostgres(counted: Counted, database: Database): Counter {
  const query = async ({ text, values = [] }: { text: string; values?: readonly unknown[] }) => {
    const parameters = values.map((value) => (value === null ? null : String(value)));
    return { rows: await database.own.use((session) => session.query(text, parameters, { prepare: true })) };
  };
  return new RateLimiterPostgres({
    ...settingsOf(counted),
    storeClient: { query },
    storeType: 'client',
    schemaName: database.system.replaceAll('"', '""'),
    tableName: 'service_rate_limits',
    tableCreated: true,
    clearExpiredByTimeout: false,
  });
}

function insure(shared: Counter, own: Counter, state: StoreState): Counter {
  const ask = async (key: string, action: 'consume' | 'reward'): Promise<unknown> => {
    if (!state.mayAsk()) return own[action](key);
    try {
      const answer = await within(shared[action](key), STORE_TIMEOUT_MS);
      state.succeeded();
      return answer;
    } catch (error) {
      if (error instanceof RateLimiterRes) {
        state.succeeded();
        throw error;
      }
      state.failed(asError(error));
      return own[action](key);
    }
  };
  return { points: shared.points, consume: (key) => ask(key, 'consume'), reward: (key) => ask(key, 'reward') };
}

/** Whether the store answers. While it does not, one request in a while asks whether it does again, and the others do not wait. */
class StoreState {
  /** By the clock of `performance`; null while it answers. */
  #since: number | null = null;
  #next = 0;

  constructor(
    private readonly store: string,
    private readonly observe: Observer,
  ) {}

  mayAsk(): boolean {
    if (this.#since === null) return true;
    const now = performance.now();
    if (now < this.#next) return false;
    this.#next = now + STORE_PAUSE_MS;
    return true;
  }

  succeeded(): void {
    if (this.#since === null) return;
    this.observe({
      kind: 'limit-store-back',
      store: this.store,
      milliseconds: performance.now() - this.#since,
    });
    this.#since = null;
  }

  failed(error: unknown): void {
    const now = performance.now();
    this.#next = now + STORE_PAUSE_MS;
    if (this.#since !== null) return;
    this.#since = now;
    this.observe({ kind: 'limit-store-lost', store: this.store, error });
  }
}
