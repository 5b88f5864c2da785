/** What refers to system tables of theirs: foreign keys, and names of collections in rows. */
import type { Session } from '../postgres/pools/sessions.js';
import { identifier, sql } from '../sql/fragment.js';
import { readSql } from '../sql/read-sql.js';
import type { OwnField } from './metadata.js';
import { constant, isShared, renamed } from './names.js';
import { type Installations, run, theirs } from './source.js';

const OWN_COLUMNS = readSql('adopt', 'own-columns.sql');
const REFERENCES = readSql('adopt', 'references.sql');

/** Adds the columns that a project has added to system tables of theirs; answers their names. */
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

/** Junctions of many-to-any relations name collections in their rows; answers how many rows were changed. */
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
