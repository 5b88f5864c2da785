/** Live queries: clients learn about changes of the items that they have read. */
import type { Feature } from '../../server/feature/feature.js';
import { changeStream } from '../change-stream/feature.js';
import type { LiveQueries } from './live-queries.js';
import { OPTIONS } from './options.js';

export const live: Feature<LiveQueries, typeof OPTIONS> = {
  name: 'live',
  needs: [changeStream],
  options: OPTIONS,
  topic: 'Live queries and WebSockets',
  commands: {
    live: {
      topic: 'Serve',
      about: "creates or drops the triggers for live queries without PostgreSQL's log",
      load: async () => (await import('./command.js')).COMMANDS.live,
    },
  },
  open: async (context) => (await import('./part.js')).openLive(context),
};
