/**
 * The tables of the service: where they are, and how they are created. They are in the schema that is mirrored, or in a separate one where a
 * name is taken or somebody asked for it. An installation is known by its list of migrations, which a dump carries along;
 * names say nothing, since users may begin theirs as we do. A first start is one transaction: it leaves everything or nothing.
 */
import { readFile } from 'node:fs/promises';
import { StartError } from '../../../base/errors.js';
import { codeOf, messageOf } from '../../../base/narrow.js';
import type { Observer } from '../../../base/observe.js';
import { packagePath } from '../../../base/package-files.js';
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import { quoteIdentifier } from '../../../compiler/sql/fragment.js';
import { qualify } from '../../../compiler/sql/qualify.js';
import type { Database } from '../pools/database.js';
import type { Session } from '../pools/sessions.js';
import { findMissingGrant } from './missing-grants.js';
import { addSystemTables, MIGRATIONS, type SystemFile, systemFiles, systemTables, tablesOf } from './system-tables.js';

export interface MigrateOptions {
  /** A schema that holds no tables but ours gets the demo model, once. */
  readonly demo: boolean;
  /** The schema that was asked for. */
  readonly system: string | null;
  /** The migrations of the service and its features. */
  readonly files?: readonly SystemFile[];
}

/** The schema of the service's tables if one of their names is taken in the served schema. */
const OWN_SCHEMA = 'lateral';

export async function migrate(
  database: Database,
  { demo, system, files = systemFiles() }: MigrateOptions,
  observe: Observer,
): Promise<void> {
  checkName(system);
  // Instances that start together wait here.
  await database.transaction(async (guard) => {
    await guard.query(LOCK, [database.schema]);
    await database.own.use(async (session) => {
      const existing = await findInstallation(session, database.schema, system);
      const home = existing?.applied.has(LAST_OF_FIRST)
        ? existing
        : await install(session, { schema: database.schema, requested: system, unfinished: existing, files }, observe);
      database.system = home.schema;
      await update(session, home, files, observe);
      addSystemTables(await recordedTables(session, home));
      if (demo) await addDemo(session, database.schema, home, observe);
    });
  });
}

/**
 * Migrates inside of the caller's transaction, so that both are rolled back together. If a name of the service's tables is taken, it
 * fails: the failed statement has aborted the transaction.
 */
export async function migrateWithin(session: Session, database: Database, system: string | null): Promise<void> {
  checkName(system);
  await session.query(LOCK, [database.schema]);
  const [{ path = '' } = {}] = await session.query<{ path: string }>(
    "select pg_catalog.current_setting('search_path') as path",
  );
  const existing = await findInstallation(session, database.schema, system);
  const home = existing?.applied.has(LAST_OF_FIRST) ? existing.schema : (system ?? database.schema);
  try {
    if (home === existing?.schema) {
      await enter(session, [home]);
      for (const file of systemFiles())
        if (!existing.applied.has(file.name)) await carryOut(session, file, existing.applied);
    } else await createTables(session, home, { schema: database.schema, unfinished: existing, files: systemFiles() });
  } catch (error) {
    if (!isTaken(error)) throw error;
    throw new StartError(
      `cannot make the service's tables in schema "${home}": ${error.message}. SYSTEM_SCHEMA names another schema for them`,
    );
  }
  await session.query(SET_PATH, [path]);
  database.system = home;
}

const SET_PATH = withCatalog("select set_config('search_path', $1, true)");

/** Held until the end of the transaction, so a killed instance frees it, also behind a pooler. */
const LOCK = withCatalog("select pg_advisory_xact_lock(hashtextextended('lateral migrate ' || $1::text, 0))");

function checkName(system: string | null): void {
  if (system !== null && (Buffer.byteLength(system) > 63 || /\0|^pg_|^information_schema$/.test(system)))
    throw new StartError('SYSTEM_SCHEMA must be a name of at most 63 bytes, and not a schema of PostgreSQL itself');
}

/** Finds an installation without making or changing anything; answers whether there is one. */
export async function locateSystemTables(database: Database, requested: string | null): Promise<boolean> {
  const existing = await database.own.use((session) => findInstallation(session, database.schema, requested));
  if (!existing?.applied.has(LAST_OF_FIRST)) return false;
  addSystemTables(await database.own.use((session) => recordedTables(session, existing)));
  database.system = existing.schema;
  return true;
}

/** The last file without which the service never served anything. */
const LAST_OF_FIRST = '003_watch.sql';

interface Installation {
  readonly schema: string;
  /** The names of files. */
  readonly applied: Set<string>;
}

