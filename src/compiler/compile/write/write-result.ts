/**
 * The results and checks of a write chain: keys of new rows, items that `on_conflict` finds, values that the database generates, and
 * rows that are missing.
 */
import { elementAt } from '../../../base/narrow.js';
import { countedKey, isKey } from '../../model/item-key.js';
import type { Field } from '../../model/model.js';
import { changesNewKeys } from '../../model/write-facts.js';
import { restrictionOf } from '../../plan/access.js';
import type { WriteColumn, WriteNode, WritePlan } from '../../plan/write/write.js';
import { alias, type Fragment, identifier, join, literal, nothing, sql } from '../../sql/fragment.js';
import { areEqual, areSame, isAmong } from '../compare.js';
import { FromClause, type Scope } from '../from-clause.js';
import { columnName, tableName } from '../identifiers.js';
import { commaList, hasInputKey, inputKeyColumns, inputKeyNames, joinedKey, keyColumns } from '../key-columns.js';
import {
  input,
  inputValue,
  isLeftOut,
  KEYS_SETTING,
  keyPartSetting,
  makesKeys,
  present,
  refuseFirst,
  slotOf,
  written,
} from './write-input.js';

/** A key with a generated part must be the one that the payload names, and must not change. */
export function generatedKeys({ collection, verb }: WriteNode, position: number): Fragment[] {
  if (!collection.key.some(({ column }) => column?.is_generated)) return [];
  const keys = sql`select ${commaList(inputKeyNames(collection))} from ${input(position)}`;
  return (verb === 'upsert' ? [written(position), alias(`m${position}`)] : [written(position)]).map(
    (rows) =>
      sql`case when exists (select from ${rows}
        where not ${isAmong(keyColumns(collection), collection.key, keys)})
        then service_refuse(${literal(`${position} generated 0`)}) end`,
  );
}

/** The highest new key of each list: the engine moves sequences past supplied keys. */
export function maxKeys(plan: WritePlan, counted: boolean): Fragment {
  const maxKey = plan.nodes.map((node, position) => {
    const key = countedKey(node.collection);
    if (node.verb === 'update' || !key) return sql`null`;
    const made = node.verb === 'insert' ? written(position) : alias(`m${position}`);
    return sql`(select max(${columnName(key)})::text from ${made})`;
  });
  return sql`json_build_array(${join(counted ? [...maxKey, countRows(plan)] : maxKey, sql`, `)})`;
}

/** A trigger may have left rows out. */
function countRows(plan: WritePlan): Fragment {
  const counts = plan.nodes.flatMap(({ collection, verb }, position) => {
    if (collection !== plan.collection) return [];
    const parts = verb === 'upsert' ? [written(position), alias(`m${position}`)] : [written(position)];
    return parts.map((part) => sql`(select count(*) from ${part})`);
  });
  return sql`(${join(counts, sql` + `)})::text`;
}

/** An item that is changed must exist and be writable by the caller, also one that the same payload removes. */
export function missingItems(plan: WritePlan, node: WriteNode, position: number): Fragment {
  const first = plan.unlinks.findIndex((unlink) => unlink.action === 'delete' && unlink.collection === node.collection);
  const key = keyColumns(node.collection, alias('d'));
  const deletedCount =
    first < 0
      ? nothing
      : sql` + (select count(*)
        from ${alias(`d${first}`)} ${alias('d')}
        join ${input(position)} ${alias('i')} on ${areEqual(inputKeyColumns(node.collection, alias('i')), key, node.collection.key)})`;
  const created = node.verb === 'upsert' ? sql` + (select count(*) from ${alias(`m${position}`)})` : nothing;
  const found = sql`(select count(*) from ${written(position)})${created}${deletedCount}`;
  return sql`case when ${found} < (select count(*) from ${input(position)}) then service_raise('missing') end`;
}

