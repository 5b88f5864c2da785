/**
 * Triggers that report which rows a statement has changed (sql/server/system/023_live_channels.sql): which tables need them, have them and may get
 * them. A statement fires the triggers of the table that it names, and no others: rows of a partition can be changed by a statement
 * that names it or what it is a partition of, rows of a table that inherits also by one that names an ancestor.
 */

import { asError, parseOwnJson } from '../../base/narrow.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { Source, TableName } from '../../server/changes/change-source.js';
import { TRIGGERS_PER_TABLE, type TriggerChange, TriggerSet } from '../../server/changes/statement-triggers.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { BELOW } from './publication.js';

/** The notification that other tables have triggers now. */
export const TABLES_CHANGED = 'tables';

const SET = new TriggerSet('service_live', 'service_live_change', 'live');

/** The channel of an installation: others in the same database have their own triggers, also on the same tables. */
export function channelOf(system: string): string {
  return `${SET.prefix}_${SET.ending(system)}`;
}

/** Types whose text is the same for every writer. The text of other types depends on settings of the session. */
const PLAIN_TYPES = "'int2','int4','int8','oid','numeric','text','varchar','bpchar','name','bool','uuid'";

/**
 * Each table below those in $1 with each table whose statements change its rows (`writer`), and whether that one has the triggers in $4 of the
 * installation in schema $2, which notify on channel $3.
 */
const WRITERS = withCatalog(`${BELOW}, sources as (
  select below.served, c.oid, n.nspname as schema, c.relname as name, c.relkind as kind
  from below join pg_class c on c.oid = below.oid join pg_namespace n on n.oid = c.relnamespace
  where c.relkind in ('r', 'p', 'f', 'm') and not c.relispartition and n.nspname <> 'pg_catalog'
), ancestors as (
  select distinct oid, oid as writer from sources
  union
  select a.oid, i.inhparent from ancestors a join pg_inherits i on i.inhrelid = a.writer
), writers as (
  select oid, writer, (oid = writer) as exact from ancestors
  union all
  select s.oid, p.relid, true
  from (select distinct oid from sources where kind = 'p') s cross join lateral pg_partition_tree(s.oid) p
  where p.relid <> s.oid
)
select s.served, s.schema, s.name, s.kind::text as kind, w.exact, c.oid::int8::text as writer, n.nspname as writer_schema,
  c.relname as writer_name, c.relkind::text as writer_kind, key.columns as key_columns,
  pg_has_role(c.relowner, 'usage') or has_table_privilege(c.oid, 'trigger') as may_install,
  (select count(*) from pg_trigger t join pg_proc f on f.oid = t.tgfoid join pg_namespace h on h.oid = f.pronamespace
   where t.tgrelid = c.oid and f.proname = '${SET.routine}' and h.nspname = $2 and t.tgenabled in ('O', 'A')
     and t.tgname in (select json_array_elements_text($4::json))
     and t.tgargs = (convert_to($3, getdatabaseencoding()) || '\\x00'::bytea || key.arguments))::int
  = ${TRIGGERS_PER_TABLE} as installed
from sources s join writers w on w.oid = s.oid
join pg_class c on c.oid = w.writer join pg_namespace n on n.oid = c.relnamespace
cross join lateral (
  select coalesce(json_agg(a.attname order by k.position), '[]')::text as columns,
    coalesce(string_agg(convert_to(a.attname, getdatabaseencoding()) || '\\x00'::bytea, ''::bytea order by k.position), '') as arguments
  from pg_index x cross join lateral pg_catalog.unnest(x.indkey::int2[]) with ordinality k (number, position)
  join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.number
  where x.indrelid = coalesce(pg_partition_root(c.oid), c.oid) and x.indisprimary and not exists (
    select from pg_catalog.unnest(x.indkey::int2[]) number join pg_attribute b on b.attrelid = x.indrelid and b.attnum = number
    join pg_type t on t.oid = b.atttypid left join pg_type d on d.oid = t.typbasetype
    where t.typtype <> 'e' and not (coalesce(d.typname, t.typname)::text in (${PLAIN_TYPES})
      and coalesce(d.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace))
) key`);

