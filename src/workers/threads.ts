/**
 * Who serves, as the centre of the service sees it: one thread (alone.ts) or several (crew.ts). The centre has what there is
 * only once; threads are told what has changed, and what one of them changes is in force in all before it is answered.
 */
import type { Config } from '../config.js';
import type { Limits } from '../http/limiter.js';
import type { Mirror } from '../mirror/watch.js';
import type { Event } from '../observe.js';
import type { Database } from '../postgres/database.js';
import type { Health } from '../postgres/health.js';
import type { Gather } from '../resources/metrics.js';
import type { Broadcast } from '../worker-app.js';

/** The structure as the mirror has it, as JSON, and the version of its model. */
export interface StructureNews {
  readonly kind: 'structure';
  readonly text: string;
  readonly version: number;
}

export type CentralNews = Broadcast | StructureNews;

export interface Centre {
  readonly database: Database;
  readonly databaseUrl: string;
  readonly mirror: Mirror;
  readonly secret: string;
  readonly limits: Limits;
  readonly events: ReadonlyMap<Event['kind'], number>;
  /** Reads the policies again and lets all threads know. */
  accessChanged(): Promise<void>;
}

export interface Threads {
  /** Resolves when every thread has taken it. */
  tell(news: CentralNews): Promise<void>;
  /** Begins to serve; answers the address. */
  serve(centre: Centre): Promise<string>;
  /** What each thread has counted; nothing before they serve. */
  readonly gather: Gather;
  /** Of all threads. */
  readonly health: () => Promise<Health>;
  /** Stops accepting, finishes what runs. */
  stop(): Promise<void>;
  /** Resolves if a thread dies: then the service as a whole is of no use any more. */
  readonly failure: Promise<Error>;
}

export function urlOf({ HOST }: Pick<Config, 'HOST'>, port: number): string {
  const host = HOST.includes(':') ? `[${HOST}]` : HOST;
  return `http://${host}:${port}`;
}
