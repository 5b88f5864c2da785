/** Bodies of POST, PATCH and DELETE: which items are meant, and what is to be written to them. */
import { Digits } from '../digits.js';
import { invalidPayload } from '../errors.js';
import type { Input } from './query.js';

export type Key = string | number;

/** Items named by their keys, or by a query. */
export type Selected =
  | { readonly kind: 'keys'; readonly keys: readonly Key[] }
  | { readonly kind: 'query'; readonly query: Input };

export type UpdateBody =
  | { readonly kind: 'same'; readonly selected: Selected; readonly data: Input }
  | { readonly kind: 'each'; readonly items: readonly Input[] };

export interface CreateBody {
  readonly many: boolean;
  readonly items: readonly Input[];
}

export function parseCreate(body: unknown): CreateBody {
  if (body === undefined) throw invalidPayload('A body is needed');
  if (!Array.isArray(body)) return { many: false, items: [readItem(body, 'The body')] };
  return { many: true, items: body.map((item, position) => readItem(item, `Entry ${position}`)) };
}

export function parseUpdate(body: unknown): UpdateBody {
  if (Array.isArray(body))
    return { kind: 'each', items: body.map((item, position) => readItem(item, `Entry ${position}`)) };
  const { data, ...selection } = readItem(body, 'The body');
  if (data === undefined) throw invalidPayload('"data" is required');
  return { kind: 'same', selected: readSelection(selection), data: readItem(data, '"data"') };
}

export function parseDelete(body: unknown): Selected {
  if (Array.isArray(body)) return { kind: 'keys', keys: readKeys(body) };
  return readSelection(readItem(body, 'The body'));
}

/** The fields of one item. */
export function readItem(value: unknown, name: string): Input {
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw invalidPayload(`${name} has to be an object`);
  return value as Input;
}

function readSelection({ keys, query, ...rest }: Input): Selected {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed`);
  if ((keys === undefined) === (query === undefined))
    throw invalidPayload('Exactly one of "keys" and "query" is needed');
  return keys === undefined ? { kind: 'query', query: readQuery(query) } : { kind: 'keys', keys: readKeys(keys) };
}

const SELECTING = ['filter', 'search', 'sort', 'limit', 'offset', 'page'];

/** A misspelt filter must not select everything. */
function readQuery(input: unknown): Input {
  const query = readItem(input, '"query"');
  const unknown = Object.keys(query).find((name) => !SELECTING.includes(name));
  if (unknown !== undefined)
    throw invalidPayload(`"query.${unknown}" is not allowed: it takes ${SELECTING.join(', ')}`);
  return query;
}

export function readKeys(keys: unknown): Key[] {
  const isKey = (key: unknown): boolean =>
    typeof key === 'string' || (typeof key === 'number' && Number.isFinite(key)) || key instanceof Digits;
  if (!Array.isArray(keys) || !keys.every(isKey)) throw invalidPayload('"keys" has to be a list of keys');
  return keys.map((key: Key | Digits) => (key instanceof Digits ? keyOf(key) : key));
}

function keyOf({ text }: Digits): Key {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : text;
}
