/**
 * Keys of new rows. The chain makes them before it inserts, so that other rows can refer to them. Where the database may choose
 * another key (a trigger, a view, a column that the role may not insert) they come from `returning`: rows are returned in the order in
 * which they are inserted, which is that of the input.
 */

import { elementAt } from '../../base/narrow.js';
import { changesNewKeys } from '../../mirror/write-facts.js';
import type { WriteNode, WritePlan } from '../../plan/write/write.js';
import { alias, type Fragment, join, literal, nothing, sql } from '../../sql/fragment.js';
import { commaList, hasInputKey, inputKeyColumns, inputKeyNames, joinedKey, keyColumns } from '../key-columns.js';
import { input, isLeftOut, KEYS_SETTING, keyPartSetting, makesKeys, slotOf, written } from './write-input.js';

/** Whether the keys of new rows are those that the database returns. */
export function returnsKeys(node: WriteNode): boolean {
  if (!makesKeys(node)) return false;
  return changesNewKeys(node.collection) || node.collection.key.some((field) => isLeftOut(node, field));
}

/** Where new rows of a list are found by their numbers, with their keys. */
export function keysOf(node: WriteNode, position: number): Fragment {
  return returnsKeys(node) ? alias(`k${position}`) : input(position);
}

/**
 * The keys as they were returned. If a trigger left rows out, the keys of the input stay: the trigger may have written the rows to another
 * table. `lostKeys` refuses what cannot be told apart.
 */
export function returnedKeys(node: WriteNode, position: number): Fragment[] {
  if (!returnsKeys(node)) return [];
  const { collection, conflict, verb } = node;
  const [row, made, order, count] = [alias('i'), alias('w'), alias('o'), alias('c')];
  const names = inputKeyNames(collection);
  const found = conflict ? sql`, f` : nothing;
  const split = conflict ? sql`partition by f ` : nothing;
  const numbered = sql`select n, ${commaList(names)}${found}, row_number() over (${split}order by n) as ${order}, count(*) over (${split}) as ${count} from ${input(position)}`;
  const inserted = verb === 'insert' ? written(position) : alias(`m${position}`);
  const returned = sql`select ${commaList(keyColumns(collection))}, row_number() over () as ${order}, count(*) over () as ${count} from ${inserted}`;
  const returnedKey = keyColumns(collection, made);
  const keys = inputKeyColumns(collection, row).map(
    (key, part) => sql`coalesce(${elementAt(returnedKey, part)}, ${key}) as ${elementAt(names, part)}`,
  );
  const isNew = conflict ? sql` and not ${row}.f` : nothing;
  const same = sql`${made}.${order} = ${row}.${order} and ${made}.${count} = ${row}.${count}${isNew}`;
  return [
    sql`${keysOf(node, position)} as materialized (select ${row}.n, ${commaList(keys)}${conflict ? sql`, ${row}.f` : nothing} from (${numbered}) ${row} left join (${returned}) ${made} on ${same})`,
  ];
}

/** Refuses a list of which a trigger left rows out and gave others new keys: which key belongs to which row is not known. */
export function lostKeys(node: WriteNode, position: number): Fragment[] {
  if (!returnsKeys(node)) return [];
  const { collection, conflict, verb } = node;
  const inserted = verb === 'insert' ? written(position) : alias(`m${position}`);
  const isKnown = sql`select from ${input(position)} ${alias('i')} where ${hasInputKey(collection, alias('w'), alias('i'))}`;
  const expected = sql`select count(*) from ${input(position)}${conflict ? sql` where not f` : nothing}`;
  return [
    sql`(select service_refuse(${literal(`${position} lost 1`)}) from ${inserted} ${alias('w')} where not exists (${isKnown}) and (select count(*) from ${inserted}) <> (${expected}) limit 1)`,
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
    const all = sql`(select array_agg(${value} order by ${alias('o')}.place)::text from ${rows} join ${keysOf(node, position)} ${alias('i')} on ${alias('i')}.n = ${alias('o')}.n${isIgnoring ? sql` and not ${alias('i')}.f` : nothing})`;
    return isIgnoring ? sql`coalesce(${all}, '{}')` : all;
  };
  const inputKey = inputKeyColumns(collection, alias('i'));
  if (inputKey.length === 1)
    return sql`set_config(${KEYS_SETTING}, ${keys(sql`${elementAt(inputKey, 0)}::text`)}, true)`;
  const parts = inputKey.map((part, index) => sql`set_config(${keyPartSetting(index)}, ${keys(part)}, true)`);
  return commaList([sql`set_config(${KEYS_SETTING}, ${keys(joinedKey(collection.key, inputKey))}, true)`, ...parts]);
}

/** `into` the table: the columns that rows are inserted with, or none where the database fills all of them. */
export function columnList(names: readonly Fragment[]): Fragment {
  return names.length === 0 ? nothing : sql` (${join(names, sql`, `)})`;
}
