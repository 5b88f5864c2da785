/**
 * Rows as a content version shows them. A version holds changes as a document, in the form of a payload: values by the names of fields,
 * objects for related items, lists of them. They are laid over the rows that are read: which rows and fields may be seen is decided by the rows
 * as they are, and rows that only the version has by what may be seen of a row without values.
 */
import { singleKey } from '../model/item-key.js';
import type { Collection, Field } from '../model/model.js';
import type { Output, VersionPlan } from '../plan/plan.js';
import { alias, type Fragment, join, literal, sql } from '../sql/fragment.js';
import { operatorOf } from './compare.js';
import { FromClause, refersTo } from './from-clause.js';
import { geometryOf, isGeometry } from './geometry.js';
import { columnName, tableName, typeName } from './identifiers.js';

/** The changes of each row that a source reads. */
export interface RowChanges {
  /** As jsonb; null for a row that is as it was. */
  readonly document: (source: FromClause) => Fragment;
  /** The source of rows that only the version has, in place of their table. */
  readonly made?: (row: Fragment) => Fragment;
}

/** The column that holds the changes of a row. */
export const CHANGES: Fragment = alias('v');

/** The changes of the items of the request. */
export function versionChanges({ toMany, where, delta, id }: VersionPlan): RowChanges {
  return {
    document: (source) => {
      const { scope } = source;
      const versions = new FromClause(alias(`t${scope.next()}`), scope, toMany.collection);
      const condition = scope.compileCondition(where, versions);
      const stored = sql`${versions.column([], delta)}::jsonb`;
      const value = id ? withVersion(stored, versions.column([], id)) : stored;
      const row = alias(`l${scope.next()}`);
      const rows = versions.from(refersTo(toMany, versions, source), condition);
      source.join(sql` left join lateral (select ${value} as ${CHANGES} from ${rows} limit 1) ${row} on true`);
      return sql`${row}.${CHANGES}`;
    },
  };
}

/** No field has this name where the changes carry it. */
const META = literal('$meta');

/** The changes with the id of the version. A version that was never saved has no changes. */
function withVersion(stored: Fragment, id: Fragment): Fragment {
  const meta = sql`pg_catalog.jsonb_build_object('version_id', ${id})`;
  const unsaved = sql`pg_catalog.jsonb_build_object('version_id', ${id}, 'delta', '{}'::jsonb)`;
  return sql`case pg_catalog.jsonb_typeof(${stored})
    when 'object' then pg_catalog.jsonb_set(${stored}, '{$meta}', ${meta})
    else pg_catalog.jsonb_build_object(${META}, ${unsaved}) end`;
}

export function versionOf(changes: Fragment): Fragment {
  return sql`pg_catalog.jsonb_extract_path_text(${changes}, ${META})`;
}

/** The value of a field in the changes. */
function entryOf(changes: Fragment, name: string): Fragment {
  return sql`(${changes} -> ${literal(name)})`;
}

/** The value of a column with the changes of its row. */
export function changedColumn(field: Field, value: Fragment, changes: Fragment, keys: readonly string[]): Fragment {
  const entry = entryOf(changes, field.name);
  const isChanged = sql`pg_catalog.jsonb_exists(${changes}, ${literal(field.name)})`;
  return sql`case when ${isChanged} then ${readEntry(field, entry, keys)} else ${value} end as ${columnName(field)}`;
}

/** As a write would read it from the same payload (plan/write/column-value.ts). */
function readEntry(field: Field, entry: Fragment, keys: readonly string[]): Fragment {
  const text = sql`(${entry} #>> '{}')`;
  const base = field.column?.base_type;
  if (field.relation && keys.length > 0) {
    const named = join(
      keys.map((key) => sql`${entry} ->> ${literal(key)}`),
      sql`, `,
    );
    return sql`(case jsonb_typeof(${entry}) when 'object' then coalesce(${named}) else ${text} end)::${typeName(field)}`;
  }
  if (field.type === 'csv') {
    const element = alias('e');
    const list = sql`select string_agg(${element}.value, ',' order by ${element}.ordinality)
      from jsonb_array_elements_text(${entry}) with ordinality ${element}`;
    return sql`case jsonb_typeof(${entry}) when 'array' then coalesce((${list}), '') else ${text} end`;
  }
  if (base === 'json' || base === 'jsonb')
    return sql`case when ${entry} <> 'null'::jsonb then ${entry} end::${typeName(field)}`;
  if (base === 'bytea') return sql`decode(${text}, 'base64')`;
  if (isGeometry(field)) return geometryOf(text, field);
  if (field.column?.is_array || field.column?.composite) {
    const record = alias('e');
    return sql`(select ${record}.v
      from jsonb_to_record(jsonb_build_object('v', ${entry})) as ${record} (v ${typeName(field)}))`;
  }
  return sql`${text}::${typeName(field)}`;
}

