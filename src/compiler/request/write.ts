/** Bodies of POST, PATCH and DELETE: which items are meant, and what is to be written to them. */

import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { Digits, isObject, wholeDigits } from '../../base/exact-json.js';
import type { Parsed } from './ast.js';
import type { OnConflict } from './on-conflict.js';
import { type Input, refuseOthers } from './parse-context.js';

export type Key = string | number;

/** Items named by their keys, or by a query. */
export type Selected =
  | { readonly kind: 'keys'; readonly keys: readonly Key[] }
  /** Keys of a body, as answers show them: JSON values that the types of the key columns turn into keys. */
  | { readonly kind: 'shown'; readonly keys: readonly unknown[] }
  | { readonly kind: 'query'; readonly query: Input };

type UpdateBody =
  | { readonly kind: 'update-selected'; readonly selected: Selected; readonly data: Input }
  | { readonly kind: 'update-each'; readonly items: readonly Input[] };

interface CreateBody {
  readonly many: boolean;
  readonly items: readonly Input[];
}

/** A write, parsed. `readBack` says what is read of the items that were written, null for nothing. */
export type WriteRequest =
  | ({
      readonly kind: 'create';
      readonly idempotencyKey: IdempotencyKey | null;
      /** How to treat an existing item, or null if it is an error. */
      readonly onConflict: OnConflict | null;
      /** Whether an item that exists is a failed precondition; `onConflict` then has no effect. */
      readonly isNew?: boolean;
    } & CreateBody &
      WithReadBack)
  | ({ readonly kind: 'update-item'; readonly key: Key; readonly data: Input } & WithReadBack & Conditional)
  | ({ readonly kind: 'update-each'; readonly items: readonly Input[] } & WithReadBack)
  | ({ readonly kind: 'update-selected'; readonly selected: Selected; readonly data: Input } & WithReadBack)
  /** The only item of a singleton is changed, or made. */
  | ({ readonly kind: 'update-singleton'; readonly data: Input } & WithReadBack & Conditional)
  | ({ readonly kind: 'delete'; readonly collection: string; readonly selected: Selected } & Repeatable & Conditional);

/** Which objects of a payload are operators. */
interface WithPayload {
  /** Whether all objects are values: `{"_increment": 1}` is an operator by default. */
  readonly isLiteral?: boolean;
}

interface Repeatable {
  /** The request is carried out once, however often it is sent. */
  readonly idempotencyKey?: IdempotencyKey | null;
}

interface Conditional {
  /** For one item: the write fails with 412 if the item matches none of them. */
  readonly ifMatch?: IfMatch | null;
}

/** Requirements of a write on the items that it is about. */
export interface Conditions {
  /** The entity tags that the item may have, or null for any. */
  readonly ifMatch: IfMatch | null;
  /** Whether no item may exist that has the key of the new one. */
  readonly isNew: boolean;
}

/** Conditions that would have no effect are refused, not dropped. */
export function checkConditions(
  { ifMatch, isNew }: Conditions,
  written: 'new items' | 'one item' | 'several items',
): void {
  if (ifMatch && written !== 'one item') throw invalidQuery('"If-Match" applies to PATCH and DELETE of one item');
  if (isNew && written !== 'new items') throw invalidQuery('"If-None-Match" of a write applies to POST');
}

/** The row parts of entity tags, or `any` if it is enough that the item exists. An empty list matches no item. */
export type IfMatch = 'any' | readonly string[];

interface WithReadBack extends Repeatable, WithPayload {
  readonly collection: string;
  readonly readBack: Parsed | null;
}

/** The caller and the key of a request, and a digest of its content. */
export interface IdempotencyKey {
  readonly id: string;
  readonly fingerprint: string;
}

/** An entity tag of RFC 9110, and the rest of a list of them. */
const ENTITY_TAG = /^\s*(W\/)?"([\x21\x23-\x7e\x80-\uffff]*)"\s*(?:,|$)/;

/**
 * The text of an `If-Match` header. The tag of an item has the parts `<row>.<body>.<body>`, and that of GraphQL only `<row>`. Weak tags and tags of
 * lists match no item.
 */
export function parseIfMatch(text: string): IfMatch {
  if (text.trim() === '*') return 'any';
  const rows: string[] = [];
  let rest = text;
  do {
    const [whole, weak, tag = ''] = ENTITY_TAG.exec(rest) ?? [];
    if (whole === undefined)
      throw invalidQuery('"If-Match" must be * or a list of entity tags, such as "1234.abc.def"');
    const parts = tag.split('.');
    if (weak === undefined && parts.length !== 2 && parts[0]) rows.push(parts[0]);
    rest = rest.slice(whole.length);
  } while (rest !== '');
  return rows;
}

export function parseCreate(body: unknown): CreateBody {
  if (body === undefined) throw invalidPayload('A body is required');
  if (!Array.isArray(body)) return { many: false, items: [requireObject(body, 'The body')] };
  return { many: true, items: body.map((item, position) => requireObject(item, `Entry ${position}`)) };
}

export function parseUpdate(body: unknown): UpdateBody {
  if (Array.isArray(body))
    return { kind: 'update-each', items: body.map((item, position) => requireObject(item, `Entry ${position}`)) };
  const { data, ...selection } = requireObject(body, 'The body');
  if (data === undefined) throw invalidPayload('"data" is required');
  return { kind: 'update-selected', selected: readSelection(selection), data: requireObject(data, '"data"') };
}

export function parseDelete(body: unknown): Selected {
  if (Array.isArray(body)) return { kind: 'shown', keys: readShownKeys(body) };
  return readSelection(requireObject(body, 'The body'));
}

/** The fields of one item. */
export function requireObject(value: unknown, name: string): Input {
  if (!isObject(value)) throw invalidPayload(`${name} must be an object`);
  return value;
}

function readSelection({ keys, query, ...rest }: Input): Selected {
  refuseOthers(rest);
  if ((keys === undefined) === (query === undefined))
    throw invalidPayload('Exactly one of "keys" and "query" is required');
  return keys === undefined ? { kind: 'query', query: readQuery(query) } : { kind: 'shown', keys: readShownKeys(keys) };
}

const SELECTING = ['filter', 'search', 'sort', 'limit', 'offset', 'page'];

/** A misspelt filter must not select everything. */
function readQuery(input: unknown): Input {
  const query = requireObject(input, '"query"');
  const unknown = Object.keys(query).find((name) => !SELECTING.includes(name));
  if (unknown !== undefined)
    throw invalidPayload(`"query.${unknown}" is not allowed: it takes ${SELECTING.join(', ')}`);
  return query;
}

export function readKeys(keys: unknown): Key[] {
  return readShownKeys(keys).map((key) => readKey(key) ?? refuseKeys());
}

/** Any values but null: keys of type jsonb and of composite types are shown as all kinds of JSON. */
export function readShownKeys(keys: unknown): readonly unknown[] {
  return Array.isArray(keys) && !keys.includes(null) ? keys : refuseKeys();
}

export function refuseKeys(): never {
  throw invalidPayload('"keys" must be a list of keys');
}

/** Returns null if the value is not a key. */
export function readKey(key: unknown): Key | null {
  if (key instanceof Digits) return wholeDigits(key.text) ?? key.text;
  if (typeof key === 'boolean') return String(key);
  return typeof key === 'string' || (typeof key === 'number' && Number.isFinite(key)) ? key : null;
}
