/** The recordings of one serving thread. */
import { gauge, type Metric } from '../../server/api/server/metric.js';
import type { NoOptions } from '../../server/config/option-kinds.js';
import type { FeatureContext, FeaturePart } from '../../server/feature/feature.js';
import { loadRoutes } from './load.js';
import type { TrafficLogEvent } from './log-events.js';
import { type TrafficBatch, type TrafficPull, TrafficRecorder } from './recorder.js';
import { trafficRoutes } from './traffic.js';

export function openTraffic({
  core,
  identities,
  gather,
  observe,
  ask,
}: FeatureContext<NoOptions, TrafficLogEvent>): FeaturePart {
  const recorder = new TrafficRecorder(() => core.mirror.model);
  const pull = async (question: TrafficPull): Promise<readonly TrafficBatch[]> =>
    (await ask(question)) as readonly TrafficBatch[];
  return {
    routes: [
      ...loadRoutes({ identities, database: core.database, gather }),
      ...trafficRoutes({ identities, recorder, pull, observe }),
    ],
    recorder,
    metrics: () => [recordingMetric(recorder)],
    onQuestion: (question) => recorder.pull(question as TrafficPull),
    stop: async () => recorder.stop(),
  };
}

/** All threads have the same recordings. */
function recordingMetric({ current }: TrafficRecorder): Metric {
  const help = 'Recordings of the traffic that are running.';
  return { ...gauge('lateral_traffic_recordings', help, current?.length ?? 0), aggregator: 'max' };
}