interface WriterRow extends TableName {
  readonly served: string;
  readonly kind: string;
  readonly exact: boolean;
  readonly writer: string;
  readonly writer_schema: string;
  readonly writer_name: string;
  readonly writer_kind: string;
  readonly key_columns: string;
  readonly may_install: boolean;
  readonly installed: boolean;
}

/** A table that a statement of its trigger may have changed. */
export interface Written extends TableName {
  /** Whether the reported keys are those of its rows. */
  readonly isExact: boolean;
}

/** A table that lacks triggers. */
export interface Missing extends TriggerChange {
  readonly mayInstall: boolean;
}

export interface TriggeredTables {
  /** The tables below each served table and view, by schema.name. */
  readonly sources: ReadonlyMap<string, readonly Source[]>;
  /** By the number of the table whose triggers fire. */
  readonly written: ReadonlyMap<number, readonly Written[]>;
  readonly missing: readonly Missing[];
  /** How many tables have triggers. */
  readonly installed: number;
}

/** Tables of the service that requests write to: each notification would make them wait for each other. */
const UNTOLD: ReadonlySet<string> = new Set([
  'service_rate_limits',
  'service_receipts',
  'service_sessions',
  'service_logins',
  'service_webhook_changes',
  'service_webhook_deliveries',
]);

/** Reads which tables have triggers. `failures`: why triggers could not be installed, by schema.name. */
export async function inspectTriggers(
  database: Database,
  tables: readonly TableName[],
  failures: ReadonlyMap<string, string> = new Map(),
): Promise<TriggeredTables> {
  const told = tables.filter(({ schema, name }) => schema !== database.system || !UNTOLD.has(name));
  const wanted = JSON.stringify(told.map(({ schema, name }) => [schema, name]));
  const { system } = database;
  const names = JSON.stringify(SET.names(system));
  const rows = await database.rows<WriterRow>(WRITERS, [wanted, system, channelOf(system), names]);
  const written = new Map<number, Map<string, Written>>();
  const missing = new Map<string, Missing>();
  const installed = new Set<string>();
  const sources = new Map<string, Map<string, Source>>();
  for (const row of rows) {
    const { schema, name, served, exact, writer, writer_schema, writer_name } = row;
    const own = `${schema}.${name}`;
    const touched = written.get(Number(writer)) ?? new Map<string, Written>();
    written.set(Number(writer), touched.set(own, { schema, name, isExact: exact }));
    const unseen = unseenOf(row) ?? (row.installed ? null : lacking(row, failures));
    const below = sources.get(served) ?? new Map<string, Source>();
    sources.set(served, below.set(own, { schema, name, unseen: below.get(own)?.unseen ?? unseen }));
    if (row.installed) installed.add(writer);
    else if (unseenOf(row) === null)
      missing.set(writer, {
        schema: writer_schema,
        name: writer_name,
        mayInstall: row.may_install,
        statements: statementsFor(row, system),
      });
  }
  return {
    sources: new Map([...sources].map(([served, below]) => [served, [...below.values()]])),
    written: new Map([...written].map(([writer, touched]) => [writer, [...touched.values()]])),
    missing: [...missing.values()],
    installed: installed.size,
  };
}

function unseenOf({ kind, writer_kind }: WriterRow): string | null {
  if (kind === 'm') return 'a materialized view: PostgreSQL does not say when it is refreshed';
  if (kind === 'f' || writer_kind === 'f') return 'a foreign table: its server does not say what changes';
  return null;
}

function lacking({ writer_schema, writer_name }: WriterRow, failures: ReadonlyMap<string, string>): string {
  const name = `${writer_schema}.${writer_name}`;
  const failure = failures.get(name);
  return `"${name}" has no triggers for live queries: ${failure ?? 'run "lateral live install" as its owner'}`;
}

