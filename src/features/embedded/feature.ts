/** Starts a PostgreSQL of its own where no DATABASE_URL is set. */
import type { Feature } from '../../server/feature/feature.js';

export const embedded: Feature = {
  name: 'embedded',
  database: async () => {
    const { findRunning, holdsCluster, startEmbedded } = await import('./cluster.js');
    return {
      findRunning: ({ DATA_DIR }) => findRunning(DATA_DIR),
      exists: ({ DATA_DIR }) => holdsCluster(DATA_DIR),
      start: ({ config, ...options }) => startEmbedded({ ...options, directory: config.DATA_DIR }),
    };
  },
};
