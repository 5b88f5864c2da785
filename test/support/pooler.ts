/** PgBouncer in front of a test database. PGBOUNCER names another program than the one that is installed. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import postgres from 'postgres';
import t from 'tap';
import { findProgram, freePort } from './programs.js';

export interface PoolerOptions {
  readonly mode: 'session' | 'transaction' | 'statement';
  /** Connections to PostgreSQL. */
  readonly size?: number;
  /** Further lines of its configuration. */
  readonly settings?: readonly string[];
}

export function findPgBouncer(): Promise<string | null> {
  return findProgram(process.env['PGBOUNCER'] ?? 'pgbouncer');
}

/** Such as 1.25; null where it is not installed. */
export async function pgBouncerVersion(): Promise<number | null> {
  const program = await findPgBouncer();
  if (program === null) return null;
  const { stdout } = await promisify(execFile)(program, ['--version']);
  const [, major, minor] = /(\d+)\.(\d+)/.exec(stdout) ?? [];
  return Number(`${major}.${String(minor).padStart(2, '0')}`);
}

/** Answers the address through it, of the same database. */
export async function startPooler(databaseUrl: string, options: PoolerOptions): Promise<string> {
  const { mode, size = 60, settings = [] } = options;
  const { hostname, port: behind, username, password, pathname, search } = new URL(databaseUrl);
  const port = await freePort();
  const folder = await mkdtemp(join(tmpdir(), 'lateral-pooler-'));
  await chmod(folder, 0o755);
  const file = join(folder, 'pgbouncer.ini');
  const lines = [
    '[databases]',
    `* = host=${hostname} port=${behind} user=${decodeURIComponent(username)} password=${decodeURIComponent(password)}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = any',
    `pool_mode = ${mode}`,
    `default_pool_size = ${size}`,
    'max_client_conn = 1000',
    ...settings,
  ];
  await writeFile(file, lines.join('\n'));
  await chmod(file, 0o644);
  const account = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const program = (await findPgBouncer()) ?? 'pgbouncer';
  const child = spawn(program, ['-q', ...account, file], { stdio: 'ignore' });
  t.teardown(async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    await rm(folder, { recursive: true, force: true });
  });
  const url = `postgres://${username}:x@127.0.0.1:${port}${pathname}${search}`;
  for (let attempt = 0; ; attempt++) {
    const sql = postgres(url, { max: 1, prepare: false, fetch_types: false, connect_timeout: 2 });
    try {
      await sql.unsafe('select 1');
      return url;
    } catch (error) {
      if (attempt === 100) throw error;
      await sleep(50);
    } finally {
      await sql.end({ timeout: 1 });
    }
  }
}

const started = new Map<string, Promise<string>>();

/** The same database through a pooler, where TEST_POOLER asks for one (session or transaction); one for each server and account. */
export async function throughPooler(databaseUrl: string): Promise<Record<string, string>> {
  const mode = process.env['TEST_POOLER'];
  if (mode !== 'session' && mode !== 'transaction') return { DATABASE_URL: databaseUrl };
  const { host, username, password, pathname, search } = new URL(databaseUrl);
  const place = `${username}:${password}@${host}`;
  const found = started.get(place) ?? startPooler(databaseUrl, { mode, settings: ['max_prepared_statements = 200'] });
  started.set(place, found);
  const url = new URL(await found);
  url.pathname = pathname;
  url.search = search;
  // Tests expect word of changes at once.
  return { DATABASE_URL: url.href, DATABASE_DIRECT_URL: databaseUrl };
}
