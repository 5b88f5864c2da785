/** Calls of programs, extensions and tests: each is a request to the service of this thread, as a named caller. */

import { invalidQuery, LateralError } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import { parseOwnJson, propertiesOf } from '../../base/narrow.js';
import { NO_AUTHOR } from '../../compiler/plan/write/write.js';
import { parseRead, parseSearch } from '../../compiler/request/rest.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import type { NamedCaller } from '../../server/access/identities.js';
import type { Identity } from '../../server/access/identity.js';
import type { As, CompiledRequest, Item, Items, LateralApi, TransactionApi } from '../../server/execute/hooks/api.js';
import type { CallerApi } from '../../server/execute/hooks/definition.js';
import { NO_CLIENT } from '../../server/execute/stages.js';
import type { CalledService } from '../../server/feature/local-server.js';
import { type ItemsCall, itemsApi } from './items-api.js';
import { TransactionItems } from './transaction-items.js';

/** `local` throws if the service does not run. */
export class ProgramApi implements LateralApi {
  constructor(private readonly local: () => CalledService) {}

  callerOf(as: As, address = ''): Promise<Identity> {
    return this.local().items.identities.named(namedCaller(as), address);
  }

  items<Row extends object = Item>(collection: string, { as }: { readonly as: As }): Items<Row> {
    const caller = namedCaller(as);
    return this.#items<Row>(collection, () => this.local().items.identities.named(caller, ''));
  }

  #items<Row extends object>(collection: string, callerOf: () => Promise<Identity>): Items<Row> {
    return itemsApi<Row>(collection, async <Data>(call: ItemsCall) => {
      const caller = await callerOf();
      return dataOf<Data>(await this.local().fetch(itemsRequest(call), { address: '', caller }));
    });
  }

  async graphql<Data = Record<string, unknown>>(
    document: string,
    variables: Readonly<Record<string, unknown>> | undefined,
    { as }: { readonly as: As },
  ): Promise<Data> {
    return this.#graphql<Data>(document, variables, await this.callerOf(as));
  }

  async #graphql<Data>(
    document: string,
    variables: Readonly<Record<string, unknown>> | undefined,
    caller: Identity,
  ): Promise<Data> {
    const body = JSON.stringify({ query: document, variables });
    const headers = { 'content-type': 'application/json' };
    const request = new Request('http://lateral/graphql', { method: 'POST', headers, body });
    const response = await this.local().fetch(request, { address: '', caller });
    const { data, errors } = parseOwnJson<{ data: Data; errors?: unknown }>(await response.text());
    if (errors !== undefined) throw errorOf(response.status, errors);
    return data;
  }

  /** All writes of `work` are committed together, or none. After a conflict with another transaction `work` runs again. */
  async transaction<Result>(
    work: (tx: TransactionApi) => Promise<Result>,
    { as }: { readonly as: As },
  ): Promise<Result> {
    const caller = await this.callerOf(as);
    const writer = { caller, author: { ...NO_AUTHOR, user: caller.user } };
    return this.local().items.writes.inOneTransaction({ writer, client: NO_CLIENT }, async (writes, session) => {
      const scope = writes.scopeOf(session, { writer, client: NO_CLIENT });
      const tx = new TransactionItems(async () => ({ ...scope, callerOf: (each) => this.callerOf(each) }));
      const outcome = await Promise.resolve(tx)
        .then(work)
        .then(
          (result) => ({ result }),
          (error: unknown) => ({ error }),
        );
      await tx.close('error' in outcome);
      if ('error' in outcome) throw outcome.error;
      return outcome.result;
    });
  }

  /** The statement of a read of items, such as `new Request('http://lateral/items/articles?limit=1')`. It is not run. */
  async compile(request: Request, { as }: { readonly as: As }): Promise<CompiledRequest> {
    const named = await this.callerOf(as);
    const { limits, reads } = this.local().items;
    const { pathname, search } = new URL(request.url);
    const [, collection, key] = /^\/items\/([^/]+)(?:\/([^/]+))?$/.exec(pathname)?.map(decoded) ?? [];
    if (collection === undefined || (request.method !== 'GET' && request.method !== 'SEARCH'))
      throw invalidQuery('"compile" takes a GET or SEARCH of /items/<collection>');
    const query =
      request.method === 'GET'
        ? parseRead(collection, key ?? null, search.slice(1), limits)
        : parseSearch(collection, parseJson(await request.text()), search.slice(1), limits);
    const caller = await reads.conditioned(query, named, NO_CLIENT);
    const compiled = await reads.prepare(query, caller, NO_CLIENT);
    const { text, parameters } = reads.bind({ query, compiled, caller });
    return { sql: text, parameters };
  }

  /** The same with the caller of a request for `as: 'caller'`. */
  apiFor(caller: Identity): CallerApi {
    const identityOf = async (as: As | 'caller'): Promise<Identity> => (as === 'caller' ? caller : this.callerOf(as));
    return {
      items: <Row extends object = Item>(collection: string, { as }: { readonly as: As | 'caller' }) =>
        this.#items<Row>(collection, () => identityOf(as)),
      graphql: async (document, variables, { as }) => this.#graphql(document, variables, await identityOf(as)),
    };
  }
}

/** The caller that a program names for each of its requests. It is required: a program that forgets it must not act as an administrator. */
export function namedCaller(as: unknown): NamedCaller {
  if (as === 'administrator' || as === 'public') return { kind: as };
  const [entry, ...others] = isObject(as) ? Object.entries(as) : [];
  const [name, value] = entry ?? [];
  if (others.length > 0 || typeof value !== 'string') throw invalidAs();
  if (name === 'token' && /^[\x21-\x7e]+$/.test(value)) return { kind: 'token', token: value };
  if (!UUID_PATTERN.test(value)) throw invalidAs();
  if (name === 'user') return { kind: 'user', user: value, session: null };
  if (name === 'role') return { kind: 'role', role: value };
  throw invalidAs();
}

function invalidAs(): Error {
  return invalidQuery('"as" must be "administrator", "public", { user: <id> }, { role: <id> } or { token: <token> }');
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
  // A URL would lose them, and the request would concern all items.
  for (const each of [collection, key])
    if (each === '.' || each === '..') throw invalidQuery(`"${each}" is no collection and no key`);
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
