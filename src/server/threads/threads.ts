/**
 * The threads that serve, as the main thread sees them: itself (`SingleThread`) or several others (`WorkerPool`). The main thread
 * broadcasts changes to them. A change that one of them makes applies to all of them before its request is answered.
 */

import { serviceUnavailable } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';
import { Policies } from '../access/policies.js';
import type { ItemsServices } from '../api/items/item-writes.js';
import type { Gather } from '../api/server/metrics.js';
import type { ChangeEvent } from '../changes/changes.js';
import type { Config } from '../config/config.js';
import type { Extension } from '../execute/hooks/definition.js';
import type { LocalServer } from '../feature/local-server.js';
import { type HttpServer, type RequestListener, type RequestSource, startHttpServer } from '../http/app.js';
import type { Limits } from '../http/limiter.js';
import { chooseTransport, listenAddressOf } from '../http/listen.js';
import type { Revisions } from '../http/reply-memory.js';
import type { ListenAddress } from '../http/transport.js';
import type { Mirror } from '../postgres/catalog/watch.js';
import { type Health, joinHealth, unhealthy } from '../postgres/health.js';
import type { Database } from '../postgres/pools/database.js';
import type { OpenExecutors, SharedSpeed } from './executors.js';
import type { App, Broadcast, Core, CoreSources, Shared, ThreadMakers } from './thread-parts.js';

/** The database schema as the mirror has it, as JSON, and the version of its model. */
export interface SchemaBroadcast {
  readonly kind: 'schema';
  readonly text: string;
  readonly version: number;
}

/** `serving`: the start is complete, and requests are answered from now on. */
export type MainBroadcast = Broadcast | SchemaBroadcast | { readonly kind: 'serving' };

/** The parts that exist once, however many threads serve. */
export interface MainContext {
  readonly database: Database;
  readonly databaseUrl: string;
  readonly mirror: Mirror;
  /** The state of the executors of all threads. */
  readonly shared: SharedSpeed;
  readonly secret: string;
  readonly limits: Limits;
  readonly events: ReadonlyMap<string, number>;
  /** Reads the policies again and broadcasts them. */
  accessChanged(): Promise<void>;
}

/** How the only thread serves. */
export interface ServingOptions {
  /** Whether it opens the port. */
  readonly listens: boolean;
  /** Called after each request. */
  readonly onRequest: RequestListener | null;
  /** Extensions of the program, in addition to those of EXTENSIONS. */
  readonly extensions: readonly Extension[];
}

export interface Threads {
  /** The options of the main thread, which has its own connections. */
  readonly mainConfig: Config;
  /** Null before it serves, and if other threads serve. */
  readonly local: LocalServer | null;
  /** Resolves when every thread has applied it. */
  broadcast(message: MainBroadcast): Promise<void>;
  /** Listens, and answers 503 until `serving` is broadcast; returns the URL. */
  serve(main: MainContext): Promise<string>;
  /** The metrics of each thread; none before they serve. */
  readonly gather: Gather;
  /** The health of all threads. */
  readonly health: () => Promise<Health>;
  /** Goes on serving, but reports that it is not ready, and answers close their connections. */
  drain(): void;
  /** Stops accepting, and finishes running requests. */
  stop(): Promise<void>;
  /** Resolves if a thread fails: the service must be stopped then. */
  readonly failure: Promise<Error>;
}

export function urlOf({ HOST }: Pick<Config, 'HOST'>, port: number): string {
  const host = HOST.includes(':') ? `[${HOST}]` : HOST;
  return `http://${host}:${port}`;
}

/** One thread, this one: it uses the mirror itself, and applies a broadcast at once. */
export class SingleThread implements Threads {
  readonly #policies = new Policies();
  #server: ThreadServer | null = null;
  #url = '';
  /** A failure of this thread ends the process. */
  readonly failure = new Promise<Error>(() => {});

  constructor(
    private readonly config: Config,
    private readonly observe: Observer,
    private readonly options: ServingOptions,
    private readonly makers: ThreadMakers & { readonly openExecutors: OpenExecutors },
  ) {}

  get mainConfig(): Config {
    return this.config;
  }

  get local(): LocalServer | null {
    return this.#server;
  }

  async broadcast(message: MainBroadcast): Promise<void> {
    if (message.kind === 'policies') this.#policies.apply(message.text);
    else if (message.kind !== 'schema') await this.#server?.apply(message);
  }