/** Added to `returning`: the values after the write that are compared or validated. */
export function returnedValues({ columns }: WriteNode): Fragment {
  const values = columns.map((column, index) =>
    isKept(column) || column.operators.length > 0
      ? sql`, ${alias('t')}.${columnName(column.field)} as ${alias(`g${index}`)}`
      : nothing,
  );
  return join(values, nothing);
}

/**
 * Ends the statement if a value is neither the old value of the item, as far as the caller may see it, nor the new one. `changes`: whether
 * rows that exist are written to.
 */
export function keptValues(node: WriteNode, position: number, changes: boolean, scope: Scope): Fragment[] {
  const { collection, readable, verb } = node;
  if (!readable) return [];
  const row = alias('i');
  const inputKey = inputKeyColumns(collection, row);
  return node.columns.flatMap((column, index) => {
    if (!isKept(column)) return [];
    const { field } = column;
    const value = inputValue(field, sql`${row}.${identifier(`c${index}`)}`);
    const item = new FromClause(alias('h'), scope, readable);
    const before = isSame(field, item.column([], field), value);
    const shown = sql`select from ${item.from(areEqual(keyColumns(collection, item.alias), inputKey, collection.key), before)}`;
    const lists = [...(changes ? [written(position)] : []), ...(verb === 'upsert' ? [alias(`m${position}`)] : [])];
    // The new value may depend on columns that the caller cannot see.
    const results = (restrictionOf(readable) ? [] : lists).map((list) => {
      const result = alias('w');
      const same = isSame(field, sql`${result}.${alias(`g${index}`)}`, value);
      return sql`select from ${list} ${result}
        where ${areEqual(keyColumns(collection, result), inputKey, collection.key)} and ${same}`;
    });
    const refused = [shown, ...results].map((each) => sql`not exists (${each})`);
    const isSaid = column.mixed ? sql`${present(node, column)} and ` : nothing;
    const where = sql`${isSaid}${join(refused, sql` and `)}`;
    return [refuseFirst(position, 'kept', { where, column: index })];
  });
}

function isKept({ only }: WriteColumn): boolean {
  return only === 'kept';
}

/** Types of which one value may have several texts. */
const COMPARED = /^(int[248]|numeric|float[48]|timestamptz?|timetz?|interval|bool|date|uuid|jsonb)$/;

/** Types without an equality are compared as texts. */
function isSame({ column }: Field, one: Fragment, other: Fragment): Fragment {
  const isOwn = column?.base_schema === 'pg_catalog';
  if (isOwn && COMPARED.test(column.base_type)) return sql`${one} is not distinct from ${other}`;
  if (isOwn && column.base_type === 'json') return sql`${one}::jsonb is not distinct from ${other}::jsonb`;
  return sql`(${one})::text is not distinct from (${other})::text`;
}

interface Existing {
  readonly join: Fragment;
  /** The key of the item that exists; where there is none, as it was given. */
  readonly keys: readonly Fragment[];
  /** Added to the values of a row: `f` whether its item was found, `u` ends the statement for duplicates, `o` whether the item has another key. */
  readonly columns: Fragment;
}

/** Finds existing items by the columns of `on_conflict`. Returns null without it: keys alone find the items. */
export function compileExisting(node: WriteNode, position: number): Existing | null {
  const { collection, conflict } = node;
  if (!conflict) return null;
  const [row, item] = [alias('x'), alias('e')];
  const values = conflict.fields.map((field) => sql`${row}.${inputName(node, field)}`);
  const same = (conflict.equatesNulls ? areSame : areEqual)(
    conflict.fields.map((field) => sql`${item}.${columnName(field)}`),
    values,
    conflict.fields,
  );
  const foundKey = keyColumns(collection, item);
  const inputKey = inputKeyColumns(collection, row);
  const compared = conflict.equatesNulls ? [] : values.map((value) => sql`${value} is not null and `);
  const twice = sql`when ${join(compared, nothing)}count(*) over (partition by ${commaList(values)}) > 1 then ${refuseRow('twice', position, sql`${row}.n - 1`)}`;
  const other = comparesKeys(node) ? sql`, not (${areEqual(foundKey, inputKey, collection.key)}) as o` : nothing;
  return {
    join: sql` left join ${tableName(collection)} ${item} on ${same}`,
    keys: foundKey.map((key, part) => sql`coalesce(${key}, ${elementAt(inputKey, part)})`),
    columns: sql`, ${elementAt(foundKey, 0)} is not null as f, case ${twice} end as u${other}`,
  };
}

