/**
 * The installation that is adopted: where its tables are, which columns they have, and which version made them. In values,
 * `directus_users` is `service_users` here, if there is such a table.
 */
import { StartError } from '../../base/errors.js';
import { type Fragment, identifier, join, literal, parameter, sql, statement } from '../../compiler/sql/fragment.js';
import { bind } from '../../compiler/sql/parameter.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { readSql } from '../../server/postgres/read-sql.js';

export interface SourceColumn {
  readonly name: string;
  /** The name of the type in pg_type. */
  readonly type: string;
  readonly type_schema: string;
  readonly required: boolean;
  /** The expression of its default. */
  readonly initial: string | null;
}

export type Columns = ReadonlyMap<string, SourceColumn>;

export interface Installations {
  /** The schema of their tables. */
  readonly schema: string;
  /** The schema of the service's system tables. */
  readonly system: string;
  readonly major: 10 | 11 | 12;
  /** Theirs and ours, by the names of tables. */
  readonly tables: ReadonlyMap<string, Columns>;
  /** Names of tables that both have, without prefix. */
  readonly shared: readonly string[];
}

const COLUMNS = readSql('features', 'adopt', 'columns.sql');

/** Tables without which nothing can be read. */
const NEEDED = ['collections', 'fields', 'relations', 'roles', 'users', 'permissions'];

/** Tables of the same name that hold something else, or what must not be copied. */
const APART: ReadonlySet<string> = new Set(['migrations', 'sessions']);

export async function findInstallations(session: Session, database: Database): Promise<Installations> {
  const schema = await findSchema(session, database);
  const { system } = database;
  const rows = await session.query<SourceColumn & { table: string }>(COLUMNS, [schema, system]);
  const tables = new Map<string, Map<string, SourceColumn>>();
  for (const { table, ...column } of rows) {
    const columns = tables.get(table) ?? new Map<string, SourceColumn>();
    tables.set(table, columns.set(column.name, column));
  }
  const missing = NEEDED.filter((name) => !tables.has(`directus_${name}`));
  if (missing.length > 0) throw new StartError(`schema "${schema}" has no table "directus_${missing[0]}"`);
  const shared = [...tables.keys()]
    .filter((name) => name.startsWith('service_') && tables.has(`directus_${name.slice(8)}`))
    .map((name) => name.slice(8))
    .filter((name) => !APART.has(name));
  return { schema, system, major: versionOf(tables), tables, shared };
}

async function findSchema(session: Session, database: Database): Promise<string> {
  const rows = await session.query<{ schema: string }>(
    database.qualified(
      `select schemaname as schema from pg_catalog.pg_tables
       where tablename = 'directus_collections' and schemaname in (select json_array_elements_text($1::json))`,
    ),
    [JSON.stringify(database.schemas)],
  );
  const found = database.schemas.find((schema) => rows.some((row) => row.schema === schema));
  if (found === undefined)
    throw new StartError(
      `no schema that is served (${database.schemas.map((name) => `"${name}"`).join(', ')}) has the tables of Directus: DATABASE_SCHEMA names the schema`,
    );
  return found;
}

/** No version is stored: the columns show it. */
function versionOf(tables: ReadonlyMap<string, Columns>): Installations['major'] {
  if (!tables.get('directus_fields')?.has('validation'))
    throw new StartError('this installation is older than version 10: update it to version 10 or newer first');
  if (!tables.has('directus_policies') || !tables.has('directus_access')) return 10;
  return tables.get('directus_collections')?.has('status') ? 12 : 11;
}

export function hasColumn({ tables }: Installations, table: string, column: string): boolean {
  return tables.get(table)?.has(column) === true;
}

/** A system table of Directus. */
export function theirs({ schema }: Pick<Installations, 'schema'>, name: string): Fragment {
  return identifier(schema, `directus_${name}`);
}

/** A system table of this service. */
export function ours({ system }: Pick<Installations, 'system'>, name: string): Fragment {
  return identifier(system, `service_${name}`);
}

const NO_CALLER = { user: null, role: null, roles: [], policies: [] };

/** Runs a statement and returns its rows. */
export async function run<Row>(session: Session, fragment: Fragment): Promise<Row[]> {
  const { text, parameters } = statement(fragment);
  return session.query<Row>(text, bind(parameters, [], NO_CALLER));
}

export async function count(session: Session, from: Fragment): Promise<number> {
  const [row] = await run<{ count: number }>(session, sql`select count(*)::int as count ${from}`);
  return row?.count ?? 0;
}

export function constant(value: string): Fragment {
  return sql`${parameter({ kind: 'constant', value })}::text`;
}

/** Whether the name is that of a system table of Directus. */
export function isSystemName(name: Fragment): Fragment {
  return sql`${name} like 'directus\\_%'`;
}

/** Whether a name is that of a system table which we have as well. */
export function isShared({ shared }: Installations, name: Fragment): Fragment {
  const names = shared.map((each) => literal(`directus_${each}`));
  return names.length === 0 ? sql`false` : sql`${name} in (${join(names)})`;
}

export function renamed(places: Installations, name: Fragment): Fragment {
  return sql`case when ${isShared(places, name)} then 'service_' || substr(${name}, 10) else ${name} end`;
}

/** Renames each entry of a comma separated list. */
export function renamedList(places: Installations, list: Fragment): Fragment {
  return sql`(select string_agg(${renamed(places, sql`trim(entry.name)`)}, ',' order by entry.position)
    from pg_catalog.unnest(string_to_array(${list}, ',')) with ordinality entry (name, position))`;
}

/**
 * Renames the collections in a rule. `$FOLLOW(collection, field)` and `item:collection` name them. For Directus the strings "null" and
 * "NULL" are null.
 */
export function renamedRule({ shared }: Installations, rule: Fragment): Fragment {
  const pattern = `(\\$FOLLOW\\(\\s*|\\w:)directus_(${shared.join('|')})\\M`;
  const own = sql`regexp_replace(${rule}::text, ${constant(pattern)}, '\\1service_\\2', 'g')`;
  return sql`regexp_replace(${own}, '("_n?eq"\\s*:\\s*)"(null|NULL)"', '\\1null', 'g')::json`;
}

/** The value where it is one of these, else the other. */
export function oneOf(value: Fragment, allowed: readonly string[], otherwise: Fragment): Fragment {
  return sql`case when ${value} in (${join(allowed.map((each) => literal(each)))}) then ${value} else ${otherwise} end`;
}
