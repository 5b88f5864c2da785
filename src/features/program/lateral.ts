/** The service as an object of a Node program: what `createLateral` of src/index.ts returns. */

import { invalidQuery, StartError, serviceUnavailable } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import type { Identity } from '../../server/access/identity.js';
import type { Config } from '../../server/config/config.js';
import type { As, CompiledRequest, Item, Items, RequestEvent, TransactionApi } from '../../server/execute/hooks/api.js';
import type { Extension } from '../../server/execute/hooks/definition.js';
import type { LocalServer } from '../../server/feature/local-server.js';
import { ProgramApi } from '../extensions/program-api.js';
import type { FetchOptions, Lateral, LateralEvents } from './api.js';

/** A service that runs. */
interface Service {
  readonly url: string;
  readonly administrator: { readonly email: string; readonly password: string; readonly token: string } | null;
  readonly example: string;
  readonly failure: Promise<Error>;
  readonly local: LocalServer | null;
  stop(): Promise<void>;
}

interface StartOptions {
  readonly signal: AbortSignal;
  readonly listens: boolean;
  readonly onRequest: ((request: RequestEvent) => void) | null;
  readonly extensions: readonly Extension[];
}

/** Starts a service of the program. */
type StartService = (
  config: Config,
  log: Observer,
  report: (message: string) => void,
  options: StartOptions,
) => Promise<Service>;

type Listener<Name extends keyof LateralEvents> = (...values: LateralEvents[Name]) => void;

interface LateralServiceOptions {
  readonly extensions?: readonly Extension[];
  readonly log: Observer;
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
  /** The start that runs, or has succeeded. Null before it, after a failed one, and after the stop. */
  #starting: Promise<void> | null = null;
  /** Ends a start that runs. */
  #ending: AbortController | null = null;
  #isStopped = false;

  readonly #log: Observer;
  readonly #report: (message: string) => void;
  readonly #extensions: readonly Extension[];

  constructor(
    private readonly config: Config,
    private readonly startService: StartService,
    { extensions = [], log, report = () => {} }: LateralServiceOptions,
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
    if (this.#starting) throw new Error('Lateral was started already');
    this.#isStopped = false;
    const ending = new AbortController();
    const starting = this.#start(listen, signal ? AbortSignal.any([signal, ending.signal]) : ending.signal);
    this.#ending = ending;
    this.#starting = starting;
    try {
      await starting;
    } catch (error) {
      if (this.#starting === starting) this.#starting = null;
      throw error;
    } finally {
      if (this.#ending === ending) this.#ending = null;
    }
    return this;
  }

  async #start(listen: boolean, signal: AbortSignal): Promise<void> {
    // After a stop, calls must not reach what was stopped.
    this.#service = null;
    const observe: Observer = (event) => {
      this.#log(event);
      tell(this.#listeners.log, event);
    };
    const onRequest =
      this.#listeners.request.length === 0
        ? null
        : (request: RequestEvent): void => tell(this.#listeners.request, request);
    const options: StartOptions = { signal, listens: listen, onRequest, extensions: this.#extensions };
    const service = await this.startService(this.config, observe, this.#report, options);
    this.#service = service;
    if (this.#isStopped) throw stoppedEarly();
    if (this.#listeners.change.length > 0)
      await this.#watchChanges().catch(async (error: unknown) => {
        this.#service = null;
        await service.stop();
        throw new StartError(`changes cannot be reported: ${messageOf(error)}`);
      });
  }

  #watchChanges(): Promise<void> {
    return this.#local().watchChanges((event) => tell(this.#listeners.change, event));
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
    const starting = this.#starting;
    this.#ending?.abort(stoppedEarly());
    await starting?.catch(() => {});
    await this.#service?.stop();
    if (this.#starting === starting) this.#starting = null;
  }

  /** Answers a request as the port does. */
  readonly fetch = async (request: Request, { as, address = '' }: FetchOptions = {}): Promise<Response> => {
    const local = this.#local();
    const { url, headers, signal }: Partial<Request> = Object(request);
    if (typeof url !== 'string' || !headers || !signal)
      throw invalidQuery('"fetch" takes a Request, such as new Request("http://lateral/items/articles")');
    if (headers.has('upgrade')) throw invalidQuery('WebSockets need the port: fetch cannot answer an upgrade');
    if (as === undefined) return local.fetch(request, { address, caller: null });
    const renew = (): Promise<Identity> => this.#api.callerOf(as, address);
    return local.fetch(request, { address, caller: await renew(), renew });
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
    if (this.#service === null && this.#starting !== null) throw serviceUnavailable('lateral', 'It is starting');
    const { local } = this.#running;
    if (!local) throw new Error('calls of the program need WORKERS=1: with more, other threads serve');
    return local;
  }
}

/** An error of a listener is an uncaught one. Thrown at once, it would end the work that is reported. */
function tell<Value>(listeners: readonly ((value: Value) => void)[], value: Value): void {
  for (const listener of listeners)
    try {
      listener(value);
    } catch (error) {
      process.nextTick(() => {
        throw error;
      });
    }
}

function stoppedEarly(): Error {
  return new StartError('it was stopped while it started');
}
