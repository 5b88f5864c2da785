/** The schema of a database as a file, and a database changed to match a file. */
import type { Feature } from '../../server/feature/feature.js';
import { directus } from '../directus/feature.js';
import { files } from '../files/feature.js';

export const snapshots: Feature = {
  name: 'snapshots',
  needs: [directus, files],
  commands: {
    schema: {
      topic: 'Data and schema',
      about: 'exports the schema to a file, compares it with a file, or applies a file',
      load: async () => (await import('./command.js')).COMMANDS.schema,
    },
    relations: {
      topic: 'Data and schema',
      about: 'finds the relations that foreign keys imply',
      load: async () => (await import('./command.js')).COMMANDS.relations,
    },
  },
  diagnose: async (context) => (await import('./diagnose.js')).diagnoseSnapshots(context),
  open: async ({ dialect, core: { policies, schemaChanges }, identities, use }) => {
    const config = use(files)?.config;
    if (config === undefined) return null;
    const { schemaRoutes, suggestionsRoutes } = await import('./snapshot-routes.js');
    const services = { config, isDirectus: dialect !== null, identities, policies, schemaChanges };
    return { routes: [...schemaRoutes(services), ...suggestionsRoutes(services)] };
  },
};