/** The installation that serves the schema: in it, or in another one whose `service_schema.mirrors` names it. */
async function findInstallation(
  session: Session,
  schema: string,
  requested: string | null,
): Promise<Installation | null> {
  const locations = await session.query<{ location: string; watched: boolean }>(LOCATIONS, [
    MIGRATIONS,
    JSON.stringify([schema, ...(requested ? [requested] : [])]),
  ]);
  const installations: Installation[] = [];
  for (const { location, watched } of locations) {
    const rows = await session.query(qualify('select name from service_migrations', location));
    const applied = new Set(rows.map(({ name }) => String(name)));
    const mirrors = watched ? await mirroredBy(session, location) : null;
    if (applied.has('001_metadata.sql') && (mirrors ?? location) === schema)
      installations.push({ schema: location, applied });
  }
  const [first = null, ...others] = installations;
  const requestedInstallation = installations.find((each) => each.schema === requested);
  if (requestedInstallation) return requestedInstallation;
  if (first && requested !== null && first.applied.has(LAST_OF_FIRST))
    throw new StartError(
      `SYSTEM_SCHEMA: the service's tables for schema "${schema}" are already in schema "${first.schema}"`,
    );
  if (others.length > 0)
    throw new StartError(
      `schemas ${installations.map((each) => `"${each.schema}"`).join(' and ')} both contain the service's tables for schema "${schema}": choose one with SYSTEM_SCHEMA`,
    );
  return first;
}

/**
 * Every table that is called like ours and has its columns. To read a view, or a table with row security, is to run functions of
 * its owner as the service's role. So in a schema that no option names it must be owned by that role, a role it is a member of (for a superuser: as
 * granted, it would pass for a member of all) or the owner of the database; any other role that may make a schema could put such tables there.
 */
const LOCATIONS = withCatalog(`
  with recursive trusted(role) as (
    select oid from pg_catalog.pg_roles where rolname = current_user
    union
    select roleid from pg_catalog.pg_auth_members join trusted on member = role
  )
  select namespace.nspname as location,
    exists (
      select from pg_catalog.pg_class marker
      where marker.relnamespace = class.relnamespace and marker.relname = 'service_schema'
        and marker.relkind = 'r' and marker.relowner = class.relowner and (owned or not marker.relrowsecurity)
    ) as watched
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  cross join lateral (
    select class.relowner in (select role from trusted)
      or class.relowner = (select datdba from pg_catalog.pg_database where datname = pg_catalog.current_database()) as owned
  ) as owner
  where class.relname = $1 and class.relkind = 'r'
    and (owned or not class.relrowsecurity and namespace.nspname in (select json_array_elements_text($2::json)))
    and pg_catalog.has_schema_privilege(namespace.oid, 'usage') and pg_catalog.has_table_privilege(class.oid, 'select')
    and (
      select pg_catalog.array_agg(attribute.attname || ' ' || attribute.atttypid::regtype order by attribute.attnum)
      from pg_catalog.pg_attribute attribute
      where attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
    ) = array['name text', 'applied_at timestamp with time zone']
  order by namespace.nspname`);

/** The schema that the tables in `location` describe, or null if it is `location` itself, as in earlier versions. */
async function mirroredBy(session: Session, location: string): Promise<string | null> {
  const text = withCatalog("select to_jsonb(found) ->> 'mirrors' as mirrors from service_schema found");
  const [row] = await session.query(qualify(text, location));
  return typeof row?.['mirrors'] === 'string' ? row['mirrors'] : null;
}

interface NewInstallation {
  /** The schema that is served. */
  readonly schema: string;
  readonly files: readonly SystemFile[];
  /** Objects that a failed first start of an earlier version left behind. It never served anything. */
  readonly unfinished: Installation | null;
}

async function install(
  session: Session,
  { requested, ...made }: NewInstallation & { readonly requested: string | null },
  observe: Observer,
): Promise<Installation> {
  const { schema, files } = made;
  const locations = requested === null ? [...new Set([schema, OWN_SCHEMA])] : [requested];
  let refusal = '';
  for (const location of locations) {
    try {
      await session.transaction(() => createTables(session, location, made));
    } catch (error) {
      if (!isTaken(error)) throw await explainDenial(session, location, error);
      refusal = `schema "${location}": ${error.message}`;
      continue;
    }
    for (const { name } of files) observe({ kind: 'migrated', file: name });
    return { schema: location, applied: new Set(files.map(({ name }) => name)) };
  }
  throw new StartError(`cannot create the service's tables in ${refusal}. Set SYSTEM_SCHEMA to use another schema`);
}

