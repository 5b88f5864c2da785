/**
 * /items: the items of every collection, and how they are read: whole, streamed, exported, explained or live. /rpc: functions of the
 * database. A call that returns rows of a collection is read as the collection is.
 */

import { build } from 'fast-json-stringify';
import {
  forbidden,
  forbiddenCollection,
  invalidQuery,
  methodNotAllowed,
  serviceUnavailable,
} from '../../../base/errors.js';
import { parseJson } from '../../../base/exact-json.js';
import { checkArguments } from '../../../compiler/plan/call-arguments.js';
import type { ExportFormat, Parsed } from '../../../compiler/request/ast.js';
import { UrlCache } from '../../../compiler/request/parse-cache.js';
import { limitsOf, type ParseLimits } from '../../../compiler/request/parse-context.js';
import { parseRead, parseRpc, parseRpcSearch, parseSearch, tagged } from '../../../compiler/request/rest.js';
import { isVolatile } from '../../../compiler/statements/read.js';
import type { Identity } from '../../access/identity.js';
import { mayExplain } from '../../access/view-as.js';
import { type MaybePromise, type ReadStages, read } from '../../execute/pipeline.js';
import { RepliedRead } from '../../execute/reads/read-listeners.js';
import type { PreparedRead, Reads } from '../../execute/reads/reads.js';
import { isNotModified, tagOf, withoutEnvelope, withoutRow } from '../../http/etag.js';
import type { Exchange } from '../../http/exchange.js';
import { DEFERRED, errorReply, JSON_TYPE, jsonText, type Outcome, type Reply } from '../../http/reply.js';
import type { Handler, Route } from '../../http/router.js';
import { systemTables } from '../../postgres/catalog/system-tables.js';
import {
  type ItemPath,
  type ItemsServices,
  readIdempotencyKey,
  writeItems,
  writerOf,
  writtenReply,
} from './item-writes.js';
import { preferredWait } from './live-reads.js';
import { streamItems } from './stream-items.js';

export function itemsRoutes(services: ItemsServices): Route[] {
  const system = systemTables();
  return resourceRoutes('/items/:collection', services, ({ parameters: [collection = '', key = null] }) => {
    if (system.has(collection)) throw forbiddenCollection(collection);
    return { collection, key };
  });
}

/** Reads and writes below a path, for the collection that it names. */
export function resourceRoutes(
  path: string,
  services: ItemsServices,
  itemPathOf: (exchange: Exchange) => ItemPath,
): Route[] {
  const urls = new UrlCache();
  const write: Handler = (exchange) => writeItems(exchange, services, urls, itemPathOf(exchange));
  return [
    ...readRoutes(path, services, itemPathOf),
    { method: 'POST', path, handle: write, isConditional: true },
    { method: 'PATCH', path, handle: write, isConditional: true },
    { method: 'PATCH', path: `${path}/:key`, handle: write, isConditional: true },
    { method: 'DELETE', path, handle: write, isConditional: true },
    { method: 'DELETE', path: `${path}/:key`, handle: write, isConditional: true },
  ];
}

export function readRoutes(
  path: string,
  services: ItemsServices,
  itemPathOf: (exchange: Exchange) => ItemPath,
): Route[] {
  const urls = new UrlCache();
  const read: Handler = (exchange) => readItems(exchange, services, urls, itemPathOf(exchange));
  return [
    { method: 'GET', path, handle: read },
    { method: 'SEARCH', path, handle: read },
    { method: 'GET', path: `${path}/:key`, handle: read },
  ];
}

/** Tables of the service itself have separate resources. */
export function refuseSystem(collection: string): void {
  if (systemTables().has(collection)) throw forbiddenCollection(collection);
}

export function readItems(exchange: Exchange, services: ItemsServices, urls: UrlCache, path: ItemPath): Outcome {
  const items = new ItemsRead(exchange, services, urls, path);
  if (exchange.wantsEvents) return items.subscribe();
  if (exchange.prefer !== '' && preferredWait(exchange) > 0) return items.wait();
  return read(items, services.reads);
}

/** Answers of live queries and over WebSockets are never streamed. */
export function wholeAnswers(limits: ParseLimits): ParseLimits {
  const unlimited = Number.MAX_SAFE_INTEGER;
  return { ...limits, pageSize: limits.pageSize ?? unlimited, wholeRows: unlimited };
}

