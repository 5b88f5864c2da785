/**
 * What a bench runs on: the embedded PostgreSQL in a folder kept between runs, filled with the bench data, and the
 * service as a process of its own, so that neither load nor measuring takes time from it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import postgres from 'postgres';
import { type EmbeddedServer, startEmbedded } from '../src/embedded/cluster.js';
import { createAdministrator } from '../src/execute/accounts.js';
import { Database } from '../src/execute/database.js';
import { migrate } from '../src/execute/migrate.js';
import { packagePath } from '../src/files.js';
import { generate } from './generate.js';

export const ADMINISTRATOR = { email: 'bench@example.com', password: 'bench-password', token: 'bench-administrator' };

export type Report = (message: string) => void;

export function startDatabase(directory: string, report: Report): Promise<EmbeddedServer> {
  return startEmbedded({ directory, report });
}

/** The demo model with the bench data in it. Answers the server's version. */
export async function prepareData(url: string, report: Report): Promise<string> {
  const database = await openDatabase(url);
  try {
    await migrate(database, true, () => undefined);
    await createAdministrator(database, ADMINISTRATOR);
  } finally {
    await database.close();
  }
  await generate(url, report);
  const sql = postgres(url, { max: 1, fetch_types: false });
  try {
    // What the data leaves to be written must not be written while something is measured.
    await sql`checkpoint`;
    const [row] = await sql`select current_setting('server_version') as version`;
    return String(row?.version);
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
  stop(): Promise<void>;
}

export interface ServiceOptions {
  readonly databaseUrl: string;
  readonly poolSize: number;
  /** Folder for a CPU profile, which is written when the service stops. */
  readonly profile: string | undefined;
}

const START_TIME = 60_000;
const STOP_TIME = 20_000;

export async function startService({ databaseUrl, poolSize, profile }: ServiceOptions): Promise<RunningService> {
  const profiling = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`];
  const child = spawn(process.execPath, [...profiling, packagePath('dist', 'src', 'main.js'), 'start'], {
    env: {
      ...process.env,
      HOST: '127.0.0.1',
      PORT: '0',
      DATABASE_URL: databaseUrl,
      DATABASE_POOL_SIZE: String(poolSize),
      DATABASE_WRITE_POOL_SIZE: String(poolSize),
      ADMIN_TOKEN: ADMINISTRATOR.token,
      LOG_LEVEL: 'warn',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    return { url: await readUrl(child), pid: child.pid ?? 0, stop: () => stopProcess(child) };
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

async function stopProcess(child: ChildProcess): Promise<void> {
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
