/**
 * The database as the mirror and the policies see it: one statement that reads each, and notifications of changes. Statistics of tables
 * are read apart.
 */
import { hash } from 'node:crypto';
import { parseOwnJson } from '../../../base/narrow.js';
import type { OtherSchema } from '../../../base/observe.js';
import type { CatalogDocument } from '../../../compiler/model/catalog-document.js';
import { definedColumns } from '../../../compiler/sql/definitions.js';
import { quoteIdentifier } from '../../../compiler/sql/fragment.js';
import type { PolicySource } from '../../access/policy-watch.js';
import type { Database } from '../pools/database.js';
import type { Session } from '../pools/sessions.js';
import { readSql } from '../read-sql.js';
import type { Installation } from './installation.js';
import { systemFiles, systemTables } from './system-tables.js';
import type { CatalogSource, CatalogVersion } from './watch.js';

const INTROSPECT = readSql('server', 'introspect.sql');
const FINGERPRINT = readSql('server', 'fingerprint.sql');

const OTHER_SCHEMAS = readSql('server', 'other-schemas.sql');

const POLICIES = readSql('server', 'policies.sql');

export function policiesOf(database: Database): PolicySource {
  return {
    load: async () => String(await database.cell(POLICIES, [])),
    listenForChanges: (changed) => listen(database, 'service_policies', changed),
  };
}

/** Without an installation, nothing is checked before the schema is read. */
export function catalogSourceOf(database: Database, installation: Installation | null = null): CatalogSource {
  /** Where functions are that may be called: their definitions count as much as those of tables. */
  let locations: ReadonlySet<string> = new Set();
  return {
    schemas: database,
    check: async () => installation?.check(),
    settled: async () => installation?.settled(),
    load: async () => {
      const loaded = await database.catalog.use((session) => loadSchema(session, database));
      const { function_rows, computed } = loaded.document;
      locations = new Set([
        ...(function_rows ?? []).map((row) => String(row['schema'])),
        ...(computed ?? []).map(([, , schema]) => schema),
      ]);
      return loaded;
    },
    listen: async (changed) => {
      // Changes without a notification are found by the fingerprint.
      if (!database.listener.canHear) return async () => {};
      return listen(database, 'service_model', changed, { concerns: (schema) => locations.has(schema) });
    },
    fingerprint: async () => {
      const parameters = [JSON.stringify(database.schemas), database.system, String(database.listener.canHear)];
      const [row] = await database.rows<{ fingerprint: string | null }>(FINGERPRINT, parameters);
      return row?.fingerprint ?? null;
    },
  };
}

/** The schemas that are not served although they hold tables. */
export async function findOtherSchemas(database: Database): Promise<readonly OtherSchema[]> {
  const parameters = [JSON.stringify(database.schemas), JSON.stringify([...systemTables()])];
  const text = await database.own.use((session) => session.cell(OTHER_SCHEMAS, parameters));
  return parseOwnJson<OtherSchema[]>(String(text));
}

/** Replaces missing tables of the service by empty ones. The grammar must be loaded. */
async function withoutMissing(text: string, session: Session, database: Database): Promise<string> {
  const named = [...new Set(text.match(/(?<=from )service_\w+/g))];
  const rows = await session.query<{ name: string }>(
    database.qualified('select relname as name from pg_catalog.pg_class where relnamespace = to_regnamespace($1)'),
    [quoteIdentifier(database.system)],
  );
  const missing = named.filter((name) => !rows.some((row) => row.name === name));
  const definitions = systemFiles()
    .map((file) => file.text)
    .join(';\n');
  const fieldsOf = (table: string): string =>
    [...definedColumns(definitions, table)]
      .map(([field, type]) => `null::${type} as ${quoteIdentifier(field)}`)
      .join(', ');
  return missing.reduce(
    (changed, name) =>
      changed
        .replaceAll(`from ${name}`, `from missing_${name}`)
        .replace('with recursive\n', `with recursive\nmissing_${name} as (select ${fieldsOf(name)} where false),\n`),
    text,
  );
}

/** The schema as the connection sees it; `partial` where the service's own tables may not be there. */
export async function loadSchema(session: Session, database: Database, partial = false): Promise<CatalogVersion> {
  const statement = partial ? await withoutMissing(INTROSPECT, session, database) : INTROSPECT;
  const parameters = [JSON.stringify(database.schemas), database.system, JSON.stringify([...systemTables()])];
  const bytes = await session.cell(database.qualified(statement), parameters);
  if (!bytes) throw new Error('the catalog statement gave no row');
  const text = bytes.toString();
  const document = parseOwnJson<CatalogDocument>(text);
  const more: string[] = [];
  if (document.extensions?.['citus']) more.push(`"distributed":${await session.cell(DISTRIBUTED, [])}`);
  const schemas = [JSON.stringify(database.schemas)];
  if (database.callers !== null) more.push(`"exempt":${await session.cell(EXEMPT, schemas)}`);
  if (database.callers === 'role') more.push(`"role_privileges":${await session.cell(ROLE_PRIVILEGES, schemas)}`);
  if (more.length === 0) return { text, document, digest: hash('sha1', bytes, 'base64url') };
  const whole = `${text.slice(0, -1)},${more.join()}}`;
  return { text: whole, document: parseOwnJson(whole), digest: hash('sha1', whole, 'base64url') };
}

const ROLE_PRIVILEGES = readSql('server', 'role-privileges.sql');
const EXEMPT = readSql('server', 'exempt-tables.sql');

/** Tables of Citus, with the column by which they are distributed. Other databases do not have this catalog. */
const DISTRIBUTED = `select pg_catalog.json_agg(pg_catalog.json_build_array(logicalrelid::pg_catalog.oid::int8,
  pg_catalog.column_to_column_name(logicalrelid, partkey)) order by logicalrelid)::text
  from pg_catalog.pg_dist_partition`;

interface ListenOptions {
  /** Called while no notifications arrive; `changed` if absent. */
  readonly stale?: () => void;
  /** Whether notifications for another schema count. */
  readonly concerns?: (schema: string) => boolean;
}

/** Calls back on each notification for our schemas, and when some may have been missed. */
export function listen(
  database: Database,
  channel: string,
  changed: () => void,
  { stale = changed, concerns = () => false }: ListenOptions = {},
): Promise<() => Promise<void>> {
  return database.listener.listen(channel, {
    heard: (schema) => {
      if (schema === database.system || database.schemas.includes(schema) || concerns(schema)) changed();
    },
    missed: changed,
    stale,
  });
}
