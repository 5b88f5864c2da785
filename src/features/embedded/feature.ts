/** Starts a PostgreSQL of its own where no DATABASE_URL is set. */
import type { Feature } from '../../server/feature/feature.js';
import { type EmbeddedLogEvent, LOG_EVENTS } from './log-events.js';
import { OPTIONS } from './options.js';

/** The environment may have demands for another server. */
const OWN_PARAMETERS = '?sslmode=disable&channel_binding=disable&target_session_attrs=any';

export const embedded: Feature<unknown, typeof OPTIONS, EmbeddedLogEvent> = {
  name: 'embedded',
  options: OPTIONS,
  topic: 'Start',
  events: LOG_EVENTS,
  database: async ({ config: { DATA_DIR: directory, DEMO_DATA: loadsDemo }, observe }) => {
    const { findRunning, holdsCluster, startEmbedded } = await import('./cluster.js');
    return {
      findRunning: async () => {
        const url = await findRunning(directory);
        return url && url + OWN_PARAMETERS;
      },
      obstacle: async () => ((await holdsCluster(directory)) ? null : `DATA_DIR ${directory} has no embedded one`),
      start: async (options) => {
        const restarted = (message: string): void => observe({ kind: 'embedded-restarted', message });
        const started = await startEmbedded({ ...options, restarted, directory });
        return { ...started, url: started.url + OWN_PARAMETERS, directory, loadsDemo };
      },
    };
  },
};
