/**
 * Behind a pooler: what cannot work there is refused at the start with the reason, one that keeps a backend for each session
 * is as good as none, and even where nobody has looked no statement is answered by another.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { StartError } from '../../src/errors.js';
import type { Connection } from '../../src/postgres/connection.js';
import { Database } from '../../src/postgres/database.js';
import {
  createLibrary,
  get,
  makeFolder,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../support/service.js';

const version = await promisify(execFile)('pgbouncer', ['--version']).then(
  ({ stdout }) => stdout.split('\n')[0],
  () => null,
);
if (version === null) {
  t.pass('skipped: pgbouncer is not installed');
  process.exit(0);
}
t.comment(version);

const server = await startDatabase();
const libraryUrl = await createLibrary(server, 'pooled');
/** What the service asks of a session and PgBouncer 1.18 cannot pass on. */
const IGNORED =
  'search_path,IntervalStyle,bytea_output,extra_float_digits,quote_all_identifiers,jit,statement_timeout,lock_timeout,plan_cache_mode,max_parallel_workers_per_gather';

interface Pooler {
  readonly url: string;
  readonly process: ChildProcess;
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as { port: number };
  probe.close();
  await once(probe, 'close');
  return port;
}

async function startPooler(mode: string, size: number, settings: readonly string[] = []): Promise<Pooler> {
  const { hostname, port: behind, username, password, pathname } = new URL(libraryUrl);
  const name = pathname.slice(1);
  const port = await freePort();
  const file = join(await makeFolder(), 'pgbouncer.ini');
  const lines = [
    '[databases]',
    `${name} = host=${hostname} port=${behind} dbname=${name} user=${username} password=${password}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = any',
    `pool_mode = ${mode}`,
    `default_pool_size = ${size}`,
    'max_client_conn = 200',
    ...settings,
  ];
  await writeFile(file, lines.join('\n'));
  await chmod(file, 0o644);
  const account = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const child = spawn('pgbouncer', ['-q', ...account, file], { stdio: 'ignore' });
  t.teardown(async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  });
  const url = `postgres://${username}:x@127.0.0.1:${port}/${name}`;
  await waitFor(
    () =>
      withSql(url, (sql) => sql`select 1`).then(
        () => true,
        () => false,
      ),
    10_000,
  );
  return { url, process: child };
}

/** The reason why the service does not start there. */
async function refusal(url: string, options: Readonly<Record<string, string>> = {}): Promise<string> {
  const error = await startTestService({ databaseUrl: url, ...options }).then(
    () => new Error('it started'),
    (reason: unknown) => reason,
  );
  t.ok(error instanceof StartError, 'one line and no stack');
  return (error as Error).message;
}

t.test('a pooler that changes backends between transactions is refused with the reason', async (t) => {
  for (const [mode, size, extra] of [
    ['transaction', 20, []],
    ['transaction', 1, []],
    ['transaction', 20, ['server_round_robin = 1']],
    ['transaction', 20, ['server_reset_query = DISCARD ALL', 'server_reset_query_always = 1']],
  ] as const) {
    const { url } = await startPooler(mode, size, [`ignore_startup_parameters = ${IGNORED}`, ...extra]);
    t.match(
      await refusal(url),
      /pooler .* gives one session to several clients .*LISTEN.*pool_mode=session/,
      `${mode} ${size} ${extra}`,
    );
  }
  const { url } = await startPooler('statement', 5, [`ignore_startup_parameters = ${IGNORED}`]);
  t.match(await refusal(url), /pooler .* gives one session to several/, 'one that knows no transactions at all');
});

t.test('so is one that refuses or ignores what a session is to be like', async (t) => {
  const strict = await startPooler('session', 60);
  t.match(await refusal(strict.url), /unsupported startup parameter.*a pooler at 127\.0\.0\.1:\d+ refuses settings/);
  const lax = await startPooler('session', 60, [`ignore_startup_parameters = ${IGNORED}`]);
  await withSql(libraryUrl, (sql) => sql.unsafe(`alter role "lateral" in database pooled set bytea_output = 'escape'`));
  t.match(await refusal(lax.url), /: bytea_output, statement_timeout cannot be set for a session.*ALTER ROLE/);
});

t.test('one that keeps a backend for each session serves, once everything needed is there', async (t) => {
  await withSql(libraryUrl, async (sql) => {
    await sql.unsafe(`alter role "lateral" in database pooled set bytea_output = 'hex'`);
    await sql.unsafe(`alter role "lateral" in database pooled set statement_timeout = '30s'`);
  });
  const { url } = await startPooler('session', 60, [`ignore_startup_parameters = ${IGNORED}`]);
  const service = await startTestService({ databaseUrl: url });
  t.match(await get(service, '/items/articles/1?fields=id'), { status: 200, json: { data: { id: 1 } } });
  await withSql(libraryUrl, (sql) => sql`alter table articles add column heard_of int default 7`);
  await waitFor(async () => (await get(service, '/items/articles/1?fields=heard_of')).status === 200, 5_000);
  await service.stop();
});

function askCell(wire: Connection, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let found = '';
    wire.run({
      text,
      parameters: [],
      prepare: true,
      columns: 1,
      row: (_, cell) => {
        found = String(cell);
      },
      end: (error) => (error ? reject(error) : resolve(found)),
    });
  });
}

