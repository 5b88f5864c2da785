/** Writing items: one or many, with everything nested in them. */
import { createHash } from 'node:crypto';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import { viewWrites } from '../../access/view-as.js';
import { invalidPayload, invalidQuery, routeNotFound } from '../../base/errors.js';
import { parseJson, writeJson } from '../../base/exact-json.js';
import { write } from '../../engine/pipeline.js';
import type { Reads } from '../../engine/reads/reads.js';
import type { Writer } from '../../engine/writer.js';
import type { Writes } from '../../engine/writes/writes.js';
import { tagOf, withoutRow } from '../../http/etag.js';
import type { Exchange } from '../../http/exchange.js';
import { JSON_TYPE, noContent, type Reply } from '../../http/reply.js';
import type { SocketClient } from '../../http/websocket.js';
import type { LiveQueries } from '../../live/queries/live-queries.js';
import type { Parsed } from '../../request/ast.js';
import { parseConflictParameters } from '../../request/on-conflict.js';
import { limitsOf, type ParseLimits } from '../../request/parse-context.js';
import { checkWriteUrl, parseReadBack, tagged } from '../../request/rest.js';
import { UrlCache } from '../../request/url-cache.js';
import {
  type IdempotencyKey,
  type IfMatch,
  parseCreate,
  parseDelete,
  parseIfMatch,
  parseUpdate,
  requireObject,
  type Selected,
  type WriteRequest,
} from '../../request/write.js';

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

/** Makes a write of the request. The body is undefined if there is none. */
type ParseWrite = (body: unknown, context: ParseWriteContext) => WriteRequest;

interface ParseWriteContext {
  readonly exchange: Exchange;
  readonly services: ItemsServices;
  readonly path: ItemPath;
  readonly caller: Identity;
  readonly isSingleton: boolean;
}

function writeItems(exchange: Exchange, services: ItemsServices, path: ItemPath, parse: ParseWrite): Promise<Reply> {
  return write({
    client: exchange,
    identify: async () => {
      if (/\bexplain\b/.test(exchange.headers.prefer)) throw invalidQuery('"Prefer: explain" applies to reads');
      return writerOf(exchange, await services.identities.identify(exchange));
    },
    parse: async ({ caller }) => {
      const isSingleton = services.writes.isSingleton(path.collection, caller);
      // One item is deleted by its path.
      const isDeleted = exchange.method === 'DELETE' && path.key !== null;
      const body = isDeleted ? undefined : await exchange.json(parseJson);
      const request = parse(body, { exchange, services, path, caller, isSingleton });
      checkConditions(exchange, request);
      return request;
    },
    execute: (request, writer) => services.writes.run(request, writer, exchange),
    reply: writtenReply,
  });
}

/** Conditions that would have no effect are refused, not dropped. */
function checkConditions({ headers: { ifMatch, ifNoneMatch } }: Exchange, request: WriteRequest): void {
  if (ifMatch !== '' && !('ifMatch' in request))
    throw invalidQuery('"If-Match" applies to PATCH and DELETE of one item');
  if (ifNoneMatch !== '' && (request.kind !== 'create' || ifNoneMatch.trim() !== '*'))
    throw invalidQuery('"If-None-Match" of a write must be * and applies to POST');
}

/** For writes that take no condition. */
export function refuseConditions({ headers: { ifMatch, ifNoneMatch } }: Exchange): void {
  if (ifMatch !== '' || ifNoneMatch !== '')
    throw invalidQuery('"If-Match" and "If-None-Match" apply to writes of one item');
}

/** Null without the header. */
export function readIfMatch({ headers: { ifMatch } }: Exchange): IfMatch | null {
  return ifMatch === '' ? null : parseIfMatch(ifMatch);
}

export function createItems(exchange: Exchange, services: ItemsServices, path: ItemPath): Promise<Reply> {
  return writeItems(exchange, services, path, (body, context) => {
    if (context.isSingleton) throw routeNotFound(exchange.path);
    const idempotencyKey = readIdempotencyKey(exchange, context.caller, body);
    const onConflict = parseConflictParameters(exchange.queryString);
    const create = parseCreate(body);
    const isNew = exchange.headers.ifNoneMatch !== '';
    return { kind: 'create', ...create, ...withReadBack(context, !create.many), idempotencyKey, onConflict, isNew };
  });
}

/** A key belongs to its caller. The same key for another request is an error, which the fingerprint reveals. */
export function readIdempotencyKey(exchange: Exchange, caller: Identity, payload: unknown): IdempotencyKey | null {
  const key = exchange.headers.idempotencyKey;
  if (key === '') return null;
  if (!/^[\x21-\x7e]{1,255}$/.test(key))
    throw invalidPayload('"Idempotency-Key" must have 1 to 255 printable characters');
  // The first requests that could have a key were those of POST, whose digests are stored without it.
  const method = exchange.method === 'POST' ? [] : [exchange.method];
  const digest = (...parts: string[]): string => createHash('sha256').update(JSON.stringify(parts)).digest('base64url');
  return {
    id: digest(caller.user ?? '', key),
    fingerprint: digest(...method, exchange.path, exchange.queryString, writeJson(payload ?? null)),
  };
}

