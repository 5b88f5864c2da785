/** Items, live queries and GraphQL over WebSockets. */
import type { Feature } from '../../server/feature/feature.js';
import { live } from '../live/feature.js';

export const sockets: Feature = {
  name: 'sockets',
  needs: [live],
  open: async ({ config, core: { mirror, policies }, items, access, limits, observe, graphql, use }) => {
    const queries = use(live);
    if (!config.WEBSOCKETS_ENABLED || queries === null) return null;
    const { websocketProtocol } = await import('./directus-connection.js');
    const { graphqlSocketProtocol } = await import('./graphql-connection.js');
    const services = { ...items, live: queries, mirror, policies, config, limit: limits.requests, observe };
    return {
      sockets: () => [
        websocketProtocol({ ...services, authentication: access }),
        graphqlSocketProtocol({ ...services, ...graphql() }),
      ],
    };
  },
};
