/** /websocket: the protocol of the family over WebSockets, one JSON object per message. */
import { invalidCredentials } from '../errors.js';
import type { Socket, SocketClient, SocketProtocol } from '../http/websocket.js';
import { SocketConnection } from './websocket-connection.js';
import { credentialsOf, type WebsocketServices } from './websocket-speaker.js';

/** Milliseconds between two looks at whether tokens have expired. */
const LOOK_MS = 1_000;

export function websocketProtocol(services: WebsocketServices): SocketProtocol {
  const { config, identities } = services;
  const connections = new Set<SocketConnection>();
  const every = (ms: number, work: (connection: SocketConnection) => void): NodeJS.Timeout =>
    setInterval(() => connections.forEach(work), ms).unref();
  let timers: NodeJS.Timeout[] = [];
  let isStopped = false;
  const begin = (): void => {
    if (timers.length > 0) return;
    const period = config.WEBSOCKETS_HEARTBEAT_PERIOD;
    timers = [every(LOOK_MS, (connection) => connection.look())];
    if (period > 0) timers.push(every(period, (connection) => connection.beat()));
  };
  const rest = (): void => {
    for (const timer of timers.splice(0)) clearInterval(timer);
  };
  return {
    path: '/websocket',
    connections: config.WEBSOCKETS_REST_CONN_LIMIT,
    cookieName: config.SESSION_COOKIE_NAME,
    accept: async (client: SocketClient) => {
      const mustSignIn = config.WEBSOCKETS_REST_AUTH === 'strict';
      if (mustSignIn && client.authorization === '') throw invalidCredentials();
      if (client.authorization === '') return '';
      const { user, share } = await identities.identify(credentialsOf(client));
      // An Authorization header of another scheme than Bearer identifies nobody: the caller is the public.
      if (mustSignIn && user === null && share === undefined) throw invalidCredentials();
      return '';
    },
    open: (socket: Socket, client: SocketClient) => {
      const connection = new SocketConnection(socket, client, services, () => {
        connections.delete(connection);
        if (connections.size === 0) rest();
      });
      if (isStopped) connection.end();
      connections.add(connection);
      begin();
      return connection;
    },
    stop: () => {
      isStopped = true;
      rest();
      for (const connection of connections) connection.end();
    },
  };
}
