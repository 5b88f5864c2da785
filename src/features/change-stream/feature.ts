/** The changes of the database, as PostgreSQL commits them, for live queries, the cache of reads and programs. */
import type { Feature } from '../../server/feature/feature.js';
import { OPTIONS } from './options.js';

export const changeStream: Feature<unknown, typeof OPTIONS> = {
  name: 'change-stream',
  options: OPTIONS,
  topic: 'Live queries and WebSockets',
  diagnose: async (context) => (await import('./diagnose.js')).diagnoseLive(context),
  openChanges: async (context) => (await import('./changes.js')).openChanges(context),
  open: async ({ core: { changes } }) => (await import('./metrics.js')).streamPart(changes),
};
