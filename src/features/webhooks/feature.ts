/** Sends changes of items to URLs of others. */
import type { Feature } from '../../server/feature/feature.js';

export const webhooks: Feature = {
  name: 'webhooks',
  commands: {
    webhooks: {
      topic: 'Serve',
      about: 'lists, tests and pauses webhooks, and sends deliveries again',
      load: async () => (await import('./command.js')).COMMANDS.webhooks,
    },
  },
};
