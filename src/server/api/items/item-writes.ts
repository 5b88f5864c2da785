/** Writing items: one or many, with everything nested in them. */
import { createHash } from 'node:crypto';
import { invalidPayload, invalidQuery, routeNotFound } from '../../../base/errors.js';
import { parseJson, writeJson } from '../../../base/exact-json.js';
import { parseItemWrite, WRITE_METHODS } from '../../../compiler/request/item-write.js';
import type { UrlCache } from '../../../compiler/request/parse-cache.js';
import { limitsOf, type ParseLimits } from '../../../compiler/request/parse-context.js';
import { parseReadBack, tagged } from '../../../compiler/request/rest.js';
import {
  type Conditions,
  type IdempotencyKey,
  parseIfMatch,
  type WriteRequest,
} from '../../../compiler/request/write.js';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import { viewWrites } from '../../access/view-as.js';
import { write } from '../../execute/pipeline.js';
import type { Reads } from '../../execute/reads/reads.js';
import type { Writer } from '../../execute/writer.js';
import type { Writes } from '../../execute/writes/writes.js';
import { tagOf, withoutEnvelope, withoutRow } from '../../http/etag.js';
import type { Exchange } from '../../http/exchange.js';
import { JSON_TYPE, noContent, type Reply } from '../../http/reply.js';
import type { SocketClient } from '../../http/transport.js';
import type { LiveReads } from './live-reads.js';
import type { ExportItems } from './stream-items.js';

export interface ItemsServices {
  readonly identities: Identities;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly limits: ParseLimits;
  /** Null without live queries. */
  readonly live: () => LiveReads | null;
  /** Answers reads with files, or null if no feature does. */
  readonly exportItems: () => ExportItems | null;
}

/** The collection or item that the path of a request names. */
export interface ItemPath {
  readonly collection: string;
  /** The key of the item, or null for the collection. */
  readonly key: string | null;
}

/** POST, PATCH and DELETE of the items that the path names. */
export function writeItems(
  exchange: Exchange,
  services: ItemsServices,
  urls: UrlCache,
  path: ItemPath,
): Promise<Reply> {
  let isBare = false;
  return write({
    client: exchange,
    identify: async () => {
      if (/\bexplain\b/.test(exchange.headers.prefer)) throw invalidQuery('"Prefer: explain" applies to reads');
      return writerOf(exchange, await services.identities.identify(exchange));
    },
    parse: async ({ caller }) => {
      const request = await parseWrite(exchange, services, urls, { path, caller });
      isBare = 'readBack' in request && request.readBack?.bare === true;
      return request;
    },
    execute: (request, writer) => services.writes.run(request, writer, exchange),
    reply: (cell) => writtenReply(cell, isBare),
  });
}

async function parseWrite(
  exchange: Exchange,
  services: ItemsServices,
  urls: UrlCache,
  { path, caller }: { readonly path: ItemPath; readonly caller: Identity },
): Promise<WriteRequest> {
  const { queryString } = exchange;
  const { collection } = path;
  const method = WRITE_METHODS.find((each) => each === exchange.method);
  if (!method) throw routeNotFound(exchange.path);
  // One item is deleted by its path.
  const isDeleted = method === 'DELETE' && path.key !== null;
  const body = isDeleted ? undefined : await exchange.json(parseJson);
  const limits = limitsOf(services.limits, exchange.prefer);
  const strict = limits === services.limits ? '' : 'strict ';
  return parseItemWrite(
    { method, ...path, queryString, body, ...readConditions(exchange) },
    {
      isSingleton: services.writes.isSingleton(collection, caller),
      limits,
      idempotencyKey: readIdempotencyKey(exchange, caller, body),
      readBackOf: (one) => {
        const readBack = urls.get(`${strict}${one ? 'item' : 'list'} ${collection}`, queryString, (text) => {
          const read = parseReadBack(collection, one, text, limits);
          return one ? tagged(read) : read;
        });
        return wantsItems(exchange) ? readBack : null;
      },
    },
  );
}

/** The headers `If-Match` and `If-None-Match` of a write. */
export function readConditions({ headers: { ifMatch, ifNoneMatch } }: Exchange): Conditions {
  if (ifNoneMatch !== '' && ifNoneMatch.trim() !== '*') throw invalidQuery('"If-None-Match" of a write must be *');
  return { ifMatch: ifMatch === '' ? null : parseIfMatch(ifMatch), isNew: ifNoneMatch !== '' };
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

/** Whether the response has the written items: `Prefer: return=minimal` leaves them out. */
export function wantsItems(exchange: Exchange): boolean {
  const wanted = exchange.prefer === '' ? null : returnPreference(exchange.prefer);
  if (wanted !== null) exchange.applied(`return=${wanted}`);
  return wanted !== 'minimal';
}

/** Whether the caller wants the written items (RFC 7240, 4.2), or null without this preference. */
function returnPreference(prefer: string): 'minimal' | 'representation' | null {
  const [, wanted] = /(?:^|,)\s*return\s*=\s*"?(minimal|representation)"?\s*(?:[,;]|$)/i.exec(prefer) ?? [];
  if (wanted === undefined) return null;
  return wanted.toLowerCase() === 'minimal' ? 'minimal' : 'representation';
}

export function writerOf(exchange: Exchange, caller: Identity): Writer {
  // A mutation is known as a write only now.
  exchange.isWrite = true;
  if (caller.isView) throw viewWrites();
  const {
    address,
    headers: { userAgent, origin },
  } = exchange;
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
export function writtenReply(cell: Buffer | null, isBare = false): Reply {
  if (!cell) return noContent;
  const { body: whole, row } = withoutRow(cell);
  const body = isBare ? withoutEnvelope(whole) : whole;
  const reply = { status: 200, type: JSON_TYPE, body };
  return row === '' ? reply : { ...reply, tag: tagOf(body, row) };
}
