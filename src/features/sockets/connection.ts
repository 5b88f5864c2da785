/**
 * The common part of the protocols over WebSockets: credentials, heartbeat, deadline to sign in, and the end. Messages carry no
 * headers, so the token of the upgrade or of a later sign-in identifies the caller of each message.
 */

import { invalidCredentials, ServiceError } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import type { Observer } from '../../base/observe.js';
import { isUnavailable } from '../../base/sqlstate.js';
import type { Input } from '../../compiler/request/parse-context.js';
import type { Identities } from '../../server/access/identities.js';
import type { Identity } from '../../server/access/identity.js';
import type { ItemsServices } from '../../server/api/items/item-writes.js';
import type { MaybePromise } from '../../server/execute/pipeline.js';
import { NO_CLIENT, type RequestClient } from '../../server/execute/stages.js';
import type { Dialect } from '../../server/feature/dialect.js';
import type { Limit } from '../../server/http/limiter.js';
import type { SocketClient } from '../../server/http/transport.js';
import type { Socket, SocketHandler, SocketProtocol } from '../../server/http/websocket.js';
import { TurnQueue } from '../../server/node/turns.js';
import { LastingCredentials } from '../live/lasting-credentials.js';
import type { LiveQueries } from '../live/live-queries.js';
import type { SocketsConfig } from './options.js';

export interface ConnectionServices extends Omit<ItemsServices, 'live'> {
  readonly live: LiveQueries;
  readonly config: SocketsConfig;
  /** The other API whose clients connect, or null. */
  readonly dialect: Dialect | null;
  /** The limit of messages, or null for none. */
  readonly limit: Limit | null;
  readonly observe: Observer;
}

/** Messages of a connection that are handled at the same time. */
export const MAX_RUNNING = 100;

export const PING = '{"type":"ping"}';

/** Milliseconds between two checks whether tokens have expired. */
const RECHECK_MS = 1_000;

/** One message per turn of the event loop, and one connection after the other: a burst on one connection must not delay the others. */
export const socketTurns = new TurnQueue();

let connections = 0;

export abstract class Connection<Services extends ConnectionServices = ConnectionServices> implements KeptConnection {
  /** For `socketTurns`. */
  readonly name = String(++connections);
  /** Messages as the pipelines see them. */
  readonly requestClient: RequestClient;
  protected abstract readonly path: string;
  /** Whether the client has signed in, or need not. */
  protected abstract isAccepted: boolean;
  protected running = 0;
  #credentials: LastingCredentials;
  #deadline: NodeJS.Timeout | null = null;
  #hasSpoken = true;

  constructor(
    readonly socket: Socket,
    readonly client: SocketClient,
    protected readonly services: Services,
    private readonly onClosed: () => void,
  ) {
    this.requestClient = requestClientOf(socket, client);
    this.#credentials = credentialsOf(client);
  }

  /** A message of the client. */
  protected abstract receive(text: string): void;
  /** Sends what waits for a slow client. */
  abstract drained(): void;
  /** Calls `drained` if the client has caught up: uWebSockets does not report every buffer that has emptied. */
  protected abstract resume(): void;
  protected abstract sendPing(): void;
  /** The token has expired or was revoked. */
  protected abstract expire(): void;
  /** Closes subscriptions. */
  protected abstract release(): void;

