/**
 * How a service executes reads and writes fast: batches of reads and of writes, plans per value, replicas, and results in memory. The
 * server knows the executors as interfaces.
 */

import { isMainThread } from 'node:worker_threads';
import { StartError } from '../../base/errors.js';
import type { Metric } from '../../server/api/server/metric.js';
import type { Config } from '../../server/config/config.js';
import type { Consistency } from '../../server/execute/consistency.js';
import { PlainReads } from '../../server/execute/reads/plain-reads.js';
import type { ReadExecutor } from '../../server/execute/reads/read-executor.js';
import type { WriteExecutor } from '../../server/execute/writes/write-executor.js';
import type { Revisions } from '../../server/http/reply-memory.js';
import type { RequestRecorder } from '../../server/http/request-recorder.js';
import type { Checks } from '../../server/postgres/health.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { ExecutorSources, Executors } from '../../server/threads/executors.js';
import { BatchedReads } from '../batching/batched-reads.js';
import { ReadBatcher } from '../batching/read-batcher.js';
import { WriteBatcher } from '../batching/write-batcher.js';
import { CachedReads } from '../cache/cached-reads.js';
import { Freshness } from '../cache/freshness.js';
import { KeptReplies } from '../cache/kept-replies.js';
import { ReadCache } from '../cache/read-cache.js';
import { PlanChoices } from '../plan-choices/plan-choices.js';
import { ReplicaReads } from '../replicas/replica-reads.js';
import { cacheMetrics, checkCache, replicaMetrics } from './metrics.js';
import { SessionConsistency } from './session-consistency.js';
import type { SpeedState } from './speed-state.js';

export class FastExecutors implements Executors {
  readonly reads: ReadExecutor;
  readonly consistency: Consistency | null;
  readonly writes: WriteExecutor | null;
  readonly #memory: ReadCache | null;
  readonly #freshness: Freshness | null;
  #replicaReads: ReplicaReads | null = null;

  constructor(
    config: Config,
    sources: ExecutorSources,
    private readonly shared: SpeedState,
  ) {
    const { database, mirror, policies, changes, shapeStats } = sources;
    const { replicas, callerWrites } = shared;
    const limits = { size: config.READ_CACHE_SIZE, maxLag: config.READ_CACHE_MAX_LAG };
    if (callerWrites && !changes) throw new StartError('READ_CACHE_SIZE needs the feature "change-stream"');
    const memory = callerWrites && new ReadCache(limits, callerWrites, shapeStats);
    this.#memory = memory;
    this.#freshness = memory && changes && new Freshness(database, changes, memory);
    for (const source of [mirror, policies]) source.onChange(() => memory?.clear());
    this.reads = this.#executorOf(config, sources, new PlainReads(database, shapeStats));
    this.consistency = replicas || callerWrites ? new SessionConsistency(database, replicas, callerWrites) : null;
    this.writes = config.WRITE_BATCHING
      ? new WriteBatcher((work, caller) => database.sessions.use(work, { caller }))
      : null;
  }

  /** The layers from the innermost on: each has the former as the executor inside. */
  #executorOf(config: Config, { database, mirror, shapeStats, budgets }: ExecutorSources, plain: ReadExecutor) {
    const batcherOf = ({ readConnections }: Database): ReadBatcher =>
      new ReadBatcher(readConnections, config.READ_BATCHING, database.waitTimeout, shapeStats);
    const batcher = batcherOf(database);
    database.readQueue = batcher;
    batcher.answeredFromMemory = () => this.#memory?.hits ?? 0;
    const layers: readonly ((next: ReadExecutor) => ReadExecutor)[] = [
      (next) => new BatchedReads(next, batcher),
      (next) => {
        const { replicas } = this.shared;
        this.#replicaReads = replicas && new ReplicaReads(next, replicas, batcher, batcherOf);
        return this.#replicaReads ?? next;
      },
      (next) => {
        const choices = new PlanChoices(next, database, budgets, config.STATISTICS_POLL_INTERVAL);
        mirror.onChange(() => choices.statistics.forget());
        return choices;
      },
      (next) => (this.#memory ? new CachedReads(next, this.#memory) : next),
    ];
    return layers.reduce((next, layer) => layer(next), plain);
  }

  metrics(): readonly Metric[] {
    return [
      ...(this.#replicaReads ? replicaMetrics(this.#replicaReads) : []),
      ...(this.#memory ? cacheMetrics(this.#memory) : []),
    ];
  }

  /** The health of the cache and of the replicas, which one thread watches for all. */
  checks(): Checks {
    return {
      ...(isMainThread ? this.shared.checks() : {}),
      ...(this.#memory ? { 'live:cache': [checkCache(this.#memory)] } : {}),
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
    this.#memory?.clear();
  }

  apply(message: string): void {
    this.shared.apply(message);
  }

  replies(revisions: Revisions, recorder: RequestRecorder): KeptReplies {
    return new KeptReplies(this.#memory, revisions, recorder);
  }
}
