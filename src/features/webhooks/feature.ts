/** Sends changes of items to URLs of others. */
import type { Feature } from '../../server/feature/feature.js';
import { LOG_EVENTS, type WebhookLogEvent } from './log-events.js';
import { OPTIONS } from './options.js';

export const webhooks: Feature<unknown, typeof OPTIONS, WebhookLogEvent> = {
  name: 'webhooks',
  options: OPTIONS,
  topic: 'Webhooks',
  events: LOG_EVENTS,
  tables: {
    migrations: ['028_webhooks.sql', '031_webhook_sizes.sql', '032_webhook_headers.sql'],
    resources: [
      { name: 'webhooks', kind: 'write', sdk: false },
      { name: 'webhook_deliveries', kind: 'read', sdk: false },
    ],
  },
  commands: {
    webhooks: {
      topic: 'Serve',
      about: 'lists, tests and pauses webhooks, and sends deliveries again',
      load: async () => (await import('./command.js')).COMMANDS.webhooks,
    },
  },
  hooks: async (config) => {
    const { webhookWrites } = await import('./webhook-writes.js');
    return [
      webhookWrites({
        maxBacklog: config.WEBHOOK_MAX_BACKLOG,
        maxPayload: config.WEBHOOK_MAX_PAYLOAD,
        allowLocal: config.WEBHOOKS_ALLOW_LOCAL,
      }),
    ];
  },
  open: async (context) => (await import('./part.js')).openWebhooks(context),
  openOnce: async ({ database, broadcast }) => {
    const { listen } = await import('../../server/postgres/catalog/catalog.js');
    // Threads look for changes by themselves while no notifications arrive.
    return listen(database, 'service_webhooks', () => void broadcast('wake'), { stale: () => {} });
  },
};
