/** Requests and WebSockets over `node:http`, where uWebSockets does not load. */
import { createServer, IncomingMessage, type ServerResponse as Outgoing, type Server } from 'node:http';
import { Server as NetServer, type Socket as NetSocket } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { invalidPayload, StartError } from '../../base/errors.js';
import { NodeRequest, NodeResponse, upgradeResponse } from './node-exchange.js';
import { errorReply } from './reply.js';
import {
  type ListenAddress,
  MAX_SOCKET_BYTES,
  type OpenPort,
  type RequestHandlers,
  SOCKET_IDLE_S,
  type SocketClient,
  type SocketConnection,
  type SocketServer,
  type Transport,
} from './transport.js';
import { portInUse } from './uws-transport.js';

/** The times of uWebSockets: the head of a request has to arrive, and an idle connection ends. */
const HEAD_TIMEOUT_MS = 10_000;
const IDLE_TIMEOUT_MS = 8_000;
const CHECK_INTERVAL_MS = 2_000;

/** For the answer to a request whose body is broken. */
const BROKEN_BODY_MS = 500;

/** For the headers behind the longest URL. */
const HEADER_BYTES = 8_192;

export class NodeTransport implements Transport {
  readonly name = 'node';

  /** Throws if several threads or processes are to share the port and this version of Node cannot share it. */
  constructor(
    private readonly maxHeadBytes: number,
    shared: boolean,
  ) {
    const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
    if (shared && (major < 22 || (major === 22 && minor < 12)))
      throw new StartError('WORKERS and REUSE_PORT need Node 22.12 or newer with SERVER=node');
  }

  async open(address: ListenAddress, { get, any, sockets }: RequestHandlers): Promise<OpenPort> {
    const upgrades = new NodeSockets(sockets);
    const server = createServer({
      IncomingMessage: upgrades.requests,
      // A longer URL gets the error of the service.
      maxHeaderSize: this.maxHeadBytes + HEADER_BYTES,
      keepAliveTimeout: IDLE_TIMEOUT_MS,
      headersTimeout: HEAD_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_INTERVAL_MS,
      // BODY_TIMEOUT limits the time of a body.
      requestTimeout: 0,
    });
    const requests = new RunningRequests();
    server.on('request', (incoming: IncomingMessage, outgoing: Outgoing) => {
      requests.add(incoming.socket, outgoing);
      // Replies are kept for GET only.
      const handle = incoming.method === 'GET' ? get : any;
      handle(new NodeResponse(incoming, outgoing, outgoing), new NodeRequest(incoming));
    });
    server.on('clientError', (error, socket) => requests.refuse(error, socket as NetSocket));
    server.on('upgrade', (incoming: IncomingMessage, socket: NetSocket, head: Buffer) => {
      // Its response would be sent in the place of another.
      if (requests.isAnswering(socket)) socket.on('error', () => {}).destroy();
      else upgrades.serve(incoming, socket, head);
    });
    return {
      port: await listen(server, address),
      // Its own method would end idle connections, whose clients may be sending a request.
      refuse: () => void NetServer.prototype.close.call(server),
      close: () => {
        server.close();
        upgrades.close();
        server.closeAllConnections();
      },
    };
  }
}

/** The requests of each connection that are not answered yet. */
class RunningRequests {
  readonly #responses = new WeakMap<NetSocket, Set<Outgoing>>();
  /** Connections that end with the last of their answers. */
  readonly #ending = new WeakSet<NetSocket>();

