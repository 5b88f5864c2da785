/** The metric of recordings. */
import { gauge, type Metric } from '../../server/api/server/metric.js';
import type { TrafficRecorder } from './recorder.js';

/** All threads have the same recordings. */
export function recordingMetric({ current }: TrafficRecorder): Metric {
  const help = 'Recordings of the traffic that are running.';
  return { ...gauge('lateral_traffic_recordings', help, current?.length ?? 0), aggregator: 'max' };
}
