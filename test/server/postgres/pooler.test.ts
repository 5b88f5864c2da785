/**
 * Behind a pooler: what cannot work there is refused at the start with the reason, one that keeps a backend for each session
 * is as good as none, and even where nobody has looked no statement is answered by another.
 */
import t from 'tap';
import { StartError } from '../../../src/base/errors.js';
import { Database } from '../../../src/server/postgres/pools/database.js';
import type { Connection } from '../../../src/server/postgres/wire/connection.js';
import { Network } from '../../support/network-proxy.js';
import { pgBouncerVersion, startPooler } from '../../support/pooler.js';
import {
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import type { Test } from '../../support/users.js';

// Its poolers are its own: none is to stand in front of them.
delete process.env['TEST_POOLER'];
const version = await pgBouncerVersion();
if (version === null) {
  t.pass('skipped: pgbouncer is not installed');
  process.exit(0);
}
t.comment(`PgBouncer ${version}`);
/** From then on a pooler keeps the prepared statements of its clients apart. */
const isTracking = version >= 1.21;

const server = await startDatabase({ own: true });
const libraryUrl = await createLibrary(server, 'pooled');
/** What the service asks of a session and PgBouncer cannot pass on. */
const IGNORED =
  'search_path,IntervalStyle,bytea_output,extra_float_digits,quote_all_identifiers,jit,statement_timeout,lock_timeout,plan_cache_mode,max_parallel_workers_per_gather';
const ignoring = `ignore_startup_parameters = ${IGNORED}`;

/** The reason why the service does not start there. */
async function refusal(url: string, options: Readonly<Record<string, string>> = {}): Promise<string> {
  const error = await startTestService({ databaseUrl: url, ...options }).then(
    () => new Error('it started'),
    (reason: unknown) => reason,
  );
  t.ok(error instanceof StartError, 'one line and no stack');
  return (error as Error).message;
}

t.test('a pooler that gives each transaction another backend has to keep prepared statements', async (t) => {
  for (const [mode, size, extra] of [
    ['transaction', 20, []],
    ['transaction', 1, [ignoring]],
    ['transaction', 20, [ignoring, 'server_round_robin = 1']],
    ['transaction', 20, [ignoring, 'server_reset_query = DISCARD ALL', 'server_reset_query_always = 1']],
    ['statement', 5, [ignoring]],
  ] as const) {
    const off = isTracking ? ['max_prepared_statements = 0'] : [];
    const url = await startPooler(libraryUrl, { mode, size, settings: [...extra, ...off] });
    t.match(
      await refusal(url),
      /pooler .* gives one session to several clients .*PgBouncer 1\.21 or newer with max_prepared_statements/,
      `${mode} ${size} ${extra}`,
    );
  }
});

t.test('options that are set have to take effect', async (t) => {
  const shared = await startPooler(libraryUrl, { mode: 'transaction', settings: [ignoring] });
  for (const DATABASE_POOLER of ['none', 'session'])
    t.match(await refusal(shared, { DATABASE_POOLER }), /pooler .* gives one session to several clients/);
  const strict = await startPooler(libraryUrl, { mode: 'session' });
  t.match(
    await refusal(strict, { DATABASE_POOLER: 'none' }),
    /unsupported startup parameter.*a pooler at 127\.0\.0\.1:\d+ refuses/,
  );
  const lax = await startPooler(libraryUrl, { mode: 'session', settings: [ignoring] });
  await withSql(libraryUrl, (sql) => sql.unsafe(`alter role "lateral" in database pooled set bytea_output = 'escape'`));
  t.match(
    await refusal(lax, { DATABASE_POOLER: 'none' }),
    /: (bytea_output, )?statement_timeout cannot be set for a session/,
  );
});

/** What all depends on: settings, changes of others, timeouts, transactions, streams, cancelled statements. */
async function serves(
  t: Pick<Test, 'match' | 'ok' | 'strictSame'>,
  url: string,
  options: Readonly<Record<string, string>>,
): Promise<void> {
  const service = await startTestService({
    databaseUrl: url,
    DATABASE_STATEMENT_TIMEOUT: '1500ms',
    SCHEMA_POLL_INTERVAL: '300ms',
    STREAM_ABOVE: '1',
    ...options,
  });
  const ask = Array.from({ length: 40 }, (_, position) =>
    get(service, `/items/articles/${1 + (position % 3)}?fields=id`),
  );
  t.strictSame(new Set((await Promise.all(ask)).map(({ status }) => status)), new Set([200]));
  const headers = { 'content-type': 'application/json', 'idempotency-key': `one-${url}` };
  const write = (): ReturnType<typeof request> =>
    request(service, 'POST', '/items/tags', { headers, body: '{"name":"pooled"}' });
  const [first, again] = [await write(), await write()];
  t.match([first.status, again.status], [200, 200]);
  t.strictSame(again.json, first.json, 'a request is repeated once');
  t.match(await get(service, '/items/tags?limit=-1&fields=name'), { status: 200, json: { data: Array } }, 'a stream');
  t.match(await get(service, '/schema/snapshot'), { status: 200 }, 'a transaction that reads one state of all');
  await withSql(libraryUrl, async (sql) => {
    await sql.unsafe(`alter table articles add column if not exists heard_of_${Date.now() % 1e6} int default 7`);
  });
  const [column] = await withSql(
    libraryUrl,
    (sql) =>
      sql`select attname from pg_attribute where attrelid = 'articles'::regclass and attname like 'heard_of_%' and not attisdropped order by attnum desc limit 1`,
  );
  await waitFor(
    async () => (await get(service, `/items/articles/1?fields=${column?.['attname']}`)).status === 200,
    5_000,
  );
  const locked = connectSql(libraryUrl);
  await locked`begin`;
  await locked`lock table tags in access exclusive mode`;
  const started = performance.now();
  t.match(await get(service, '/items/tags?limit=1'), { status: 503, text: /holds a lock/ });
  t.ok(performance.now() - started < 5_000, 'the timeouts hold');
  await locked`commit`;
  await locked.end();
  await service.stop();
}

t.test('one that keeps a backend for each session serves, whatever settings it passes on', async (t) => {
  for (const settings of [[], [ignoring]]) {
    const url = await startPooler(libraryUrl, { mode: 'session', settings });
    await serves(t, url, {});
    await serves(t, url, { DATABASE_POOLER: 'session' });
  }
});

t.test('one that keeps prepared statements serves with a backend for each transaction', async (t) => {
  if (!isTracking) {
    t.pass(`skipped: PgBouncer ${version} does not; PGBOUNCER names another program`);
    return;
  }
  for (const settings of [[], [ignoring, 'server_round_robin = 1']]) {
    const given = [...settings, 'max_prepared_statements = 50'];
    const url = await startPooler(libraryUrl, { mode: 'transaction', size: 3, settings: given });
    await serves(t, url, {});
    await serves(t, url, { DATABASE_POOLER: 'transaction', DATABASE_DIRECT_URL: libraryUrl });
  }
});

t.test('of a commit that was lost behind a pooler nobody says that it was not done', async (t) => {
  const network = await new Network(libraryUrl).open();
  const url = await startPooler(network.url, { mode: isTracking ? 'transaction' : 'session' });
  const service = await startTestService({ databaseUrl: url, DATABASE_DIRECT_URL: libraryUrl });
  const headers = { 'content-type': 'application/json', 'idempotency-key': 'lost-behind-a-pooler' };
  const write = (): ReturnType<typeof request> =>
    request(service, 'POST', '/items/tags', { headers, body: '{"name":"lost behind a pooler"}' });
  network.unanswered = /service_receipts/;
  t.match(await write(), { status: 503, json: { errors: [{ extensions: { outcome: 'unknown' } }] } });
  network.unanswered = null;
  await waitFor(async () => (await write()).status === 200, 20_000);
  await withSql(libraryUrl, async (sql) => {
    const [row] = await sql`select count(*)::int as count from tags where name = 'lost behind a pooler'`;
    t.equal(row?.['count'], 1);
  });
});

t.test('a statement that was planned for a type that has changed is prepared once more', async (t) => {
  if (!isTracking) {
    t.pass(`skipped: PgBouncer ${version} does not keep prepared statements`);
    return;
  }
  const settings = ['max_prepared_statements = 50'];
  const url = await startPooler(libraryUrl, { mode: 'transaction', size: 2, settings });
  const database = await Database.open({
    url,
    schema: 'public',
    pooler: 'transaction',
    connections: 3,
    sessions: 1,
    streams: 1,
    imports: 1,
    waitTimeout: 5_000,
    statementTimeout: 20_000,
    connectTimeout: 5_000,
  });
  t.teardown(() => database.close());
  await withSql(libraryUrl, (sql) => sql.unsafe(`create table typed as select 'kept'::varchar(4) as name`));
  for (const length of [5, 6, 7]) {
    for (let round = 0; round < 2; round++) {
      const asked = database.readConnections.map((wire) => askCell(wire, 'select name from typed'));
      t.strictSame(await Promise.all(asked), ['kept', 'kept', 'kept'], `varchar(${length - 1})`);
    }
    await withSql(libraryUrl, (sql) => sql.unsafe(`alter table typed alter name type varchar(${length})`));
  }
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
  const url = await startPooler(libraryUrl, { mode: 'transaction', size: 3, settings: [ignoring] });
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
