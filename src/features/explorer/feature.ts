/** Pages in the browser that show the data, the SQL of each request, the model and the permissions. */
import type { Feature } from '../../server/feature/feature.js';
import { OPTIONS } from './options.js';

export const explorer: Feature<unknown, typeof OPTIONS> = {
  name: 'explorer',
  options: OPTIONS,
  topic: 'Start',
  announce: ({ EXPLORER }) =>
    EXPLORER
      ? 'Open it in a browser: the Explorer shows the data, the SQL of each request, the model and who may see it.'
      : null,
  open: async ({ config }) => {
    const { explorerRoutes, idePage, ideRoutes } = await import('./pages.js');
    const ide = config.GRAPHQL_INTROSPECTION;
    return {
      ...(config.EXPLORER && { accountPages: ['/explorer'] }),
      routes: [...(config.EXPLORER ? explorerRoutes() : []), ...(ide ? ideRoutes() : [])],
      ...(ide && { graphqlPage: idePage }),
    };
  },
};
