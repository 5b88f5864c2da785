/** Writing items: one or many, with everything nested in them. */
import { createHash } from 'node:crypto';
import type { Identity } from '../access/identity.js';
import { parseJson, writeJson } from '../digits.js';
import type { IdempotentRequest } from '../engine/idempotency.js';
import type { WriteContext, Writer } from '../engine/write-context.js';
import { invalidPayload, invalidQuery, routeNotFound } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { JSON_TYPE, noContent, type Reply } from '../http/reply.js';
import type { ParseLimits } from '../request/parse-context.js';
import { parseReadBack } from '../request/rest.js';
import { parseCreate, parseDelete, parseUpdate, readItem } from '../request/write.js';
import type { ItemPath, ItemsServices } from './item-path.js';

export async function createItems(exchange: Exchange, services: ItemsServices, place: ItemPath): Promise<Reply> {
  const { collection } = place;
  const shown = await prepare(exchange, services);
  if (services.writes.isSingleton(collection, shown.caller)) throw routeNotFound(exchange.path);
  const payload = await exchange.json(parseJson);
  const receipt = receiptOf(exchange, shown, payload);
  return answer(await services.writes.create(collection, parseCreate(payload), shown, receipt));
}

/** The key belongs to its caller; the same key for another request is a mistake, told by the fingerprint. */
function receiptOf(exchange: Exchange, shown: WriteContext, payload: unknown): IdempotentRequest | null {
  const key = exchange.headers.idempotencyKey;
  if (key === '') return null;
  if (!/^[\x21-\x7e]{1,255}$/.test(key)) throw invalidPayload('An Idempotency-Key has 1 to 255 printable characters');
  const digest = (...parts: string[]): string => createHash('sha256').update(JSON.stringify(parts)).digest('base64url');
  return {
    id: digest(shown.caller.user ?? '', key),
    fingerprint: digest(exchange.path, exchange.queryString, writeJson(payload)),
  };
}

export async function updateItem(exchange: Exchange, services: ItemsServices, place: ItemPath): Promise<Reply> {
  const { collection, key } = keyed(place);
  const shown = await prepare(exchange, services);
  if (services.writes.isSingleton(collection, shown.caller)) throw routeNotFound(exchange.path);
  const data = readItem(await exchange.json(parseJson), 'The body');
  return answer(await services.writes.updateOne(collection, key, data, shown));
}

export async function updateItems(exchange: Exchange, services: ItemsServices, place: ItemPath): Promise<Reply> {
  const { collection } = place;
  const shown = await prepare(exchange, services);
  const body = await exchange.json(parseJson);
  if (services.writes.isSingleton(collection, shown.caller)) {
    return answer(await services.writes.updateSingleton(collection, readItem(body, 'The body'), shown));
  }
  return answer(await services.writes.updateMany(collection, parseUpdate(body), shown));
}

export async function deleteItem(exchange: Exchange, services: ItemsServices, place: ItemPath): Promise<Reply> {
  const { collection, key } = keyed(place);
  const writer = await prepare(exchange, services);
  await services.writes.delete(collection, { kind: 'keys', keys: [key] }, writer);
  return noContent;
}

export async function deleteItems(exchange: Exchange, services: ItemsServices, place: ItemPath): Promise<Reply> {
  const { collection } = place;
  const writer = await prepare(exchange, services);
  await services.writes.delete(collection, parseDelete(await exchange.json(parseJson)), writer);
  return noContent;
}

function keyed({ collection, key }: ItemPath): { collection: string; key: string } {
  if (key === null) throw new Error('the path of a single item names it');
  return { collection, key };
}

async function prepare(exchange: Exchange, services: ItemsServices): Promise<WriteContext> {
  if (/\bexplain\b/.test(exchange.headers.prefer)) throw invalidQuery('"Prefer: explain" applies to reads');
  const caller = await services.identities.identify(exchange);
  return { ...writerOf(exchange, caller), read: readBackOf(exchange, services.limits) };
}

/** What the URL says of what is shown. */
export function readBackOf({ queryString }: Exchange, limits: ParseLimits): WriteContext['read'] {
  return (collection, keys, one) => parseReadBack(collection, keys, one, queryString, limits);
}

export function writerOf(exchange: Exchange, caller: Identity): Writer {
  const { userAgent, origin } = exchange.headers;
  const author = {
    user: caller.user,
    ip: exchange.address || null,
    user_agent: userAgent.slice(0, 1_000) || null,
    origin: origin.slice(0, 255) || null,
  };
  return { caller, author };
}

/** What was written but cannot be shown has no body. */
function answer(body: Buffer | null): Reply {
  return body ? { status: 200, type: JSON_TYPE, body } : noContent;
}
