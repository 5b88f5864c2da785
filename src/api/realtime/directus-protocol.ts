/** /websocket: the protocol of the family over WebSockets, one JSON object per message. */
import type { SocketProtocol } from '../../http/websocket.js';
import { SocketConnection } from './directus-connection.js';
import { keepConnections } from './heartbeat.js';
import { checkUpgrade, type WebsocketServices } from './socket-identity.js';

export function websocketProtocol(services: WebsocketServices): SocketProtocol {
  const { config, identities } = services;
  return {
    path: '/websocket',
    connections: config.WEBSOCKETS_REST_CONN_LIMIT,
    cookieName: config.SESSION_COOKIE_NAME,
    accept: async (client) => {
      await checkUpgrade(client, config.WEBSOCKETS_REST_AUTH === 'strict', identities);
      return '';
    },
    ...keepConnections(
      config.WEBSOCKETS_HEARTBEAT_PERIOD,
      (socket, client, onClosed) => new SocketConnection(socket, client, services, onClosed),
    ),
  };
}
