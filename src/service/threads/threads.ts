/**
 * The threads that serve, as the main thread sees them: itself (single-thread.ts) or several others (worker-pool.ts). Changes are
 * broadcast to them, and what one of them changes is in force in all before its request is answered.
 */

import type { Gather } from '../../api/server/metrics.js';
import type { Event } from '../../base/observe.js';
import type { Config } from '../../config/config.js';
import type { Limits } from '../../http/limiter.js';
import type { Mirror } from '../../mirror/watch.js';
import type { Health } from '../../postgres/health.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Replicas } from '../../postgres/replicas/replicas.js';
import type { Broadcast } from '../app.js';

/** The database schema as the mirror has it, as JSON, and the version of its model. */
export interface SchemaBroadcast {
  readonly kind: 'schema';
  readonly text: string;
  readonly version: number;
}

/** `serving`: all that a start has to do is done, and requests are answered from now on. */
export type MainBroadcast = Broadcast | SchemaBroadcast | { readonly kind: 'serving' };

/** What there is once, however many threads serve. */
export interface MainContext {
  readonly database: Database;
  readonly databaseUrl: string;
  readonly mirror: Mirror;
  /** Null where there are none. */
  readonly replicas: Replicas | null;
  readonly secret: string;
  readonly limits: Limits;
  readonly events: ReadonlyMap<Event['kind'], number>;
  /** Reads the policies again and broadcasts them. */
  accessChanged(): Promise<void>;
}

export interface Threads {
  /** Resolves when every thread has applied it. */
  broadcast(message: MainBroadcast): Promise<void>;
  /** Listens, and answers 503 until `serving` is broadcast; returns the URL. */
  serve(main: MainContext): Promise<string>;
  /** What each thread has counted; nothing before they serve. */
  readonly gather: Gather;
  /** Of all threads. */
  readonly health: () => Promise<Health>;
  /** Goes on serving, but is not ready any more, and answers close their connections. */
  drain(): void;
  /** Stops accepting, finishes what runs. */
  stop(): Promise<void>;
  /** Resolves if a thread dies: then the service as a whole is of no use any more. */
  readonly failure: Promise<Error>;
}

export function urlOf({ HOST }: Pick<Config, 'HOST'>, port: number): string {
  const host = HOST.includes(':') ? `[${HOST}]` : HOST;
  return `http://${host}:${port}`;
}
