/**
 * The twin: an embedded PostgreSQL without rows that plans as another database does. It has that database's structure, the statistics
 * of its planner and files of the same length, because the planner multiplies densities with the actual number of pages. The files
 * are sparse and take no space. Statistics can be restored since PostgreSQL 18, which is the version of the embedded one.
 */
import { chmod, chown, mkdtemp, open, readdir, realpath, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StartError } from '../../base/errors.js';
import { messageOf, parseOwnJson, succeeds } from '../../base/narrow.js';
import { createObserver } from '../../base/observe.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { quoteIdentifier, quoteLiteral } from '../../compiler/sql/fragment.js';
import type { Config } from '../../server/config/config.js';
import type { Program } from '../../server/feature/command.js';
import type { Core } from '../../server/feature/core.js';
import { migrate } from '../../server/postgres/catalog/migrate.js';
import { systemTables } from '../../server/postgres/catalog/system-tables.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { openDatabase } from '../../server/postgres/pools/open-database.js';
import { readSql } from '../../server/postgres/read-sql.js';
import { isLocked, startEmbedded } from '../embedded/cluster.js';
import { stopOrphan } from '../embedded/postmaster.js';
import { buildStructure, type Script, type Unbuilt } from './build-structure.js';
import { estimateNewIndexes } from './index-size.js';
import type { StatisticsFile } from './statistics-file.js';

const RESTORE = readSql('features', 'plans', 'restore.sql');
const FILES = readSql('features', 'plans', 'files.sql');

/** Nothing of it must survive. Vacuum would replace the statistics. */
const SERVER_SETTINGS = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  autovacuum: 'off',
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_connections: '40',
  max_locks_per_transaction: '2048',
  shared_buffers: '32MB',
  // The model is read again when the work begins, not after each statement.
  event_triggers: 'off',
};

/** The sources of a twin in addition to the statistics. */
export interface TwinPlan {
  /** Scripts that build the schema in place of the structure of the statistics; null to use that structure. */
  readonly migrations: readonly Script[] | null;
  /** Scripts that are run after that. */
  readonly pending: readonly Script[];
  /** Changes the schema through the service, such as a snapshot that is applied. */
  readonly change?: (core: Core) => Promise<void>;
}

interface TwinSources {
  readonly program: Program;
  readonly config: Config;
  readonly statistics: StatisticsFile;
  readonly plan: TwinPlan;
}

export interface Twin {
  readonly core: Core;
  readonly config: Config;
  readonly statistics: StatisticsFile;
  /** Parts of the structure that the twin lacks. */
  readonly unbuilt: readonly Unbuilt[];
  /** Indexes and tables of the twin that the statistics do not know. */
  readonly unknown: readonly string[];
  /** Milliseconds that it took to build. */
  readonly buildMs: number;
  /** The lengths of files follow the number of pages again: after an index was created. */
  lengthen(relations: readonly RelationPages[]): Promise<void>;
}

interface RelationPages {
  readonly schema: string;
  readonly name: string;
  readonly pages: number;
  readonly reltuples: number;
}

/** Builds the twin, runs the work on it and removes it, also after Ctrl-C. */
export async function withTwin<Result>(sources: TwinSources, work: (twin: Twin) => Promise<Result>): Promise<Result> {
  const begun = performance.now();
  await removeAbandoned();
  const folder = await mkdtemp(join(tmpdir(), FOLDER_PREFIX)).catch((error: unknown) => {
    throw new StartError(`the twin needs a temporary folder, and ${tmpdir()} takes none: ${messageOf(error)}`);
  });
  // As root, another account runs PostgreSQL and must be able to enter.
  await chmod(folder, 0o755);
  const interrupted = new AbortController();
  const stop = (): void => interrupted.abort();
  for (const signal of SIGNALS) process.once(signal, stop);
  try {
    const ended = new Promise<never>((_, reject) => {
      interrupted.signal.addEventListener('abort', () => reject(new StartError('interrupted: the twin was removed')));
    });
    ended.catch(() => {});
    const server = await startEmbedded({ directory: folder, settings: SERVER_SETTINGS, signal: interrupted.signal });
    try {
      const building = build({ ...sources, url: server.url, begun }, work);
      building.catch(() => {});
      return await Promise.race([building, ended]);
    } finally {
      await server.stop(STOP_MS);
    }
  } catch (error) {
    // The signal may have ended a program of PostgreSQL as well.
    throw interrupted.signal.aborted ? new StartError('interrupted: the twin was removed') : error;
  } finally {
    await removeFolder(folder);
    for (const signal of SIGNALS) process.off(signal, stop);
  }
}

const FOLDER_PREFIX = 'lateral-twin-';

/** Removes twins of commands that were killed, and stops their servers. */
async function removeAbandoned(): Promise<void> {
  const names = (await readdir(tmpdir()).catch(() => [])).filter((name) => name.startsWith(FOLDER_PREFIX));
  for (const folder of names.map((name) => join(tmpdir(), name))) {
    const lock = join(folder, 'postgres.lock');
    const isAbandoned = (await succeeds(stat(lock))) && !(await isLocked(lock));
    // A folder of another user stays.
    if (isAbandoned)
      await stopOrphan(join(folder, 'postgres'), () => {})
        .then(() => removeFolder(folder))
        .catch(() => {});
  }
}

