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
    `* = host=${hostname} port=${behind} user=${quoted(username)}${password && ` password=${quoted(password)}`}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = any',
    `admin_users = ${decodeURIComponent(username)}`,
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
  // A test that a signal or an error ends has no teardown.
  process.once('exit', () => child.kill('SIGKILL'));
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

/** As a value of its configuration. */
function quoted(part: string): string {
  return `'${decodeURIComponent(part).replaceAll("'", "''")}'`;
}

const started = new Map<string, Promise<string>>();
/** Services that use a database through a pooler. */
const users = new Map<string, number>();

export interface Pooled {
  /** Options of the service. */
  readonly options: Readonly<Record<string, string>>;
  /** To be called when the service has stopped: a database that nobody uses is left, so that it can be copied or dropped. */
  release(): Promise<void>;
}

/** The same database through a pooler, where TEST_POOLER asks for one (session or transaction); one for each server and account. */
export async function throughPooler(databaseUrl: string): Promise<Pooled> {
  const mode = process.env['TEST_POOLER'];
  if (mode !== 'session' && mode !== 'transaction')
    return { options: { DATABASE_URL: databaseUrl }, release: () => Promise.resolve() };
  const [, hosts = ''] = /@([^/]+)/.exec(databaseUrl) ?? [];
  const urls = hosts.split(',').map((host) => databaseUrl.replace(hosts, host));
  const [first = databaseUrl, ...others] = await Promise.all(urls.map((url) => poolerOf(url, mode)));
  // Of several servers each has a pooler, in the form of libpq.
  const href = first.replace(/(?<=@)[^/]+/, [first, ...others].map((url) => new URL(url).host).join());
  users.set(href, (users.get(href) ?? 0) + 1);
  const release = async (): Promise<void> => {
    const left = (users.get(href) ?? 0) - 1;
    users.set(href, left);
    if (left === 0) await Promise.all([first, ...others].map(closeBackends));
  };
  // Tests expect word of changes at once.
  return { options: { DATABASE_URL: href, DATABASE_DIRECT_URL: databaseUrl }, release };
}

/**
 * Connections to PostgreSQL for each account. Where each connection of a service has a session of its own the pooler must not be the tighter
 * limit: the services of a file stay until its end. The server of the tests takes 100, those past the pooler included.
 */
const POOL_SIZE = { session: 85, transaction: 60 } as const;

/** The address of a database through the pooler of its server and account. */
async function poolerOf(databaseUrl: string, mode: 'session' | 'transaction'): Promise<string> {
  const given = new URL(databaseUrl);
  // Towards PostgreSQL the pooler uses TLS where it can; it has no certificate for the service.
  given.searchParams.delete('sslmode');
  const { host, username, password, pathname, search } = given;
  const place = `${username}:${password}@${host}`;
  const settings = ['max_prepared_statements = 200', 'query_wait_timeout = 5', 'server_login_retry = 1'];
  const found = started.get(place) ?? startPooler(given.href, { mode, size: POOL_SIZE[mode], settings });
  started.set(place, found);
  const url = new URL(await found);
  url.pathname = pathname;
  url.search = search;
  return url.href;
}

/** A pooler keeps connections for later. */
async function closeBackends(url: string): Promise<void> {
  const admin = new URL(url);
  admin.pathname = '/pgbouncer';
  const sql = postgres(admin.href, { max: 1, prepare: false, fetch_types: false, connect_timeout: 2 });
  try {
    const name = decodeURIComponent(new URL(url).pathname.slice(1)).replaceAll('"', '""');
    for (const command of ['RECONNECT', 'WAIT_CLOSE'])
      await Promise.race([sql.unsafe(`${command} "${name}"`).simple(), sleep(2_000, undefined, { ref: false })]);
  } finally {
    await sql.end({ timeout: 0 });
  }
}
