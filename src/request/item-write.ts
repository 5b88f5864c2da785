/** A write of items as REST names it: a method, the path of a collection or item, a query string and a body. */
import { invalidPayload } from '../base/errors.js';
import { parseConflictParameters } from './on-conflict.js';
import type { ParseLimits } from './parse-context.js';
import { checkWriteUrl, parseReadBack } from './rest.js';
import {
  type IfMatch,
  type Key,
  parseCreate,
  parseDelete,
  parseUpdate,
  requireObject,
  type WriteRequest,
} from './write.js';

export interface ItemWrite {
  readonly method: 'POST' | 'PATCH' | 'DELETE';
  readonly collection: string;
  /** The key of the item, or null for the collection. */
  readonly key: Key | null;
  readonly queryString: string;
  /** Undefined for none. */
  readonly body: unknown;
  /** Only for one item. */
  readonly ifMatch: IfMatch | null;
}

/** The URL says what is read of the items once they are written. */
export function parseItemWrite(
  { method, collection, key, queryString, body, ifMatch }: ItemWrite,
  isSingleton: boolean,
  limits: ParseLimits,
): WriteRequest {
  const readBackOf = (one: boolean) => ({ collection, readBack: parseReadBack(collection, one, queryString, limits) });
  if (isSingleton && (method !== 'PATCH' || key !== null))
    throw invalidPayload(`"${collection}" is a singleton: only PATCH without a key writes it`);
  if (ifMatch && !isSingleton && (key === null || method === 'POST'))
    throw invalidPayload('"if_match" applies to PATCH and DELETE of one item');
  if (method === 'DELETE') {
    checkWriteUrl(queryString, limits);
    const selected = key === null ? parseDelete(body) : ({ kind: 'keys', keys: [key] } as const);
    return { kind: 'delete', collection, selected, ifMatch };
  }
  if (method === 'POST') {
    const create = parseCreate(body);
    const onConflict = parseConflictParameters(queryString);
    return { kind: 'create', ...create, ...readBackOf(!create.many), idempotencyKey: null, onConflict };
  }
  if (isSingleton)
    return { kind: 'update-singleton', data: requireObject(body, 'The body'), ...readBackOf(true), ifMatch };
  if (key === null) return { ...parseUpdate(body), ...readBackOf(false) };
  return { kind: 'update-item', key, data: requireObject(body, 'The body'), ...readBackOf(true), ifMatch };
}