  async serve(main: MainContext): Promise<string> {
    const { secret, limits, events, accessChanged } = main;
    const config = this.config;
    const { listens, onRequest, extensions } = this.options;
    const { createApp, createCore, openExecutors } = this.makers;
    const open: CoreSources['openExecutors'] = (sources) => openExecutors(config, sources, main.shared);
    const sources = { ...main, policies: this.#policies, openExecutors: open, extensions };
    const core = await createCore(config, sources, this.observe);
    const shared = {
      secret,
      limits,
      broadcast: (message: MainBroadcast) => this.broadcast(message),
      accessChanged,
      url: () => this.#url,
      events,
      gather: this.gather,
      ask: async (feature: string, question: unknown) =>
        this.#server ? [await this.#server.app.ask(feature, question)] : [],
      health: this.health,
    };
    this.#server = await ThreadServer.create(config, core, shared, { createApp, observe: this.observe, onRequest });
    const port = await this.#server.listen(listens ? listenAddressOf(config) : null);
    // Links in e-mails need PUBLIC_URL then.
    this.#url = listens ? urlOf(config, port) : '';
    return this.#url;
  }

  readonly gather: Gather = async () => (this.#server ? [await this.#server.app.collect()] : []);

  readonly health = async (): Promise<Health> => {
    const checks = this.#server ? await this.#server.app.check() : unhealthy('service:thread', 'it does not serve yet');
    return joinHealth(new Map([['main', checks]]));
  };

  drain(): void {
    this.#server?.drain();
  }

  async stop(): Promise<void> {
    await this.#server?.stop();
  }
}

interface ThreadServerOptions extends Pick<ThreadMakers, 'createApp'> {
  readonly observe: Observer;
  readonly onRequest: RequestListener | null;
}

/** The server of one thread: its application behind its HTTP server. */
export class ThreadServer implements LocalServer {
  #http: HttpServer | null = null;

  private constructor(
    readonly app: App,
    private readonly start: (address: ListenAddress | null) => Promise<HttpServer>,
    private readonly shutdownTimeout: number,
  ) {}

  static async create(
    config: Config,
    core: Core,
    shared: Omit<Shared, 'fetch'>,
    { createApp, observe, onRequest }: ThreadServerOptions,
  ): Promise<ThreadServer> {
    const fetch: Shared['fetch'] = (request, source) => server.fetch(request, source);
    const app = await createApp(config, core, { ...shared, fetch }, observe);
    const { router, names, sockets, recorder } = app;
    const { responseMemory } = core.database;
    const revisions: Revisions = {
      get identities() {
        return app.generation();
      },
      get readHooks() {
        return core.reads.hookRevision;
      },
    };
    const replies = core.executors.replies(revisions, recorder);
    const { requests: limit } = shared.limits;
    const options = { config, limit, responseMemory, observe, onRequest, names, sockets, recorder, replies };
    const start = async (address: ListenAddress | null): Promise<HttpServer> => {
      const listen = address && { transport: (await chooseTransport(config)).transport, address };
      return startHttpServer(router, { ...options, listen });
    };
    const server = new ThreadServer(app, start, config.SHUTDOWN_TIMEOUT);
    return server;
  }

  get items(): ItemsServices {
    return this.app.items;
  }

  watchChanges(listener: (event: ChangeEvent) => void): Promise<void> {
    return this.app.watchChanges(listener);
  }

  fetch(request: Request, source: RequestSource): Promise<Response> {
    if (!this.#http) throw serviceUnavailable('lateral', 'It is starting');
    return this.#http.fetch(request, source);
  }

  /** Returns the port, or 0 without an address. */
  async listen(address: ListenAddress | null): Promise<number> {
    this.#http = await this.start(address);
    return this.#http.port;
  }

  async apply(message: Broadcast | { readonly kind: 'serving' }): Promise<void> {
    if (message.kind !== 'serving') this.app.apply(message);
    else {
      this.#http?.startServing();
      await this.app.serving();
    }
  }

  drain(): void {
    void this.app.stopping();
    this.#http?.drain();
  }

  async stop(): Promise<void> {
    this.drain();
    await Promise.all([this.app.endProcesses(), this.#http?.close(this.shutdownTimeout)]);
    await this.app.ended();
    await this.app.stopping();
  }

  /** Closes all sockets at once. */
  abandon(): void {
    this.#http?.abandon();
  }
}
