/** Live queries in one serving thread. */

import type { FeatureContext, FeaturePart } from '../../server/feature/feature.js';
import { ReadCache } from '../../speed/cache/read-cache.js';
import { liveOperation } from './graphql-live.js';
import { eventStream, waitForChange } from './item-streams.js';
import { LiveQueries } from './live-queries.js';
import { liveMetrics } from './metrics.js';
import type { OPTIONS } from './options.js';

export async function openLive({
  config,
  core,
  identities,
  observe,
}: FeatureContext<typeof OPTIONS>): Promise<FeaturePart<LiveQueries>> {
  const limits = {
    mode: config.LIVE,
    interval: config.LIVE_INTERVAL,
    maxWal: config.LIVE_MAX_WAL,
    subscriptions: config.LIVE_MAX_SUBSCRIPTIONS,
    perCaller: config.LIVE_MAX_SUBSCRIPTIONS_PER_USER,
    keys: config.LIVE_MAX_REMEMBERED_KEYS,
  };
  const { mirror, reads } = core;
  const cache = reads.memory instanceof ReadCache ? reads.memory : null;
  const live = new LiveQueries({ ...core, cache }, limits, observe);
  await live.startCache();
  return {
    exports: live,
    live: {
      obstacle: () => live.obstacle(),
      stream: (exchange, parse) => eventStream(exchange, { live, identities }, parse),
      wait: (exchange, parse, seconds) => waitForChange(exchange, { live, identities }, parse, seconds),
      run: (operation, caller) => liveOperation(operation, caller, { live, reads, identities }),
    },
    watchChanges: (listener) => live.watchChanges(mirror, listener),
    metrics: () => liveMetrics(live),
    check: () => live.check(),
    onAccessChange: () => live.rightsChanged(),
    onSessionsEnded: () => live.sessionsEnded(),
    stop: () => live.stop(),
  };
}
