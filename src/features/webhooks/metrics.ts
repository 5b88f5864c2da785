/** The metrics of webhooks. */
import { counter, gauge, type Metric } from '../../server/api/server/metric.js';
import type { Webhooks } from './webhooks.js';

/** Every thread sees the same backlog. */
export function webhookMetrics({ stats, backlog }: Webhooks): Metric[] {
  const shared = (name: string, help: string, value: number): Metric => ({
    ...gauge(name, help, value),
    aggregator: 'max',
  });
  return [
    shared('lateral_webhook_changes', 'Changes that are not deliveries yet.', backlog.changes),
    shared('lateral_webhook_pending', 'Deliveries that are not finished.', backlog.pending),
    shared('lateral_webhook_dead', 'Deliveries that failed for good and are kept.', backlog.dead),
    shared('lateral_webhook_incomplete', 'Webhooks that have missed changes.', backlog.incomplete),
    shared('lateral_webhook_oldest_seconds', 'Age of the oldest change that is not delivered.', backlog.oldest),
    counter('lateral_webhook_delivered_total', 'Deliveries that a receiver accepted.', stats.delivered),
    counter('lateral_webhook_failed_total', 'Attempts of deliveries that failed.', stats.failed),
  ];
}
