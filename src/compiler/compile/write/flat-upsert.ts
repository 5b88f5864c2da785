/**
 * A create that may meet an item (`on_conflict`), as one plain statement. The item is updated where it exists. Otherwise a row is inserted,
 * so an update takes no value from the sequence of the key, as `insert … on conflict` would. If another request creates the item
 * between the two steps, PostgreSQL reports its key as taken, and the next attempt finds it.
 */
import { elementAt } from '../../../base/narrow.js';
import { isKey, singleKey } from '../../model/item-key.js';
import type { Field } from '../../model/model.js';
import type { ReadPlan } from '../../plan/plan.js';
import type { ConflictTarget, WriteNode } from '../../plan/write/write.js';
import { alias, type Fragment, join, nothing, sql, statement } from '../../sql/fragment.js';
import { areEqual, areSame } from '../compare.js';
import { compileCondition } from '../condition.js';
import { Scope } from '../from-clause.js';
import { columnName, tableName } from '../identifiers.js';
import { commaList } from '../key-columns.js';
import {
  ACTION,
  andAdvanced,
  assignments,
  columnValue,
  compileAnswer,
  type FlatStatement,
  type FlatTables,
  insertParts,
  isAnswerable,
  keyValues,
  overriding,
  record,
  returned,
  TABLE_ROW,
  updateParts,
  WRITTEN,
} from './flat.js';
import { initialValue } from './write-input.js';
import { columnList } from './write-result.js';

/** The row that existed, and the row that did not. */
const [UPDATED, INSERTED] = [alias('u'), alias('i')] as const;

/** Returns null if the answer needs more than the row itself, or only the chain can make the key. */
export function compileFlatUpsert(
  node: WriteNode,
  answer: ReadPlan | null,
  { activityLog, receipts, isMatched, tablesIn }: FlatTables,
): FlatStatement | null {
  const { collection, conflict } = node;
  const key = singleKey(collection);
  if (!conflict || receipts || isMatched || (!node.bringsKeys && (!key || initialValue(key) === null))) return null;
  const scope = new Scope(compileCondition);
  const body = answer ? compileAnswer(answer, node, scope) : sql`''`;
  if (body === null || (answer && !isAnswerable(sql`select ${body} from ${WRITTEN}`, node, tablesIn))) return null;
  const [made, changed] = [
    { ...node, verb: 'insert' },
    { ...node, verb: 'update' },
  ] as const;
  const found = hasConflictValues(node, conflict);
  const update = updateParts(changed, scope, returned(changed, answer), found);
  if (update === null) return null;
  const { fields, values, returning } = insertParts(made, returned(made, answer));
  const table = tableName(collection);
  // An item that the caller may not change is neither changed nor created, and the statement answers no row.
  const isHidden = node.guard || collection.hasRowSecurity;
  const unlessHidden = isHidden ? sql` and not exists (select from ${table} ${TABLE_ROW} where ${found})` : nothing;
  const steps = [
    sql`${UPDATED} as (update ${table} ${TABLE_ROW}
      set ${assignments(update)}
      where ${update.where}
      returning ${update.returning})`,
    sql`${INSERTED} as (insert into ${table} as ${TABLE_ROW}${columnList(fields.map(columnName))}${overriding({ fields })}
      select ${commaList(values)}
      where not exists (select from ${UPDATED})${unlessHidden}
      returning ${returning})`,
    sql`${WRITTEN} as (select ${UPDATED}.*, 'update' as ${ACTION} from ${UPDATED}
      union all select ${INSERTED}.*, 'create' from ${INSERTED})`,
    ...record(node, activityLog, { joined: nothing, isOne: true }),
  ];
  const advanced = andAdvanced(made, sql` where ${WRITTEN}.${ACTION} = 'update' or `);
  return {
    statement: statement(sql`with ${join(steps, sql`, `)} select ${body} from ${WRITTEN}${advanced}`),
    batch: null,
  };
}

/** The condition that a row has the values of the payload in the columns of `on_conflict`. */
function hasConflictValues(node: WriteNode, { fields, equatesNulls }: ConflictTarget): Fragment {
  const { collection, columns } = node;
  const given = (field: Field): Fragment => {
    if (isKey(collection, field)) return elementAt(keyValues(collection), collection.key.indexOf(field));
    const index = columns.findIndex((column) => column.field === field && column.only !== 'update');
    return columnValue(node, field, index);
  };
  return (equatesNulls ? areSame : areEqual)(
    fields.map((field) => sql`${TABLE_ROW}.${columnName(field)}`),
    fields.map(given),
    fields,
  );
}
