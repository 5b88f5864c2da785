/**
 * What the tests stand on: a real PostgreSQL of their own, the service in this process, and a client that sends exactly
 * what it is told. Whatever is started here ends with the test file.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { type Agent, type IncomingHttpHeaders, type IncomingMessage, request as openRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import postgres from 'postgres';
import t from 'tap';
import type { OptionName } from '../../src/app/option-names.js';
import { openLog, readConfig } from '../../src/app/options.js';
import { type Service, type StartOptions, startService } from '../../src/app/start.js';
import { packagePath } from '../../src/base/package-files.js';
import { type EmbeddedServer, startEmbedded } from '../../src/features/embedded/cluster.js';
import { plain } from '../../src/server/threads/speed.js';
import { throughPooler } from './pooler.js';
import { databasePrefix, TEST_SETTINGS } from './shared-server.js';

export const ADMIN_TOKEN = 'the-token-of-the-test-administrator';

/** The database that `createLibrary` copies where test/run.ts has made one. */
export const LIBRARY_TEMPLATE = 'template_of_the_library';
/** The database that `createDatabase` copies. */
export const SERVICE_TEMPLATE = 'template_of_the_service';

// Servers are stopped when a process exits, which one that a signal ends does not.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => process.exit(1));

export type Sql = postgres.Sql;

export interface TestServer extends EmbeddedServer {
  /** Where the server keeps its data: to start it again with `startDatabase`. */
  readonly directory: string;
  /** Starts the names of this file's databases: other files use the same server. Empty for a server of its own. */
  readonly prefix: string;
}

export interface DatabaseSettings {
  /**
   * For a test that stops or configures the server, uses its folder, creates roles, or reads what the server reports about
   * all databases. Implied by `settings` and `directory`.
   */
  readonly own?: boolean;
  /** Settings of the server, as its `-c name=value` takes them. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The folder of a server that was stopped. */
  readonly directory?: string;
}

/** The server that test/run.ts started for all files, or a new one in a temporary folder. */
export async function startDatabase({ own, settings, directory }: DatabaseSettings = {}): Promise<TestServer> {
  const shared = process.env['TEST_SHARED_SERVER'];
  if (shared && !own && !settings && !directory) return shareServer(shared);
  const folder = directory ?? (await makeServerFolder());
  const server = await startEmbedded({ directory: folder, settings: { ...TEST_SETTINGS, ...settings } });
  t.teardown(() => server.stop());
  return { ...server, directory: folder, prefix: '' };
}

/** test/run.ts drops the databases when the file has ended. */
function shareServer(url: string): TestServer {
  const refuse = (): never => {
    throw new Error('other test files use this server: start one with { own: true }');
  };
  return {
    url,
    stop: refuse,
    get directory() {
      return refuse();
    },
    prefix: databasePrefix(globalThis.testFile?.name ?? basename(process.argv[1] ?? '', '.test.js')),
  };
}

/** A copy of what test/run.ts made once for all files; empty where a file runs without it. The copy keeps the owner. */
async function makeServerFolder(): Promise<string> {
  const folder = await makeFolder();
  const template = process.env['TEST_TEMPLATE'];
  if (template) await promisify(execFile)('cp', ['-a', `${template}/.`, folder]);
  return folder;
}

/** A temporary folder that every account may enter. */
export async function makeFolder(): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'lateral-test-')));
  await chmod(folder, 0o755);
  t.teardown(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }));
  return folder;
}

/** A database with the given files of test/schemas; answers its address. The service's own tables are there already if a file shares its server. */
export async function createDatabase(server: TestServer, name: string, files: readonly string[] = []): Promise<string> {
  if (server.prefix === '') return createEmptyDatabase(server, name, files);
  const url = await copyTemplate(server, SERVICE_TEMPLATE, name);
  await loadSchemas(url, files);
  return url;
}

