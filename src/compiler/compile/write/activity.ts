/**
 * The record of a change, as parts of the statement that makes it: one row of activity per item, and a revision with what the
 * item looks like afterwards where its collection asks for that. Secrets are concealed in it as in every other output.
 */
import { elementAt } from '../../../base/narrow.js';
import { requireSingleKey } from '../../model/item-key.js';
import { type Collection, collectionOf, type Model } from '../../model/model.js';
import { isReadable } from '../../model/write-facts.js';
import type { WriteColumn, WriteNode } from '../../plan/write/write.js';
import {
  alias,
  type Fragment,
  join,
  literal,
  nothing,
  parameter,
  type Statement,
  sql,
  statement,
} from '../../sql/fragment.js';
import { columnName, tableName } from '../identifiers.js';
import { concatenate, type JsonValue, jsonObject, toJsonText } from '../json.js';
import { joinedKey, keyColumns } from '../key-columns.js';
import { showField } from '../output.js';
import { isChanged } from './write-input.js';

/** The tables that hold the record. */
export interface ActivityLog {
  readonly activity: Collection;
  readonly revisions: Collection;
  /**
   * Whether the statement leaves its record in the setting `lateral.log`, for `compileDeferredRecord`: it runs with the database role of
   * its caller, which may not write to these tables.
   */
  readonly isDeferred: boolean;
}

export function activityLogOf(model: Model, isDeferred = false): ActivityLog {
  return {
    activity: collectionOf(model, 'service_activity'),
    revisions: collectionOf(model, 'service_revisions'),
    isDeferred,
  };
}

/** Changed rows of one collection, by a common table expression that returns them. */
export interface Recorded {
  readonly action: 'create' | 'update' | 'delete';
  readonly collection: Collection;
  readonly rows: Fragment;
  /** Whether the rows include their current values. */
  readonly shown: boolean;
}

/** Added to the returned keys: the row as it is now, and its changed fields. */
export function snapshot(node: WriteNode, changed: (column: WriteColumn) => Fragment | null): Fragment {
  if (node.collection.accountability !== 'all') return nothing;
  const fields = [...node.collection.fields.values()].filter((field) => !field.computed && isReturned(node, field));
  const data = sql`(${jsonObject(fields.map((field) => ({ name: field.name, value: show(field) })))})::json`;
  return sql`, ${data} as ${alias('j')}, ${node.verb === 'insert' ? sql`null::json` : delta(node, changed)} as ${alias('d')}`;
}

/** Whether the statement may return the column. */
function isReturned({ privileges }: WriteNode, field: WriteColumn['field']): boolean {
  return field.column !== null && isReadable(field) && (privileges?.read?.has(field.column.name) ?? true);
}

function show(field: WriteColumn['field']): JsonValue {
  return showField(sql`${alias('t')}.${columnName(field)}`, field);
}

function delta(node: WriteNode, changed: (column: WriteColumn) => Fragment | null): Fragment {
  const columns = node.columns.filter((column) => isChanged(column) && isReturned(node, column.field));
  if (columns.length === 0) return sql`'{}'::json`;
  if (columns.every((column) => changed(column) === null))
    return sql`(${jsonObject(columns.map(({ field }) => ({ name: field.name, value: show(field) })))})::json`;
  const entries = columns.map((column) => {
    const entry = sql`${literal(`,${JSON.stringify(column.field.name)}:`)} || ${toJsonText(show(column.field))}`;
    const condition = changed(column);
    return condition ? sql`case when ${condition} then ${entry} else '' end` : sql`(${entry})`;
  });
  return sql`('{' || substr(${concatenate(entries)}, 2) || '}')::json`;
}

export function itemText(collection: Collection, row: Fragment | null = null): Fragment {
  const columns = keyColumns(collection, row);
  return columns.length === 1 ? sql`${elementAt(columns, 0)}::text` : joinedKey(collection.key, columns);
}

