/** Takes over an installation of Directus in the same database. */
import type { Feature } from '../../server/feature/feature.js';

export const adopt: Feature = {
  name: 'adopt',
  commands: {
    adopt: {
      topic: 'Data and schema',
      about: 'takes over an installation of Directus in the same database',
      load: async () => (await import('./command.js')).COMMANDS.adopt,
    },
  },
};