/** Without any tables but those of the given files of test/schemas. */
export async function createEmptyDatabase(
  server: TestServer,
  name: string,
  files: readonly string[] = [],
): Promise<string> {
  await withSql(server.url, (sql) => sql`create database ${sql(server.prefix + name)}`);
  const url = databaseUrl(server, name);
  await loadSchemas(url, files);
  return url;
}

/** A copy of a database that nobody is connected to; answers its address. */
export async function copyDatabase(server: TestServer, from: string, name: string): Promise<string> {
  const { prefix } = server;
  await withSql(server.url, (sql) => sql`create database ${sql(prefix + name)} template ${sql(prefix + from)}`);
  return databaseUrl(server, name);
}

export async function dropDatabase(server: TestServer, name: string): Promise<void> {
  await withSql(server.url, (sql) => sql`drop database ${sql(server.prefix + name)}`);
}

/** A database with the service's own tables and the articles, authors, comments, tags and blocks of library.sql. */
export async function createLibrary(server: TestServer, name: string): Promise<string> {
  const template = await withSql(server.url, (sql) => sql`select from pg_database where datname = ${LIBRARY_TEMPLATE}`);
  if (template.length > 0) return copyTemplate(server, LIBRARY_TEMPLATE, name);
  const url = await createServed(server, name);
  await loadSchemas(url, ['library.sql']);
  return url;
}

/** A database with the service's own tables. */
export async function createServed(server: TestServer, name: string): Promise<string> {
  const url = await createEmptyDatabase(server, name);
  const service = await startTestService({ databaseUrl: url, WORKERS: '1' });
  await service.stop();
  return url;
}

/** A copy of a database that test/run.ts made once for all files. */
async function copyTemplate(server: TestServer, template: string, name: string): Promise<string> {
  await withSql(server.url, (sql) => sql`create database ${sql(server.prefix + name)} template ${sql(template)}`);
  return databaseUrl(server, name);
}

export function databaseUrl(server: TestServer, name: string, login?: { user: string; password: string }): string {
  const url = new URL(server.url);
  url.pathname = `/${server.prefix}${name}`;
  if (login) {
    url.username = login.user;
    url.password = login.password;
  }
  return url.href;
}

export async function loadSchemas(url: string, files: readonly string[]): Promise<void> {
  await withSql(url, async (sql) => {
    for (const file of files) await sql.unsafe(await readFile(packagePath('test', 'schemas', file), 'utf8')).simple();
  });
}

/** One connection for as long as the work takes. */
export async function withSql<Result>(url: string, work: (sql: Sql) => Promise<Result>): Promise<Result> {
  const sql = connectSql(url);
  try {
    return await work(sql);
  } finally {
    await sql.end();
  }
}

export function connectSql(url: string): Sql {
  return postgres(url, { max: 1, onnotice: () => {} });
}

export interface TestOptions extends Readonly<Partial<Record<Exclude<OptionName, 'DATABASE_URL'>, string>>> {
  readonly databaseUrl: string;
}

/** Ways to serve that nobody may notice: the whole suite has to pass with each of them. */
export function ways(): Record<string, string> {
  const { WORKERS = '', READ_BATCHING = '', SERVER = '' } = process.env;
  return { WORKERS, READ_BATCHING, SERVER };
}

/** With SPEED=none a service executes each read as one statement, as it does without src/speed. */
function executors(): StartOptions {
  return process.env['SPEED'] === 'none' ? { speed: plain } : {};
}

/** Of a service whose statements are counted: who a caller is would be asked again in the midst of a file that takes half a minute. */
export const KNOWS_CALLERS = { MAX_STALENESS: '1h' } as const;

/** The service in this process, on a free port, in silence; every option as an environment would give it. */
export async function startTestService({ databaseUrl, ...options }: TestOptions): Promise<Service> {
  const given = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, ...ways(), ...options };
  const pooled = await throughPooler(databaseUrl);
  const config = readConfig({ ...pooled.options, ...given });
  const service = await startService(config, openLog(config.LOG_LEVEL), () => {}, executors());
  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> => {
    stopped ??= service.stop().finally(() => pooled.release());
    return stopped;
  };
  t.teardown(stop);
  // What a test looks at or changes by itself, it does past a pooler.
  return { ...service, databaseUrl, stop };
}

