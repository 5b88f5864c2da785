/** The service inside of a Node program: it is started, called and stopped there. */
import type { Identity } from '../access/identity.js';
import { invalidQuery, LateralError, serviceUnavailable } from '../base/errors.js';
import { isObject, parseJson } from '../base/exact-json.js';
import { parseOwnJson, propertiesOf } from '../base/narrow.js';
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
import { type ItemsCall, itemsApi } from '../engine/extensions/items-api.js';
import { namedCaller } from '../engine/extensions/named-caller.js';
import { TransactionItems } from '../engine/extensions/transaction-items.js';
import { NO_CLIENT } from '../engine/stages.js';
import { NO_AUTHOR } from '../plan/write/write.js';
import { parseRead, parseSearch } from '../request/rest.js';
import { type Service, type StartOptions, startService } from './start.js';
import type { LocalServer } from './threads/threads.js';

type Listener<Name extends keyof LateralEvents> = (...values: LateralEvents[Name]) => void;

export class LateralService implements Lateral {
  readonly #listeners: { readonly [Name in keyof LateralEvents]: Listener<Name>[] } = { request: [], log: [] };
  #service: Service | null = null;
  #isStopped = false;

  constructor(
    private readonly config: Config,
    private readonly log: Observer = createObserver(config.LOG_LEVEL),
    private readonly report: (message: string) => void = () => {},
  ) {}

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
      this.log(event);
      for (const listener of this.#listeners.log) listener(event);
    };
    const onRequest =
      this.#listeners.request.length === 0
        ? null
        : (request: RequestEvent): void => {
            for (const listener of this.#listeners.request) listener(request);
          };
    const options: StartOptions = { signal, listens: listen, onRequest };
    this.#service = await startService(this.config, observe, this.report, options);
    return this;
  }

  /** The URL of the service; '' without a port. */
  get url(): string {
    return this.#running.url;
  }

  /** The first administrator if this start created one, else null. */
  get administrator(): Service['administrator'] {
    return this.#running.administrator;
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
    const caller = as === undefined ? null : await this.#caller(as, address);
    return local.fetch(request, { address, caller });
  };

  items<Row extends object = Item>(collection: string, { as }: { readonly as: As }): Items<Row> {
    const caller = namedCaller(as);
    return itemsApi<Row>(collection, async <Data>(call: ItemsCall) => {
      const local = this.#local();
      const identity = await local.app.identities.named(caller, '');
      return dataOf<Data>(await local.fetch(itemsRequest(call), { address: '', caller: identity }));
    });
  }

  async graphql<Data = Record<string, unknown>>(
    document: string,
    variables: Readonly<Record<string, unknown>> | undefined,
    { as }: { readonly as: As },
  ): Promise<Data> {
    const caller = await this.#caller(as);
    const body = JSON.stringify({ query: document, variables });
    const headers = { 'content-type': 'application/json' };
    const request = new Request('http://lateral/graphql', { method: 'POST', headers, body });
    const response = await this.#local().fetch(request, { address: '', caller });
    const { data, errors } = parseOwnJson<{ data: Data; errors?: unknown }>(await response.text());
    if (errors !== undefined) throw errorOf(response.status, errors);
    return data;
  }

  /** All writes of `work` are committed together, or none. After a conflict with another transaction `work` runs again. */
  async transaction<Result>(
    work: (tx: TransactionApi) => Promise<Result>,
    { as }: { readonly as: As },
  ): Promise<Result> {
    const caller = await this.#caller(as);
    const { core } = this.#local();
    const writer = { caller, author: { ...NO_AUTHOR, user: caller.user } };
    return core.writes.inOneTransaction({ writer, client: NO_CLIENT }, async (writes, session) => {
      const scope = writes.scopeOf(session, { writer, client: NO_CLIENT });
      const tx = new TransactionItems({ ...scope, callerOf: (each) => this.#caller(each) });
      try {
        return await work(tx);
      } finally {
        await tx.close();
      }
    });
  }

  /** The statement of a read of items, such as `new Request('http://lateral/items/articles?limit=1')`. It is not run. */
  async compile(request: Request, { as }: { readonly as: As }): Promise<CompiledRequest> {
    const caller = await this.#caller(as);
    const { app, core } = this.#local();
    const { pathname, search } = new URL(request.url);
    const [, collection, key] = /^\/items\/([^/]+)(?:\/([^/]+))?$/.exec(pathname)?.map(decoded) ?? [];
    if (collection === undefined || (request.method !== 'GET' && request.method !== 'SEARCH'))
      throw invalidQuery('"compile" takes a GET or SEARCH of /items/<collection>');
    const query =
      request.method === 'GET'
        ? parseRead(collection, key ?? null, search.slice(1), app.limits)
        : parseSearch(collection, parseJson(await request.text()), search.slice(1), app.limits);
    const compiled = await core.reads.prepare(query, caller, NO_CLIENT);
    const { text, parameters } = core.reads.bind({ query, compiled, caller });
    return { sql: text, parameters };
  }

  #caller(as: As, address = ''): Promise<Identity> {
    return this.#local().app.identities.named(namedCaller(as), address);
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

function decoded(part: string | undefined): string | undefined {
  try {
    return part === undefined ? undefined : decodeURIComponent(part);
  } catch {
    throw invalidQuery('The path is not valid');
  }
}

/** Collections of the service have routes of their own: `/users` for `service_users`. */
function itemsRequest({ method, collection, key, queryString, body }: ItemsCall): Request {
  const path = collection.startsWith('service_')
    ? `/${encodeURIComponent(collection.slice('service_'.length))}`
    : `/items/${encodeURIComponent(collection)}`;
  const url = new URL(`${path}${key === null ? '' : `/${encodeURIComponent(key)}`}`, 'http://lateral');
  url.search = queryString;
  if (body === undefined) return new Request(url, { method });
  return new Request(url, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
}

/** A response without a body has no data. */
async function dataOf<Data>(response: Response): Promise<Data> {
  const text = (await response.text()) || '{"data":null}';
  const { data, errors } = parseOwnJson<{ data: Data; errors?: unknown }>(text);
  if (!response.ok) throw errorOf(response.status, errors);
  return data;
}

function errorOf(status: number, errors: unknown): LateralError {
  const [first] = Array.isArray(errors) ? errors : [];
  const { message, extensions } = propertiesOf(first);
  const { code, ...rest } = isObject(extensions) ? extensions : {};
  return new LateralError(status, String(code ?? 'INTERNAL_SERVER_ERROR'), String(message), rest);
}