/** The stages of GET and SEARCH. */
class ItemsRead extends RepliedRead implements ReadStages<Parsed, Reply | typeof DEFERRED> {
  #isBare = false;

  constructor(
    readonly client: Exchange,
    protected readonly services: ItemsServices,
    protected readonly urls: UrlCache,
    protected readonly path: ItemPath,
  ) {
    super();
  }

  identify(): MaybePromise<Identity> {
    return this.services.identities.identify(this.client);
  }

  parse(): MaybePromise<Parsed> {
    return this.#parse('once', this.services.limits);
  }

  execute(prepared: PreparedRead<Parsed>): MaybePromise<Reply | typeof DEFERRED> {
    const { reads } = this.services;
    const explain = explainPreference(this.client.headers.prefer);
    if (explain) return explainItems(prepared, reads, explain);
    if (prepared.query.format) return this.#export(prepared, prepared.query.format);
    const { plan } = prepared.compiled;
    if (plan.kind === 'read' && plan.stream) return streamItems(prepared, reads, this.client);
    this.#isBare = prepared.query.bare === true;
    this.identity = prepared.caller;
    reads.answer(prepared, this);
    return DEFERRED;
  }

  #export(prepared: PreparedRead<Parsed>, format: ExportFormat): Reply {
    const exportItems = this.services.exportItems();
    if (exportItems === null) throw invalidQuery('"export" needs the feature "export-formats"');
    return exportItems(prepared, format, this.services.reads, this.client);
  }

  protected reply(body: Buffer | null): void {
    if (body === null) this.client.respondError(forbidden());
    else this.client.respond(taggedReply(this.client, body, this.#isBare));
  }

  onError(error: unknown): void {
    this.client.respondError(error);
  }

  /** Sends the result, and again after each change, as events. */
  async subscribe(): Promise<Reply | typeof DEFERRED> {
    const parsed = enveloped(await this.#parse('live', wholeAnswers(this.services.limits)));
    const live = this.services.live();
    if (live === null) throw serviceUnavailable('live', 'There are no live queries');
    return live.stream(this.client, () => parsed);
  }

  /** Waits for a change. A read that cannot be live is answered at once, as without the preference. */
  async wait(): Promise<Reply | typeof DEFERRED> {
    const live = this.services.live();
    if (live === null || (await live.obstacle()) !== null) return read(this, this.services.reads);
    const parsed = enveloped(await this.#parse('wait', wholeAnswers(this.services.limits)));
    return live.wait(this.client, () => parsed, preferredWait(this.client));
  }

  /** `use` names the limits, which are part of the cache key. */
  #parse(use: 'once' | 'wait' | 'live', given: ParseLimits): MaybePromise<Parsed> {
    const { prefer } = this.client;
    const limits = prefer === '' ? given : limitsOf(given, prefer);
    if (this.client.method === 'SEARCH') return this.#parseBody(limits);
    const { collection, key } = this.path;
    const path = `${limits === given ? use : `strict ${use}`} ${key === null ? 'list' : 'item'} ${collection}`;
    const parsed = this.urls.get(path, this.client.queryString, (text) => {
      const read = parseRead(collection, key, text, limits);
      // Events have no entity tag.
      return use === 'live' ? read : tagged(read);
    });
    // The key of an item is the first value: only it differs between requests with the same query.
    if (key === null) return parsed;
    return { ...parsed, values: parsed.values.length === 1 ? [key] : [key, ...parsed.values.slice(1)] };
  }

  async #parseBody(limits: ParseLimits): Promise<Parsed> {
    return parseSearch(this.path.collection, await this.client.json(parseJson), this.client.queryString, limits);
  }
}

function enveloped(parsed: Parsed): Parsed {
  if (parsed.bare) throw invalidQuery('"envelope" must be true for live queries');
  return parsed;
}

type ExplainPreference = 'explain' | 'explain=analyze';

/** Whether the caller asks for the statement instead of its result. */
export function explainPreference(prefer: string): ExplainPreference | undefined {
  if (prefer === '') return undefined;
  const preferences = prefer.split(',').map((each) => each.trim());
  return preferences.find((each) => each === 'explain' || each === 'explain=analyze');
}

/** The content type that a QUERY may have (draft-ietf-httpbis-safe-method-w-body). */
const ACCEPT_QUERY = { 'Accept-Query': 'application/json' };

function hasTag({ method }: Exchange): boolean {
  return method !== 'SEARCH' && method !== 'POST';
}

/** The reply with a strong tag of the bytes, or 304 if the client has them already. */
export function taggedReply(exchange: Exchange, cell: Buffer, isBare = false): Reply {
  const { body: whole, row } = hasTag(exchange) ? withoutRow(cell) : { body: cell, row: '' };
  const body = isBare ? withoutEnvelope(whole) : whole;
  if (exchange.method === 'SEARCH') return { status: 200, type: JSON_TYPE, body, headers: ACCEPT_QUERY };
  if (exchange.method === 'POST') return { status: 200, type: JSON_TYPE, body };
  const tag = tagOf(body, row);
  if (isNotModified(exchange.headers.ifNoneMatch, tag)) return { status: 304, type: '', body: '', tag };
  return { status: 200, type: JSON_TYPE, body, tag };
}

const explanationBody = build({
  type: 'object',
  properties: {
    data: {
      type: 'object',
      properties: {
        sql: { type: 'string' },
        parameters: { type: 'array', items: { type: ['string', 'null'] } },
        plan_kind: { type: 'string' },
        cache: {},
        indexes: {},
        plan: {},
      },
    },
  },
});

/** For administrators: it reveals what the database holds. */
export async function explainItems(
  prepared: PreparedRead,
  reads: Reads,
  preference: ExplainPreference,
): Promise<Reply> {
  if (!mayExplain(prepared.caller)) throw forbidden();
  return jsonText(explanationBody({ data: await reads.explain(prepared, preference === 'explain=analyze') }));
}

export function functionRoutes(services: ItemsServices): Route[] {
  const urls = new UrlCache();
  const call = (exchange: Exchange): Outcome =>
    read(new FunctionRead(exchange, services, urls, pathOf(exchange)), services.reads);
  return [
    { method: 'GET', path: '/rpc/:function', handle: call },
    { method: 'POST', path: '/rpc/:function', handle: call },
    { method: 'SEARCH', path: '/rpc/:function', handle: call },
  ];
}

/** The path names the function in the place of a collection. */
function pathOf({ parameters: [name = ''] }: Exchange): ItemPath {
  return { collection: name, key: null };
}

class FunctionRead extends ItemsRead {
  #body: unknown;

  override parse(): MaybePromise<Parsed> {
    const { queryString, method } = this.client;
    const { limits } = this.services;
    if (method === 'POST' || method === 'SEARCH') return this.#parseBody(method === 'SEARCH');
    return this.urls.get(this.path.collection, queryString, (text) =>
      parseRpc(this.path.collection, undefined, text, limits),
    );
  }

  async #parseBody(isSearch: boolean): Promise<Parsed> {
    const { queryString } = this.client;
    const { limits } = this.services;
    this.#body = (await this.client.json(parseJson)) ?? {};
    return isSearch
      ? parseRpcSearch(this.path.collection, this.#body, queryString, limitsOf(limits, this.client.prefer))
      : parseRpc(this.path.collection, this.#body, queryString, limits);
  }

  override execute(prepared: PreparedRead<Parsed>): MaybePromise<Reply | typeof DEFERRED> {
    const { compiled, query, caller } = prepared;
    if (!isVolatile(compiled)) {
      checkArguments(compiled.calls, query.values);
      return super.execute(prepared);
    }
    if (this.client.method !== 'POST') {
      const refusal = methodNotAllowed(`The function "${this.path.collection}" may write: call it with POST`);
      return { ...errorReply(refusal), headers: { Allow: 'POST' } };
    }
    if (explainPreference(this.client.headers.prefer)) throw invalidQuery('"Prefer: explain" applies to reads');
    const idempotencyKey = readIdempotencyKey(this.client, caller, this.#body);
    const writer = writerOf(this.client, caller);
    return this.services.writes
      .call({ query, writer, client: this.client, idempotencyKey })
      .then((cell) => writtenReply(cell, query.bare));
  }
}
