/** The options of WebSockets. */
import type { ConfigWith } from '../../server/config/config.js';
import { boolean, choice, duration, integer, optional, size, wholeNumber } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION: integer(
    '1000',
    1,
    1_000_000,
    'Subscriptions of one WebSocket at the same time',
  ),
  WEBSOCKETS_ENABLED: boolean('true', 'Accept WebSockets'),
  WEBSOCKETS_REST_AUTH: choice(
    'handshake',
    ['public', 'handshake', 'strict'],
    'When a client of /websocket must send a token: never (public), with its first message (handshake), or when it connects (strict); a token in the URL or a session cookie always signs in',
  ),
  WEBSOCKETS_REST_AUTH_TIMEOUT: duration(
    '10s',
    'How long a client of /websocket may take to sign in, also when its token has expired',
  ),
  WEBSOCKETS_REST_CONN_LIMIT: optional(
    wholeNumber(1, 1_000_000),
    'Connections to /websocket at the same time, per thread; no limit if not set',
  ),
  WEBSOCKETS_GRAPHQL_AUTH: choice(
    'handshake',
    ['public', 'handshake', 'strict'],
    'When a client of GraphQL over WebSockets must send a token: never (public), with connection_init (handshake), or when it connects (strict)',
  ),
  WEBSOCKETS_GRAPHQL_AUTH_TIMEOUT: duration(
    '10s',
    'How long a client of GraphQL over WebSockets may take until it has sent connection_init',
  ),
  WEBSOCKETS_GRAPHQL_CONN_LIMIT: optional(
    wholeNumber(1, 1_000_000),
    'WebSockets to /graphql at the same time, per thread; no limit if not set',
  ),
  WEBSOCKETS_HEARTBEAT_PERIOD: duration(
    '30s',
    'Time between two pings to each client of a WebSocket; a client that sends nothing until the next ping is disconnected; 0 turns it off',
  ),
  WEBSOCKETS_MAX_FRAME_SIZE: size('1mb', 'Largest message that a WebSocket accepts; a larger one ends the connection'),
};

export type SocketsConfig = ConfigWith<typeof OPTIONS>;
