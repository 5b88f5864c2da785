/** /graphql over WebSockets: the protocol `graphql-transport-ws`, for queries, mutations, live queries and events. */
import type { SocketProtocol } from '../../http/websocket.js';
import { GraphqlConnection } from './graphql-connection.js';
import type { GraphqlSocketServices } from './graphql-operation.js';
import { keepConnections } from './heartbeat.js';
import { checkUpgrade } from './socket-identity.js';

const SUBPROTOCOL = 'graphql-transport-ws';

export function graphqlSocketProtocol(services: GraphqlSocketServices): SocketProtocol {
  const { config, identities } = services;
  return {
    path: '/graphql',
    connections: config.WEBSOCKETS_GRAPHQL_CONN_LIMIT,
    cookieName: config.SESSION_COOKIE_NAME,
    accept: async (client) => {
      await checkUpgrade(client, config.WEBSOCKETS_GRAPHQL_AUTH === 'strict', identities);
      return client.protocols.includes(SUBPROTOCOL) ? SUBPROTOCOL : '';
    },
    ...keepConnections(config.WEBSOCKETS_HEARTBEAT_PERIOD, (socket, client, onClosed) => {
      const connection = new GraphqlConnection(socket, client, services, onClosed);
      if (!client.protocols.includes(SUBPROTOCOL)) socket.end(4406, 'Subprotocol not acceptable');
      return connection;
    }),
  };
}