  add(socket: NetSocket, outgoing: Outgoing): void {
    const responses = this.#responses.get(socket) ?? this.#follow(socket);
    responses.add(outgoing);
    outgoing.once('close', () => {
      responses.delete(outgoing);
      if (responses.size === 0 && this.#ending.has(socket)) socket.destroySoon();
    });
  }

  isAnswering(socket: NetSocket): boolean {
    return (this.#responses.get(socket)?.size ?? 0) > 0;
  }

  /** An answer that is ready still leaves. */
  #breakOff(socket: NetSocket): void {
    socket.pause();
    const isReading = [...(this.#responses.get(socket) ?? [])].some(({ req }) => !req.complete);
    if (isReading) setTimeout(() => socket.destroy(), BROKEN_BODY_MS).unref();
  }

  /** Node says nothing to a response that waits for the one before it when the connection is closed. */
  #follow(socket: NetSocket): Set<Outgoing> {
    const responses = new Set<Outgoing>();
    this.#responses.set(socket, responses);
    socket.once('close', () => {
      for (const waiting of [...responses]) waiting.emit('close');
    });
    return responses;
  }

  /** Answers bytes that the parser of Node refuses, and closes the connection: where the next request begins is not certain. */
  refuse(error: ParserError, socket: NetSocket): void {
    // The parser reports each piece that follows, too.
    if (this.#ending.has(socket)) return;
    this.#ending.add(socket);
    // Another answer would be taken for that of a request. A request whose body is broken gets none.
    if (this.isAnswering(socket) && socket.writable) this.#breakOff(socket);
    else if (!socket.writable || !error.code?.startsWith('HPE_')) socket.destroy();
    else socket.end(refusal(error), () => socket.destroySoon());
  }
}

interface ParserError extends Error {
  readonly code?: string;
  readonly reason?: string;
}

function refusal({ code, reason, message }: ParserError): string {
  const isLong = code === 'HPE_HEADER_OVERFLOW';
  const text = isLong ? 'its headers are too long' : (reason ?? message);
  const { body, type } = errorReply(invalidPayload(`The request cannot be read: ${text}`));
  const status = isLong ? '431 Request Header Fields Too Large' : '400 Bad Request';
  const headers = ['Connection: close', `Content-Type: ${type}`, `Content-Length: ${Buffer.byteLength(String(body))}`];
  return `HTTP/1.1 ${status}\r\n${headers.join('\r\n')}\r\n\r\n${body}`;
}

async function listen(server: Server, { host, port, shared }: ListenAddress): Promise<number> {
  const options: { reusePort?: boolean } = shared ? { reusePort: true } : {};
  await new Promise<void>((resolve, reject) => {
    // Later errors are those of single connections, such as too many open files: their clients try again.
    server.on('error', () => reject(portInUse({ host, port })));
    server.listen({ host, port, exclusive: true, ...options }, resolve);
  });
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : port;
}

/** The WebSockets of a server. */
class NodeSockets {
  /** Only a request for a WebSocket is taken from the parser. It would not read the body of another that asks for an upgrade. */
  readonly requests: typeof IncomingMessage;
  readonly #servers: ReadonlyMap<string, { readonly protocol: SocketServer; readonly library: WebSocketServer }>;
  /** The connections that Node has handed over: it does not close them. */
  readonly #connections = new Set<NetSocket>();
  readonly #open = new Set<NodeSocket>();
  readonly #pings: NodeJS.Timeout;

  constructor(sockets: readonly SocketServer[]) {
    this.#servers = new Map(
      sockets.map((protocol) => {
        const library = new WebSocketServer({
          noServer: true,
          clientTracking: false,
          perMessageDeflate: false,
          maxPayload: protocol.maxMessageBytes,
          handleProtocols: (_, incoming) => spoken.get(incoming) || false,
        });
        return [protocol.path, { protocol, library }];
      }),
    );
    const paths = new Set(this.#servers.keys());
    // Node sets the property in the constructor already, when a class above it has no fields yet.
    const asking = new WeakSet<IncomingMessage>();
    this.requests = class extends IncomingMessage {
      set upgrade(isAsking: boolean | null) {
        if (isAsking) asking.add(this);
      }

      get upgrade(): boolean {
        return asking.has(this) && paths.has(new NodeRequest(this).getUrl()) && asksForSocket(this);
      }
    };
    this.#pings = setInterval(
      () => {
        for (const socket of this.#open) socket.ping();
      },
      (SOCKET_IDLE_S * 1_000) / 2,
    ).unref();
  }

  close(): void {
    clearInterval(this.#pings);
    for (const socket of this.#connections) socket.destroy();
  }

  serve(incoming: IncomingMessage, socket: NetSocket, head: Buffer): void {
    const request = new NodeRequest(incoming);
    const server = this.#servers.get(request.getUrl());
    const { outgoing, response } = upgradeResponse(incoming, socket);
    this.#connections.add(socket);
    socket.once('close', () => this.#connections.delete(socket));
    if (!server) return void socket.destroy();
    const { protocol, library } = server;
    protocol.admit(request, response).then(
      (admitted) => {
        if (!admitted) return;
        outgoing.detachSocket(socket);
        spoken.set(incoming, admitted.protocol);
        let isOpen = false;
        library.handleUpgrade(incoming, socket, head, (ws) => {
          isOpen = true;
          this.#serve(ws, socket, protocol.open, admitted.client);
        });
        // The client has left meanwhile, or has asked for subprotocols in a wrong way.
        if (!isOpen) admitted.withdraw();
      },
      () => socket.destroy(),
    );
  }

  #serve(ws: WebSocket, socket: NetSocket, open: SocketServer['open'], client: SocketClient): void {
    const connection = new NodeSocket(ws, socket);
    this.#open.add(connection);
    // The library ends the connection after an error.
    ws.on('error', () => {});
    const events = open(connection, client);
    ws.on('message', (data: Buffer, isBinary: boolean) => {
      connection.isAlive = true;
      events.message(isBinary ? '' : data.toString());
    });
    socket.on('drain', () => setImmediate(() => events.drained()));
    ws.on('close', () => {
      this.#open.delete(connection);
      events.closed();
    });
  }
}

/** As the library checks it, which would answer by itself. */
function asksForSocket({ method, headers }: IncomingMessage): boolean {
  const { upgrade, 'sec-websocket-key': key = '', 'sec-websocket-version': version } = headers;
  return method === 'GET' && upgrade?.toLowerCase() === 'websocket' && KEY.test(key) && version === '13';
}

const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** The subprotocols of requests that become WebSockets. */
const spoken = new WeakMap<IncomingMessage, string>();

class NodeSocket implements SocketConnection {
  isAlive = true;

  constructor(
    private readonly ws: WebSocket,
    private readonly socket: NetSocket,
  ) {
    ws.on('pong', () => {
      this.isAlive = true;
    });
  }

  /** Ends a connection that has sent nothing since the last ping. */
  ping(): void {
    if (!this.isAlive) this.terminate();
    else if (this.ws.readyState === this.ws.OPEN) {
      this.isAlive = false;
      this.ws.ping();
    }
  }

  cork(write: () => void): void {
    this.socket.cork();
    try {
      write();
    } finally {
      this.socket.uncork();
    }
  }

  send(message: string | Buffer, isBinary: boolean): void {
    this.ws.send(message, { binary: isBinary });
    if (this.ws.bufferedAmount > MAX_SOCKET_BYTES) this.terminate();
  }

  getBufferedAmount(): number {
    return this.ws.bufferedAmount;
  }

  end(code?: number, reason?: string | Buffer): void {
    this.ws.close(code, reason);
  }

  terminate(): void {
    this.ws.terminate();
  }
}
