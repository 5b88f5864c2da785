/**
 * WebSockets: the check of upgrades, and the common part of all protocols. An upgraded socket was a request before: its address,
 * token and cookies are read as those of any other.
 */
import { forbidden, invalidPayload, type ServiceError } from '../../base/errors.js';
import type { Config } from '../config/config.js';
import { originTest } from './cors.js';
import { Exchange, type ServerHooks } from './exchange.js';
import type { Limit } from './limiter.js';
import type { NameMapping } from './reply.js';
import type { SocketClient, SocketConnection, SocketServer } from './transport.js';

export interface SocketProtocol {
  readonly path: string;
  /** The most connections at a time in this thread, or null for no limit. */
  readonly connections: number | null;
  readonly cookieName: string;
  readonly maxMessageBytes: number;
  /** Throws if the client may not connect. Resolves with the subprotocol, '' for none. */
  accept(client: SocketClient): Promise<string>;
  open(socket: Socket, client: SocketClient): SocketHandler;
  /** Ends all connections and takes no more. */
  stop(): void;
}

export interface SocketHandler {
  message(text: string): void;
  /** The socket has sent what waited. */
  drained(): void;
  closed(): void;
}

/** Bytes that may wait before a client counts as slow. */
const SLOW_BYTES = 65_536;
/** The longest reason that the protocol allows. */
const MAX_REASON_BYTES = 123;

export class Socket {
  /** Messages of this turn of the event loop. */
  #unsent: (string | Buffer)[] = [];
  #unsentLength = 0;
  isOpen = true;

  constructor(
    private readonly socket: SocketConnection,
    private readonly names: NameMapping | null,
  ) {}

  /** Messages of one turn leave together: a write costs more than its bytes. Messages that do not fit are sent later; see `isSlow`. */
  send(text: string | Buffer): void {
    if (!this.isOpen) return;
    if (this.#unsent.length === 0) queueMicrotask(() => this.#flush());
    const message = this.names === null ? text : this.names.messageOut(String(text));
    this.#unsent.push(message);
    this.#unsentLength += message.length;
    if (this.#unsentLength > SLOW_BYTES) this.#flush();
  }

  /** An error with the names that the client knows. */
  translate(error: ServiceError): { readonly code: string; readonly message: string } {
    return this.names === null ? error : this.names.error(error);
  }

  #flush(): void {
    const unsent = this.#unsent;
    if (unsent.length === 0) return;
    this.#unsent = [];
    this.#unsentLength = 0;
    if (!this.isOpen) return;
    this.socket.cork(() => {
      // A client that does not read may be disconnected by one of them.
      for (const text of unsent) if (this.isOpen) this.socket.send(text, false);
    });
  }

  /** Whether the client reads more slowly than it is sent to: `drained` is called when it has caught up. */
  get isSlow(): boolean {
    return this.isOpen && this.socket.getBufferedAmount() > SLOW_BYTES;
  }

  /** Without a code it ends as the client sees fit. */
  end(code?: number, reason = ''): void {
    this.#flush();
    if (!this.isOpen) return;
    this.isOpen = false;
    const text = Buffer.from(reason).subarray(0, MAX_REASON_BYTES);
    if (code === undefined) this.socket.end();
    else this.socket.end(code, text);
  }
}

interface SocketOptions {
  readonly config: Config;
  readonly hooks: ServerHooks;
  /** That of requests; null for none. */
  readonly limit: Limit | null;
  /** Throws while the service starts. */
  readonly admit: () => void;
  /** Answers the request with an error instead. */
  readonly refuse: (exchange: Exchange, error: unknown) => void;
}

/** How requests for the path of a protocol become its WebSockets. */
export function socketServer(protocol: SocketProtocol, options: SocketOptions): SocketServer {
  const { path, maxMessageBytes } = protocol;
  const open = { count: 0 };
  return {
    path,
    maxMessageBytes,
    admit: createUpgrade(protocol, options, open),
    open: (connection, client) => {
      const socket = new Socket(connection, options.hooks.names);
      const handler = protocol.open(socket, client);
      return {
        message: (text) => handler.message(text),
        drained: () => {
          if (socket.isOpen) handler.drained();
        },
        closed: () => {
          open.count--;
          socket.isOpen = false;
          handler.closed();
        },
      };
    },
  };
}

/** Checks a request before it becomes a socket. */
function createUpgrade(
  protocol: SocketProtocol,
  options: SocketOptions,
  open: { count: number },
): SocketServer['admit'] {
  const { admit, limit, refuse, hooks } = options;
  const origins = createOriginTest(options.config);
  return async (request, response) => {
    const exchange = new Exchange(request, response, hooks);
    exchange.outlive();
    // uWebSockets frees the request after the first await.
    const [origin = '', host = '', userAgent = '', offered = ''] = UPGRADE_HEADERS.map((name) =>
      request.getHeader(name),
    );
    const cookie = origins.mayUseCookies(origin, host) ? exchange.cookie(protocol.cookieName) : '';
    const token = exchange.accessToken || cookie;
    const client: SocketClient = {
      address: exchange.address,
      userAgent,
      origin,
      authorization: token === '' ? exchange.headers.authorization : `Bearer ${token}`,
      protocols: offered.split(',').flatMap((each) => each.trim() || []),
    };
    open.count++;
    try {
      if (exchange.ambiguity !== '') throw invalidPayload(`The request ${exchange.ambiguity}`);
      admit();
      await limit?.(client.address);
      if (protocol.connections !== null && open.count > protocol.connections)
        throw forbidden('There are too many connections');
      if (!origins.isAllowed(origin, host)) throw forbidden('Connections are not accepted from another origin');
      const spoken = await protocol.accept(client);
      if (!exchange.aborted) return { client, protocol: spoken, withdraw: () => open.count-- };
    } catch (error) {
      refuse(exchange, error);
    }
    open.count--;
    return null;
  };
}

const UPGRADE_HEADERS = ['origin', 'host', 'user-agent', 'sec-websocket-protocol'];

interface OriginTest {
  isAllowed(origin: string, host: string): boolean;
  mayUseCookies(origin: string, host: string): boolean;
}

/** Browsers let any page open a socket, and send cookies along whatever CORS_CREDENTIALS says. */
function createOriginTest(config: Config): OriginTest {
  // With any origin allowed, any page could act with the cookies of its visitors.
  const isNamed = config.CORS_ENABLED && !/^true$/i.test(config.CORS_ORIGIN);
  const allowed = isNamed ? originTest(config.CORS_ORIGIN) : () => false;
  const own = config.PUBLIC_URL === null ? null : new URL(config.PUBLIC_URL).origin;
  const isOwn = (origin: string, host: string): boolean => {
    if (origin === '' || origin === own) return true;
    return URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
  };
  const isAllowed = (origin: string, host: string): boolean => isOwn(origin, host) || allowed(origin);
  return { isAllowed, mayUseCookies: config.CORS_CREDENTIALS ? isAllowed : isOwn };
}
