/** How a thread executes reads and writes, and what the threads of a process share for that. */

import type { Observer } from '../../base/observe.js';
import type { Policies } from '../access/policies.js';
import type { Metric } from '../api/server/metric.js';
import type { ShapeStats } from '../batching/shape-stats.js';
import type { Changes } from '../changes/changes.js';
import type { Config } from '../config/config.js';
import type { CallerBudgets } from '../execute/caller-budget.js';
import type { Consistency } from '../execute/consistency.js';
import { PlainReads } from '../execute/reads/plain-reads.js';
import type { ReadExecutor } from '../execute/reads/read-executor.js';
import type { WriteExecutor } from '../execute/writes/write-executor.js';
import type { ReplyMemory, Revisions } from '../http/reply-memory.js';
import type { RequestRecorder } from '../http/request-recorder.js';
import type { Mirror } from '../postgres/catalog/watch.js';
import type { Checks } from '../postgres/health.js';
import type { Database } from '../postgres/pools/database.js';

/** The executors of one thread. */
export interface Executors {
  readonly reads: ReadExecutor;
  /** The batches of writes, or null if each write is a statement of its own. */
  readonly writes: WriteExecutor | null;
  /** Remembers what callers have written, or null if the primary answers every read. */
  readonly consistency: Consistency | null;
  /** Keeps whole replies, or null if none are kept. */
  replies(revisions: Revisions, recorder: RequestRecorder): ReplyMemory | null;
  metrics(): readonly Metric[];
  checks(): Checks;
  /** Called before features are opened. The start fails if it rejects. */
  start(): Promise<void>;
  stop(): void;
  /** Another database may be served from now on. */
  forget(): void;
  /** Applies a message of `SharedContext.broadcast`. */
  apply(message: string): void;
}

export interface ExecutorSources {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly changes: Changes | null;
  readonly shapeStats: ShapeStats;
  readonly budgets: CallerBudgets;
}

/** The state of executors that all threads of a process share. */
export interface SharedSpeed {
  /** The copy for another thread: plain data and shared memory. */
  readonly memory: unknown;
  /** The health of what the main thread checks for all. */
  checks(): Checks;
  close(): Promise<void>;
}

export interface SharedContext extends Pick<ExecutorSources, 'database' | 'mirror'> {
  readonly config: Config;
  readonly observe: Observer;
  /** Sends to the executors of all threads. */
  broadcast(message: string): void;
}

/** `shared` is null for a command, which reads only from the primary. */
export type OpenExecutors = (config: Config, sources: ExecutorSources, shared: SharedSpeed | null) => Executors;

/** One statement for each read and each write. */
export const openPlain: OpenExecutors = (_, { database, shapeStats }) => ({
  reads: new PlainReads(database, shapeStats),
  writes: null,
  consistency: null,
  replies: () => null,
  metrics: () => [],
  checks: () => ({}),
  start: async () => {},
  stop: () => {},
  forget: () => {},
  apply: () => {},
});

export const NOTHING_SHARED: SharedSpeed = { memory: null, checks: () => ({}), close: async () => {} };
