/** The PostgreSQL server that test/run.ts starts once for all test files. */
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { startEmbedded } from '../../src/embedded/cluster.js';

/** For every server of the tests: its data need not outlive a crash, and the statements of a database can be counted. */
export const TEST_SETTINGS: Readonly<Record<string, string>> = {
  fsync: 'off',
  full_page_writes: 'off',
  synchronous_commit: 'off',
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.max': '50000',
};

/** Without autovacuum: it would run in the middle of a test, and plans would change with the statistics. */
const SHARED_SETTINGS: Readonly<Record<string, string>> = {
  ...TEST_SETTINGS,
  max_connections: '1000',
  max_wal_senders: '100',
  max_replication_slots: '100',
  autovacuum: 'off',
};

export interface SharedServer {
  readonly url: string;
  /** Drops the databases of a test file that has ended. */
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
  return {
    url: server.url,
    dropDatabases: async (test) => {
      const names = await sql`select datname from pg_database where starts_with(datname, ${databasePrefix(test)})`;
      for (const { datname } of names) await sql`drop database ${sql(datname)} with (force)`;
    },
    stop: async () => {
      await sql.end();
      await server.stop();
      await rm(directory, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** How the names of the databases of a test file start. The two lines keep the databases of `live` apart from those of `live-wal`. */
export function databasePrefix(test: string): string {
  return `${test.replaceAll('-', '_')}__`;
}
