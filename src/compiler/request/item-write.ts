/** A write of items as REST names it: a method, the path of a collection or item, a query string and a body. */
import { routeNotFound } from '../../base/errors.js';
import type { Parsed } from './ast.js';
import { parseConflictParameters } from './on-conflict.js';
import type { ParseLimits } from './parse-context.js';
import { checkWriteUrl } from './rest.js';
import {
  type Conditions,
  checkConditions,
  type IdempotencyKey,
  type Key,
  parseCreate,
  parseDelete,
  parseUpdate,
  requireObject,
  type WriteRequest,
} from './write.js';

export const WRITE_METHODS = ['POST', 'PATCH', 'DELETE'] as const;

export interface ItemWrite extends Conditions {
  readonly method: (typeof WRITE_METHODS)[number];
  readonly collection: string;
  /** The key of the item, or null for the collection. */
  readonly key: Key | null;
  readonly queryString: string;
  /** Undefined for none. */
  readonly body: unknown;
}

interface ItemWriteContext {
  readonly isSingleton: boolean;
  readonly limits: ParseLimits;
  readonly idempotencyKey: IdempotencyKey | null;
  /** The read of the written items, as the URL says it, or null if the response has none. */
  readonly readBackOf: (one: boolean) => Parsed | null;
}

export function parseItemWrite(write: ItemWrite, context: ItemWriteContext): WriteRequest {
  const { method, collection, key, queryString, body, ifMatch } = write;
  const { isSingleton, limits, idempotencyKey, readBackOf } = context;
  if (isSingleton && method !== 'DELETE' && (method === 'POST' || key !== null))
    throw routeNotFound(`/items/${collection}${key === null ? '' : `/${key}`}`);
  const isOne = key !== null || (isSingleton && method === 'PATCH');
  checkConditions(write, method === 'POST' ? 'new items' : isOne ? 'one item' : 'several items');
  if (method === 'DELETE') {
    checkWriteUrl(queryString, limits);
    const selected = key === null ? parseDelete(body) : ({ kind: 'keys', keys: [key] } as const);
    return { kind: 'delete', collection, selected, idempotencyKey, ifMatch };
  }
  if (method === 'POST') {
    const onConflict = parseConflictParameters(queryString);
    const create = parseCreate(body);
    const readBack = readBackOf(!create.many);
    return { kind: 'create', ...create, collection, readBack, idempotencyKey, onConflict, isNew: write.isNew };
  }
  if (!isOne) return { ...parseUpdate(body), collection, readBack: readBackOf(false), idempotencyKey };
  const data = requireObject(body, 'The body');
  const one = { data, collection, readBack: readBackOf(true), idempotencyKey, ifMatch };
  return key === null ? { kind: 'update-singleton', ...one } : { kind: 'update-item', key, ...one };
}
