/** Prints the catalog of a database, from which `lateral/compiler` compiles requests without it. */
import type { Feature } from '../../server/feature/feature.js';

export const catalog: Feature = {
  name: 'catalog',
  commands: {
    catalog: {
      topic: 'Data and schema',
      about: 'prints the tables and the metadata as JSON for lateral/compiler',
      load: async () => (await import('./command.js')).COMMANDS.catalog,
    },
  },
};
