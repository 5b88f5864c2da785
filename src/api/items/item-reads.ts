/** Reading items: whole, streamed, exported or explained. */
import { build } from 'fast-json-stringify';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import { mayExplain } from '../../access/view-as.js';
import { forbidden, invalidQuery } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import { type MaybePromise, type ReadStages, RepliedRead, read } from '../../engine/pipeline.js';
import type { CompiledRead } from '../../engine/reads/compiled-read.js';
import type { PreparedRead, Reads } from '../../engine/reads/reads.js';
import type { RequestClient } from '../../engine/stages.js';
import type { Writes } from '../../engine/writes/writes.js';
import { isNotModified, tagOf } from '../../http/etag.js';
import type { Exchange } from '../../http/exchange.js';
import {
  contentDisposition,
  DEFERRED,
  JSON_TYPE,
  jsonText,
  type Outcome,
  type Produce,
  type Reply,
} from '../../http/reply.js';
import type { LiveQueries } from '../../live/queries/live-queries.js';
import type { ExportFormat, Parsed } from '../../request/ast.js';
import { limitsOf, type ParseLimits } from '../../request/parse-context.js';
import { parseRead, parseSearch } from '../../request/rest.js';
import type { UrlCache } from '../../request/url-cache.js';
import { COMMA, FORMATS, type Format, geojson, joinCells } from './export-formats.js';
import { eventStream, preferredWait, waitForChange, wantsEvents } from './live.js';

export function readItems(exchange: Exchange, services: ItemsServices, urls: UrlCache, path: ItemPath): Outcome {
  if (wantsEvents(exchange)) return liveItems(exchange, services, urls, path);
  if (preferredWait(exchange) > 0) return waitForItems(exchange, services, urls, path);
  return read(new ItemsRead(exchange, services, urls, path), services.reads);
}

function liveItems(exchange: Exchange, services: ItemsServices, urls: UrlCache, path: ItemPath): Outcome {
  if (exchange.method === 'SEARCH') return liveSearch(exchange, services, path);
  const parsed = parseUrl(exchange, urls, path, wholeAnswers(services.limits), 'live');
  return eventStream(exchange, services, () => parsed);
}

async function liveSearch(
  exchange: Exchange,
  services: ItemsServices,
  { collection }: ItemPath,
): Promise<Reply | typeof DEFERRED> {
  const body = await exchange.json(parseJson);
  const parsed = parseSearch(
    collection,
    body,
    exchange.queryString,
    limitsOf(wholeAnswers(services.limits), exchange.prefer),
  );
  return eventStream(exchange, services, () => parsed);
}

/** A read that cannot be live is answered at once, as without the preference. */
async function waitForItems(
  exchange: Exchange,
  services: ItemsServices,
  urls: UrlCache,
  path: ItemPath,
): Promise<Reply | typeof DEFERRED> {
  if ((await services.live.obstacle()) !== null)
    return read(new ItemsRead(exchange, services, urls, path), services.reads);
  const parsed = parseUrl(exchange, urls, path, wholeAnswers(services.limits), 'live');
  return waitForChange(exchange, services, () => parsed, preferredWait(exchange));
}

/** Answers of live queries and over WebSockets are never streamed. */
export function wholeAnswers(limits: ParseLimits): ParseLimits {
  const unlimited = Number.MAX_SAFE_INTEGER;
  return { ...limits, pageSize: limits.pageSize ?? unlimited, wholeRows: unlimited };
}

/** `use` names the limits, which are part of the cache key. */
function parseUrl(
  { queryString, prefer }: Exchange,
  urls: UrlCache,
  { collection, key }: ItemPath,
  given: ParseLimits,
  use: 'once' | 'live',
): Parsed {
  const limits = limitsOf(given, prefer);
  const path = `${limits === given ? use : `strict ${use}`} ${key === null ? 'list' : 'item'} ${collection}`;
  const parsed = urls.get(path, queryString, (text) => parseRead(collection, key, text, limits));
  // The key of an item is the first value: only it differs between requests with the same query.
  if (key === null) return parsed;
  return { ...parsed, values: parsed.values.length === 1 ? [key] : [key, ...parsed.values.slice(1)] };
}

/** The stages of GET and SEARCH. */
export class ItemsRead extends RepliedRead implements ReadStages<Parsed, Reply | typeof DEFERRED> {
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
    return this.client.method === 'SEARCH'
      ? this.#parseBody()
      : parseUrl(this.client, this.urls, this.path, this.services.limits, 'once');
  }

  async #parseBody(): Promise<Parsed> {
    const body = await this.client.json(parseJson);
    const limits = limitsOf(this.services.limits, this.client.prefer);
    return parseSearch(this.path.collection, body, this.client.queryString, limits);
  }

  execute(prepared: PreparedRead<Parsed>): MaybePromise<Reply | typeof DEFERRED> {
    const { reads } = this.services;
    const explain = explainPreference(this.client.headers.prefer);
    if (explain) return explainItems(prepared, reads, explain);
    if (prepared.query.format) return exportItems(prepared, prepared.query.format, reads, this.client).reply;
    if (prepared.compiled.stream) return streamItems(prepared, reads, this.client);
    reads.answer(prepared, this.as(prepared.caller));
    return DEFERRED;
  }

  protected reply(body: Buffer | null): void {
    if (body === null) this.client.respondError(forbidden());
    else this.client.respond(taggedReply(this.client, body));
  }

  onError(error: unknown): void {
    this.client.respondError(error);
  }
}

