/** Statements that delete items by key, or move an item in the sort order. */
import { elementAt } from '../../../base/narrow.js';
import type { Collection, Field } from '../../model/model.js';
import { mayReportSkipped } from '../../model/write-facts.js';
import type { Condition } from '../../plan/plan.js';
import { alias, type Fragment, join, nothing, parameter, type Statement, sql, statement } from '../../sql/fragment.js';
import { areEqual, isAmong, operatorOf } from '../compare.js';
import { compileCondition } from '../condition.js';
import { FromClause, Scope } from '../from-clause.js';
import { columnName, tableName } from '../identifiers.js';
import { JSON_COLUMN, jsonList, jsonObject } from '../json.js';
import {
  commaList,
  compositeKeyRows,
  inputKeyColumns,
  inputKeyNames,
  keyColumns,
  keyParameters,
} from '../key-columns.js';
import { showField } from '../output.js';
import { type Matched, matchesTag, transactionOf } from '../row-tag.js';
import { type ActivityLog, record } from './activity.js';
import { guardedRows } from './guard.js';

/** Whether a locked row has one of the entity tags. */
const MATCHES = alias('m');

interface DeleteOptions {
  readonly activityLog: ActivityLog;
  readonly matched: Matched | null;
  /** False if the snapshot of the transaction shows the rows as they are deleted. */
  readonly locks: boolean;
  /** Whether a row that a policy of the database keeps is no error. */
  readonly leavesKept: boolean;
  /** Whether only rows with one of the entity tags are deleted. The statement then returns the keys of the rows that it deleted. */
  readonly leavesChanged: boolean;
}

/** Deletes all items, or none and raises an error. Rows that do not meet the rule look as if they did not exist. */
export function compileDelete(
  collection: Collection,
  rule: Condition | null,
  { activityLog, matched, locks, leavesKept, leavesChanged }: DeleteOptions,
): Statement {
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
  const source = new FromClause(row, new Scope(compileCondition), collection);
  const [matches, joins] = matched ? matchesTag(matched, source, parameter({ kind: 'text', slot: 2 })) : [null, null];
  if (joins) source.join(joins);
  const visible = guardedRows(source, rule, isListed);
  const touchedNames = locked.map((column, position) => sql`${column} as ${elementAt(names, position)}`);
  // Locked before they go: the rule is asked of each row as it is then.
  const touched =
    rule || matches
      ? sql`select ${commaList([...touchedNames, ...(matches ? [sql`${matches} as ${MATCHES}`] : [])])}
        from ${visible}
        order by ${commaList(locked)}${locks ? sql` for update of ${row}` : nothing}`
      : null;
  const lockedRows = matches && touched ? [sql`${row} as materialized (${touched})`] : [];
  const using = matches ? sql`${row} ${alias('k')}` : touched ? sql`(${touched}) ${alias('k')}` : alias('k');
  const isMatched = matches ? sql` and ${alias('k')}.${MATCHES}` : sql``;
  // PostgreSQL compares a row that it waited for with this condition again.
  const isUnchanged = leavesChanged
    ? sql` and ${transactionOf(alias('t'))} = any(${parameter({ kind: 'text', slot: 2 })}::text[])`
    : nothing;
  const deletedKey = keyColumns(collection, alias('t'));
  const shard = collection.distributed ? collection.key.findIndex(({ name }) => name === collection.shardColumn) : -1;
  const onShard =
    shard < 0
      ? sql``
      : sql` and ${elementAt(deletedKey, shard)} ${operatorOf(elementAt(collection.key, shard), '=')} (${elementAt(lists, shard)})[1]`;
  const rows = sql`delete from ${tableName(collection)} ${alias('t')}
    using ${using}
    where ${areEqual(deletedKey, inputKeyColumns(collection, alias('k')), collection.key)}${onShard}${isMatched}${isUnchanged}
    returning ${commaList(deletedKey)}`;
  const missing = sql`(select count(*) from ${alias('w')}) < (select count(*) from ${alias('k')})`;
  const by = sql`${parameter({ kind: 'text', slot: 1 })}::json`;
  const recorded = record([{ action: 'delete', collection, rows: alias('w'), shown: false }], by, activityLog);
  const parts = join([requestedKeys, ...lockedRows, sql`${alias('w')} as (${rows})`, ...recorded.parts], sql`, `);
  // Rows that exist and may be deleted, but that a trigger kept.
  const kept = sql`(select count(*) from ${visible}) = (select count(*) from ${alias('k')})`;
  const skipped = mayReportSkipped(collection, 'delete')
    ? sql`when ${missing} and ${kept} then service_refuse('skipped') `
    : sql``;
  const changed = matches
    ? sql`when exists (select from ${row} where not ${MATCHES}) then service_refuse('changed') `
    : sql``;
  const refused = leavesKept ? changed : sql`${changed}${skipped}when ${missing} then service_raise('missing') `;
  const checked = leavesKept && !matches ? sql`null` : sql`case ${refused}end`;
  const result = leavesChanged ? deletedKeys(collection) : checked;
  return statement(sql`with ${parts} select ${commaList([result, ...recorded.columns])}`);
}

/** As a read shows them. */
function deletedKeys(collection: Collection): Fragment {
  const [row, deleted] = [alias('r'), alias('w')];
  const entries = collection.key.map((field) => ({
    name: field.name,
    value: showField(sql`${deleted}.${columnName(field)}`, field),
  }));
  return sql`(select ${jsonList(row, '{"data":', '}')} from (select ${jsonObject(entries)} as ${JSON_COLUMN} from ${deleted}) ${row})`;
}

/** Moves an item to the position of another: all items are renumbered from one, and only rows whose number changes are written. */
export function compileSort(collection: Collection, field: Field): Statement {
  const table = tableName(collection);
  const sorted = sql`${alias('t')}.${columnName(field)}`;
  const names = inputKeyNames(collection);
  const own = keyColumns(collection, alias('t'));
  const keyColumnsAs = commaList(own.map((column, position) => sql`${column} as ${elementAt(names, position)}`));
  const ranked = sql`select ${keyColumnsAs}, ${sorted} as s, row_number() over (order by ${sorted}, ${commaList(own)}) as p
    from ${table} ${alias('t')}`;
  const rank = (slot: number): Fragment =>
    sql`(select p
      from ${alias('o')}
      where ${areEqual(names, keyParameters(collection.key, slot, 'value'), collection.key)})`;
  const place = sql`case when p = a then b
    when p > a and p <= b then p - 1
    when p >= b and p < a then p + 1
    else p end`;
  const moved = sql`select ${commaList(inputKeyColumns(collection, alias('o')))}, ${place} as p, s
    from ${alias('o')}, ${alias('m')}`;
  const update = sql`update ${table} ${alias('t')}
    set ${columnName(field)} := ${alias('n')}.p
    from (${moved}) ${alias('n')}
    where ${areEqual(own, inputKeyColumns(collection, alias('n')), collection.key)} and (${alias('n')}.s = ${alias('n')}.p) is not true
    returning 1`;
  const missing = sql`(select a is null or b is null from ${alias('m')})`;
  return statement(
    sql`with ${alias('o')} as materialized (${ranked}),
      ${alias('m')} as materialized (select ${rank(0)} as a, ${rank(1)} as b),
      ${alias('w')} as (${update})
      select case when ${missing} then service_raise('missing') end`,
  );
}

/** The highest value in the column of a key that a sequence fills, as a string, or null if the collection has no items. */
export function compileMaxKey(collection: Collection, counted: Field): Statement {
  return statement(sql`select max(${columnName(counted)})::text from ${tableName(collection)}`);
}
