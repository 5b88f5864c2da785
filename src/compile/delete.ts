/** Deletion of items by their keys: all of them, or none and an error. */

import type { Collection } from '../mirror/model.js';
import type { Condition } from '../plan/plan.js';
import { alias, join, parameter, sql } from '../sql/fragment.js';
import { type Statement, statement } from '../sql/statement.js';
import { type ActivityLog, record } from './activity.js';
import { compileCondition } from './condition.js';
import { Scope } from './from-clause.js';
import { guardedRows } from './guard.js';
import { columnName, tableName, typeName } from './identifiers.js';

/** With a rule, only rows that meet it: others look as if they did not exist. */
export function compileDelete(collection: Collection, rule: Condition | null, activityLog: ActivityLog): Statement {
  const key = collection.primaryKey;
  const keys = parameter({
    kind: 'list',
    slot: 0,
    codec: key.column?.base_type ?? 'text',
    field: key.name,
    use: 'key',
  });
  const wanted = sql`${alias('k')} as materialized (select distinct unnest(${keys}::${typeName(key)}[]) as k)`;
  const row = alias('l');
  const named = sql`${row}.${columnName(key)} in (select k from ${alias('k')})`;
  const open = guardedRows(collection, row, rule, new Scope(compileCondition), named);
  // Locked before they go: the rule is asked of each row as it is then.
  const touched = rule
    ? sql`(select ${row}.${columnName(key)} as k from ${open} order by ${row}.${columnName(key)} for update of ${row})`
    : alias('k');
  const rows = sql`delete from ${tableName(collection)} ${alias('t')} using ${touched} ${rule ? alias('k') : sql``} where ${alias('t')}.${columnName(key)} = ${alias('k')}.k returning ${alias('t')}.${columnName(key)}`;
  const missing = sql`(select count(*) from ${alias('w')}) < (select count(*) from ${alias('k')})`;
  const by = sql`${parameter({ kind: 'text', slot: 1 })}::json`;
  const recorded = record([{ action: 'delete', collection, rows: alias('w'), shown: false }], by, activityLog);
  const parts = join([wanted, sql`${alias('w')} as (${rows})`, ...recorded], sql`, `);
  return statement(sql`with ${parts} select case when ${missing} then service_raise('missing') end`);
}