/** The cluster is elsewhere if that account cannot enter the folder: then a link leads to it. */
async function removeFolder(folder: string): Promise<void> {
  const cluster = await realpath(join(folder, 'postgres')).catch(() => folder);
  for (const path of [cluster, `${cluster}.lock`, folder])
    await rm(path, { recursive: true, force: true, maxRetries: 3 });
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Milliseconds for the server to end by itself: it has nothing to save. */
const STOP_MS = 1_000;

interface TwinBuild extends TwinSources {
  /** The address of the twin's server. */
  readonly url: string;
  readonly begun: number;
}

async function build<Result>(
  { program: { withCore }, config, url, statistics, plan, begun }: TwinBuild,
  work: (twin: Twin) => Promise<Result>,
): Promise<Result> {
  const twinUrl = await createDatabase(config, url, statistics);
  const twinConfig = configOf(config, twinUrl, statistics);
  const unbuilt = await withPlainDatabase(twinConfig, twinUrl, async (database) => {
    await migrate(database, { demo: false, system: statistics.system }, () => {});
    await insertMetadata(database, statistics, plan.change !== undefined);
    return buildStructure(database, statistics, plan);
  });
  if (plan.change) await withCore(twinConfig, OBSERVER, () => {}, plan.change);
  return withCore(
    twinConfig,
    OBSERVER,
    () => {},
    async (core) => {
      const unknown = await restore(core.database, statistics);
      // The model has no statistics, but the choice of plans has read none yet.
      const buildMs = performance.now() - begun;
      const lengthen = (relations: readonly RelationPages[]): Promise<void> => setLengths(core.database, relations);
      return work({ core, config: twinConfig, statistics, unbuilt, unknown, buildMs, lengthen });
    },
  );
}

const OBSERVER = createObserver('error');

/** The twin has one user, no replicas, no pooler and no cache. */
function configOf(config: Config, url: string, { schemas, system }: StatisticsFile): Config {
  return {
    ...config,
    DATABASE_URL: url,
    DATABASE_SCHEMA: schemas[0] ?? config.DATABASE_SCHEMA,
    DATABASE_SCHEMAS: schemas,
    SYSTEM_SCHEMA: system,
    DATABASE_REPLICA_URLS: [],
    DATABASE_DIRECT_URL: null,
    DATABASE_POOLER: 'none',
    DATABASE_CALLER: 'service',
    DATABASE_POOL_SIZE: 1,
    DATABASE_WRITE_POOL_SIZE: 2,
    DATABASE_STATEMENT_TIMEOUT: STATEMENT_TIMEOUT_MS,
    READ_CACHE_SIZE: 0,
    MAX_QUERY_COST: null,
    STATISTICS_POLL_INTERVAL: 0,
    SCHEMA_POLL_INTERVAL: 0,
    CALLER_LOOP_SHARE: 0,
    SHAPE_CACHE_SIZE: Math.max(config.SHAPE_CACHE_SIZE, 10_000),
    WORKERS: 1,
  };
}

/** Statistics of thousands of tables are restored by one statement. */
const STATEMENT_TIMEOUT_MS = 120_000;

async function withPlainDatabase<Result>(
  config: Config,
  url: string,
  work: (database: Database) => Promise<Result>,
): Promise<Result> {
  const database = await openDatabase(config, url, { checksSessions: false }, OBSERVER);
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

const DATABASE_NAME = 'twin';

/** In the locale of the original: an index serves other conditions in another one. */
async function createDatabase(config: Config, url: string, statistics: StatisticsFile): Promise<string> {
  const plain = { ...configOf(config, url, statistics), DATABASE_SCHEMA: 'public', DATABASE_SCHEMAS: ['public'] };
  await withPlainDatabase(plain, url, (database) =>
    database.own.use(async (session) => {
      let failure: unknown = null;
      for (const locale of localesOf(statistics)) {
        try {
          await session.query(`create database ${DATABASE_NAME} template template0 encoding 'UTF8' ${locale}`);
          failure = null;
          break;
        } catch (error) {
          failure = error;
        }
      }
      if (failure !== null) throw new StartError(`the database of the twin cannot be created: ${messageOf(failure)}`);
      for (const [name, value] of Object.entries(statistics.settings))
        if (/^[a-z_]+$/.test(name))
          await session.query(`alter database ${DATABASE_NAME} set ${name} = ${quoteLiteral(value)}`).catch(() => {});
    }),
  );
  const twin = new URL(url);
  twin.pathname = `/${DATABASE_NAME}`;
  return twin.toString();
}

/** From the most to the least alike. */
function localesOf({ database: { provider, collate, ctype, locale } }: StatisticsFile): string[] {
  const plain = "locale_provider builtin builtin_locale 'C.UTF-8' lc_collate 'C' lc_ctype 'C'";
  const icu = (name: string): string =>
    `locale_provider icu icu_locale ${quoteLiteral(name)} lc_collate 'C' lc_ctype 'C'`;
  if (provider === 'b')
    return [
      `locale_provider builtin builtin_locale ${quoteLiteral(locale ?? 'C.UTF-8')} lc_collate 'C' lc_ctype 'C'`,
      plain,
    ];
  if (provider === 'i') return [icu(locale ?? 'und'), plain];
  if (isBytewise(collate)) return [plain];
  const same = `locale_provider libc lc_collate ${quoteLiteral(collate)} lc_ctype ${quoteLiteral(ctype)}`;
  return [same, icu(collate.replace(/[.@].*$/, '').replace('_', '-')), icu('und'), plain];
}

function isBytewise(collate: string): boolean {
  return /^(C|POSIX)(\.|$)/.test(collate);
}

const COLUMNS = withCatalog(
  "select attname as name from pg_catalog.pg_attribute where attrelid = $1::pg_catalog.regclass and attnum > 0 and attgenerated = ''",
);

/** A snapshot has these rows itself. */
const OF_SNAPSHOT: ReadonlySet<string> = new Set(['service_collections', 'service_fields', 'service_relations']);

/** References between these rows are right already, and some refer to users, who are left out. */
async function insertMetadata(database: Database, { metadata }: StatisticsFile, isChanged: boolean): Promise<void> {
  await database.own.use((session) =>
    session.transaction(async () => {
      await session.query("set local session_replication_role = 'replica'");
      for (const [table, rows] of Object.entries(metadata)) {
        if (isChanged && OF_SNAPSHOT.has(table)) continue;
        const name = `${quoteIdentifier(database.system)}.${quoteIdentifier(table)}`;
        const [first] = parseOwnJson<readonly Readonly<Record<string, unknown>>[]>(rows);
        if (!first) continue;
        const known = await session.query<{ name: string }>(COLUMNS, [name]);
        const columns = known.map((each) => each.name).filter((each) => Object.hasOwn(first, each));
        const list = columns.map(quoteIdentifier).join(', ');
        await session.query(`delete from ${name}`);
        await session.query(
          `insert into ${name} (${list}) overriding system value select ${list} from pg_catalog.json_populate_recordset(null::${name}, $1::json)`,
          [rows],
        );
        if (typeof first['id'] === 'number')
          await session.query(
            `select pg_catalog.setval(pg_catalog.pg_get_serial_sequence('${name}', 'id'), (select pg_catalog.max(id) from ${name}))`,
          );
      }
    }),
  );
}

/** Answers the tables and indexes that the statistics do not know. */
async function restore(database: Database, statistics: StatisticsFile): Promise<readonly string[]> {
  const tables = statistics.tables.map((each) => ({ ...each, name: each.table }));
  const indexes = statistics.indexes.map((each) => ({ ...each, name: each.index, relallvisible: 0 }));
  const relations = [...tables, ...indexes].map(({ schema, name, relpages, reltuples, relallvisible }) => ({
    schema,
    name,
    relpages,
    reltuples,
    relallvisible,
  }));
  await database.own.use((session) =>
    session.cell(RESTORE, [JSON.stringify(relations), JSON.stringify(statistics.columns)]),
  );
  await setFileLengths(database, [...tables, ...indexes]);
  const created = await estimateNewIndexes(database, statistics);
  await setLengths(database, created);
  const own = systemTables();
  return created.flatMap(({ schema, name, table }) => (own.has(table) ? [] : [`${schema}.${name}`]));
}

/** Gives relations that were created here their estimated size. */
async function setLengths(database: Database, relations: readonly RelationPages[]): Promise<void> {
  if (relations.length === 0) return;
  const rows = relations.map((each) => ({ ...each, relpages: each.pages, relallvisible: 0 }));
  await database.own.use((session) => session.cell(RESTORE, [JSON.stringify(rows), '[]']));
  await setFileLengths(database, relations);
}

/** PostgreSQL divides files: one of 1 GB is followed by another. */
const PAGE_BYTES = 8_192;
const SEGMENT_PAGES = 131_072;

async function setFileLengths(
  database: Database,
  relations: readonly { readonly schema: string; readonly name: string; readonly pages: number }[],
): Promise<void> {
  const wanted = JSON.stringify(relations.map(({ schema, name, pages }) => ({ schema, name, pages })));
  const files = await database.own.use((session) =>
    session.query<{ path: string; pages: string | number }>(FILES, [wanted], { prepare: true }),
  );
  for (const { path, pages } of files) await setFileLength(path, Number(pages));
}

async function setFileLength(path: string, pages: number): Promise<void> {
  const owner = await stat(path);
  for (let segment = 0; segment * SEGMENT_PAGES < pages; segment++) {
    const name = segment === 0 ? path : `${path}.${segment}`;
    const bytes = Math.min(pages - segment * SEGMENT_PAGES, SEGMENT_PAGES) * PAGE_BYTES;
    const file = await open(name, 'a');
    try {
      if ((await file.stat()).size < bytes) await file.truncate(bytes);
    } finally {
      await file.close();
    }
    if (segment > 0 && process.getuid?.() === 0) await chown(name, owner.uid, owner.gid);
  }
}