function refuseRow(word: string, position: number, number: Fragment): Fragment {
  return sql`service_refuse(${literal(`${position} ${word} `)} || (${number})::text)`;
}

/** Whether an item may be found whose key is not the one that is given. */
function comparesKeys({ collection, conflict }: WriteNode): boolean {
  return conflict?.resolution === 'merge' && !conflict.fields.every((field) => isKey(collection, field));
}

/** The key of an item never changes. A caller who may not change the item does not learn whether it has the key. */
export function otherKeys(node: WriteNode, position: number): Fragment[] {
  if (!comparesKeys(node)) return [];
  const row = alias('i');
  const isChanged = isAmong(
    inputKeyColumns(node.collection, row),
    node.collection.key,
    sql`select ${commaList(keyColumns(node.collection))} from ${written(position)}`,
  );
  return [
    sql`(select ${refuseRow('key', position, sql`${row}.n`)}
      from ${input(position)} ${row}
      where ${row}.o and ${isChanged}
      order by ${row}.n
      limit 1)`,
  ];
}

function inputName({ collection, columns }: WriteNode, field: Field): Fragment {
  if (isKey(collection, field)) return elementAt(inputKeyNames(collection), collection.key.indexOf(field));
  const index = columns.findIndex((column) => column.field === field && column.only !== 'update');
  return identifier(`c${index}`);
}

/** Behind the condition that a row of the input and an item have one key. */
export function andFound({ conflict }: WriteNode, row: Fragment): Fragment {
  return conflict ? sql` and ${row}.f` : nothing;
}

/**
 * Whether the keys of new rows are those that the database returns. The chain makes keys before it inserts, so that other rows can refer
 * to them. If the database may choose another key (a trigger, a view, a column that the role may not insert), keys come from
 * `returning`: rows are returned in the order in which they are inserted, which is that of the input.
 */
function returnsKeys(node: WriteNode): boolean {
  if (!makesKeys(node)) return false;
  return changesNewKeys(node.collection) || node.collection.key.some((field) => isLeftOut(node, field));
}

/** Where new rows of a list are found by their numbers, with their keys. */
export function keysOf(node: WriteNode, position: number): Fragment {
  return returnsKeys(node) ? alias(`k${position}`) : input(position);
}

/**
 * The keys as they were returned. If a trigger left rows out, the keys of the input stay: the trigger may have written the rows to another
 * table. `lostKeys` refuses lists in which rows cannot be distinguished.
 */
export function returnedKeys(node: WriteNode, position: number): Fragment[] {
  if (!returnsKeys(node)) return [];
  const { collection, conflict, verb } = node;
  const [row, made, order, count] = [alias('i'), alias('w'), alias('o'), alias('c')];
  const names = inputKeyNames(collection);
  const found = conflict ? sql`, f` : nothing;
  const split = conflict ? sql`partition by f ` : nothing;
  const numbered = sql`select n, ${commaList(names)}${found},
      row_number() over (${split}order by n) as ${order}, count(*) over (${split}) as ${count}
    from ${input(position)}`;
  const inserted = verb === 'insert' ? written(position) : alias(`m${position}`);
  const returned = sql`select ${commaList(keyColumns(collection))}, row_number() over () as ${order}, count(*) over () as ${count}
    from ${inserted}`;
  const returnedKey = keyColumns(collection, made);
  const keys = inputKeyColumns(collection, row).map(
    (key, part) => sql`coalesce(${elementAt(returnedKey, part)}, ${key}) as ${elementAt(names, part)}`,
  );
  const isNew = conflict ? sql` and not ${row}.f` : nothing;
  const same = sql`${made}.${order} = ${row}.${order} and ${made}.${count} = ${row}.${count}${isNew}`;
  return [
    sql`${keysOf(node, position)} as materialized (select ${row}.n, ${commaList(keys)}${conflict ? sql`, ${row}.f` : nothing}
      from (${numbered}) ${row}
      left join (${returned}) ${made} on ${same})`,
  ];
}

