/** Reads the structure of a database and the statistics of its planner, in one database snapshot. It changes nothing. */
import { StartError } from '../../base/errors.js';
import { isRecord, parseOwnJson } from '../../base/narrow.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { qualify } from '../../compiler/sql/qualify.js';
import { locateSystemTables } from '../../server/postgres/catalog/migrate.js';
import { systemTables } from '../../server/postgres/catalog/system-tables.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { readSql } from '../../server/postgres/read-sql.js';
import {
  type ColumnFacts,
  type PlannerFacts,
  STATISTICS_FORMAT,
  STATISTICS_VERSION,
  type StatisticsFile,
  type StructureStatement,
} from './statistics-file.js';

const STRUCTURE = readSql('features', 'plans', 'structure.sql');
const FACTS = readSql('features', 'plans', 'statistics.sql');

/** The oldest version of PostgreSQL that is served. */
const OLDEST_SERVER = 150_000;

/** With an empty path PostgreSQL prints every name with its schema. */
const NO_PATH = withCatalog("select set_config('search_path', '', true)");

/** The rows that a request is planned with. None of them holds a password or a token. */
const METADATA = [
  'service_collections',
  'service_fields',
  'service_relations',
  'service_functions',
  'service_roles',
  'service_policies',
  'service_permissions',
  'service_access',
] as const;

interface StatisticsOptions {
  /** The schema that was asked for the service's own tables. */
  readonly system: string | null;
  /** Columns whose values are left out: `table.column`, `table.*` or `schema.table.column`. */
  readonly redact: readonly string[];
}

export async function takeStatistics(
  database: Database,
  { system: requested, redact }: StatisticsOptions,
): Promise<StatisticsFile> {
  const isInstalled = await locateSystemTables(database, requested);
  const system = isInstalled ? database.system : null;
  await checkReadable(database, system);
  const taken = await database.catalog.use((session) =>
    session.transaction(() => readAll(session, database.schemas, system), SNAPSHOT),
  );
  if (taken.facts.server < OLDEST_SERVER)
    throw new StartError(`PostgreSQL 15 or newer is needed, and the server has ${taken.facts.server}`);
  const redacted = [...redact, ...concealedFields(taken.metadata)];
  return {
    format: STATISTICS_FORMAT,
    version: STATISTICS_VERSION,
    taken: new Date().toISOString(),
    schemas: database.schemas,
    system,
    structure: taken.structure,
    metadata: taken.metadata,
    redacted,
    ...withoutValues(taken.facts, redacted),
  };
}

/** The tables of the service that the role may not read; $2: their schema, or null if no installation was found. */
const HIDDEN = withCatalog(`
  select format('%I.%I', namespace.nspname, class.relname) as name
  from pg_catalog.pg_class class join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where class.relkind = 'r' and class.relname in (select json_array_elements_text($1::json))
    and ($2::text is null or namespace.nspname = $2)
    and not (has_schema_privilege(namespace.oid, 'usage') and has_table_privilege(class.oid, 'select'))
  order by namespace.nspname, class.relname`);

/** Without these tables nobody knows which fields are concealed, and which tables are the service's own. */
async function checkReadable({ own }: Database, system: string | null): Promise<void> {
  const needed = JSON.stringify(['service_migrations', 'service_schema', 'service_tables', ...METADATA]);
  const hidden = await own.use((session) => session.query<{ name: string }>(HIDDEN, [needed, system]));
  if (hidden.length === 0) return;
  const names = hidden.map(({ name }) => name).join(', ');
  throw new StartError(
    `the role may not read the service's own tables, which say what is concealed: grant it select on ${names}`,
  );
}

const SNAPSHOT = 'begin isolation level repeatable read, read only';

interface Taken {
  readonly facts: PlannerFacts;
  readonly structure: readonly StructureStatement[];
  readonly metadata: Readonly<Record<string, string>>;
}

async function readAll(session: Session, schemas: readonly string[], system: string | null): Promise<Taken> {
  await session.cell(NO_PATH, []);
  const parameters = [JSON.stringify(schemas), system ?? '', JSON.stringify([...systemTables()])];
  const facts = parseOwnJson<PlannerFacts>(String(await session.cell(FACTS, parameters)));
  const structure = parseOwnJson<StructureStatement[]>(String(await session.cell(STRUCTURE, parameters)));
  const metadata: Record<string, string> = {};
  for (const table of system === null ? [] : METADATA) {
    const text = withCatalog(`select coalesce(json_agg(to_json(found)), '[]')::text from ${table} found`);
    metadata[table] = String(await session.cell(qualify(text, system ?? ''), []));
  }
  return { facts, structure, metadata };
}

/** Fields that no response shows. `withoutValues` removes their values, and all values of the system tables. */
function concealedFields(metadata: Taken['metadata']): string[] {
  const rowsOf = (table: string): readonly Readonly<Record<string, unknown>>[] =>
    parseOwnJson<readonly unknown[]>(metadata[table] ?? '[]').filter(isRecord);
  // A collection may have another name than its table.
  const tables = new Map(
    rowsOf('service_collections').flatMap(({ collection, schema, table }) =>
      typeof table === 'string' ? [[collection, typeof schema === 'string' ? `${schema}.${table}` : table]] : [],
    ),
  );
  return rowsOf('service_fields').flatMap(({ collection, field, special }) => {
    if (systemTables().has(String(collection))) return [];
    if (!/\b(conceal|hash)\b/.test(JSON.stringify(special ?? null))) return [];
    return [tables.get(collection), collection].flatMap((name) => (name ? [`${String(name)}.${String(field)}`] : []));
  });
}

/** Leaves out the values of redacted columns, of indexes over them, and of the service's own tables, which hold tokens. */
function withoutValues(facts: PlannerFacts, redacted: readonly string[]): PlannerFacts {
  const own = new Set(facts.tables.filter((each) => each.own).map((each) => `${each.schema}.${each.table}`));
  const secret = new Set(redacted);
  const ancestors = new Map(facts.tables.map((each) => [`${each.schema}.${each.table}`, each.ancestors ?? []]));
  // A table of another schema than the first is the collection "schema_table".
  const isNamed = (schema: string, table: string, column: string): boolean =>
    [table, `${schema}.${table}`, `${schema}_${table}`].some(
      (name) => secret.has(`${name}.${column}`) || secret.has(`${name}.*`),
    );
  const isSecret = (schema: string, table: string, column: string): boolean =>
    own.has(`${schema}.${table}`) ||
    isNamed(schema, table, column) ||
    (ancestors.get(`${schema}.${table}`) ?? []).some((above) => isNamed(...above, column));
  const indexes = new Map(facts.indexes.map((index) => [`${index.schema}.${index.index}`, index]));
  const columns = facts.columns.map((each): ColumnFacts => {
    const index = indexes.get(`${each.schema}.${each.table}`);
    const sources = index ? index.sources.map((column) => [index.table, column]) : [[each.table, each.column]];
    const hides = sources.some(([table = '', column = '']) => isSecret(each.schema, table, column));
    return hides ? { ...each, ...NO_VALUES } : each;
  });
  return { ...facts, columns };
}

const NO_VALUES = {
  most_common_vals: null,
  most_common_freqs: null,
  histogram_bounds: null,
  most_common_elems: null,
  most_common_elem_freqs: null,
  elem_count_histogram: null,
  range_length_histogram: null,
  range_empty_frac: null,
  range_bounds_histogram: null,
} as const;
