/** The service as an object of a Node program: what `createLateral` of src/index.ts returns. */
import { invalidQuery, StartError, serviceUnavailable } from '../base/errors.js';
import { messageOf } from '../base/narrow.js';
import { createObserver, type Observer } from '../base/observe.js';
import type { Config } from '../config/config.js';
import type {
  As,
  CompiledRequest,
  FetchOptions,
  Item,
  Items,
  Lateral,
  LateralEvents,
  RequestEvent,
  TransactionApi,
} from '../engine/extensions/api.js';
import type { Extension } from '../engine/extensions/definition.js';
import { ProgramApi } from './program-api.js';
import { type Service, type StartOptions, startService } from './start.js';
import type { LocalServer } from './threads/local-server.js';

type Listener<Name extends keyof LateralEvents> = (...values: LateralEvents[Name]) => void;

interface LateralServiceOptions {
  readonly extensions?: readonly Extension[];
  readonly log?: Observer;
  /** Gets messages about the progress of the start. */
  readonly report?: (message: string) => void;
}

export class LateralService implements Lateral {
  readonly #listeners: { readonly [Name in keyof LateralEvents]: Listener<Name>[] } = {
    request: [],
    change: [],
    log: [],
  };
  readonly #api = new ProgramApi(() => this.#local());
  #service: Service | null = null;
  #isStopped = false;

  readonly #log: Observer;
  readonly #report: (message: string) => void;
  readonly #extensions: readonly Extension[];

  constructor(
    private readonly config: Config,
    { extensions = [], log = createObserver(config.LOG_LEVEL), report = () => {} }: LateralServiceOptions = {},
  ) {
    this.#log = log;
    this.#report = report;
    this.#extensions = extensions;
  }

  /** Adds a listener. An error that it throws is not caught. */
  on<Name extends keyof LateralEvents>(name: Name, listener: Listener<Name>): this {
    const listeners: Listener<Name>[] | undefined = this.#listeners[name];
    if (!listeners) throw new Error(`unknown event "${name}": there are ${Object.keys(this.#listeners).join(', ')}`);
    listeners.push(listener);
    return this;
  }

  /** Rejects with a message that says what is wrong. With `listen: false` it opens no port. */
  async start({
    listen = true,
    signal,
  }: {
    readonly listen?: boolean;
    readonly signal?: AbortSignal;
  } = {}): Promise<this> {
    if (this.#service) throw new Error('Lateral was started already');
    const observe: Observer = (event) => {
      this.#log(event);
      for (const listener of this.#listeners.log) listener(event);
    };
    const onRequest =
      this.#listeners.request.length === 0
        ? null
        : (request: RequestEvent): void => {
            for (const listener of this.#listeners.request) listener(request);
          };
    const options: StartOptions = { signal, listens: listen, onRequest, extensions: this.#extensions };
    const service = await startService(this.config, observe, this.#report, options);
    this.#service = service;
    if (this.#listeners.change.length > 0)
      await this.#watchChanges().catch(async (error: unknown) => {
        await service.stop();
        throw new StartError(`changes cannot be reported: ${messageOf(error)}`);
      });
    return this;
  }

  #watchChanges(): Promise<void> {
    return this.#local().app.watchChanges((event) => {
      for (const listener of this.#listeners.change) listener(event);
    });
  }

  /** The URL of the service; '' without a port. */
  get url(): string {
    return this.#running.url;
  }

  /** The first administrator if this start created one, else null. */
  get administrator(): Service['administrator'] {
    return this.#running.administrator;
  }

  /** A path worth trying first. */
  get example(): string {
    return this.#running.example;
  }

  /** Resolves if the service fails later: it must be stopped then. */
  get failure(): Promise<Error> {
    return this.#running.failure;
  }

  /** Finishes the running requests, then stops everything that was started. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#service?.stop();
  }

  /** Answers a request as the port does. */
  readonly fetch = async (request: Request, { as, address = '' }: FetchOptions = {}): Promise<Response> => {
    const local = this.#local();
    if (request.headers.has('upgrade')) throw invalidQuery('WebSockets need the port: fetch cannot answer an upgrade');
    const caller = as === undefined ? null : await this.#api.callerOf(as, address);
    return local.fetch(request, { address, caller });
  };

  items<Row extends object = Item>(collection: string, options: { readonly as: As }): Items<Row> {
    return this.#api.items<Row>(collection, options);
  }

  graphql<Data = Record<string, unknown>>(
    document: string,
    variables: Readonly<Record<string, unknown>> | undefined,
    options: { readonly as: As },
  ): Promise<Data> {
    return this.#api.graphql<Data>(document, variables, options);
  }

  transaction<Result>(work: (tx: TransactionApi) => Promise<Result>, options: { readonly as: As }): Promise<Result> {
    return this.#api.transaction(work, options);
  }

  compile(request: Request, options: { readonly as: As }): Promise<CompiledRequest> {
    return this.#api.compile(request, options);
  }

  get #running(): Service {
    if (!this.#service) throw new Error('Lateral is not started: await start() first');
    return this.#service;
  }

  #local(): LocalServer {
    if (this.#isStopped) throw serviceUnavailable('lateral', 'It was stopped');
    const { local } = this.#running;
    if (!local) throw new Error('calls of the program need WORKERS=1: with more, other threads serve');
    return local;
  }
}
