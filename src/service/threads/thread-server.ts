/** The server of one thread: its application behind its HTTP server. */
import type { Observer } from '../../base/observe.js';
import type { Config } from '../../config/config.js';
import { type HttpServer, startHttpServer } from '../../http/app.js';
import type { ListenAddress } from '../../http/listen.js';
import { type App, type Broadcast, createApp, type Shared } from '../app.js';
import type { Core } from '../core.js';

export class ThreadServer {
  #http: HttpServer | null = null;

  private constructor(
    readonly app: App,
    private readonly start: (address: ListenAddress) => Promise<HttpServer>,
    private readonly shutdownTimeout: number,
  ) {}

  static async create(config: Config, core: Core, shared: Shared, observe: Observer): Promise<ThreadServer> {
    const app = await createApp(config, core, shared, observe);
    const { router, names, sockets } = app;
    const { responseMemory } = core.database;
    const options = { config, limit: shared.limits.requests, responseMemory, observe, names, sockets };
    const start = (address: ListenAddress): Promise<HttpServer> => startHttpServer(router, { ...options, address });
    return new ThreadServer(app, start, config.SHUTDOWN_TIMEOUT);
  }

  /** Returns the port. */
  async listen(address: ListenAddress): Promise<number> {
    this.#http = await this.start(address);
    return this.#http.port;
  }

  apply(message: Broadcast | { readonly kind: 'serving' }): void {
    if (message.kind === 'serving') this.#http?.startServing();
    else this.app.apply(message);
  }

  drain(): void {
    void this.app.stopping();
    this.#http?.drain();
  }

  async stop(): Promise<void> {
    this.drain();
    await Promise.all([this.app.endProcesses(), this.#http?.close(this.shutdownTimeout)]);
    await this.app.stopping();
  }

  /** Closes all sockets at once. */
  abandon(): void {
    this.#http?.abandon();
  }
}
