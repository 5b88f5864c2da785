/** The result of a write chain: the highest new keys, the number of rows, and a check that no row is missing. */
import { countedKey } from '../../mirror/item-key.js';
import type { WriteNode, WritePlan } from '../../plan/write/write.js';
import { alias, type Fragment, join, literal, nothing, sql } from '../../sql/fragment.js';
import { areEqual, isAmong } from '../compare.js';
import { columnName } from '../identifiers.js';
import { commaList, inputKeyColumns, inputKeyNames, keyColumns } from '../key-columns.js';
import { input, written } from './write-input.js';

/** A key of which the database generates a part has to be the one that the payload says, and stays what it was. */
export function generatedKeys({ collection, verb }: WriteNode, position: number): Fragment[] {
  if (!collection.key.some(({ column }) => column?.is_generated)) return [];
  const keys = sql`select ${commaList(inputKeyNames(collection))} from ${input(position)}`;
  return (verb === 'upsert' ? [written(position), alias(`m${position}`)] : [written(position)]).map(
    (rows) =>
      sql`case when exists (select from ${rows} where not ${isAmong(keyColumns(collection), collection.key, keys)}) then service_refuse(${literal(`${position} generated 0`)}) end`,
  );
}

/** Of each list the highest key that was new: the caller puts sequences ahead of those that were supplied. */
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
      : sql` + (select count(*) from ${alias(`d${first}`)} ${alias('d')} join ${input(position)} ${alias('i')} on ${areEqual(inputKeyColumns(node.collection, alias('i')), key, node.collection.key)})`;
  const created = node.verb === 'upsert' ? sql` + (select count(*) from ${alias(`m${position}`)})` : nothing;
  return sql`case when (select count(*) from ${written(position)})${created}${deletedCount} < (select count(*) from ${input(position)}) then service_raise('missing') end`;
}
