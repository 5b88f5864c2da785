/**
 * Streams: 200,000 rows to a client that takes its time, clients that leave, failures half-way, more streams than there
 * are connections for them. The service is a process of its own here, so that its memory can be told from the test's.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type IncomingMessage, request as openRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createDatabase,
  get,
  startDatabase,
  startTestService,
  waitFor,
  ways,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(180_000);
const ROWS = 200_000;
const MEBIBYTE = 1_048_576;

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'streams');
await (await startTestService({ databaseUrl })).stop();
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table wide (id integer primary key, label text not null, padding text not null);
      insert into wide select n, 'row ' || n, repeat(md5(n::text), 10) from generate_series(1, ${ROWS}) n;
      create view fragile as select id, 1 / (150000 - id) as part from wide;
      create view vast as select id, label, padding, copy from wide, generate_series(1, 100) copy;
      create view sluggish as select id, pg_sleep(0.02)::text as nap from wide;
      insert into service_collections (collection, primary_key) values ('fragile', 'id'), ('vast', 'id'), ('sluggish', 'id');
      analyze;`)
    .simple(),
);
const observer = connectSql(databaseUrl);
t.teardown(() => observer.end());

t.test('200,000 rows reach a slow client whole, and the service stays small', async (t) => {
  const service = await launch();
  await take(await open(service, '/items/wide?limit=10001&fields=id'));
  const before = await residentBytes(service.child);
  let highest = before;
  const watch = setInterval(() => {
    residentBytes(service.child).then(
      (bytes) => {
        highest = Math.max(highest, bytes);
      },
      () => {},
    );
  }, 50);
  const response = await open(service, '/items/wide?limit=-1&meta=total_count');
  await passTime(1_500, 'the client takes nothing');
  const pieces: Buffer[] = [];
  for await (const piece of response) {
    pieces.push(piece as Buffer);
    if (pieces.length % 20 === 0) await sleep(2);
  }
  clearInterval(watch);
  t.equal(response.headers['transfer-encoding'], 'chunked');
  const { data, meta } = JSON.parse(Buffer.concat(pieces).toString()) as { data: Row[]; meta: unknown };
  t.strictSame(meta, { total_count: ROWS });
  t.equal(data.length, ROWS);
  t.ok(
    data.every(
      (row, position) => row.id === position + 1 && row.label === `row ${row.id}` && row.padding.length === 320,
    ),
    'every row, in order',
  );
  const growth = (highest - before) / MEBIBYTE;
  t.comment(`grew by ${growth.toFixed(1)} MiB to ${(highest / MEBIBYTE).toFixed(1)} MiB`);
  t.ok(growth < 64, `grew by ${growth.toFixed(1)} MiB`);
});

t.test('a stream of rows of five megabytes holds only a few of them in memory', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql.unsafe("create view heavy as select id, repeat('z', 5000000) as body from wide where id <= 80"),
  );
  await withSql(
    databaseUrl,
    (sql) => sql`insert into service_collections (collection, primary_key) values ('heavy', 'id')`,
  );
  const service = await launch({ DATABASE_STREAM_POOL_SIZE: '1' });
  const before = await residentBytes(service.child);
  let highest = before;
  let size = 0;
  for await (const piece of await open(service, '/items/heavy?limit=-1')) {
    size += (piece as Buffer).length;
    highest = Math.max(highest, await residentBytes(service.child));
  }
  t.ok(size > 80 * 5_000_000, `${size} bytes`);
  // Of 400 MB. On a busy machine what is no longer used is freed late.
  t.ok(highest - before < 192 * MEBIBYTE, `grew by ${((highest - before) / MEBIBYTE).toFixed(1)} MiB`);
  const left = await open(service, '/items/heavy?limit=-1');
  await once(left, 'data');
  left.destroy();
  t.ok((await waitFor(async () => (await busyBackends('heavy')) === 0, 2_000)) < 2_000, 'the backend is free');
  t.equal((await take(await open(service, '/items/wide?limit=-1&fields=id'))).length, ROWS, 'the next one is served');
});

t.test('a client that leaves frees its backend within two seconds', async (t) => {
  const service = await launch({ DATABASE_STREAM_POOL_SIZE: '1' });
  const reading = await open(service, '/items/vast?limit=-1');
  await once(reading, 'data');
  t.equal(await busyBackends('vast'), 1, 'the stream holds one backend');
  reading.destroy();
  t.ok((await waitFor(async () => (await busyBackends('vast')) === 0, 2_000)) < 2_000, 'half-way');

  const stuck = await open(service, '/items/vast?limit=-1');
  stuck.pause();
  await passTime(300, 'the client takes nothing');
  t.equal(await busyBackends('vast'), 1);
  stuck.destroy();
  t.ok((await waitFor(async () => (await busyBackends('vast')) === 0, 2_000)) < 2_000, 'while it read nothing');

  const waiting = send(service, '/items/sluggish?limit=-1');
  await waitFor(async () => (await busyBackends('sluggish')) === 1, 2_000);
  waiting.destroy();
  t.ok((await waitFor(async () => (await busyBackends('sluggish')) === 0, 2_000)) < 2_000, 'before the first row');
  t.equal((await take(await open(service, '/items/wide?limit=-1&fields=id'))).length, ROWS);
});

t.test('a client that leaves while it waits for a connection disturbs nobody', async (t) => {
  const service = await launch({ DATABASE_STREAM_POOL_SIZE: '1' });
  const first = await open(service, '/items/wide?limit=-1');
  const second = send(service, '/items/wide?limit=-1');
  await passTime(200, 'the others go on');
  second.destroy();
  await passTime(200, 'the others go on');
  t.equal((await take(first)).length, ROWS, 'the stream before it is whole');
  await passTime(200, 'the others go on');
  t.equal(service.child.exitCode, null, 'the service runs on');
  t.equal((await take(await open(service, '/items/wide?limit=-1&fields=id'))).length, ROWS, 'the next one is served');
});

t.test('a client that leaves never ends the statement of another', async (t) => {
  const service = await launch({ DATABASE_STREAM_POOL_SIZE: '1' });
  for (let round = 0; round < 25; round++) {
    const leaving = await open(service, '/items/vast?limit=-1');
    const next = open(service, '/items/wide?limit=-1&fields=id&filter[id][_lte]=30000');
    await once(leaving, 'data');
    await sleep(round % 7);
    leaving.destroy();
    const response = await next;
    const length = response.statusCode === 200 ? (await take(response)).length : await response.toArray().then(String);
    if (length !== 30_000) return void t.fail(`round ${round}: ${response.statusCode} ${length}`);
  }
  t.pass('25 clients left, 25 others had all their rows');
});

t.test('a failure after the first byte breaks the transfer, and the connection is sound afterwards', async (t) => {
  const service = await launch({ DATABASE_STREAM_POOL_SIZE: '1' });
  for (const query of ['limit=-1', 'export=csv&limit=-1', 'export=json&limit=-1']) {
    const broken = await open(service, `/items/fragile?${query}`);
    t.equal(broken.statusCode, 200);
    await t.rejects(broken.toArray(), { code: 'ECONNRESET' }, `${query}: the client sees that it is incomplete`);
    t.equal(broken.complete, false);
    for (let round = 0; round < 20; round++) {
      const path = `/items/wide?limit=-1&fields=id&filter[id][_lte]=${round * 100}`;
      t.strictSame(
        (await take(await open(service, path))).map((row) => row.id),
        Array.from({ length: round * 100 }, (_, position) => position + 1),
      );
      t.match(await get(service, `/items/wide/${round + 1}?fields=id`), { text: `{"data":{"id":${round + 1}}}` });
    }
  }
  const early = await get(service, '/items/fragile?limit=-1&filter[id][_gte]=150000');
  t.match(early, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } }, 'before it, an error');
  t.equal((await take(await open(service, '/items/wide?limit=-1&filter[id][_lte]=3'))).length, 3);
});

t.test('the statement timeout counts the work of PostgreSQL, not the patience of the client', async (t) => {
  const service = await launch({ DATABASE_STATEMENT_TIMEOUT: '700ms', DATABASE_STREAM_POOL_SIZE: '1' });
  const refused = await get(service, '/items/sluggish?limit=-1');
  t.match(refused, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } });
  t.match(refused.text, /DATABASE_STATEMENT_TIMEOUT/);
  t.equal(await busyBackends('sluggish'), 0);
  const slow = await open(service, '/items/wide?limit=-1');
  slow.pause();
  await passTime(2_000, 'the client takes nothing for longer than a statement may');
  t.equal((await take(slow)).length, ROWS);
});

t.test('more streams than connections wait for their turn, and other reads do not wait for them', async (t) => {
  const service = await launch({ DATABASE_STREAM_POOL_SIZE: '2' });
  const path = '/items/wide?limit=-1&fields=id,label';
  const whole = await size(await open(service, path));
  let running = true;
  const streams = Promise.all(Array.from({ length: 7 }, async () => size(await open(service, path)))).finally(() => {
    running = false;
  });
  const times: number[] = [];
  let most = 0;
  while (running) {
    const start = performance.now();
    const answer = await get(service, `/items/wide/${times.length + 1}?fields=id`);
    times.push(performance.now() - start);
    if (answer.status !== 200) t.fail(answer.text);
    most = Math.max(most, await busyBackends('wide'));
  }
  t.ok(whole > ROWS * 20);
  t.strictSame(await streams, Array(7).fill(whole));
  times.sort((one, other) => one - other);
  const median = times[Math.floor(times.length / 2)] ?? Number.POSITIVE_INFINITY;
  t.comment(
    `${times.length} reads by key meanwhile: median ${median.toFixed(1)} ms, slowest ${times.at(-1)?.toFixed(1)} ms`,
  );
  t.ok(median < 100, 'reads by key stay fast');
  t.ok((times.at(-1) ?? 0) < 1_000, 'and none waits for a stream');
  t.ok(most <= 2, `at most two backends stream, ${most} did`);
});

interface Row {
  readonly id: number;
  readonly label: string;
  readonly padding: string;
}

interface Launched {
  readonly url: string;
  readonly child: ChildProcess;
}

async function launch(options: Readonly<Record<string, string>> = {}): Promise<Launched> {
  const environment = {
    PATH: process.env['PATH'] ?? '',
    ...ways(),
    PORT: '0',
    LOG_LEVEL: 'fatal',
    ADMIN_TOKEN,
    ...options,
  };
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: { ...environment, DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  let output = '';
  const url = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`not ready: ${output}`)), 60_000);
    child.stdout.on('data', (chunk) => {
      output += String(chunk);
      const ready = /ready at (\S+)/.exec(output)?.[1];
      if (!ready) return;
      clearTimeout(timer);
      resolve(ready);
    });
  });
  return { url, child };
}

function send({ url }: Launched, path: string): ReturnType<typeof openRequest> {
  const outgoing = openRequest(`${url}${path}`, { agent: false, headers: { authorization: `Bearer ${ADMIN_TOKEN}` } });
  outgoing.on('error', () => {});
  outgoing.end();
  return outgoing;
}

/** The response as soon as its head has arrived. */
async function open(service: Launched, path: string): Promise<IncomingMessage> {
  const outgoing = send(service, path);
  const [response] = (await once(outgoing, 'response', { signal: AbortSignal.timeout(30_000) })) as [IncomingMessage];
  return response;
}

async function take(response: IncomingMessage): Promise<Row[]> {
  const pieces = (await response.toArray({ signal: AbortSignal.timeout(30_000) })) as Buffer[];
  return (JSON.parse(Buffer.concat(pieces).toString()) as { data: Row[] }).data;
}

/** Reads without keeping: a busy client could not tell a slow service from itself. */
async function size(response: IncomingMessage): Promise<number> {
  let bytes = 0;
  for await (const piece of response) bytes += (piece as Buffer).length;
  return bytes;
}

async function residentBytes({ pid }: ChildProcess): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1_024;
}

/** Backends of the service that are at work on the given table. */
async function busyBackends(table: string): Promise<number> {
  const [row] = await observer`
    select count(*)::int as count from pg_stat_activity
    where application_name like 'lateral%' and state <> 'idle' and query like ${`%"${table}"%`}`;
  return row?.['count'];
}
