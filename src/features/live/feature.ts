/** Live queries: clients learn about changes of the items that they have read. */
import type { Feature } from '../../server/feature/feature.js';
import { extensions } from '../extensions/feature.js';

export const live: Feature = {
  name: 'live',
  needs: [extensions],
  commands: {
    live: {
      topic: 'Serve',
      about: "creates or drops the triggers for live queries without PostgreSQL's log",
      load: async () => (await import('./command.js')).COMMANDS.live,
    },
  },
};
