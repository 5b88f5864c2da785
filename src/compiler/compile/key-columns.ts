/**
 * Keys of items in SQL, of one column or of several. Rows are found by comparing columns, for which there is an index; the parts
 * become one text only where a key is shown.
 */
import { elementAt } from '../../base/narrow.js';
import type { Collection, Field } from '../model/model.js';
import type { Slot } from '../request/ast.js';
import type { Codec } from '../sql/codec.js';
import type { Composite } from '../sql/composite.js';
import { alias, type Fragment, identifier, join, literal, parameter, sql } from '../sql/fragment.js';
import { areEqual, isAmong, operatorOf } from './compare.js';
import { columnName, typeName } from './identifiers.js';
import { type JsonValue, toJsonText } from './json.js';
import { showField } from './output.js';

const COMMA = sql`, `;

/** The columns of the key, of the row under the alias; without one, by their names alone. */
export function keyColumns({ key }: Collection, row: Fragment | null = null): Fragment[] {
  return key.map((field) => (row ? sql`${row}.${columnName(field)}` : columnName(field)));
}

const INPUT_KEY_NAMES = { k: sql`k`, parent: sql`parent`, child: sql`child` } as const;

/** The names of key columns in the input of a write: `k`, or `k_0`, `k_1` and so on. */
export function inputKeyNames({ key }: Pick<Collection, 'key'>, name: keyof typeof INPUT_KEY_NAMES = 'k'): Fragment[] {
  return key.length === 1 ? [INPUT_KEY_NAMES[name]] : key.map((_, position) => identifier(`${name}_${position}`));
}

export function inputKeyColumns(
  collection: Collection,
  row: Fragment,
  name: keyof typeof INPUT_KEY_NAMES = 'k',
): Fragment[] {
  return inputKeyNames(collection, name).map((each) => sql`${row}.${each}`);
}

/** Whether the row has the key of the row of the input. */
export function hasInputKey(collection: Collection, row: Fragment, inputRow: Fragment): Fragment {
  return areEqual(keyColumns(collection, row), inputKeyColumns(collection, inputRow), collection.key);
}

/** With their types, for a record set. */
export function inputKeyDefinitions(collection: Collection, names: readonly Fragment[]): Fragment[] {
  return names.map((name, position) => sql`${name} ${typeName(elementAt(collection.key, position))}`);
}

export function commaList(columns: readonly Fragment[]): Fragment {
  return join(columns, COMMA);
}

/** A value that cannot be a key names no item; in a filter it is an invalid value. */
/** `shown`: the key is a JSON value as answers show it, not a text. */
type KeyUse = 'key' | 'filter' | 'shown';

/** A key that came with the request, or a list of such: its parts, each with the type of its column. */
export function keyParameters(
  key: readonly Field[],
  slot: Slot,
  kind: 'value' | 'list',
  use: KeyUse = 'key',
): Fragment[] {
  const count = key.length;
  return key.map((field, position) => {
    const part = count === 1 ? {} : { part: { position, count } };
    const names = field.synonyms && { synonyms: field.synonyms.own };
    const origin = {
      slot,
      ...keyCodec(field, use === 'shown' && count === 1),
      field: field.name,
      use: use === 'shown' ? 'key' : use,
      ...part,
      ...names,
    } as const;
    return kind === 'list'
      ? sql`${parameter({ kind, ...origin })}::${typeName(field)}[]`
      : sql`${parameter({ kind, ...origin })}::${typeName(field)}`;
  });
}

function keyCodec(
  { type, column }: Field,
  isShown: boolean,
): { readonly codec: Codec; readonly composite?: Composite } {
  if (column?.composite) return { codec: 'record-key', composite: column.composite };
  return { codec: type === 'json' && !isShown ? 'json-key' : (column?.base_type ?? 'text') };
}

/**
 * The keys of the request as rows with their number `n`, or null if `unnest` of the lists returns such rows by itself. It would take
 * composite values apart, so they are texts until then.
 */
export function compositeKeyRows(
  key: readonly Field[],
  names: readonly Fragment[],
  slot: Slot,
  use: KeyUse = 'key',
): Fragment | null {
  if (!key.some(({ column }) => column?.composite)) return null;
  const row = alias('u');
  const lists = keyParameters(key, slot, 'list', use).map((list, part) =>
    elementAt(key, part).column?.composite ? sql`${list}::text[]` : list,
  );
  const columns = key.map((field, part) => {
    const name = elementAt(names, part);
    return sql`${row}.${name}::${typeName(field)} as ${name}`;
  });
  return sql`(select ${commaList(columns)}, ${row}.n
    from ${unnest(lists)} with ordinality as ${row} (${commaList(names)}, n))`;
}

/** Only under its bare name, which is then PostgreSQL's own, does `unnest` take several lists. */
export function unnest(lists: readonly Fragment[]): Fragment {
  return lists.length === 1 ? sql`pg_catalog.unnest(${commaList(lists)})` : sql`unnest(${commaList(lists)})`;
}

/** Whether the row with these key columns has the key, or one of the keys, that the request sends in the slot. */
export function hasKey(
  key: readonly Field[],
  columns: readonly Fragment[],
  { slot, many }: { readonly slot: Slot; readonly many: boolean },
  use: KeyUse,
): Fragment {
  const values = keyParameters(key, slot, many ? 'list' : 'value', use);
  if (!many) return areEqual(columns, values, key);
  if (columns.length === 1)
    return sql`${elementAt(columns, 0)} ${operatorOf(elementAt(key, 0), '=')} any(${elementAt(values, 0)})`;
  const names = inputKeyNames({ key });
  const rows = compositeKeyRows(key, names, slot, use);
  if (rows) return isAmong(columns, key, sql`select ${commaList(names)} from ${rows} ${alias('u')}`);
  return isAmong(columns, key, sql`select * from unnest(${commaList(values)})`);
}

/** The key as JSON shows it. */
export function showKey(key: readonly Field[], columns: readonly Fragment[]): JsonValue {
  const [field] = key;
  if (key.length === 1) return showField(elementAt(columns, 0), field as Field);
  const text = joinedKey(key, columns);
  return key.every(isPlain) ? { form: 'quoted', text } : { form: 'value', value: text };
}

/** The parts of a key of several columns as one text, as `splitKey` reads it. */
export function joinedKey(key: readonly Field[], columns: readonly Fragment[]): Fragment {
  const parts = key.map((field, position) => {
    const text = partText(field, elementAt(columns, position));
    if (isPlain(field)) return text;
    return sql`replace(replace(${text}, ${literal('\\')}, ${literal('\\\\')}), '~', ${literal('\\~')})`;
  });
  return join(parts, sql` || '~' || `);
}

/** Types whose texts have no character that a key or JSON escapes. */
const PLAIN: ReadonlySet<string> = new Set(['int2', 'int4', 'int8', 'numeric', 'uuid', 'date']);

function isPlain({ column }: Field): boolean {
  return column?.base_schema === 'pg_catalog' && PLAIN.has(column.base_type);
}

function partText(field: Field, column: Fragment): Fragment {
  const jsonValue = showField(column, field, 'text');
  switch (jsonValue.form) {
    case 'quoted':
      return jsonValue.text;
    case 'value':
      return isPlain(field) ? sql`${column}::text` : sql`(${jsonValue.value})`;
    default:
      return sql`(${toJsonText(jsonValue)}::json #>> '{}')`;
  }
}
