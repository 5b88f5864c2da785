/** Pages in the browser that show the data, the SQL of each request, the model and the permissions. */
import type { Feature } from '../../server/feature/feature.js';

export const explorer: Feature = {
  name: 'explorer',
  open: async ({ config }) => {
    const { explorerRoutes, idePage, ideRoutes } = await import('./pages.js');
    const ide = config.GRAPHQL_INTROSPECTION;
    return {
      routes: [...(config.EXPLORER ? explorerRoutes() : []), ...(ide ? ideRoutes() : [])],
      ...(ide && { graphqlPage: idePage }),
    };
  },
};
