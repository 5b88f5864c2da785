/** Who speaks over a WebSocket: its messages carry no headers, so what counts is the token of its request, or of its sign-in. */
import type { Identities, Identity, RequestCredentials } from '../access/identity.js';
import type { AuthenticationServices } from '../accounts/authentication.js';
import type { Config } from '../config.js';
import type { MaybePromise } from '../engine/pipeline.js';
import { NO_CLIENT, type RequestClient } from '../engine/stages.js';
import { invalidPayload } from '../errors.js';
import type { Limit } from '../http/limiter.js';
import type { Socket, SocketClient } from '../http/websocket.js';
import type { Mirror } from '../mirror/watch.js';
import type { Observer } from '../observe.js';
import type { ItemsServices } from './item-reads.js';
import type { SocketOutbox } from './socket-outbox.js';

export interface WebsocketServices extends ItemsServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly mirror: Mirror;
  readonly authentication: AuthenticationServices;
  /** Null where messages are not limited. */
  readonly limit: Limit | null;
  readonly observe: Observer;
}

/** Who sends the messages of a connection. */
export interface Speaker {
  readonly socket: Socket;
  readonly client: SocketClient;
  readonly outbox: SocketOutbox;
  identify(): MaybePromise<Identity>;
}

/** Presented again with each message, as a client would with each request. */
export function credentialsOf({
  authorization,
  address,
}: Pick<SocketClient, 'authorization' | 'address'>): RequestCredentials {
  return {
    headers: { authorization, viewAs: '' },
    accessToken: '',
    address,
    get begun() {
      return performance.now();
    },
    cookie: () => '',
    cookieRefused: false,
    viewedAs: () => {},
  };
}

/** A message, as the pipelines see it. */
export function requestClientOf(socket: Socket, { address }: SocketClient): RequestClient {
  return {
    ...NO_CLIENT,
    address,
    get aborted() {
      return !socket.isOpen;
    },
  };
}

/** How a subscription is called: a string, whatever was sent; null for none. */
export function nameOf(uid: unknown): string | null {
  if (uid === undefined || uid === null) return null;
  if (typeof uid === 'object' && String(uid) === '[object Object]') throw invalidPayload('"uid" must be a string');
  return String(uid);
}
