/** The health and the metrics of the stream of changes. */
import { counter, gauge, type Metric } from '../../server/api/server/metric.js';
import type { Changes } from '../../server/changes/changes.js';
import type { FeaturePart } from '../../server/feature/feature.js';
import type { LogFigures } from './change-source.js';
import { StreamedChanges } from './changes.js';

export function streamPart(changes: Changes | null): FeaturePart | null {
  if (!(changes instanceof StreamedChanges)) return null;
  return { check: () => changes.check(), metrics: () => logMetrics(changes.stream.figures) };
}

function logMetrics(figures: LogFigures | null): Metric[] {
  const kept = 'WAL that PostgreSQL keeps for the log streams of live queries.';
  const lag = 'How long the log stream of live queries is behind the log.';
  return [
    { ...gauge('lateral_live_wal_kept_bytes', kept, figures?.walKept ?? 0), aggregator: 'max' },
    { ...gauge('lateral_live_stream_lag_seconds', lag, (figures?.lagMs ?? 0) / 1_000), aggregator: 'max' },
    counter(
      'lateral_live_slots_replaced_total',
      'Slots of log streams that were replaced.',
      figures?.replacements ?? 0,
    ),
  ];
}
