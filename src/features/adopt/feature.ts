/** Takes over an installation of Directus in the same database. */
import type { Feature } from '../../server/feature/feature.js';
import { files } from '../files/feature.js';
import { versions } from '../versions/feature.js';

export const adopt: Feature = {
  name: 'adopt',
  needs: [files, versions],
  tables: { migrations: ['016_adoption.sql'] },
  commands: {
    adopt: {
      topic: 'Data and schema',
      about: 'takes over an installation of Directus in the same database',
      load: async () => (await import('./command.js')).COMMANDS.adopt,
    },
  },
};
