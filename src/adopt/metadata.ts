/**
 * Collections, fields and relations: what the other installation knows of the tables that both serve. Own columns of system
 * tables are added here, and what refers to system tables of theirs leads to ours: foreign keys, and names in rows.
 */
import { isSystemField } from '../postgres/catalog/system-tables.js';
import type { Session } from '../postgres/pools/sessions.js';
import { type Fragment, identifier, literal, sql } from '../sql/fragment.js';
import { readSql } from '../sql/read-sql.js';
import { type Copy, valuesOf } from './copy.js';
import {
  constant,
  type Installations,
  isShared,
  isSystemName,
  oneOf,
  renamed,
  renamedList,
  run,
  theirs,
} from './source.js';

/** A field that a project has added to a system table. */
export interface OwnField {
  /** The name that Directus uses. */
  readonly collection: string;
  readonly field: string;
  readonly column: boolean;
}

/** Columns and lists that were added to system tables that we have as well. */
export async function findOwnFields(session: Session, places: Installations): Promise<readonly OwnField[]> {
  const rows = await run<{ collection: string; field: string }>(
    session,
    sql`select distinct collection, field from ${theirs(places, 'fields')} old
      where ${isShared(places, sql`collection`)} order by collection, field`,
  );
  return rows
    .filter(({ collection, field }) => !isSystemField(`service_${collection.slice(9)}`, field))
    .map(({ collection, field }) => ({
      collection,
      field,
      column: places.tables.get(collection)?.has(field) === true,
    }));
}

export function collectionRows(places: Installations): Copy {
  const parents = theirs(places, 'collections');
  return {
    to: 'collections',
    key: ['collection'],
    values: valuesOf(places, 'collections', 'collections', {
      accountability: oneOf(sql`old.accountability`, ['all', 'activity'], sql`null`),
      collapse: oneOf(sql`old.collapse`, ['open', 'closed', 'locked'], sql`'open'`),
      status: places.major === 12 ? oneOf(sql`old.status`, ['active', 'inactive'], sql`'active'`) : null,
      autosave_revision_interval: places.major === 12 ? sql`round(old.autosave_revision_interval)` : null,
      group: sql`(select parent.collection from ${parents} parent
        where parent.collection = old."group" and not ${isSystemName(sql`parent.collection`)})`,
      primary_key: null,
      schema: null,
      table: null,
      search_field: null,
    }),
    from: sql`from ${parents} old where not ${isSystemName(sql`old.collection`)}`,
  };
}

const WIDTHS = ['half', 'half-left', 'half-right', 'half-space', 'full', 'fill'];

/** Marks of fields that have no column. */
const ALIASES = ['alias', 'no-data', 'group', 'o2m', 'm2m', 'm2a', 'o2a', 'files', 'translations'];

/** Whether a row of fields describes a column that exists, or a field without one. */
export function describesField({ schema }: Installations): Fragment {
  const marks = literal(`{${ALIASES.join(',')}}`);
  return sql`(string_to_array(replace(coalesce(old.special, ''), ' ', ''), ',') && ${marks}::text[]
    or exists (select from information_schema.columns where table_schema = ${constant(schema)}
      and table_name = old.collection and column_name = old.field))`;
}

export function fieldRows(places: Installations, own: readonly OwnField[]): Copy {
  const added = constant(JSON.stringify(own.map(({ collection, field }) => [collection, field])));
  return {
    to: 'fields',
    key: ['collection', 'field'],
    values: valuesOf(places, 'fields', 'fields', {
      id: null,
      collection: renamed(places, sql`old.collection`),
      width: oneOf(sql`old.width`, WIDTHS, sql`null`),
    }),
    from: sql`from ${theirs(places, 'fields')} old where ${describesField(places)}
      and (not ${isSystemName(sql`old.collection`)}
        or exists (select from json_array_elements(${added}::json) own where own ->> 0 = old.collection and own ->> 1 = old.field))`,
    first: sql`old.id`,
  };
}

export function relationRows(places: Installations): Copy {
  return {
    to: 'relations',
    key: ['many_collection', 'many_field'],
    keyWhere: sql`not (many_collection = 'service_access' and many_field = 'policy')`,
    values: valuesOf(places, 'relations', 'relations', {
      id: null,
      many_collection: renamed(places, sql`old.many_collection`),
      one_collection: renamed(places, sql`old.one_collection`),
      one_allowed_collections: renamedList(places, sql`old.one_allowed_collections`),
      one_deselect_action: oneOf(sql`old.one_deselect_action`, ['nullify', 'delete'], sql`'nullify'`),
    }),
    from: sql`from ${theirs(places, 'relations')} old
      where not ${isSystemName(sql`old.many_collection`)} or ${isShared(places, sql`old.many_collection`)}`,
    first: sql`old.id`,
  };
}

const OWN_COLUMNS = readSql('adopt', 'own-columns.sql');
const REFERENCES = readSql('adopt', 'references.sql');

/** Adds the columns that a project has added to system tables of theirs; returns their names. */
export async function addOwnColumns(
  session: Session,
  { schema, system, tables }: Installations,
  own: readonly OwnField[],
): Promise<readonly string[]> {
  const missing = own.filter(
    ({ collection, field, column }) => column && !tables.get(`service_${collection.slice(9)}`)?.has(field),
  );
  if (missing.length === 0) return [];
  const wanted = missing.map(({ collection, field }) => ({ table: collection, column: field }));
  const rows = await session.query<{ statement: string }>(OWN_COLUMNS, [schema, system, JSON.stringify(wanted)]);
  for (const row of rows) await session.query(row.statement);
  return missing.map(({ collection, field }) => `service_${collection.slice(9)}.${field}`);
}

export interface Reference {
  /** `own`: of a column that a project has added to a system table. */
  readonly kind: 'switch' | 'own';
  /** Table and column. */
  readonly field: string;
  readonly statement: string;
}

export function findReferences(
  session: Session,
  { schema, system, shared }: Installations,
  own: readonly OwnField[],
): Promise<Reference[]> {
  const added = own.map(({ collection, field }) => ({ table: collection, column: field }));
  return session.query<Reference>(REFERENCES, [schema, system, JSON.stringify(shared), JSON.stringify(added)]);
}

/** Junctions of many-to-any relations name collections in their rows; returns how many rows were changed. */
export async function renameCollections(session: Session, places: Installations): Promise<number> {
  const junctions = await run<{ table: string; column: string }>(
    session,
    sql`select distinct old.many_collection as "table", old.one_collection_field as "column"
      from ${theirs(places, 'relations')} old
      cross join lateral pg_catalog.unnest(string_to_array(old.one_allowed_collections, ',')) allowed (name)
      join information_schema.columns found on found.table_schema = ${constant(places.schema)}
        and found.table_name = old.many_collection and found.column_name = old.one_collection_field
      where ${isShared(places, sql`trim(allowed.name)`)}`,
  );
  let count = 0;
  for (const { table, column } of junctions) {
    const name = identifier(column);
    const changed = await run(
      session,
      sql`update ${identifier(places.schema, table)} set ${name} := ${renamed(places, name)} where ${isShared(places, name)} returning 1`,
    );
    count += changed.length;
  }
  return count;
}
