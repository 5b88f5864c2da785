/** Webhooks in one serving thread. */
import { parseLimits } from '../../server/config/parse-limits.js';
import type { FeatureContext, FeaturePart } from '../../server/feature/feature.js';
import type { WebhookLogEvent } from './log-events.js';
import { webhookMetrics } from './metrics.js';
import type { OPTIONS } from './options.js';
import { webhookRoutes, withNewSecrets } from './webhook-routes.js';
import { Webhooks } from './webhooks.js';

export function openWebhooks({
  config,
  core,
  identities,
  observe,
}: FeatureContext<typeof OPTIONS, WebhookLogEvent>): FeaturePart {
  const options = {
    parse: parseLimits(config),
    concurrency: config.WEBHOOK_CONCURRENCY,
    timeout: config.WEBHOOK_TIMEOUT,
    delays: config.WEBHOOK_RETRY_DELAYS,
    maxBacklog: config.WEBHOOK_MAX_BACKLOG,
    maxPayload: config.WEBHOOK_MAX_PAYLOAD,
    allowLocal: config.WEBHOOKS_ALLOW_LOCAL,
    retention: config.WEBHOOK_RETENTION,
  };
  const webhooks = new Webhooks(core, options, observe);
  const { database } = core;
  return {
    routes: webhookRoutes({ identities, database, webhooks }),
    resources: { webhooks: (usual) => withNewSecrets(usual, database) },
    metrics: () => webhookMetrics(webhooks),
    check: () => webhooks.check(),
    onBroadcast: () => webhooks.wake(),
    onReload: () => webhooks.wake(),
    start: () => webhooks.start(),
    stop: () => webhooks.stop(),
  };
}
