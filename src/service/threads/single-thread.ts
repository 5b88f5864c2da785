/** One thread, this one: it uses the mirror itself, and applies a broadcast at once. */
import { Policies } from '../../access/policies.js';
import type { Gather } from '../../api/server/metrics.js';
import type { Observer } from '../../base/observe.js';
import type { Config } from '../../config/config.js';
import { type HttpServer, startHttpServer } from '../../http/app.js';
import { listenAddressOf } from '../../http/listen.js';
import { type Health, joinHealth, unhealthy } from '../../postgres/health.js';
import { createCore, createWorkerApp, type WorkerApp } from '../app.js';
import { type MainBroadcast, type MainContext, type Threads, urlOf } from './threads.js';

export class SingleThread implements Threads {
  readonly #config: Config;
  readonly #observe: Observer;
  readonly #policies = new Policies();
  #app: WorkerApp | null = null;
  #http: HttpServer | null = null;
  /** Whatever would end this thread ends the process. */
  readonly failure = new Promise<Error>(() => {});

  constructor(config: Config, observe: Observer) {
    this.#config = config;
    this.#observe = observe;
  }

  async broadcast(message: MainBroadcast): Promise<void> {
    if (message.kind === 'policies') this.#policies.apply(message.text);
    else if (message.kind === 'serving') this.#http?.open();
    else if (message.kind !== 'schema') this.#app?.apply(message);
  }

  async serve(main: MainContext): Promise<string> {
    const { secret, limits } = main;
    const config = this.#config;
    let url = '';
    const core = createCore(config, { ...main, policies: this.#policies }, this.#observe);
    const shared = {
      secret,
      limits,
      broadcast: (message: MainBroadcast) => this.broadcast(message),
      accessChanged: () => main.accessChanged(),
      url: () => url,
      events: main.events,
      gather: this.gather,
      shapes: async () => core.reads.shapeStats.reports,
      health: this.health,
    };
    this.#app = await createWorkerApp(config, core, shared, this.#observe);
    this.#http = await startHttpServer(this.#app.router, {
      config,
      address: listenAddressOf(config),
      limit: limits.requests,
      responseMemory: core.database.responseMemory,
      observe: this.#observe,
      names: this.#app.names,
      sockets: this.#app.sockets,
    });
    url = urlOf(config, this.#http.port);
    return url;
  }

  readonly gather: Gather = async () => (this.#app ? [await this.#app.collect()] : []);

  readonly health = async (): Promise<Health> => {
    const checks = this.#app ? await this.#app.check() : unhealthy('service:thread', 'it does not serve yet');
    return joinHealth(new Map([['main', checks]]));
  };

  drain(): void {
    void this.#app?.stopping();
    this.#http?.drain();
  }

  async stop(): Promise<void> {
    this.drain();
    await Promise.all([this.#app?.endProcesses(), this.#http?.close(this.#config.SHUTDOWN_TIMEOUT)]);
    await this.#app?.stopping();
  }
}
