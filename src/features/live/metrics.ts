/** The metrics of live queries. */

import { counter, gauge, histogramValues, type Metric } from '../../server/api/server/metric.js';
import type { LiveQueries } from './live-queries.js';
import { LAG_BOUNDS_S } from './live-stats.js';

export function liveMetrics({ subscriptions, topics, stats }: LiveQueries): Metric[] {
  const name = 'lateral_live_lag_seconds';
  const help = 'The time from the commit of a change until an answer with it was sent to its subscribers.';
  const lags = histogramValues(name, { bounds: LAG_BOUNDS_S, buckets: stats.lags, sum: stats.lagSum }, {});
  return [
    gauge('lateral_live_subscriptions', 'Live queries.', subscriptions),
    gauge('lateral_live_topics', 'Live queries that differ in their statement or values.', topics.size),
    gauge('lateral_live_shapes', 'Statements of live queries.', topics.shapes),
    counter(
      'lateral_live_transactions_total',
      'Transactions that changed what a live query reads.',
      stats.transactions,
    ),
    counter('lateral_live_reads_total', 'Reads of live queries.', stats.reads),
    counter('lateral_live_unchanged_total', 'Reads of live queries with the same answer as before.', stats.unchanged),
    counter('lateral_live_answers_total', 'Answers that were sent to subscribers.', stats.sent),
    counter('lateral_live_dropped_total', 'Answers that a newer one replaced before they were sent.', stats.dropped),
    counter('lateral_live_resyncs_total', 'Times that all live queries were read again.', stats.resyncs),
    { name, help, type: 'histogram', aggregator: 'sum', values: lags },
  ];
}
