/**
 * A primary and its standbys, from the PostgreSQL of the npm package: a standby is a copy of the primary's folder, made while the
 * primary runs. All of them end with the test file.
 */
import { execFile } from 'node:child_process';
import { readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type DatabaseSettings, makeFolder, startDatabase, type TestServer, waitFor, withSql } from './service.js';

const run = promisify(execFile);

/** What a primary needs to be followed. A commit is answered when it is on disk: only then standbys hear of it. */
const PRIMARY_SETTINGS = { synchronous_commit: 'on', wal_keep_size: '256MB', max_connections: '200' };

export async function startPrimary({ settings = {}, ...rest }: DatabaseSettings = {}): Promise<TestServer> {
  return startDatabase({ ...rest, settings: { ...PRIMARY_SETTINGS, ...settings } });
}

export interface StandbyOptions {
  /** As `synchronous_standby_names` of the primary names it. */
  readonly name?: string;
  readonly settings?: Readonly<Record<string, string>>;
}

/** Follows the primary from its present state on; answers when it takes reads. */
export async function startStandby(
  primary: TestServer,
  { name = 'standby', settings = {} }: StandbyOptions = {},
): Promise<TestServer> {
  const folder = await makeFolder();
  const cluster = join(folder, 'postgres');
  await withSql(primary.url, async (sql) => {
    await sql`select pg_backup_start('standby', true)`;
    await copy(await clusterOf(primary), cluster);
    const [row] = await sql`select labelfile from pg_backup_stop(false)`;
    await writeLike(cluster, 'backup_label', row?.['labelfile']);
  });
  await rm(join(cluster, 'postmaster.pid'), { force: true });
  await writeLike(cluster, 'standby.signal', '');
  await writeFile(join(folder, 'lateral.json'), JSON.stringify({ password: new URL(primary.url).password }));
  return restartStandby(primary, folder, { name, settings });
}

/** Starts a standby again that was stopped, from its folder. */
export async function restartStandby(
  primary: TestServer,
  directory: string,
  { name = 'standby', settings = {} }: StandbyOptions = {},
): Promise<TestServer> {
  const { hostname, port, username, password } = new URL(primary.url);
  const source = `host=${hostname} port=${port} user=${username} password=${password} application_name=${name}`;
  return startDatabase({
    directory,
    settings: { ...PRIMARY_SETTINGS, wal_retrieve_retry_interval: '100ms', primary_conninfo: source, ...settings },
  });
}

/** Makes a standby the primary; answers when it takes writes. */
export async function promote(standby: TestServer): Promise<void> {
  await withSql(standby.url, (sql) => sql`select pg_promote(true, 30)`);
}

/** Waits until the standby shows all that the primary has committed so far. */
export async function caughtUp(primary: TestServer, standby: TestServer, within = 10_000): Promise<void> {
  const position = await withSql(primary.url, async (sql) => {
    const [row] = await sql`select pg_current_wal_insert_lsn()::text as lsn`;
    return String(row?.['lsn']);
  });
  await withSql(standby.url, (sql) =>
    waitFor(async () => {
      const [row] = await sql`select pg_last_wal_replay_lsn() >= ${position}::pg_lsn as done`;
      return row?.['done'] === true;
    }, within),
  );
}

/** The process of the server, to be killed or stopped. */
export async function pidOf(server: TestServer): Promise<number> {
  const [pid] = (await readFile(join(await clusterOf(server), 'postmaster.pid'), 'utf8')).split('\n');
  return Number(pid);
}

/** Where PostgreSQL cannot enter the folder of the test, a link leads to where its data are. */
function clusterOf({ directory }: TestServer): Promise<string> {
  return realpath(join(directory, 'postgres'));
}

/** Files that the server removes meanwhile are no loss: what is in the backup is replayed from the log. */
async function copy(from: string, to: string): Promise<void> {
  await run('cp', ['-a', from, to]).catch((error: { readonly stderr?: string }) => {
    const complaints = (error.stderr ?? '').trim().split('\n');
    if (!complaints.every((line) => line.includes('No such file or directory'))) throw error;
  });
}

/** With the owner of the folder, who is not the one that runs the tests where that is root. */
async function writeLike(cluster: string, name: string, text: string): Promise<void> {
  const path = join(cluster, name);
  await writeFile(path, text, { mode: 0o600 });
  await run('chown', [`--reference=${join(cluster, 'PG_VERSION')}`, path]);
}
