/** Starts a PostgreSQL of its own where no DATABASE_URL is set. */
import type { Feature } from '../../server/feature/feature.js';

export const embedded: Feature = {
  name: 'embedded',
};
