/** Requests and WebSockets over `node:http`, where uWebSockets does not load. */
import { createServer, type IncomingMessage, type ServerResponse as Outgoing, type Server } from 'node:http';
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
  type SocketConnection,
  type SocketServer,
  type Transport,
} from './transport.js';
import { portInUse } from './uws-transport.js';

/** The times of uWebSockets: the head of a request has to arrive, and an idle connection ends. */
const HEAD_TIMEOUT_MS = 10_000;
const IDLE_TIMEOUT_MS = 8_000;
const CHECK_INTERVAL_MS = 2_000;

/** For the headers behind the longest URL. */
const HEADER_BYTES = 8_192;

export class NodeTransport implements Transport {
  readonly name = 'node';

  constructor(private readonly maxHeadBytes: number) {}

  async open(address: ListenAddress, { get, any, sockets }: RequestHandlers): Promise<OpenPort> {
    checkSharing(address);
    const server = createServer({
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
      const handle = incoming.method === 'GET' ? get : any;
      handle(new NodeResponse(incoming, outgoing, outgoing), new NodeRequest(incoming));
    });
    server.on('clientError', (error, socket) => requests.refuse(error, socket as NetSocket));
    const upgrades = new NodeSockets(sockets, any);
    server.on('upgrade', (incoming: IncomingMessage, socket: NetSocket, head: Buffer) =>
      upgrades.serve(incoming, socket, head),
    );
    return {
      port: await listen(server, address),
      // Its own method would end idle connections, whose clients may be sending a request.
      refuse: () => void NetServer.prototype.close.call(server),
      close: () => {
        NetServer.prototype.close.call(server);
        upgrades.close();
        server.closeAllConnections();
      },
    };
  }
}

/** The requests of each connection that are not answered yet. */
class RunningRequests {
  readonly #numbers = new WeakMap<NetSocket, number>();
  /** Connections that end with the last of their answers. */
  readonly #ending = new WeakSet<NetSocket>();

  add(socket: NetSocket, outgoing: Outgoing): void {
    this.#numbers.set(socket, (this.#numbers.get(socket) ?? 0) + 1);
    outgoing.once('close', () => {
      const left = (this.#numbers.get(socket) ?? 1) - 1;
      this.#numbers.set(socket, left);
      if (left === 0 && this.#ending.has(socket)) socket.destroySoon();
    });
  }

  /** Answers bytes that the parser of Node refuses, and closes the connection: where the next request begins is not certain. */
  refuse(error: ParserError, socket: NetSocket): void {
    // The parser reports each piece that follows, too.
    if (this.#ending.has(socket)) return;
    this.#ending.add(socket);
    // Another answer would be taken for that of a request.
    if ((this.#numbers.get(socket) ?? 0) > 0 && socket.writable) socket.pause();
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

/** Node shares ports since 22.12. */
function checkSharing({ shared }: ListenAddress): void {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (shared && (major < 22 || (major === 22 && minor < 12)))
    throw new StartError('WORKERS and REUSE_PORT need Node 22.12 or newer with SERVER=node');
}

async function listen(server: Server, { host, port, shared }: ListenAddress): Promise<number> {
  const options: { reusePort?: boolean } = shared ? { reusePort: true } : {};
  await new Promise<void>((resolve, reject) => {
    server.once('error', () => reject(portInUse({ host, port })));
    server.listen({ host, port, exclusive: true, ...options }, resolve);
  });
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : port;
}

/** The WebSockets of a server. */
class NodeSockets {
  readonly #servers: ReadonlyMap<string, { readonly protocol: SocketServer; readonly library: WebSocketServer }>;
  readonly #open = new Set<NodeSocket>();
  readonly #pings: NodeJS.Timeout;

  constructor(
    sockets: readonly SocketServer[],
    private readonly serveRequest: RequestHandlers['any'],
  ) {
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
    this.#pings = setInterval(
      () => {
        for (const socket of this.#open) socket.ping();
      },
      (SOCKET_IDLE_S * 1_000) / 2,
    ).unref();
  }

  close(): void {
    clearInterval(this.#pings);
    for (const socket of this.#open) socket.terminate();
  }

  /** Other requests than those of WebSockets are answered as if they had not asked for another protocol. */
  serve(incoming: IncomingMessage, socket: NetSocket, head: Buffer): void {
    const request = new NodeRequest(incoming);
    const server = this.#servers.get(request.getUrl());
    const { outgoing, response } = upgradeResponse(incoming, socket);
    if (!server || incoming.method !== 'GET' || incoming.headers.upgrade?.toLowerCase() !== 'websocket') {
      this.serveRequest(response, request);
      return;
    }
    const { protocol, library } = server;
    void protocol.admit(request, response).then((admitted) => {
      if (!admitted) return;
      outgoing.detachSocket(socket);
      spoken.set(incoming, admitted.protocol);
      library.handleUpgrade(incoming, socket, head, (ws) => {
        const connection = new NodeSocket(ws, socket);
        this.#open.add(connection);
        const events = protocol.open(connection, admitted.client);
        ws.on('message', (data: Buffer, isBinary: boolean) => {
          connection.isAlive = true;
          events.message(isBinary ? '' : data.toString());
        });
        // The library ends the connection after an error.
        ws.on('error', () => {});
        socket.on('drain', () => setImmediate(() => events.drained()));
        ws.on('close', () => {
          this.#open.delete(connection);
          events.closed();
        });
      });
    });
  }
}

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
    write();
    this.socket.uncork();
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