t.test('where nobody has looked, no statement is answered by another one', async (t) => {
  const { url } = await startPooler('transaction', 3, [`ignore_startup_parameters = ${IGNORED}`]);
  const database = await Database.open({
    url,
    schema: 'public',
    connections: 8,
    sessions: 2,
    streams: 1,
    imports: 1,
    waitTimeout: 5_000,
    statementTimeout: 20_000,
    connectTimeout: 5_000,
  });
  t.teardown(() => database.close());
  const outcomes = { right: 0, refused: 0, wrong: 0 };
  for (let round = 0; round < 40; round++) {
    await Promise.all(
      database.readConnections.map(async (wire, position) => {
        // Each connection has statements of its own, in an order of its own.
        const number = (position * 7 + round * (position + 1)) % 23;
        const cell = await askCell(wire, `select 'statement ${number}'`).catch(() => null);
        outcomes[cell === null ? 'refused' : cell === `statement ${number}` ? 'right' : 'wrong']++;
      }),
    );
  }
  t.equal(outcomes.wrong, 0, JSON.stringify(outcomes));
  t.ok(outcomes.right > 0);
  // The driver names the statements of its own connections itself: by chance, and so never by the name of another.
  const cells = await Promise.all(
    Array.from({ length: 60 }, async (_, n) => [
      n % 9,
      String(await database.cell(`select 'own ${n % 9}'`, []).catch(() => null)),
    ]),
  );
  t.strictSame(
    cells.filter(([n, cell]) => cell !== `own ${n}` && cell !== 'null'),
    [],
  );
});

t.test('a row that is not of the kind that was asked for ends the connection', async (t) => {
  const database = await Database.open({
    url: libraryUrl,
    schema: 'public',
    connections: 1,
    sessions: 1,
    streams: 1,
    imports: 1,
    waitTimeout: 5_000,
    statementTimeout: 20_000,
    connectTimeout: 5_000,
  });
  t.teardown(() => database.close());
  const [wire] = database.readConnections as [Connection];
  const backend = await askCell(wire, 'select pg_backend_pid()::text');
  await t.rejects(askCell(wire, 'select 1, 2'), { code: 'CONNECTION_SHARED' });
  const next = await askCell(wire, 'select pg_backend_pid()::text');
  t.not(next, backend);
  // A name that is there though this connection has not given it.
  const name = await askCell(wire, `select name from pg_prepared_statements where statement ~ 'pg_backend_pid'`);
  const text = 'select pg_backend_pid()::text';
  t.match(name, /^lateral_[\w-]{43}$/);
  await withSql(libraryUrl, async (sql) => {
    const [row] = await sql`select count(*)::int as count from pg_stat_activity where pid = ${Number(backend)}`;
    t.equal(row?.['count'], 0, 'the backend of the first is gone');
  });
  t.equal(await askCell(wire, text), next, 'and the second goes on');
});
