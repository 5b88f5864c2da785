/**
 * How a service executes reads and writes fast: batches of reads and of writes, plans per value, replicas, and results in memory. The
 * server knows the executors as interfaces.
 */

import { isMainThread } from 'node:worker_threads';
import type { Metric } from '../../server/api/server/metric.js';
import type { Config } from '../../server/config/config.js';
import type { BilledCaller } from '../../server/execute/caller-budget.js';
import type { Consistency } from '../../server/execute/consistency.js';
import type { CompiledRead } from '../../server/execute/reads/compiled-read.js';
import type {
  BoundRead,
  BoundTexts,
  ReadEngine,
  ReadExecutor,
  ReadListener,
  Shape,
} from '../../server/execute/reads/read-executor.js';
import type { WriteExecutor } from '../../server/execute/writes/write-executor.js';
import type { RequestRecorder } from '../../server/http/request-recorder.js';
import type { Checks } from '../../server/postgres/health.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { ExecutorSources, Executors } from '../../server/threads/executors.js';
import { ReadBatcher } from '../batching/read-batcher.js';
import { WriteBatcher } from '../batching/write-batcher.js';
import { Freshness } from '../cache/freshness.js';
import { KeptReplies } from '../cache/kept-replies.js';
import { ReadCache } from '../cache/read-cache.js';
import { PlanChoices } from '../plan-choices/plan-choices.js';
import { mayLieInReplica, ReplicaReads, type Streamed } from '../replicas/replica-reads.js';
import { cacheMetrics, checkCache, replicaMetrics } from './metrics.js';
import { SessionConsistency } from './session-consistency.js';
import type { SpeedState } from './speed-state.js';

export class FastExecutors implements Executors, ReadEngine {
  readonly reads = this;
  readonly memory: ReadCache | null;
  /** Remembers what callers have written. It is null if the primary answers every read. */
  readonly consistency: Consistency | null;
  /** The batches of writes, or null if each write is a statement of its own. */
  readonly writes: WriteExecutor | null;
  readonly #freshness: Freshness | null;
  readonly #plans: PlanChoices;
  readonly #replicaReads: ReplicaReads | null;
  readonly #sender: ReadExecutor;

  constructor(
    config: Config,
    private readonly sources: ExecutorSources,
    private readonly shared: SpeedState,
  ) {
    const { database, mirror, policies, changes, shapeStats, budgets } = sources;
    const { replicas, callerWrites } = shared;
    const batcherOf = ({ readConnections }: Database): ReadBatcher =>
      new ReadBatcher(readConnections, config.READ_BATCHING, database.waitTimeout, shapeStats);
    const batcher = batcherOf(database);
    database.readQueue = batcher;
    this.#replicaReads = replicas && new ReplicaReads(replicas, batcher, batcherOf);
    this.#sender = this.#replicaReads ?? batcher;
    this.#plans = new PlanChoices(database, budgets, config.STATISTICS_POLL_INTERVAL);
    mirror.onChange(() => this.#plans.statistics.forget());
    const limits = { size: config.READ_CACHE_SIZE, maxLag: config.READ_CACHE_MAX_LAG };
    const memory = callerWrites && new ReadCache(limits, callerWrites, shapeStats);
    this.memory = memory;
    this.#freshness = memory && new Freshness(database, changes, memory);
    for (const source of [mirror, policies]) source.onChange(() => memory?.clear());
    this.consistency = replicas || callerWrites ? new SessionConsistency(database, replicas, callerWrites) : null;
    this.writes = config.WRITE_BATCHING
      ? new WriteBatcher((work, caller) => database.sessions.use(work, { caller }))
      : null;
  }

  execute(read: BoundRead, listener: ReadListener): void {
    this.#sender.execute(read, listener);
  }

  shapeOf(compiled: CompiledRead, values: BoundTexts, billed: BilledCaller | null): Shape {
    return this.#plans.shapeFor(compiled, values, billed);
  }

  async settledShapeOf(compiled: CompiledRead, values: BoundTexts, billed: BilledCaller): Promise<Shape> {
    return this.#plans.chosenFor(compiled, values, billed);
  }

  chooseAgain(): void {
    this.#plans.statistics.version++;
  }

  stream<Result>(
    read: Streamed,
    run: (database: Database) => Promise<Result>,
    mayRepeat: () => boolean,
  ): Promise<Result> {
    const toPrimary = (): Promise<Result> => run(this.sources.database);
    if (this.#replicaReads === null) return toPrimary();
    return this.#replicaReads.stream(read, (replica) =>
      replica === null
        ? toPrimary()
        : run(replica.database).catch((error: unknown) => {
            if (!mayRepeat() || !mayLieInReplica(error, replica)) throw error;
            return toPrimary();
          }),
    );
  }

  metrics(): readonly Metric[] {
    return [
      ...(this.#replicaReads ? replicaMetrics(this.#replicaReads) : []),
      ...(this.memory ? cacheMetrics(this.memory) : []),
    ];
  }

  /** The health of the cache and of the replicas, which one thread watches for all. */
  checks(): Checks {
    return {
      ...(isMainThread ? this.shared.checks() : {}),
      ...(this.memory ? { 'live:cache': [checkCache(this.memory)] } : {}),
    };
  }

  /** Throws if results cannot be kept in memory, because changes are not reported. */
  async start(): Promise<void> {
    await this.#freshness?.start();
  }

  stop(): void {
    this.#freshness?.stop();
  }

  forget(): void {
    this.memory?.clear();
  }

  apply(message: string): void {
    this.shared.apply(message);
  }

  replies(generation: () => number, recorder: RequestRecorder): KeptReplies {
    return new KeptReplies(generation, recorder);
  }
}
