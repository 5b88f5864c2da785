/** A network between the service and PostgreSQL that does what networks do: cuts messages anywhere, hangs up, falls silent. */
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import t from 'tap';

export type Weather = 'fair' | 'hangs up' | 'silent';

export class Network {
  /** Bytes per piece of what the server says; 0 for as they come. */
  cut = 0;
  weather: Weather = 'fair';
  /** Whoever says this is not heard from then on, nor answered, though the connection stays open. */
  muted: RegExp | null = null;
  /** How often somebody came. */
  visits = 0;
  /** Whoever says this is heard, but loses the connection in place of an answer. */
  unanswered: RegExp | null = null;
  /** Gets a copy of what each client sends. */
  onClientData: ((bytes: Buffer, client: Socket) => void) | null = null;
  #to: URL;
  readonly #sockets = new Set<Socket>();
  readonly #clients: Socket[] = [];
  #server: Server | null = null;
  #port = 0;
  #latest: Socket | null = null;

  constructor(url: string) {
    this.#to = new URL(url);
    t.teardown(() => this.close());
  }

  /** The address of the same database behind it. */
  get url(): string {
    const url = new URL(this.#to);
    url.port = String(this.#port);
    return url.href;
  }

  /** From now on the same address leads to another server; connections to the former one are lost. */
  leadTo(url: string): void {
    this.#to = new URL(url);
    this.breakAll();
  }

  /** How many clients are connected. */
  get clients(): number {
    return this.#clients.filter(({ closed }) => !closed).length;
  }

  get port(): number {
    return this.#port;
  }

  /** Again on the same port after `close`; or on a socket of a folder, by the name PostgreSQL gives it. */
  async open(folder?: string): Promise<this> {
    const server = createServer((client) => this.#serve(client));
    this.#server = server;
    if (folder === undefined) server.listen(this.#port, '127.0.0.1');
    else server.listen(join(folder, '.s.PGSQL.5432'));
    await once(server, 'listening');
    if (folder === undefined) this.#port = (server.address() as AddressInfo).port;
    else t.teardown(() => rm(join(folder, '.s.PGSQL.5432'), { force: true }));
    return this;
  }

  /** Ends all connections, and takes no more. */
  async close(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    this.breakAll();
    if (server) await new Promise((resolve) => server.close(resolve));
  }

  breakAll(): void {
    for (const socket of this.#sockets) {
      // To reset one that is about to close leaves its handle behind, and Node waits for it when it ends.
      if (socket.readyState === 'open') socket.resetAndDestroy();
      else socket.destroy();
    }
  }

  /** From now on nothing passes on the connections that there are, and neither side learns of it. */
  freeze(): void {
    for (const socket of this.#sockets) {
      socket.removeAllListeners('data');
      socket.removeAllListeners('close');
      socket.on('close', () => this.#sockets.delete(socket));
      socket.resume();
    }
  }

  /** Says something in the name of the server to who came last. */
  say(bytes: Buffer): void {
    this.#latest?.write(bytes);
  }

  #serve(client: Socket): void {
    this.visits++;
    this.#clients.push(client);
    this.#latest = client;
    this.#watch(client);
    if (this.weather === 'hangs up') client.end();
    if (this.weather !== 'fair') return void client.resume();
    const server = connect({ host: this.#to.hostname, port: Number(this.#to.port), noDelay: true });
    this.#watch(server);
    client.setNoDelay(true);
    let isMuted = false;
    let isUnanswered = false;
    client.on('data', (bytes) => {
      this.onClientData?.(bytes, client);
      isMuted ||= this.muted?.test(bytes.toString('latin1')) ?? false;
      isUnanswered ||= this.unanswered?.test(bytes.toString('latin1')) ?? false;
      if (!isMuted) server.write(bytes);
    });
    client.on('close', () => server.destroy());
    server.on('close', () => client.end());
    let sending: Promise<void> = Promise.resolve();
    server.on('data', (bytes) => {
      if (isUnanswered) return void client.destroy();
      if (isMuted) return;
      sending = sending.then(() => (client.listenerCount('data') > 0 ? this.#pass(bytes, client) : undefined));
    });
  }

  async #pass(bytes: Buffer, client: Socket): Promise<void> {
    const size = this.cut > 0 ? this.cut : bytes.length;
    for (let at = 0; at < bytes.length; at += size) {
      client.write(bytes.subarray(at, at + size));
      if (size < bytes.length) await new Promise(setImmediate);
    }
  }

  #watch(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.#sockets.delete(socket));
  }
}
