/** Reading items: whole, streamed, exported or explained. */
import { build } from 'fast-json-stringify';
import { callerName, type Identity, onlyAdministrator } from '../access/identity.js';
import type { ReadListener } from '../batching/shape-queue.js';
import { parseJson } from '../digits.js';
import type { Compiled, Reads } from '../engine/reads.js';
import { forbidden, invalidQuery } from '../errors.js';
import { isHeld } from '../http/compress.js';
import { tagOf } from '../http/etag.js';
import type { Exchange } from '../http/exchange.js';
import { DEFERRED, JSON_TYPE, jsonText, type Outcome, type Produce, type Reply } from '../http/reply.js';
import type { ExportFormat, Parsed, ParsedOperation } from '../request/ast.js';
import type { ParseCache } from '../request/parse-cache.js';
import type { ParseLimits } from '../request/parse-context.js';
import { parseExport, parseRead, parseSearch } from '../request/rest.js';
import { COMMA, FORMATS, type Format, joinCells } from './formats.js';
import type { ItemPath, ItemsServices } from './item-path.js';

export interface ParsedUrl {
  readonly parsed: Parsed;
}

export function readItems(
  exchange: Exchange,
  services: ItemsServices,
  urls: ParseCache<ParsedUrl>,
  place: ItemPath,
): Outcome {
  const known = services.identities.identify(exchange);
  const read = (identity: Identity): Outcome => {
    exchange.staged('identify');
    if (exchange.method === 'SEARCH')
      return parseBody(exchange, services.limits, place).then((parsed) =>
        answerItems(exchange, services, parsed, identity),
      );
    return answerItems(exchange, services, parseUrl(exchange, services.limits, urls, place), identity);
  };
  return known instanceof Promise ? known.then(read) : read(known);
}

/** The items as a file, which a body describes. */
export async function exportFile(exchange: Exchange, services: ItemsServices, collection: string): Promise<Reply> {
  const identity = await services.identities.identify(exchange);
  exchange.staged('identify');
  const parsed = parseExport(collection, await exchange.json(parseJson), services.limits);
  exchange.staged('parse');
  const compiled = await services.reads.prepare(parsed, identity, exchange);
  if (!parsed.format) throw new Error('an export has a format');
  return exportItems(parsed, parsed.format, compiled, identity, services.reads);
}

function answerItems(exchange: Exchange, { reads }: ItemsServices, parsed: Parsed, identity: Identity): Outcome {
  exchange.staged('parse');
  const compiled = reads.prepare(parsed, identity, exchange);
  return compiled instanceof Promise
    ? compiled.then((made) => answerCompiled(exchange, reads, parsed, made, identity))
    : answerCompiled(exchange, reads, parsed, compiled, identity);
}

function answerCompiled(
  exchange: Exchange,
  reads: Reads,
  parsed: Parsed,
  compiled: Compiled,
  identity: Identity,
): Outcome {
  exchange.staged('compile');
  const explain = preference(exchange.headers.prefer);
  if (explain) onlyAdministrator(identity);
  if (explain) return explainItems(parsed, compiled, identity, reads, explain === 'explain=analyze');
  if (parsed.format) return exportItems(parsed, parsed.format, compiled, identity, reads);
  if (compiled.stream) return streamItems(parsed, compiled, identity, reads);
  reads.answer(parsed, compiled, identity, new ItemsWaiter(exchange, identity));
  return DEFERRED;
}

/** Answers with the body in the moment in which it arrives: it is lent. */
class ItemsWaiter implements ReadListener {
  readonly #exchange: Exchange;
  readonly #identity: Identity;

  constructor(exchange: Exchange, identity: Identity) {
    this.#exchange = exchange;
    this.#identity = identity;
  }

  get aborted(): boolean {
    return this.#exchange.aborted;
  }