  identify(): MaybePromise<Identity> {
    return this.services.identities.identify(this.#credentials);
  }

  message(text: string): void {
    this.#hasSpoken = true;
    this.receive(text);
  }

  closed(): void {
    this.clearDeadline();
    this.release();
    this.onClosed();
  }

  /** The service stops: clients connect again, to another instance. */
  stop(): void {
    this.socket.end(1001, 'The service stops');
  }

  ping(): void {
    if (!this.isAccepted) return;
    if (!this.#hasSpoken) this.socket.end();
    this.#hasSpoken = false;
    this.sendPing();
  }

  recheck(): void {
    this.resume();
    const credentials = this.#credentials;
    if (credentials.headers.authorization === '' || !this.isAccepted) return;
    ifRefused(
      () => this.identify(),
      () => {
        if (credentials === this.#credentials) this.expire();
      },
    );
  }

  /** An empty text stands for no token. */
  protected authorize(authorization: string): void {
    this.#credentials = credentialsOf({ authorization, address: this.client.address });
  }

  /** Ends the connection of a client that does not sign in in time. */
  protected setDeadline(ms: number, expired: () => void): void {
    this.clearDeadline();
    this.#deadline = setTimeout(expired, ms).unref();
  }

  protected clearDeadline(): void {
    if (this.#deadline) clearTimeout(this.#deadline);
    this.#deadline = null;
  }

  protected report(error: unknown): void {
    const request = { id: '', method: 'WEBSOCKET', path: this.path };
    this.services.observe({ kind: 'request-failed', ...request, error, unavailable: isUnavailable(error) });
  }
}

interface KeptConnection extends SocketHandler {
  recheck(): void;
  /** Ends the connection of a client that has sent nothing since the last ping. */
  ping(): void;
  stop(): void;
}

/** Pings and rechecks all connections of a protocol. `period` is in milliseconds, 0 for no pings. */
export function keepConnections(
  period: number,
  connect: (socket: Socket, client: SocketClient, onClosed: () => void) => KeptConnection,
): Pick<SocketProtocol, 'open' | 'stop'> {
  const connections = new Set<KeptConnection>();
  const every = (ms: number, work: (connection: KeptConnection) => void): NodeJS.Timeout =>
    setInterval(() => connections.forEach(work), ms).unref();
  let timers: NodeJS.Timeout[] = [];
  let isStopped = false;
  const start = (): void => {
    if (timers.length > 0) return;
    timers = [every(RECHECK_MS, (connection) => connection.recheck())];
    if (period > 0) timers.push(every(period, (connection) => connection.ping()));
  };
  const pause = (): void => {
    for (const timer of timers.splice(0)) clearInterval(timer);
  };
  return {
    open: (socket, client) => {
      const connection = connect(socket, client, () => {
        connections.delete(connection);
        if (connections.size === 0) pause();
      });
      if (isStopped) connection.stop();
      connections.add(connection);
      start();
      return connection;
    },
    stop: () => {
      isStopped = true;
      pause();
      for (const connection of connections) connection.stop();
    },
  };
}

/** The token is checked again with each message, as it would be with each request. */
export function credentialsOf({
  authorization,
  address,
}: Pick<SocketClient, 'authorization' | 'address'>): LastingCredentials {
  return new LastingCredentials({
    headers: { authorization, viewAs: '' },
    accessToken: '',
    address,
    cookie: () => '',
  });
}

/** Calls back if the credentials are refused. A database that does not answer refuses nothing. */
function ifRefused(identify: () => MaybePromise<Identity>, refused: () => void): void {
  const settle = (error: unknown): void => {
    if (error instanceof ServiceError && error.status < 500) refused();
  };
  try {
    const caller = identify();
    if (caller instanceof Promise) caller.catch(settle);
  } catch (error) {
    settle(error);
  }
}

/** Throws if the client may not connect: a token must be valid, and with `mustSignIn` there must be one. */
export async function checkUpgrade(client: SocketClient, mustSignIn: boolean, identities: Identities): Promise<void> {
  if (mustSignIn && client.authorization === '') throw invalidCredentials();
  if (client.authorization === '') return;
  const caller = await identities.identify(credentialsOf(client));
  // With an Authorization header of another scheme than Bearer, the caller is the public.
  if (mustSignIn && !isSomebody(caller)) throw invalidCredentials();
}

export function isSomebody({ user, share }: Identity): boolean {
  return user !== null || share !== undefined;
}

function requestClientOf(socket: Socket, { address }: SocketClient): RequestClient {
  return {
    ...NO_CLIENT,
    address,
    get aborted() {
      return !socket.isOpen;
    },
  };
}

/** Reads a message, which is one JSON object in every protocol. `refuse` makes the error for anything else. */
export function readMessage(text: string, refuse: (reason: string) => Error): Input {
  let message: unknown;
  try {
    message = parseJson(text);
  } catch (error) {
    if (error instanceof RangeError) throw error;
    throw refuse('The message is not valid JSON');
  }
  if (!isObject(message)) throw refuse('The message must be an object');
  return message;
}