function statementsFor({ writer_schema, writer_name, key_columns }: WriterRow, system: string): string[] {
  const columns = parseOwnJson<string[]>(key_columns);
  const table = { schema: writer_schema, name: writer_name };
  return SET.create(system, table, [channelOf(system), ...columns]);
}

interface ChangeOptions {
  /** Milliseconds that a table which is in use is waited for. */
  readonly lockTimeout: number;
  /** Called after each table, with the reason if it could not be changed, else null. */
  readonly onTable?: (table: TableName, failure: string | null) => void;
}

interface InstallOptions extends ChangeOptions {
  /** Install nothing if all other triggers were removed meanwhile. */
  readonly onlyWithOthers: boolean;
}

/** Changes each table in its own transaction, so that a writer waits for at most one table. Returns the failures by schema.name. */
export async function installTriggers(
  database: Database,
  changes: readonly TriggerChange[],
  { lockTimeout, onlyWithOthers, onTable }: InstallOptions,
): Promise<ReadonlyMap<string, string>> {
  const install = ({ statements }: TriggerChange): Promise<void> =>
    database.transaction(async (session) => {
      await session.query(`set local lock_timeout = ${lockTimeout}`);
      await session.query(SET.lock, [database.system]);
      if (onlyWithOthers && (await session.query(SET.any, [database.system])).length === 0)
        throw new Error('the others were removed');
      for (const statement of statements) await session.query(statement);
    });
  return eachTable(changes, install, onTable);
}

/** Removes the triggers table by table, like `installTriggers`. Meanwhile a lock keeps other instances from installing them again. */
export async function removeTriggers(
  database: Database,
  changes: readonly TriggerChange[],
  { lockTimeout, onTable }: ChangeOptions,
): Promise<ReadonlyMap<string, string>> {
  const remove = ({ statements }: TriggerChange): Promise<void> =>
    database.transaction(async (session) => {
      await session.query(`set local lock_timeout = ${lockTimeout}`);
      for (const statement of statements) await session.query(statement);
    });
  // The lock has its own connection, because the pool may have only one.
  return database.own.use((session) =>
    session.transaction(async () => {
      await session.query(SET.lock, [database.system]);
      // The transaction is idle while the tables are changed. Each of them has a limit.
      await session.query('set local idle_in_transaction_session_timeout = 0');
      return eachTable(changes, remove, onTable);
    }),
  );
}

async function eachTable(
  changes: readonly TriggerChange[],
  change: (of: TriggerChange) => Promise<void>,
  onTable: ChangeOptions['onTable'] = () => {},
): Promise<ReadonlyMap<string, string>> {
  const failures = new Map<string, string>();
  for (const each of changes) {
    const failure = await change(each).then(
      () => null,
      (error) => asError(error).message,
    );
    if (failure !== null) failures.set(`${each.schema}.${each.name}`, failure);
    onTable(each, failure);
  }
  return failures;
}

/** Tables that have some, also those that are not served, and the statements that take them away. */
export function installedTriggers(database: Database): Promise<readonly TriggerChange[]> {
  return SET.installed((text, parameters) => database.rows(text, parameters), database.system);
}

export async function hasTriggers(database: Database): Promise<boolean> {
  return (await database.rows(SET.any, [database.system])).length > 0;
}

/** Makes running instances read the triggers again. */
export async function announceTriggers(database: Database): Promise<void> {
  await database.rows('select pg_notify($1, $2)', [channelOf(database.system), TABLES_CHANGED]);
}

/** Why notifications do not arrive; null if they do. */
export async function notificationObstacle(database: Database): Promise<string | null> {
  if (!database.listener.canHear) return 'notifications do not arrive through a pooler: set DATABASE_DIRECT_URL';
  const [server] = await database.rows<{ standby: boolean }>('select pg_is_in_recovery() as standby');
  return server?.standby === false ? null : 'the server is a standby';
}