  get caller(): string {
    return callerName(this.#identity, this.#exchange);
  }

  onResult(body: Buffer | null): void {
    this.#exchange.staged('execute');
    if (body === null) this.#exchange.respondError(forbidden());
    else this.#exchange.respond(taggedReply(this.#exchange, body));
  }

  onError(error: unknown): void {
    this.#exchange.respondError(error);
  }
}

/** Whether the caller asks for the statement instead of its result. */
export function preference(prefer: string): string | undefined {
  if (prefer === '') return undefined;
  return prefer
    .split(',')
    .map((each) => each.trim())
    .find((each) => each === 'explain' || each === 'explain=analyze');
}

function parseBody(exchange: Exchange, limits: ParseLimits, { collection }: ItemPath): Promise<Parsed> {
  return exchange.json(parseJson).then((body) => parseSearch(collection, body, exchange.queryString, limits));
}

function parseUrl(
  exchange: Exchange,
  limits: ParseLimits,
  urls: ParseCache<ParsedUrl>,
  { collection, key }: ItemPath,
): Parsed {
  const { queryString } = exchange;
  const text = `${key === null ? 'list' : 'item'} ${collection}?${queryString}`;
  const { parsed } = urls.get(text, () => ({ parsed: parseRead(collection, key, queryString, limits) }));
  // The key of an item is the first value: only it differs between requests with the same query.
  if (key === null) return parsed;
  return { ...parsed, values: parsed.values.length === 1 ? [key] : [key, ...parsed.values.slice(1)] };
}

/** A strong tag of the bytes: a client that has them already is spared the transfer. */
function taggedReply(exchange: Exchange, body: Buffer): Reply {
  if (exchange.method === 'SEARCH') return { status: 200, type: JSON_TYPE, body };
  const tag = tagOf(body);
  if (isHeld(exchange.headers.ifNoneMatch, tag)) return { status: 304, type: '', body: '', tag };
  return { status: 200, type: JSON_TYPE, body, tag };
}

/** A list that may be large, in the envelope of every other list. */
function streamItems(parsed: Parsed, compiled: Compiled, identity: Identity, reads: Reads): Reply {
  const produce: Produce = async (sink) => {
    let items = 0;
    let opened = false;
    const take = async (cells: readonly Buffer[]): Promise<boolean> => {
      const rows = compiled.opening && !opened ? cells.slice(1) : cells;
      const opening = opened ? undefined : compiled.opening ? (cells[0] as Buffer) : OPENING;
      opened = true;
      const piece = joinCells(rows, items === 0, opening);
      items += rows.length;
      return sink.write(piece);
    };
    await reads.stream(parsed, compiled, identity, take, sink, COMMA);
    await sink.write(opened ? CLOSING : Buffer.concat([OPENING, CLOSING]));
  };
  return { status: 200, type: JSON_TYPE, body: produce };
}

const OPENING = Buffer.from('{"data":[');
const CLOSING = Buffer.from(']}');

function exportItems(parsed: Parsed, name: ExportFormat, compiled: Compiled, identity: Identity, reads: Reads): Reply {
  const format: Format = FORMATS[name];
  const produce: Produce = async (sink) => {
    let items = 0;
    const take = (cells: readonly Buffer[], { columns }: Compiled): Promise<boolean> => {
      const piece = writeItems(format, cells, items === 0, columns);
      const whole = items === 0 ? Buffer.concat([Buffer.from(format.open(columns)), piece]) : piece;
      items += cells.length;
      return sink.write(whole);
    };
    const { columns } = await reads.stream(parsed, compiled, identity, take, sink, format.separator);
    if (items === 0 && parsed.request.target.kind === 'item') throw forbidden();
    const opening = Buffer.from(format.open(columns));
    const closing = Buffer.from(format.close);
    const rest =
      items > 0 ? closing : format.empty === undefined ? Buffer.concat([opening, closing]) : Buffer.from(format.empty);
    if (rest.length > 0) await sink.write(rest);
  };
  const file = `${parsed.request.collection}.${format.extension}`;
  const plain = file.replace(/[^\w.-]/g, '_');
  const disposition = `attachment; filename="${plain}"; filename*=UTF-8''${encodeHeader(file)}`;
  return { status: 200, type: format.type, body: produce, headers: { 'Content-Disposition': disposition } };
}

/** Documents may be nested deeper than those who write other formats can follow. */
function writeItems(format: Format, ...batch: Parameters<Format['items']>): Buffer {
  try {
    return format.items(...batch);
  } catch (error) {
    if (error instanceof RangeError)
      throw invalidQuery(`A value is nested too deeply for an export as ${format.extension}`);
    throw error;
  }
}

/** As RFC 5987 wants it: stricter than a URL. */
function encodeHeader(text: string): string {
  return encodeURIComponent(text).replace(/['()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}

const explanationBody = build({
  type: 'object',
  properties: {
    data: {
      type: 'object',
      properties: {
        sql: { type: 'string' },
        parameters: { type: 'array', items: { type: ['string', 'null'] } },
        plan: {},
      },
    },
  },
});

export async function explainItems(
  parsed: Parsed | ParsedOperation,
  compiled: Compiled,
  identity: Identity,
  reads: Reads,
  analyze: boolean,
): Promise<Reply> {
  return jsonText(explanationBody({ data: await reads.explain(parsed, compiled, identity, analyze) }));
}