/** Under which names an object in the place of a reference may carry the key of its item. */
export function keysOfReference(field: Field, outputs: readonly Output[]): string[] {
  const { relation } = field;
  if (relation?.kind === 'many-to-one') return [relation.referenced];
  if (relation?.kind !== 'many-to-any') return [];
  const targets = outputs.flatMap((output) => (output.kind === 'any' ? output.targets : []));
  const keys = targets.flatMap(({ toOne }) => (toOne.field === field ? toOne.target.key : []));
  return [...new Set(['id', ...keys.map(({ name }) => name)])];
}

/** The changes of the item that a reference leads to, and the item that it leads to where only the version has it. */
export function changesOfOne(
  changes: Fragment,
  field: Field,
  target: Collection,
  mask: Fragment | null,
): { existing: RowChanges; made: RowChanges } {
  const named = entryOf(changes, field.name);
  const isObject = sql`jsonb_typeof(${named}) = 'object'`;
  const entry = sql`case when ${mask ? sql`${mask} and ${isObject}` : isObject} then ${named} end`;
  const key = singleKey(target);
  const isNew = key ? sql`${entry} ->> ${literal(key.name)} is null` : sql`true`;
  const list = sql`case when ${entry} is not null and ${isNew} then jsonb_build_array(${entry}) else '[]' end`;
  return { existing: { document: () => sql`(${entry})` }, made: madeRows(target, list) };
}

/** As above, for a list. `stays` selects the existing rows that belong to it. */
export function changesOfList(
  changes: Fragment,
  name: string,
  target: Collection,
  key: Field,
): { existing: RowChanges; made: RowChanges; stays: (child: FromClause, refers: Fragment) => Fragment } {
  const entry = entryOf(changes, name);
  const kind = sql`jsonb_typeof(${entry})`;
  const e = alias('e');
  const keyOf = sql`case jsonb_typeof(${e}.value) when 'object' then ${e}.value ->> ${literal(key.name)} else ${e}.value #>> '{}' end`;
  // A list names all of its items; an object has lists to create, update and delete.
  const listed = sql`case ${kind} when 'array' then ${entry} when 'object' then coalesce(${entry} -> 'update', '[]') else '[]' end`;
  const deleted = sql`case ${kind} when 'object' then coalesce(${entry} -> 'delete', '[]') else '[]' end`;
  const keys = (list: Fragment): Fragment =>
    sql`array(select (${keyOf})::${typeName(key)}
      from jsonb_array_elements(${list}) ${e} (value)
      where ${keyOf} is not null)`;
  const withoutKey = sql`select jsonb_agg(${e}.value)
    from jsonb_array_elements(${entry}) ${e} (value)
    where jsonb_typeof(${e}.value) = 'object' and ${keyOf} is null`;
  const created = sql`case ${kind} when 'array' then (${withoutKey}) when 'object' then ${entry} -> 'create' end`;
  return {
    stays: (child, refers) => {
      const own = child.raw([], key);
      const equals = operatorOf(key, '=');
      return sql`(${refers} and ${kind} is distinct from 'array' and not ${own} ${equals} any (${keys(deleted)})
        or ${own} ${equals} any (${keys(listed)}))`;
    },
    existing: {
      document: (child) =>
        sql`(select ${e}.value
          from jsonb_array_elements(${listed}) ${e} (value)
          where jsonb_typeof(${e}.value) = 'object' and (${keyOf})::${typeName(key)} ${operatorOf(key, '=')} ${child.raw([], key)}
          limit 1)`,
    },
    made: madeRows(target, sql`coalesce(${created}, '[]')`),
  };
}

/** One row without values for each object of the list: its changes are all there is of it. */
function madeRows(target: Collection, list: Fragment): RowChanges {
  const [entry, row] = [alias('e'), alias('o')];
  return {
    document: (source) => sql`${source.alias}.${CHANGES}`,
    made: (name) =>
      sql`(select ${row}.*, ${entry}.value as ${CHANGES}
        from jsonb_array_elements(${list}) ${entry} (value)
        cross join jsonb_populate_record(null::${tableName(target)}, '{}') ${row}) ${name}`,
  };
}