type ExplainPreference = 'explain' | 'explain=analyze';

/** Whether the caller asks for the statement instead of its result. */
export function explainPreference(prefer: string): ExplainPreference | undefined {
  if (prefer === '') return undefined;
  const preferences = prefer.split(',').map((each) => each.trim());
  return preferences.find((each) => each === 'explain' || each === 'explain=analyze');
}

/** A strong tag of the bytes: a client that has them already is spared the transfer. */
function taggedReply(exchange: Exchange, body: Buffer): Reply {
  if (exchange.method === 'SEARCH' || exchange.method === 'POST') return { status: 200, type: JSON_TYPE, body };
  const tag = tagOf(body);
  if (isNotModified(exchange.headers.ifNoneMatch, tag)) return { status: 304, type: '', body: '', tag };
  return { status: 200, type: JSON_TYPE, body, tag };
}

/** A list that may be large, in the envelope of every other list. */
function streamItems(prepared: PreparedRead<Parsed>, reads: Reads, client: RequestClient): Reply {
  const { compiled } = prepared;
  const produce: Produce = async (sink) => {
    let items = 0;
    let opened = false;
    const take = async (cells: readonly Buffer[]): Promise<boolean> => {
      if (!opened) client.staged('execute');
      const rows = compiled.opening && !opened ? cells.slice(1) : cells;
      const opening = opened ? undefined : compiled.opening ? cells[0] : OPENING;
      opened = true;
      const piece = joinCells(rows, items === 0, opening);
      items += rows.length;
      return sink.write(piece);
    };
    await reads.stream(prepared, take, sink, COMMA);
    await sink.write(opened ? CLOSING : Buffer.concat([OPENING, CLOSING]));
  };
  return { status: 200, type: JSON_TYPE, body: produce };
}

const OPENING = Buffer.from('{"data":[');
const CLOSING = Buffer.from(']}');

export interface Export {
  readonly reply: Reply & { readonly body: Produce };
  /** The ending of the file's name, without a dot. */
  readonly extension: string;
}

export function exportItems(
  prepared: PreparedRead<Parsed>,
  name: ExportFormat,
  reads: Reads,
  client: RequestClient,
): Export {
  const { request } = prepared.query;
  const format: Format = name === 'geojson' ? featureFormat(prepared) : FORMATS[name];
  const produce: Produce = async (sink) => {
    let items = 0;
    const take = async (cells: readonly Buffer[], { columns }: CompiledRead): Promise<boolean> => {
      if (items === 0) client.staged('execute');
      const piece = writeItems(format, cells, items === 0, columns);
      const whole = items === 0 ? Buffer.concat([Buffer.from(format.open(columns)), piece]) : piece;
      items += cells.length;
      return sink.write(whole);
    };
    const { columns } = await reads.stream(prepared, take, sink, format.separator);
    if (items === 0 && request.target.kind === 'item') throw forbidden();
    const opening = Buffer.from(format.open(columns));
    const closing = Buffer.from(format.close);
    const rest =
      items > 0 ? closing : format.empty === undefined ? Buffer.concat([opening, closing]) : Buffer.from(format.empty);
    if (rest.length > 0) await sink.write(rest);
  };
  const { type, extension } = format;
  const disposition = contentDisposition('attachment', `${request.collection}.${extension}`);
  return { reply: { status: 200, type, body: produce, headers: { 'Content-Disposition': disposition } }, extension };
}

/** The only geometry of the items, or the one that was named. */
function featureFormat({ query, compiled: { geometryFields, keyField } }: PreparedRead<Parsed>): Format {
  const { geometry } = query;
  if (geometry !== undefined && !geometryFields.includes(geometry))
    throw invalidQuery(`"geometry": "${geometry}" is not a geometry field of the selected fields`);
  if (geometry === undefined && geometryFields.length !== 1)
    throw invalidQuery(
      geometryFields.length === 0
        ? 'An export as geojson needs a geometry field among the selected fields'
        : `An export as geojson needs "geometry": one of ${geometryFields.join(', ')}`,
    );
  return geojson(geometry ?? (geometryFields[0] as string), keyField);
}

/** Documents may be nested deeper than writers of other formats can follow. */
function writeItems(format: Format, ...batch: Parameters<Format['items']>): Buffer {
  try {
    return format.items(...batch);
  } catch (error) {
    if (error instanceof RangeError)
      throw invalidQuery(`A value is nested too deeply for an export as ${format.extension}`);
    throw error;
  }
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

export interface ItemsServices {
  readonly identities: Identities;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly limits: ParseLimits;
  readonly live: LiveQueries;
}

/** The collection or item that the path of a request names. */
export interface ItemPath {
  readonly collection: string;
  /** The key of the item, or null for the collection. */
  readonly key: string | null;
}
