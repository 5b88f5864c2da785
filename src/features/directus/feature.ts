/** The names and types of Directus, for clients that were written for it. */
import type { Feature } from '../../server/feature/feature.js';

export const directus: Feature = {
  name: 'directus',
  commands: {
    types: {
      topic: 'Data and schema',
      about: 'prints the collections as a TypeScript schema for @directus/sdk',
      load: async () => (await import('./types-command.js')).COMMANDS.types,
    },
  },
};