/** Refuses a list of which a trigger left rows out and gave others new keys: which key belongs to which row is not known. */
export function lostKeys(node: WriteNode, position: number): Fragment[] {
  if (!returnsKeys(node)) return [];
  const { collection, conflict, verb } = node;
  const inserted = verb === 'insert' ? written(position) : alias(`m${position}`);
  const isKnown = sql`select from ${input(position)} ${alias('i')}
    where ${hasInputKey(collection, alias('w'), alias('i'))}`;
  const expected = sql`select count(*) from ${input(position)}${conflict ? sql` where not f` : nothing}`;
  return [
    sql`(select service_refuse(${literal(`${position} lost 1`)})
      from ${inserted} ${alias('w')}
      where not exists (${isKnown}) and (select count(*) from ${inserted}) <> (${expected})
      limit 1)`,
  ];
}

/** Leaves the keys of the items in a setting of the transaction, in the order of the payload: the read-back finds them there. */
export function storeKeys({ nodes, collection }: WritePlan): Fragment {
  const position = nodes.findIndex((node) => makesKeys(node) && node.collection === collection);
  const node = nodes[position];
  if (!node) return sql`null`;
  const isIgnoring = node.conflict?.resolution === 'ignore';
  const rows = sql`pg_catalog.unnest(${slotOf('root')}::int4[]) with ordinality as ${alias('o')} (n, place)`;
  const keys = (value: Fragment): Fragment => {
    const all = sql`(select array_agg(${value} order by ${alias('o')}.place)::text
      from ${rows}
      join ${keysOf(node, position)} ${alias('i')} on ${alias('i')}.n = ${alias('o')}.n${isIgnoring ? sql` and not ${alias('i')}.f` : nothing})`;
    return isIgnoring ? sql`coalesce(${all}, '{}')` : all;
  };
  const inputKey = inputKeyColumns(collection, alias('i'));
  if (inputKey.length === 1)
    return sql`set_config(${KEYS_SETTING}, ${keys(sql`${elementAt(inputKey, 0)}::text`)}, true)`;
  const parts = inputKey.map((part, index) => sql`set_config(${keyPartSetting(index)}, ${keys(part)}, true)`);
  return commaList([sql`set_config(${KEYS_SETTING}, ${keys(joinedKey(collection.key, inputKey))}, true)`, ...parts]);
}

/** Leaves the keys of all new rows of a list in a setting, in their order. A row that exists already and is left as it is has none. */
export function storeNewKeys(node: WriteNode, position: number): Fragment {
  const { collection, conflict } = node;
  const row = alias('i');
  const inputKey = inputKeyColumns(collection, row);
  const [only] = inputKey;
  const key = inputKey.length === 1 && only ? sql`${only}::text` : joinedKey(collection.key, inputKey);
  const isIgnored = conflict?.resolution === 'ignore' ? sql`case when not ${row}.f then ${key} end` : key;
  return sql`set_config(${literal(`lateral.made${position}`)}, (select array_agg(${isIgnored} order by ${row}.n)::text
    from ${keysOf(node, position)} ${row}), true)`;
}

/** `into` the table: the columns that rows are inserted with, or none if the database fills all of them. */
export function columnList(names: readonly Fragment[]): Fragment {
  return names.length === 0 ? nothing : sql` (${join(names, sql`, `)})`;
}