export interface RequestOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** The administrator's when absent; null for none. */
  readonly token?: string | null;
  /** For requests that share connections. */
  readonly agent?: Agent;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Undefined where the body is no JSON. */
  readonly json: unknown;
}

/** One request, on a connection of its own where no agent is given. The path is sent as it stands. */
export async function request(
  service: { readonly url: string },
  method: string,
  path: string,
  { headers = {}, body, token = ADMIN_TOKEN, agent }: RequestOptions = {},
): Promise<Answer> {
  const { hostname, port } = new URL(service.url);
  const authorization: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
  const outgoing = openRequest({
    hostname,
    port,
    method,
    path,
    headers: { ...authorization, ...headers },
    agent: agent ?? false,
    timeout: 20_000,
  });
  outgoing.on('timeout', () => outgoing.destroy(new Error(`no answer to ${method} ${path.slice(0, 100)}`)));
  outgoing.end(body);
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  return { status: incoming.statusCode ?? 0, headers: incoming.headers, text, json: parseJson(text) };
}

export async function get(service: { readonly url: string }, path: string, options?: RequestOptions): Promise<Answer> {
  return request(service, 'GET', path, options);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Sends bytes over one connection, each piece as a packet of its own, and answers what came back until the server closed
 * it or `enough` was seen.
 */
export async function sendRaw(
  service: { readonly url: string },
  pieces: readonly string[],
  enough: (received: string) => boolean = () => false,
): Promise<string> {
  const { hostname, port } = new URL(service.url);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  await once(socket, 'connect');
  let received = '';
  const ended = new Promise<void>((resolve, reject) => {
    socket.setTimeout(10_000, () => reject(new Error(`the connection fell silent after: ${received.slice(0, 500)}`)));
    socket.on('data', (chunk) => {
      received += chunk.toString();
      if (enough(received)) resolve();
    });
    socket.on('close', resolve);
    // A server that refuses the rest of a request may reset the connection.
    socket.on('error', () => resolve());
  });
  for (const piece of pieces) {
    socket.write(piece);
    await sleep(5);
  }
  try {
    await ended;
  } finally {
    socket.destroy();
  }
  return received;
}

/** Milliseconds from which on a limit is no promise of the product, only the end of a wait for what never comes. */
const GUARD_MS = 5_000;
/** How much longer such waits may take: the machine may be shared with others. */
const PATIENCE = 4;

/** Asks again until the answer pleases; answers how many milliseconds that took. */
export async function waitFor(condition: () => Promise<boolean>, within: number): Promise<number> {
  const start = performance.now();
  const limit = within < GUARD_MS ? within : within * PATIENCE;
  while (!(await condition())) {
    if (performance.now() - start > limit) throw new Error(`not within ${limit} ms`);
    await sleep(20);
  }
  return performance.now() - start;
}

export interface Outcome {
  readonly code: number;
  readonly output: string;
  readonly complaints: string;
}

/** The real program with these words, to its end. */
export async function runProgram(
  words: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  input = '',
): Promise<Outcome> {
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js'), ...words], {
    env: { PATH: process.env['PATH'] ?? '', ...ways(), ...environment },
    stdio: 'pipe',
  });
  const output: Buffer[] = [];
  const complaints: Buffer[] = [];
  child.stdout.on('data', (piece: Buffer) => output.push(piece));
  child.stderr.on('data', (piece: Buffer) => complaints.push(piece));
  // A program that reads no input may be gone before it is written.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const [code] = (await once(child, 'close')) as [number | null];
  return {
    code: code ?? -1,
    output: Buffer.concat(output).toString(),
    complaints: Buffer.concat(complaints).toString(),
  };
}
