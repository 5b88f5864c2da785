/** Starts a PostgreSQL of its own where no DATABASE_URL is set. */
import type { Feature } from '../../server/feature/feature.js';
import { type EmbeddedLogEvent, LOG_EVENTS } from './log-events.js';
import { OPTIONS } from './options.js';

export const embedded: Feature<unknown, typeof OPTIONS, EmbeddedLogEvent> = {
  name: 'embedded',
  options: OPTIONS,
  topic: 'Start',
  events: LOG_EVENTS,
  database: async ({ config: { DATA_DIR: directory, DEMO_DATA: loadsDemo }, observe }) => {
    const { findRunning, holdsCluster, startEmbedded } = await import('./cluster.js');
    return {
      findRunning: () => findRunning(directory),
      obstacle: async () => ((await holdsCluster(directory)) ? null : `DATA_DIR ${directory} has no embedded one`),
      start: async (options) => {
        const restarted = (message: string): void => observe({ kind: 'embedded-restarted', message });
        return { ...(await startEmbedded({ ...options, restarted, directory })), directory, loadsDemo };
      },
    };
  },
};
