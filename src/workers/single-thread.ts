/** One thread, this one: it has the mirror at hand, and takes what it is told at once. */
import { Policies } from '../access/policies.js';
import type { Config } from '../config.js';
import { type HttpServer, listen } from '../http/app.js';
import { listenAddressOf } from '../http/listen.js';
import type { Observer } from '../observe.js';
import { type Health, joinHealth, unhealthy } from '../postgres/health.js';
import type { Gather } from '../resources/metrics.js';
import { createCore, createServing, type Serving } from '../worker-app.js';
import { type CentralNews, type Centre, type Threads, urlOf } from './threads.js';

export class SingleThread implements Threads {
  readonly #config: Config;
  readonly #observe: Observer;
  readonly #policies = new Policies();
  #serving: Serving | null = null;
  #http: HttpServer | null = null;
  /** Whatever would end this thread ends the process. */
  readonly failure = new Promise<Error>(() => {});

  constructor(config: Config, observe: Observer) {
    this.#config = config;
    this.#observe = observe;
  }

  async tell(news: CentralNews): Promise<void> {
    if (news.kind === 'policies') this.#policies.take(news.text);
    else if (news.kind !== 'structure') this.#serving?.take(news);
  }

  async serve(centre: Centre): Promise<string> {
    const { secret, limits } = centre;
    const config = this.#config;
    let url = '';
    const core = createCore(config, { ...centre, policies: this.#policies }, this.#observe);
    const shared = {
      secret,
      limits,
      tell: (news: CentralNews) => this.tell(news),
      accessChanged: () => centre.accessChanged(),
      url: () => url,
      events: centre.events,
      gather: this.gather,
      health: this.health,
    };
    this.#serving = await createServing(config, core, shared, this.#observe);
    this.#http = await listen(this.#serving.router, {
      config,
      place: listenAddressOf(config),
      limit: limits.requests,
      room: core.database.responseMemory,
      observe: this.#observe,
    });
    url = urlOf(config, this.#http.port);
    return url;
  }

  readonly gather: Gather = async () => (this.#serving ? [await this.#serving.collect()] : []);

  readonly health = async (): Promise<Health> => {
    const checks = this.#serving ? await this.#serving.check() : unhealthy('service:thread', 'it does not serve yet');
    return joinHealth(new Map([['main', checks]]));
  };

  async stop(): Promise<void> {
    this.#serving?.stopping();
    await this.#http?.close(this.#config.SHUTDOWN_TIMEOUT);
  }
}
