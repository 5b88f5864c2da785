/** The PostgreSQL server that test/run.ts starts once for all test files. */
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { startEmbedded } from '../../src/features/embedded/cluster.js';

/**
 * For every server of the tests: its data need not outlive a crash, they are in memory, so that no process has to read ahead, and the
 * statements of a database can be counted.
 */
export const TEST_SETTINGS: Readonly<Record<string, string>> = {
  fsync: 'off',
  full_page_writes: 'off',
  synchronous_commit: 'off',
  wal_init_zero: 'off',
  io_method: 'sync',
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.max': '50000',
};

/**
 * Without autovacuum: it would run in the middle of a test, and plans would change with the statistics. Statements are counted only in
 * the databases of `StatementCounter`: to read the counts of one database, PostgreSQL reads the text of all statements.
 */
const SHARED_SETTINGS: Readonly<Record<string, string>> = {
  ...TEST_SETTINGS,
  max_connections: '1000',
  max_wal_senders: '100',
  max_replication_slots: '100',
  autovacuum: 'off',
  'pg_stat_statements.track': 'none',
};

export interface SharedServer {
  readonly url: string;
  /** Drops the databases of a test file that has ended. One at a time; a failure is printed. */
  dropDatabases(test: string): Promise<void>;
  stop(): Promise<void>;
}

/** Starts a server in a copy of the folder `template`. */
export async function startSharedServer(template: string): Promise<SharedServer> {
  const directory = await realpath(await mkdtemp(join(tmpdir(), 'lateral-shared-')));
  await chmod(directory, 0o755);
  await promisify(execFile)('cp', ['-a', `${template}/.`, directory]);
  const server = await startEmbedded({ directory, settings: SHARED_SETTINGS });
  const sql = postgres(server.url, { max: 1, onnotice: () => {} });
  let dropped: Promise<void> = Promise.resolve();
  return {
    url: server.url,
    dropDatabases: (test) => {
      dropped = dropped.then(() => dropAll(sql, databasePrefix(test)));
      return dropped;
    },
    stop: async () => {
      await dropped;
      await sql.end();
      await server.stop();
      await rm(directory, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

async function dropAll(sql: postgres.Sql, prefix: string): Promise<void> {
  try {
    const names = await sql`select datname from pg_database where starts_with(datname, ${prefix})`;
    for (const { datname } of names) await sql`drop database ${sql(datname)} with (force)`;
  } catch (error) {
    console.log(`# databases of ${prefix} remain: ${error}`);
  }
}

/** How the names of the databases of a test file start. The two lines keep the databases of `live` apart from those of `live-wal`. */
export function databasePrefix(test: string): string {
  return `${test.replaceAll('-', '_')}__`;
}