async function createTables(
  session: Session,
  location: string,
  { schema, files, unfinished }: NewInstallation,
): Promise<void> {
  if (unfinished) await removeLeftovers(session, unfinished);
  await enter(session, [location]);
  const [existingSchema] = await session.query(withCatalog('select from pg_catalog.pg_namespace where nspname = $1'), [
    location,
  ]);
  if (!existingSchema) await session.query(`create schema ${quoteIdentifier(location)}`);
  await session.query(
    'create table service_migrations (name text primary key, applied_at timestamptz not null default now())',
  );
  const applied = new Set<string>();
  for (const file of files) await carryOut(session, file, applied);
  if (location !== schema) await session.query('update service_schema set mirrors = $1', [schema]);
}

async function removeLeftovers(session: Session, { schema, applied }: Installation): Promise<void> {
  const files = systemFiles().filter(({ name }) => applied.has(name));
  const tables = [MIGRATIONS, ...files.flatMap(tablesOf)];
  const names = tables.map((name) => `${quoteIdentifier(schema)}.${quoteIdentifier(name)}`);
  await session.query(`drop table if exists ${names.join(', ')}`);
}

/** A table, a function or a type has the name already. */
function isTaken(error: unknown): error is Error {
  return error instanceof Error && ['42P07', '42710', '42723'].includes(codeOf(error));
}

/** The error of a role that lacks a privilege, with the statement that grants it. */
async function explainDenial(session: Session, schema: string, error: unknown): Promise<unknown> {
  if (codeOf(error) !== '42501') return error;
  const grant = await findMissingGrant(session, schema);
  const remedy =
    grant === null
      ? 'The role must own the tables of the service, or be a member of the role that owns them'
      : `A superuser or the owner can run: ${grant.fix}`;
  return new StartError(`cannot create the service_* tables in schema "${schema}": ${messageOf(error)}. ${remedy}`);
}

/** Runs the migrations of later versions, each file in its own transaction. */
async function update(
  session: Session,
  { schema, applied }: Installation,
  files: readonly SystemFile[],
  observe: Observer,
): Promise<void> {
  for (const file of files) {
    if (applied.has(file.name)) continue;
    try {
      await session.transaction(async () => {
        await enter(session, [schema]);
        await carryOut(session, file, applied);
      });
    } catch (error) {
      if (!isTaken(error)) throw await explainDenial(session, schema, error);
      throw new StartError(`cannot update the service's tables in schema "${schema}" (${file.name}): ${error.message}`);
    }
    observe({ kind: 'migrated', file: file.name });
  }
}

const DEMO = 'demo.sql';

async function addDemo(session: Session, schema: string, home: Installation, observe: Observer): Promise<void> {
  if (home.applied.has(DEMO) || !(await isEmpty(session, schema, home.schema))) return;
  const text = await readFile(packagePath('sql', 'server', DEMO), 'utf8');
  await session.transaction(async () => {
    await enter(session, [schema, home.schema]);
    await carryOut(session, { name: DEMO, text }, home.applied);
  });
  observe({ kind: 'migrated', file: DEMO });
}

/** The files name tables alone: new ones are made in the first schema. */
async function enter(session: Session, schemas: readonly string[]): Promise<void> {
  await session.query(SET_PATH, [schemas.map(quoteIdentifier).join(', ')]);
}

/** The migration that makes the list of tables. It adds those of the files before it. */
const RECORDS = '033_tables.sql';

/** `applied` are the names of the files that were carried out there. */
async function carryOut(session: Session, file: SystemFile, applied: Set<string>): Promise<void> {
  await session.query(file.text);
  await session.query('insert into service_migrations (name) values ($1)', [file.name]);
  applied.add(file.name);
  if (applied.has(RECORDS) && file.name !== DEMO) await session.query(RECORD, [JSON.stringify(tablesOf(file))]);
}

const RECORD = withCatalog(
  'insert into service_tables (name) select json_array_elements_text($1::json) on conflict do nothing',
);

/**
 * The tables that the installation has recorded, also those of features that this service does not have. The role of a command may lack
 * the privilege to read the list.
 */
async function recordedTables(session: Session, { schema, applied }: Installation): Promise<readonly string[]> {
  if (!applied.has(RECORDS)) return [];
  const rows = await session.query(qualify('select name from service_tables', schema)).catch((error: unknown) => {
    if (codeOf(error) !== '42501') throw error;
    return [];
  });
  return rows.map(({ name }) => String(name));
}

async function isEmpty(session: Session, schema: string, home: string): Promise<boolean> {
  const rows = await session.query(
    withCatalog(`select from pg_catalog.pg_tables
     where schemaname = $1 and not (schemaname = $2 and tablename in (select json_array_elements_text($3::json))) limit 1`),
    [schema, home, JSON.stringify([...systemTables()])],
  );
  return rows.length === 0;
}
