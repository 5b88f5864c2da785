/** Items that exist already by the columns of `on_conflict`, as parts of a write chain: how they are found, and what is refused. */

import { elementAt } from '../../base/narrow.js';
import { isKey } from '../../mirror/item-key.js';
import type { Field } from '../../mirror/model.js';
import type { WriteNode } from '../../plan/write/write.js';
import { alias, type Fragment, identifier, join, literal, nothing, sql } from '../../sql/fragment.js';
import { areEqual, isAmong } from '../compare.js';
import { columnName, tableName } from '../identifiers.js';
import { commaList, inputKeyColumns, inputKeyNames, keyColumns } from '../key-columns.js';
import { input, written } from './write-input.js';

export interface Existing {
  readonly join: Fragment;
  /** The key of the item that exists; where there is none, as it was given. */
  readonly keys: readonly Fragment[];
  /** Beside the values of a row: `f` says whether its item was found, `u` ends the statement where that cannot be, `o` whether the item has another key. */
  readonly columns: Fragment;
}

/** Null where the keys alone say which items exist. */
export function compileExisting(node: WriteNode, position: number): Existing | null {
  const { collection, conflict } = node;
  if (!conflict) return null;
  const [row, item] = [alias('x'), alias('e')];
  const values = conflict.fields.map((field) => sql`${row}.${inputName(node, field)}`);
  const same = areEqual(
    conflict.fields.map((field) => sql`${item}.${columnName(field)}`),
    values,
    conflict.fields,
  );
  const foundKey = keyColumns(collection, item);
  const inputKey = inputKeyColumns(collection, row);
  const allNotNull = join(
    values.map((value) => sql`${value} is not null`),
    sql` and `,
  );
  const twice = sql`when ${allNotNull} and count(*) over (partition by ${commaList(values)}) > 1 then ${refuseRow('twice', position, sql`${row}.n - 1`)}`;
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

/** The key of an item never changes. Who may not change the item is not told whether it has the key. */
export function otherKeys(node: WriteNode, position: number): Fragment[] {
  if (!comparesKeys(node)) return [];
  const row = alias('i');
  const isChanged = isAmong(
    inputKeyColumns(node.collection, row),
    node.collection.key,
    sql`select ${commaList(keyColumns(node.collection))} from ${written(position)}`,
  );
  return [
    sql`(select ${refuseRow('key', position, sql`${row}.n`)} from ${input(position)} ${row} where ${row}.o and ${isChanged} order by ${row}.n limit 1)`,
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
