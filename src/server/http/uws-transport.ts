/** Requests and WebSockets over uWebSockets. The build copies its binaries to dist/uws (uws-binaries.json). */

import type { TemplatedApp, us_listen_socket } from 'uWebSockets.js';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { StartError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import { packagePath } from '../../base/package-files.js';
import {
  type ListenAddress,
  MAX_SOCKET_BYTES,
  type OpenPort,
  type RequestHandlers,
  SOCKET_IDLE_S,
  type SocketClient,
  type SocketEvents,
  type SocketServer,
  type Transport,
} from './transport.js';

type Library = typeof import('uWebSockets.js');

let library: Promise<Library> | null = null;

/** Loads the library once. It reads the size of the request head from the environment when it loads: so it loads late. */
export function loadSockets(maxHeadBytes: number): Promise<Library> {
  library ??= load(maxHeadBytes);
  return library;
}

async function load(maxHeadBytes: number): Promise<Library> {
  process.env['UWS_HTTP_MAX_HEADERS_SIZE'] = String(maxHeadBytes);
  const { platform, arch, versions } = process;
  const file = packagePath('dist', 'uws', `uws_${platform}_${arch}_${versions.modules}.node`);
  if (!existsSync(file))
    throw new StartError(
      `uWebSockets does not load here: there is no binary for Node ${versions.node} on ${platform} ${arch} (see docs/operations.md, Server)`,
    );
  try {
    return createRequire(import.meta.url)(file);
  } catch (error) {
    throw new StartError(`uWebSockets does not load here: ${reasonOf(error)}`);
  }
}

/** The error of Node does not say which glibc it found. */
function reasonOf(error: unknown): string {
  const [reason = ''] = messageOf(error).split('\n', 1);
  if (process.platform !== 'linux') return reason;
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  const library = header?.glibcVersionRuntime === undefined ? 'no glibc' : `glibc ${header.glibcVersionRuntime}`;
  return `it needs glibc 2.38 with Node 22 or 24, or glibc 2.27 with Node 20; this is Node ${process.versions.node} with ${library}`;
}

export class UwsTransport implements Transport {
  readonly name = 'uws';

  constructor(private readonly library: Library) {}

  async open(address: ListenAddress, { get, any, sockets }: RequestHandlers): Promise<OpenPort> {
    const app = this.library.App();
    for (const server of sockets) serveSockets(app, server);
    app.get('/*', get);
    app.any('/*', any);
    const socket = await openPort(app, address);
    return {
      port: this.library.us_socket_local_port(socket),
      refuse: () => this.library.us_listen_socket_close(socket),
      close: () => void app.close(),
    };
  }
}

interface SocketData {
  readonly client: SocketClient;
  events: SocketEvents | null;
  isClosed: boolean;
}

/** To be called before the routes of requests: other requests than upgrades go on to them. */
function serveSockets(app: TemplatedApp, server: SocketServer): void {
  app.ws<SocketData>(server.path, {
    maxPayloadLength: server.maxMessageBytes,
    maxBackpressure: MAX_SOCKET_BYTES,
    closeOnBackpressureLimit: 1,
    idleTimeout: SOCKET_IDLE_S,
    sendPingsAutomatically: true,
    upgrade: (response, request, context) => {
      // uWebSockets frees the request after the first await.
      const key = request.getHeader('sec-websocket-key');
      const extensions = request.getHeader('sec-websocket-extensions');
      void server.admit(request, response).then((admitted) => {
        if (!admitted) return;
        const data: SocketData = { client: admitted.client, events: null, isClosed: false };
        response.cork(() => response.upgrade(data, key, admitted.protocol, extensions, context));
      });
    },
    open: (ws) => {
      const data = ws.getUserData();
      data.events = server.open(ws, data.client);
      // A connection that is ended while it opens is closed at once.
      if (data.isClosed) data.events.closed();
    },
    message: (ws, message, isBinary) =>
      ws.getUserData().events?.message(isBinary ? '' : Buffer.from(message).toString()),
    drain: (ws) => {
      const { events } = ws.getUserData();
      // Messages that are sent from within this call may stay in the buffer without another call.
      setImmediate(() => events?.drained());
    },
    close: (ws) => {
      const data = ws.getUserData();
      data.isClosed = true;
      data.events?.closed();
    },
  });
}

/** The library's own names: it would share a port by default, also with another process, in silence. */
const SHARED_PORT = 0;
const EXCLUSIVE_PORT = 1;

export async function openPort(app: TemplatedApp, { host, port, shared }: ListenAddress): Promise<us_listen_socket> {
  const socket = await new Promise<us_listen_socket | false>((resolve) => {
    // The declared types leave out the form with a host and options.
    const start = app.listen as unknown as (
      host: string,
      port: number,
      options: number,
      done: (socket: us_listen_socket | false) => void,
    ) => unknown;
    start.call(app, host, port, shared ? SHARED_PORT : EXCLUSIVE_PORT, resolve);
  });
  if (!socket) throw portInUse({ host, port });
  return socket;
}

export function portInUse({ host, port }: Pick<ListenAddress, 'host' | 'port'>): StartError {
  return new StartError(
    `cannot listen on ${host}:${port}: the port is in use or the address does not belong to this machine`,
  );
}
