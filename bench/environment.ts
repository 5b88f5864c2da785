/**
 * Starts the environment of a bench: the embedded PostgreSQL, in a folder that is kept between runs and filled with the bench data, and
 * the service as a separate process, so that load and measurement take no time from it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import postgres from 'postgres';
import { packageRoot } from '../src/base/package-files.js';
import { type EmbeddedServer, startEmbedded } from '../src/features/embedded/cluster.js';
import { createAdministrator } from '../src/server/accounts/accounts.js';
import { migrate } from '../src/server/postgres/catalog/migrate.js';
import { Database } from '../src/server/postgres/pools/database.js';
import { generate } from './generate.js';
import { makeOwnTables } from './own-tables.js';
import { COUNTING, prepareCounting } from './statement-count.js';

export const ADMINISTRATOR = { email: 'bench@example.com', password: 'bench-password', token: 'bench-administrator' };

export type Report = (message: string) => void;

/** Enough for a ceiling with as many connections as the largest case has clients. */
const MOST_CONNECTIONS = '400';

export function startDatabase(directory: string, report: Report): Promise<EmbeddedServer> {
  return startEmbedded({ directory, settings: { max_connections: MOST_CONNECTIONS, ...COUNTING }, report });
}

/** The demo model with the bench data. Returns the server's version. */
export async function prepareData(url: string, report: Report): Promise<string> {
  const database = await openDatabase(url);
  try {
    await migrate(database, { demo: true, system: null }, () => undefined);
    await createAdministrator(database, ADMINISTRATOR);
  } finally {
    await database.close();
  }
  await generate(url, report);
  await makeOwnTables(url);
  await prepareCounting(url);
  const sql = postgres(url, { max: 1, fetch_types: false });
  // Pages of the new data must not be written during a measurement.
  await sql`checkpoint`.finally(() => sql.end({ timeout: 5 }));
  return serverVersion(url);
}

export async function serverVersion(url: string): Promise<string> {
  const sql = postgres(url, { max: 1, fetch_types: false });
  try {
    const [row] = await sql`select current_setting('server_version') as version`;
    return String(row?.['version']);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

export function openDatabase(url: string, schema = 'public'): Promise<Database> {
  return Database.open({
    url,
    schema,
    connections: 2,
    sessions: 2,
    streams: 1,
    imports: 1,
    waitTimeout: 10_000,
    statementTimeout: 0,
    connectTimeout: 10_000,
  });
}

export interface RunningService {
  readonly url: string;
  readonly pid: number;
  /** From the start of the process until it is ready, in milliseconds. */
  readonly startTime: number;
  stop(): Promise<void>;
}

export interface ServiceOptions {
  readonly databaseUrl: string;
  readonly poolSize: number;
  /** Folder for a CPU profile, which is written when the service stops. */
  readonly profile?: string | undefined;
  /** Further options of the service, by the names of their environment variables. */
  readonly settings?: Readonly<Record<string, string>> | undefined;
  /** The folder of another revision. */
  readonly root?: string;
}

const START_TIME = 60_000;
const STOP_TIME = 20_000;

export async function startService(options: ServiceOptions): Promise<RunningService> {
  const { databaseUrl, poolSize, profile, settings, root = packageRoot } = options;
  const profiling = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`];
  const begun = performance.now();
  const child = spawn(process.execPath, [...profiling, join(root, 'dist', 'src', 'main.js'), 'start'], {
    env: {
      ...process.env,
      HOST: '127.0.0.1',
      PORT: '0',
      DATABASE_URL: databaseUrl,
      DATABASE_POOL_SIZE: String(poolSize),
      DATABASE_WRITE_POOL_SIZE: String(poolSize),
      IMPORT_MAX_CONCURRENCY: String(poolSize),
      ADMIN_TOKEN: ADMINISTRATOR.token,
      SECRET: 'of the bench alone, for as long as it runs',
      LOG_LEVEL: 'warn',
      ...settings,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
    // A separate session, as in an installation: Linux divides processors among sessions. Each backend of PostgreSQL has its own, and the
    // service would share one with the load.
    detached: true,
  });
  try {
    const url = await readUrl(child);
    const startTime = performance.now() - begun;
    return { url, pid: child.pid ?? 0, startTime, stop: () => stopProcess(child) };
  } catch (error) {
    await stopProcess(child);
    throw error;
  }
}

function readUrl(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = '';
    const timer = setTimeout(() => reject(new Error(`The service does not start: ${output}`)), START_TIME);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      const url = /is ready at (http:\S+)/.exec(output)?.[1];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url);
    });
    child.once('error', reject);
    child.once('exit', (code) => {
      clearTimeout(timer);
      reject(new Error(`The service ended with code ${code}: ${output}`));
    });
  });
}

export async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIME);
    child.once('exit', () => {
      clearTimeout(timer);
      resolve();
    });
    child.kill('SIGTERM');
  });
}
