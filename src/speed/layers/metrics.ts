/** The metrics of replicas and of results in memory, and whether results can be kept. */
import { counter, gauge, labelled, type Metric, type Value } from '../../server/api/server/metric.js';
import type { Check } from '../../server/postgres/health.js';
import type { ReadCache } from '../cache/read-cache.js';
import type { ReplicaReads } from '../replicas/replica-reads.js';
import type { Replica } from '../replicas/replicas.js';

export function replicaMetrics({ counts, replicas }: ReplicaReads): Metric[] {
  const byServer = (of: 'reads' | 'statements'): Value[] =>
    counts.map((each) => ({ labels: { server: each.server }, value: each[of] }));
  const ofReplicas = (value: (replica: Replica) => number): Value[] =>
    replicas.all.map((replica) => ({ labels: { server: replica.name }, value: value(replica) }));
  const lag = ofReplicas(({ lagMs }) => lagMs / 1_000);
  const ready = ofReplicas(({ state }) => Number(state === 'ready'));
  return [
    labelled('counter', 'lateral_server_reads_total', 'Reads by server.', byServer('reads')),
    labelled('counter', 'lateral_server_statements_total', 'Statements for reads by server.', byServer('statements')),
    // All threads know the same of them.
    { ...labelled('gauge', 'lateral_replica_lag_seconds', 'Replication lag.', lag), aggregator: 'max' },
    { ...labelled('gauge', 'lateral_replica_ready', '1 while a replica gets reads.', ready), aggregator: 'max' },
  ];
}

export function cacheMetrics({
  hits,
  misses,
  evictions,
  invalidations,
  matched,
  used,
  entries,
  lag,
  pending,
}: ReadCache): Metric[] {
  const behind = 'How far answers from memory may be behind the database.';
  const held =
    'How long no answer has been kept, because transactions are open that began before changes were reported.';
  return [
    counter('lateral_read_cache_hits_total', 'Reads that were answered from memory.', hits),
    counter('lateral_read_cache_misses_total', 'Reads whose answer was not in memory.', misses),
    counter('lateral_read_cache_evictions_total', 'Answers that had to leave the memory for others.', evictions),
    counter('lateral_read_cache_invalidations_total', 'Answers that a commit may have changed.', invalidations),
    counter('lateral_read_cache_rows_total', 'Changed rows that were compared with answers.', matched.rows),
    counter('lateral_read_cache_lookups_total', 'Values of changed rows that were looked up.', matched.lookups),
    gauge('lateral_read_cache_bytes', 'Memory of the answers that are kept.', used),
    gauge('lateral_read_cache_entries', 'Answers that are kept.', entries),
    { ...gauge('lateral_read_cache_lag_seconds', behind, Math.min(lag, MAX_LAG_MS) / 1_000), aggregator: 'max' },
    { ...gauge('lateral_read_cache_held_back_seconds', held, pending.heldMs / 1_000), aggregator: 'max' },
  ];
}

/** Milliseconds: shown if the database was never compared. */
const MAX_LAG_MS = 86_400_000;

/** Milliseconds for which old transactions may keep answers out of memory. */
const MAX_HELD_MS = 10_000;

export function checkCache({ entries, pending }: ReadCache): Check {
  const found = { componentType: 'component', observedValue: entries, observedUnit: 'answers kept' };
  const { heldMs, obstacle } = pending;
  if (heldMs <= MAX_HELD_MS || obstacle === null) return { status: 'ok', ...found };
  return { status: 'degraded', ...found, output: obstacle };
}
