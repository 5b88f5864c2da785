/** Values that the database makes itself and a payload sends back: they are compared with those of the item, and not written. */
import type { Field } from '../../mirror/model.js';
import { restrictionOf } from '../../plan/access.js';
import type { WriteColumn, WriteNode } from '../../plan/write/write.js';
import { alias, type Fragment, identifier, join, literal, nothing, sql } from '../../sql/fragment.js';
import { areEqual } from '../compare.js';
import { FromClause, type Scope } from '../from-clause.js';
import { columnName } from '../identifiers.js';
import { inputKeyColumns, keyColumns } from '../key-columns.js';
import { input, inputValue, present, written } from './write-input.js';

/** Behind what a statement returns: the values as they are afterwards. */
export function returnedValues({ columns }: WriteNode): Fragment {
  const values = columns.map((column, index) =>
    isKept(column) ? sql`, ${alias('t')}.${columnName(column.field)} as ${alias(`g${index}`)}` : nothing,
  );
  return join(values, nothing);
}

/**
 * Ends the statement where a value is neither that of the item, as far as the caller may see it, nor what it has become. `changes`: whether
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
      return sql`select from ${list} ${result} where ${areEqual(keyColumns(collection, result), inputKey, collection.key)} and ${same}`;
    });
    const refused = [shown, ...results].map((each) => sql`not exists (${each})`);
    const isSaid = column.mixed ? sql`${present(node, column)} and ` : nothing;
    const reason = sql`${literal(`${position} kept `)} || ${row}.n::text || ${literal(` ${index}`)}`;
    return [
      sql`(select service_refuse(${reason}) from ${input(position)} ${row} where ${isSaid}${join(refused, sql` and `)} order by ${row}.n limit 1)`,
    ];
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
