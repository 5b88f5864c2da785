/** Live queries in one serving thread. */

import type { FeatureContext, FeaturePart } from '../../server/feature/feature.js';
import { liveOperation } from './graphql-live.js';
import { eventStream, waitForChange } from './item-streams.js';
import { LiveQueries } from './live-queries.js';
import { liveMetrics } from './metrics.js';
import type { OPTIONS } from './options.js';

export async function openLive({
  config,
  core,
  identities,
}: FeatureContext<typeof OPTIONS>): Promise<FeaturePart<LiveQueries> | null> {
  const { reads, changes } = core;
  if (changes === null) return null;
  const limits = {
    interval: config.LIVE_INTERVAL,
    subscriptions: config.LIVE_MAX_SUBSCRIPTIONS,
    perCaller: config.LIVE_MAX_SUBSCRIPTIONS_PER_USER,
    keys: config.LIVE_MAX_REMEMBERED_KEYS,
  };
  const live = new LiveQueries({ ...core, changes }, limits);
  return {
    exports: live,
    live: {
      obstacle: () => changes.obstacle(),
      stream: (exchange, parse) => eventStream(exchange, { live, identities }, parse),
      wait: (exchange, parse, seconds) => waitForChange(exchange, { live, identities }, parse, seconds),
      run: (operation, caller) => liveOperation(operation, caller, { live, reads, identities }),
    },
    metrics: () => liveMetrics(live),
    onAccessChange: () => live.rightsChanged(),
    onSessionsEnded: () => live.sessionsEnded(),
    stop: async () => live.stop(),
  };
}
