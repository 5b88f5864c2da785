/**
 * Ports. By default one socket alone owns its port. Several threads may share one among them (SO_REUSEPORT: the system gives
 * each new connection to one of them), but with another process only with REUSE_PORT. So a port
 * is reserved before it is shared.
 */

import type { TemplatedApp, us_listen_socket } from 'uWebSockets.js';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { StartError } from '../../base/errors.js';
import type { Config } from '../config/config.js';

export interface ListenAddress {
  readonly host: string;
  /** 0 for any that is free. */
  readonly port: number;
  /** With other threads of this process, or other processes. */
  readonly shared: boolean;
}

export interface Reserved {
  readonly port: number;
  release(): Promise<void>;
}

export function listenAddressOf(config: Config): ListenAddress {
  return { host: config.HOST, port: config.PORT, shared: config.REUSE_PORT };
}

/** The size of the request head is read from the environment when the library loads: so it loads late. */
export async function loadSockets(maxHeadBytes: number): Promise<typeof import('uWebSockets.js')> {
  process.env['UWS_HTTP_MAX_HEADERS_SIZE'] = String(maxHeadBytes);
  try {
    const loaded = await import('uWebSockets.js');
    return 'default' in loaded ? (loaded.default as typeof loaded) : loaded;
  } catch (error) {
    throw new StartError(
      `uWebSockets.js does not load here: it needs Linux with glibc (2.27 for Node 20, 2.38 for Node 22 and newer), macOS or Windows (${error instanceof Error ? error.message.split('\n', 1)[0] : error})`,
    );
  }
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
  if (!socket) throw inUse(host, port);
  return socket;
}

/**
 * Reserves a free port for threads that will share it. The port cannot be held while they listen, so two services that start at the
 * same time are kept apart by a name that the system gives to one of them.
 */
export async function reservePort(config: Config): Promise<Reserved> {
  if (config.REUSE_PORT && config.PORT !== 0) return { port: config.PORT, release: async () => {} };
  const uws = await loadSockets(config.MAX_URL_SIZE);
  const app = uws.App();
  const probe = async (): Promise<number> => {
    const socket = await openPort(app, listenAddressOf(config));
    const port = uws.us_socket_local_port(socket);
    uws.us_listen_socket_close(socket);
    return port;
  };
  try {
    const free = config.PORT === 0 ? await probe() : config.PORT;
    const release = await reserveName(`lateral ${free} ${config.HOST}`.slice(0, MAX_NAME_LENGTH));
    if (!release) throw inUse(config.HOST, free);
    if (config.PORT !== 0) await probe().catch((error) => release().then(() => Promise.reject(error)));
    return { port: free, release };
  } finally {
    app.close();
  }
}

/** The longest name that the operating system accepts. */
const MAX_NAME_LENGTH = 100;

/** A socket without a file: its name is free again when this process ends, even by a crash. Returns null if it is in use. */
async function reserveName(name: string): Promise<(() => Promise<void>) | null> {
  const holder = createServer().unref();
  try {
    await once(holder.listen(`\0${name}`), 'listening');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EADDRINUSE') return null;
    throw error;
  }
  return async () => void (await once(holder.close(), 'close'));
}

function inUse(host: string, port: number): StartError {
  return new StartError(
    `cannot listen on ${host}:${port}: the port is in use or the address does not belong to this machine`,
  );
}
