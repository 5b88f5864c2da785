/** Moves an item to the position of another: all items are renumbered from one, and only rows whose number changes are written. */

import { elementAt } from '../../base/narrow.js';
import type { Collection, Field } from '../../mirror/model.js';
import { alias, type Fragment, type Statement, sql, statement } from '../../sql/fragment.js';
import { areEqual } from '../compare.js';
import { columnName, tableName } from '../identifiers.js';
import { commaList, inputKeyColumns, inputKeyNames, keyColumns, keyParameters } from '../key-columns.js';

export function compileSort(collection: Collection, field: Field): Statement {
  const table = tableName(collection);
  const sorted = sql`${alias('t')}.${columnName(field)}`;
  const names = inputKeyNames(collection);
  const own = keyColumns(collection, alias('t'));
  const keyColumnsAs = commaList(own.map((column, position) => sql`${column} as ${elementAt(names, position)}`));
  const ranked = sql`select ${keyColumnsAs}, ${sorted} as s, row_number() over (order by ${sorted}, ${commaList(own)}) as p from ${table} ${alias('t')}`;
  const rank = (slot: number): Fragment =>
    sql`(select p from ${alias('o')} where ${areEqual(names, keyParameters(collection.key, slot, 'value'), collection.key)})`;
  const moved = sql`select ${commaList(inputKeyColumns(collection, alias('o')))}, case when p = a then b when p > a and p <= b then p - 1 when p >= b and p < a then p + 1 else p end as p, s from ${alias('o')}, ${alias('m')}`;
  const update = sql`update ${table} ${alias('t')} set ${columnName(field)} := ${alias('n')}.p from (${moved}) ${alias('n')} where ${areEqual(own, inputKeyColumns(collection, alias('n')), collection.key)} and (${alias('n')}.s = ${alias('n')}.p) is not true returning 1`;
  const missing = sql`(select a is null or b is null from ${alias('m')})`;
  return statement(
    sql`with ${alias('o')} as materialized (${ranked}), ${alias('m')} as materialized (select ${rank(0)} as a, ${rank(1)} as b), ${alias('w')} as (${update}) select case when ${missing} then service_raise('missing') end`,
  );
}
