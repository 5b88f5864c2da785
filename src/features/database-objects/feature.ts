/** Indexes, check constraints and functions of the database, for administrators. */
import type { Feature } from '../../server/feature/feature.js';

export const databaseObjects: Feature = {
  name: 'database-objects',
  open: async ({ dialect, identities, core: { policies, schemaChanges } }) => {
    const { objectRoutes } = await import('./object-routes.js');
    const routes = objectRoutes({ identities, policies, schemaChanges });
    return { routes: dialect === null ? routes : dialect.schemaRoutes(routes) };
  },
};