export function updateItem(exchange: Exchange, services: ItemsServices, path: ItemPath): Promise<Reply> {
  return writeItems(exchange, services, path, (body, context) => {
    if (context.isSingleton) throw routeNotFound(exchange.path);
    return {
      kind: 'update-item',
      key: keyOf(path),
      data: requireObject(body, 'The body'),
      ...withReadBack(context, true),
      idempotencyKey: readIdempotencyKey(exchange, context.caller, body),
      ifMatch: readIfMatch(exchange),
    };
  });
}

export function updateItems(exchange: Exchange, services: ItemsServices, path: ItemPath): Promise<Reply> {
  return writeItems(exchange, services, path, (body, context) => {
    const idempotencyKey = readIdempotencyKey(exchange, context.caller, body);
    if (!context.isSingleton) return { ...parseUpdate(body), ...withReadBack(context, false), idempotencyKey };
    const data = requireObject(body, 'The body');
    const ifMatch = readIfMatch(exchange);
    return { kind: 'update-singleton', data, ...withReadBack(context, true), idempotencyKey, ifMatch };
  });
}

export function deleteItem(exchange: Exchange, services: ItemsServices, path: ItemPath): Promise<Reply> {
  const selected = { kind: 'keys', keys: [keyOf(path)] } as const;
  return writeItems(exchange, services, path, (_, context) => ({
    ...deleteRequest(selected, undefined, context),
    ifMatch: readIfMatch(exchange),
  }));
}

export function deleteItems(exchange: Exchange, services: ItemsServices, path: ItemPath): Promise<Reply> {
  return writeItems(exchange, services, path, (body, context) => deleteRequest(parseDelete(body), body, context));
}

function keyOf({ key }: ItemPath): string {
  if (key === null) throw new Error('the path of a single item names it');
  return key;
}

/** The URL says what is read of the items once they are written. */
function withReadBack({ exchange, services, path: { collection } }: ParseWriteContext, one: boolean) {
  const limits = limitsOf(services.limits, exchange.prefer);
  const path = `${limits === services.limits ? '' : 'strict '}${one ? 'item' : 'list'} ${collection}`;
  const parse = (text: string): Parsed => {
    const read = parseReadBack(collection, one, text, limits);
    return one ? tagged(read) : read;
  };
  const readBack = urlsOf(services).get(path, exchange.queryString, parse);
  const wanted = exchange.prefer === '' ? null : returnPreference(exchange.prefer);
  if (wanted !== null) exchange.applied(`return=${wanted}`);
  return { collection, readBack: wanted === 'minimal' ? null : readBack };
}

const urlCaches = new WeakMap<ItemsServices, UrlCache>();

function urlsOf(services: ItemsServices): UrlCache {
  const known = urlCaches.get(services) ?? new UrlCache();
  urlCaches.set(services, known);
  return known;
}

/** Whether the caller wants the items that it wrote (RFC 7240, 4.2). Null if the caller does not say. */
function returnPreference(prefer: string): 'minimal' | 'representation' | null {
  const [, wanted] = /(?:^|,)\s*return\s*=\s*"?(minimal|representation)"?\s*(?:[,;]|$)/i.exec(prefer) ?? [];
  if (wanted === undefined) return null;
  return wanted.toLowerCase() === 'minimal' ? 'minimal' : 'representation';
}

function deleteRequest(
  selected: Selected,
  body: unknown,
  context: ParseWriteContext,
): Extract<WriteRequest, { kind: 'delete' }> {
  const { exchange, services, caller, path } = context;
  checkWriteUrl(exchange.queryString, limitsOf(services.limits, exchange.prefer));
  const idempotencyKey = readIdempotencyKey(exchange, caller, body);
  return { kind: 'delete', collection: path.collection, selected, idempotencyKey };
}

export function writerOf({ address, headers: { userAgent, origin } }: Exchange, caller: Identity): Writer {
  // A mutation is known as a write only now.
  if (caller.isView) throw viewWrites();
  return writerFrom({ address, userAgent, origin }, caller);
}

/** The origin of a write is recorded with it. */
export function writerFrom(
  { address, userAgent, origin }: Pick<SocketClient, 'address' | 'userAgent' | 'origin'>,
  caller: Identity,
): Writer {
  const author = {
    user: caller.user,
    ip: address || null,
    user_agent: userAgent.slice(0, 1_000) || null,
    origin: origin.slice(0, 255) || null,
  };
  return { caller, author };
}

/** The answer is empty if the caller may not read the written items. */
export function writtenReply(cell: Buffer | null): Reply {
  if (!cell) return noContent;
  const { body, row } = withoutRow(cell);
  const reply = { status: 200, type: JSON_TYPE, body };
  return row === '' ? reply : { ...reply, tag: tagOf(body, row) };
}
