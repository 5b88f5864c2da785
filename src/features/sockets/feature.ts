/** Items, live queries and GraphQL over WebSockets. */
import type { Feature } from '../../server/feature/feature.js';
import { live } from '../live/feature.js';
import { OPTIONS } from './options.js';

export const sockets: Feature<unknown, typeof OPTIONS> = {
  name: 'sockets',
  needs: [live],
  options: OPTIONS,
  topic: 'Live queries and WebSockets',
  open: async ({ config, core: { mirror, policies }, items, access, limits, dialect, observe, graphql, use }) => {
    const queries = use(live);
    if (!config.WEBSOCKETS_ENABLED || queries === null) return null;
    const { websocketProtocol } = await import('./directus-connection.js');
    const { graphqlSocketProtocol } = await import('./graphql-connection.js');
    const services = { ...items, live: queries, mirror, policies, config, dialect, limit: limits.requests, observe };
    const { WEBSOCKETS_REST_AUTH, WEBSOCKETS_GRAPHQL_AUTH, WEBSOCKETS_HEARTBEAT_PERIOD: period } = config;
    return {
      // As clients of Directus expect it, in seconds.
      info: {
        websocket: {
          rest: { authentication: WEBSOCKETS_REST_AUTH, path: '/websocket' },
          graphql: { authentication: WEBSOCKETS_GRAPHQL_AUTH, path: '/graphql' },
          heartbeat: period > 0 && period / 1_000,
        },
      },
      sockets: () => [
        websocketProtocol({ ...services, authentication: access }),
        graphqlSocketProtocol({ ...services, ...graphql() }),
      ],
    };
  },
};
