/** Deletion of items by their keys: all of them, or none and an error. */

import type { Collection } from '../mirror/model.js';
import { elementAt } from '../narrow.js';
import type { Condition } from '../plan/plan.js';
import { alias, type Fragment, join, parameter, type Statement, sql, statement } from '../sql/fragment.js';
import { type ActivityLog, record } from './activity.js';
import { compileCondition } from './condition.js';
import { Scope } from './from-clause.js';
import { guardedRows } from './guard.js';
import { tableName } from './identifiers.js';
import { areEqual, asRow, givenColumns, givenNames, keyColumns, keyParameters, listed } from './key-columns.js';

/** With a rule, only rows that meet it: others look as if they did not exist. */
export function compileDelete(collection: Collection, rule: Condition | null, activityLog: ActivityLog): Statement {
  const lists = keyParameters(collection.key, 0, 'list');
  const names = givenNames(collection);
  const [only] = lists;
  const given =
    lists.length === 1
      ? sql`unnest(${only as Fragment}) as k`
      : sql`* from unnest(${listed(lists)}) as ${alias('x')} (${listed(names)})`;
  const wanted = sql`${alias('k')} as materialized (select distinct ${given})`;
  const row = alias('l');
  const locked = keyColumns(collection, row);
  const named = sql`${asRow(locked)} in (select ${listed(names)} from ${alias('k')})`;
  const open = guardedRows(collection, row, rule, new Scope(compileCondition), named);
  const touchedNames = locked.map((column, position) => sql`${column} as ${elementAt(names, position)}`);
  // Locked before they go: the rule is asked of each row as it is then.
  const touched = rule
    ? sql`(select ${listed(touchedNames)} from ${open} order by ${listed(locked)} for update of ${row})`
    : alias('k');
  const gone = keyColumns(collection, alias('t'));
  const rows = sql`delete from ${tableName(collection)} ${alias('t')} using ${touched} ${rule ? alias('k') : sql``} where ${areEqual(gone, givenColumns(collection, alias('k')))} returning ${listed(gone)}`;
  const missing = sql`(select count(*) from ${alias('w')}) < (select count(*) from ${alias('k')})`;
  const by = sql`${parameter({ kind: 'text', slot: 1 })}::json`;
  const recorded = record([{ action: 'delete', collection, rows: alias('w'), shown: false }], by, activityLog);
  const parts = join([wanted, sql`${alias('w')} as (${rows})`, ...recorded], sql`, `);
  return statement(sql`with ${parts} select case when ${missing} then service_raise('missing') end`);
}