/** The record as parts of a statement: common table expressions, and columns of its result. */
interface RecordParts {
  readonly parts: readonly Fragment[];
  readonly columns: readonly Fragment[];
}

/** `by` is the author of the change, as JSON. Empty if no collection records changes. */
export function record(recorded: readonly Recorded[], by: Fragment, log: ActivityLog): RecordParts {
  const logged = recorded.filter(({ collection }) => collection.accountability !== null);
  // The record of an earlier write in the same transaction is not written twice.
  if (logged.length === 0)
    return { parts: [], columns: log.isDeferred ? [sql`set_config('lateral.log', '', true)`] : [] };
  const rows = logged.map(({ action, collection, rows: from, shown }) => {
    const hasData = shown && collection.accountability === 'all';
    const data = hasData ? sql`${alias('j')}, coalesce(${alias('d')}, ${alias('j')})` : sql`null::json, null::json`;
    return sql`select ${literal(action)}, ${literal(collection.name)}, ${itemText(collection)}, ${data} from ${from}`;
  });
  const changes = join(rows, sql` union all `);
  if (log.isDeferred) {
    const names = sql`action, collection, item, data, delta`;
    const entries = sql`(select json_agg(json_build_array(${names})) from ${alias('ja')})::text`;
    return {
      parts: [sql`${alias('ja')} (${names}) as materialized (${changes})`],
      columns: [sql`set_config('lateral.log', coalesce(${entries}, ''), true)`],
    };
  }
  const hasRevisions = logged.some(({ collection, shown }) => shown && collection.accountability === 'all');
  return { parts: recordParts(changes, by, log, hasRevisions), columns: [] };
}

/** Writes the record that the statements before it in its transaction have left. The author is its only value. */
export function compileDeferredRecord(log: ActivityLog): Statement {
  const entry = (index: number): Fragment => sql`${alias('e')}.value ->> ${literal(String(index))}::int4`;
  const json = (index: number): Fragment => sql`(${entry(index)})::json`;
  const changes = sql`select ${entry(0)}, ${entry(1)}, ${entry(2)}, ${json(3)}, ${json(4)}
    from json_array_elements(nullif(current_setting('lateral.log', true), '')::json) ${alias('e')}`;
  const parts = recordParts(changes, sql`${parameter({ kind: 'text', slot: 0 })}::json`, log, true);
  return statement(sql`with ${join(parts, sql`, `)} select null`);
}

/** `changes` has the action, the collection, the item and the data of each row. */
function recordParts(
  changes: Fragment,
  by: Fragment,
  { activity, revisions }: ActivityLog,
  hasRevisions: boolean,
): Fragment[] {
  const sequence = requireSingleKey(activity).column?.sequence;
  if (!sequence) throw new Error('rows of activity have numbers');
  const names = sql`id, action, collection, item, data, delta`;
  const entries = sql`select nextval(${literal(sequence)}::regclass), ${alias('x')}.*
    from (${changes}) ${alias('x')}`;
  const author = sql`select *
    from json_to_record(${by}) as ${alias('x')} ("user" uuid, ip text, user_agent text, origin text)`;
  const parts = [
    // Read once: the document that it is a part of may be large.
    sql`${alias('jd')} as materialized (${author})`,
    sql`${alias('ja')} (${names}) as materialized (${entries})`,
    sql`${alias('jb')} as (insert into ${tableName(activity)} (id, action, collection, item, "user", ip, user_agent, origin)
      select id, action, collection, item, "user", ip, user_agent, origin
      from ${alias('ja')}, ${alias('jd')})`,
  ];
  if (hasRevisions) {
    parts.push(
      sql`${alias('jc')} as (insert into ${tableName(revisions)} (activity, collection, item, data, delta)
        select id, collection, item, data, delta
        from ${alias('ja')}
        where data is not null)`,
    );
  }
  return parts;
}
