/**
 * Ports, and the server that listens on them. By default one socket alone owns its port. Several threads may share one among them
 * (SO_REUSEPORT: the system gives each new connection to one of them), but with another process only with REUSE_PORT. So a port
 * is reserved before it is shared.
 */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Config } from '../config/config.js';
import type { ListenAddress, Transport } from './transport.js';
import { loadSockets, portInUse, UwsTransport } from './uws-transport.js';

export interface Reserved {
  readonly port: number;
  release(): Promise<void>;
}

export function listenAddressOf(config: Config): ListenAddress {
  return { host: config.HOST, port: config.PORT, shared: config.REUSE_PORT };
}

interface ChosenTransport {
  readonly transport: Transport;
  /** Why it is not uWebSockets, although that may be used; null if it is, or if SERVER=node. */
  readonly obstacle: string | null;
}

/** By default uWebSockets where it loads, otherwise `node:http`. Throws if SERVER names a server that does not load. */
export async function chooseTransport(config: Config): Promise<ChosenTransport> {
  const { SERVER: server, MAX_URL_SIZE: maxHeadBytes } = config;
  let obstacle: string | null = null;
  if (server !== 'node')
    try {
      return { transport: new UwsTransport(await loadSockets(maxHeadBytes)), obstacle };
    } catch (error) {
      if (server === 'uws' || !(error instanceof Error)) throw error;
      obstacle = error.message;
    }
  const { NodeTransport } = await import('./node-transport.js');
  return { transport: new NodeTransport(maxHeadBytes, config.REUSE_PORT || config.WORKERS > 1), obstacle };
}

/**
 * Reserves a free port for threads that will share it. The port cannot be held while they listen, so two services that start at the
 * same time are kept apart by a name that the system gives to one of them.
 */
export async function reservePort(config: Config): Promise<Reserved> {
  if (config.REUSE_PORT && config.PORT !== 0) return { port: config.PORT, release: async () => {} };
  const free = config.PORT === 0 ? await probe(config) : config.PORT;
  const release = await reserveName(`lateral ${free} ${config.HOST}`.slice(0, MAX_NAME_LENGTH));
  if (!release) throw portInUse({ host: config.HOST, port: free });
  if (config.PORT !== 0) await probe(config).catch((error) => release().then(() => Promise.reject(error)));
  return { port: free, release };
}

/** Listens for a moment. Returns the port. */
async function probe({ HOST: host, PORT: port }: Config): Promise<number> {
  const server = createServer();
  try {
    await once(server.listen({ host, port, exclusive: true }), 'listening');
  } catch {
    throw portInUse({ host, port });
  }
  const address = server.address();
  await once(server.close(), 'close');
  return typeof address === 'object' && address !== null ? address.port : port;
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
