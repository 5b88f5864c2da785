/** Deletion of items by their keys: all of them, or none and an error. */

import { elementAt } from '../../base/narrow.js';
import type { Collection } from '../../mirror/model.js';
import { isIntercepted } from '../../mirror/write-facts.js';
import type { Condition } from '../../plan/plan.js';
import { alias, join, parameter, type Statement, sql, statement } from '../../sql/fragment.js';
import { areEqual, isAmong, operatorOf } from '../compare.js';
import { compileCondition } from '../condition.js';
import { Scope } from '../from-clause.js';
import { tableName } from '../identifiers.js';
import {
  commaList,
  compositeKeyRows,
  inputKeyColumns,
  inputKeyNames,
  keyColumns,
  keyParameters,
} from '../key-columns.js';
import { type ActivityLog, record } from './activity.js';
import { guardedRows } from './guard.js';

/** With a rule, only rows that meet it: others look as if they did not exist. */
export function compileDelete(collection: Collection, rule: Condition | null, activityLog: ActivityLog): Statement {
  const lists = keyParameters(collection.key, 0, 'list');
  const names = inputKeyNames(collection);
  const composite = compositeKeyRows(collection.key, names, 0);
  const inputKeys = composite
    ? sql`${commaList(names)} from ${composite} ${alias('x')}`
    : lists.length === 1
      ? sql`pg_catalog.unnest(${elementAt(lists, 0)}) as k`
      : sql`* from unnest(${commaList(lists)}) as ${alias('x')} (${commaList(names)})`;
  const requestedKeys = sql`${alias('k')} as materialized (select distinct ${inputKeys})`;
  const row = alias('l');
  const locked = keyColumns(collection, row);
  const isListed = isAmong(locked, collection.key, sql`select ${commaList(names)} from ${alias('k')}`);
  const visible = guardedRows(collection, row, rule, new Scope(compileCondition), isListed);
  const touchedNames = locked.map((column, position) => sql`${column} as ${elementAt(names, position)}`);
  // Locked before they go: the rule is asked of each row as it is then.
  const touched = rule
    ? sql`(select ${commaList(touchedNames)} from ${visible} order by ${commaList(locked)} for update of ${row})`
    : alias('k');
  const deletedKey = keyColumns(collection, alias('t'));
  const shard = collection.distributed ? collection.key.findIndex(({ name }) => name === collection.shardColumn) : -1;
  const onShard =
    shard < 0
      ? sql``
      : sql` and ${elementAt(deletedKey, shard)} ${operatorOf(elementAt(collection.key, shard), '=')} (${elementAt(lists, shard)})[1]`;
  const rows = sql`delete from ${tableName(collection)} ${alias('t')} using ${touched} ${rule ? alias('k') : sql``} where ${areEqual(deletedKey, inputKeyColumns(collection, alias('k')), collection.key)}${onShard} returning ${commaList(deletedKey)}`;
  const missing = sql`(select count(*) from ${alias('w')}) < (select count(*) from ${alias('k')})`;
  const by = sql`${parameter({ kind: 'text', slot: 1 })}::json`;
  const recorded = record([{ action: 'delete', collection, rows: alias('w'), shown: false }], by, activityLog);
  const parts = join([requestedKeys, sql`${alias('w')} as (${rows})`, ...recorded], sql`, `);
  // Rows that are there and may be deleted, and that a trigger kept.
  const kept = sql`(select count(*) from ${visible}) = (select count(*) from ${alias('k')})`;
  const skipped = isIntercepted(collection, 'delete')
    ? sql`when ${missing} and ${kept} then service_refuse('skipped') `
    : sql``;
  return statement(sql`with ${parts} select case ${skipped}when ${missing} then service_raise('missing') end`);
}
