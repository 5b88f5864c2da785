/** GET /server/metrics: what Prometheus is told, by whom it may be asked, and that it tells the truth. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'measured');
/** One thread with one connection: what waits for it, and what is compiled once, has one number. */
const service = await startTestService({ databaseUrl, DATABASE_POOL_SIZE: '1', WORKERS: '1', READ_BATCHING: 'true' });
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

type Samples = ReadonlyMap<string, number>;

/** Each line of the text as it stands before its value. */
async function scrape(of: { readonly url: string } = service): Promise<Samples> {
  const { status, text } = await get(of, '/server/metrics');
  t.equal(status, 200);
  return readSamples(text);
}

function readSamples(text: string): Samples {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

function requests(samples: Samples, method: string, route: string, status: number): number {
  const labels = `method="${method}",route="${route}",status="${status}"`;
  return samples.get(`lateral_requests_total{${labels}}`) ?? 0;
}

function statements(samples: Samples, kind: string): number {
  return samples.get(`lateral_statements_total{kind="${kind}"}`) ?? 0;
}

t.test('it is for administrators, unless an option says otherwise', async (t) => {
  t.match(await get(service, '/server/metrics', { token: null }), { status: 403 });
  t.match(await get(service, '/server/metrics', { token: 'wrong' }), { status: 401 });
  const token = 'the-token-of-a-reader';
  const digest = createHash('sha256').update(token).digest('hex');
  await sql`insert into service_users (email, token) values ('reader@example.com', ${digest})`;
  t.match(await get(service, '/server/metrics', { token }), { status: 403 });
  const open = await startTestService({ databaseUrl, METRICS: 'public' });
  t.match(await get(open, '/server/metrics', { token: null }), { status: 200 });
  const closed = await startTestService({ databaseUrl, METRICS: 'off' });
  t.match(await get(closed, '/server/metrics'), { status: 404 });
});

t.test('it is text as Prometheus reads it, and nobody keeps it', async (t) => {
  const { headers, text } = await get(service, '/server/metrics');
  t.equal(headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8');
  t.equal(headers['cache-control'], 'no-store');
  const sample = /^[a-z0-9_]+(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? (-?[0-9.e+-]+|Nan|\+Inf)$/i;
  const strange = text.split('\n').filter((line) => line !== '' && !/^# (HELP|TYPE) /.test(line) && !sample.test(line));
  t.strictSame(strange, []);
  const declared = [...text.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1]);
  t.equal(new Set(declared).size, declared.length, 'each is declared once');
  for (const name of [
    'process_resident_memory_bytes',
    'nodejs_eventloop_lag_p99_seconds',
    'nodejs_heap_size_used_bytes',
    'process_cpu_seconds_total',
  ])
    t.ok((readSamples(text).get(name) ?? -1) >= 0, name);
});

t.test('requests are counted by route, method and status, never by what clients write into them', async (t) => {
  const before = await scrape();
  for (const id of [1, 2, 3]) await get(service, `/items/articles/${id}?fields=id`);
  await request(service, 'HEAD', '/items/articles/1');
  await get(service, '/items/articles/999999');
  await get(service, '/items/nothing_of_this_name');
  await get(service, '/no/such/place-of-somebody');
  await request(service, 'POST', '/graphql', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: '{ articles(limit: 1) { id } }' }),
  });
  const { text } = await get(service, '/server/metrics');
  const after = readSamples(text);
  const grown = (method: string, route: string, status: number): number =>
    requests(after, method, route, status) - requests(before, method, route, status);
  t.equal(grown('GET', '/items/:collection/:key', 200), 4);
  t.equal(grown('GET', '/items/:collection/:key', 403), 1);
  t.equal(grown('GET', '/items/:collection', 403), 1);
  t.equal(grown('', '', 404), 1);
  t.equal(grown('POST', '/graphql', 200), 1);
  t.notMatch(text, /nothing_of_this_name|place-of-somebody|articles/);
});

t.test('buckets hold all that was faster, and end with the count', async (t) => {
  await sql`create view sleepers as select id, pg_sleep(0.3)::text as slept from tags`;
  await sql`insert into service_collections (collection, primary_key) values ('sleepers', 'id')`;
  const detailed = await startTestService({ databaseUrl, WORKERS: '1', METRICS_BY_ROUTE: 'true' });
  const read = (): Promise<Answer> => get(detailed, '/items/sleepers/1');
  await waitFor(async () => (await read()).status === 200, 10_000);
  const samples = await scrape(detailed);
  const labels = 'method="GET",route="/items/:collection/:key",status="200"';
  const name = 'lateral_request_duration_seconds';
  const values = [...samples].filter(([key]) => key.startsWith(`${name}_bucket`) && key.includes(labels));
  t.equal(values.length, 15);
  const counts = values.map(([, value]) => value);
  t.strictSame(
    counts,
    [...counts].sort((one, other) => one - other),
  );
  const count = requests(samples, 'GET', '/items/:collection/:key', 200);
  t.equal(counts.at(-1), count);
  const within = samples.get(`${name}_bucket{le="0.25",${labels}}`) ?? Number.NaN;
  t.ok(count - within >= 1, 'the slow one is above a quarter of a second');
  t.ok((samples.get(`${name}_sum{${labels}}`) ?? 0) >= 0.3);
});

t.test('durations are told by method alone unless an option says otherwise, and add up', async (t) => {
  for (const path of ['/items/articles/1', '/items/authors', '/nothing']) await get(service, path);
  const samples = await scrape();
  const labels = [...samples.keys()].filter((key) => key.startsWith('lateral_request_duration_seconds_count'));
  t.ok(labels.length >= 2 && labels.every((key) => /^\w+\{method="[A-Z]*"\}$/.test(key)), labels.join());
  const counted = [...samples].filter(([key]) => key.startsWith('lateral_requests_total{method="GET"'));
  t.equal(
    samples.get('lateral_request_duration_seconds_count{method="GET"}'),
    counted.reduce((sum, [, value]) => sum + value, 0),
  );
});

t.test('a scrape stays small whatever is asked, and promtool finds nothing wrong with it', async (t) => {
  const asked = await startTestService({ databaseUrl, WORKERS: '1' });
  const { json } = await get(asked, '/server/specs/oas');
  const { paths } = json as { paths: Record<string, Record<string, unknown>> };
  const all = Object.entries(paths).flatMap(([path, methods]) => Object.keys(methods).map((method) => [method, path]));
  t.ok(all.length > 100);
  for (const [method = '', path = ''] of all) {
    const filled = path.replace(/\{[^}]*\}/g, 'articles').replace(/\/traffic$/, '/traffic?for=1s');
    // Nobody, a stranger, and who sends what cannot be read: each is answered otherwise.
    const wrong = { headers: { 'content-type': 'application/json' }, body: '{' };
    const bodyless = method === 'get' ? {} : wrong;
    for (const token of [null, 'a-token-of-nobody'])
      await request(asked, method.toUpperCase(), filled, { token, ...bodyless });
    if (method !== 'delete') await request(asked, method.toUpperCase(), filled, bodyless);
  }
  const { text } = await get(asked, '/server/metrics');
  t.ok(text.length < 50_000, `${text.length} bytes`);
  t.match(text, /^lateral_requests_total\{method="other",route="other",status="\d+"\}/m);
  const promtool = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  if (promtool.error) return void t.pass('promtool is not installed here');
  t.equal(promtool.stderr, '');
  t.equal(promtool.status, 0);
});

t.test('statements are counted by kind', async (t) => {
  const body = JSON.stringify({ title: 'Measured' });
  const write = (): Promise<Answer> =>
    request(service, 'PATCH', '/items/articles/1?fields=id', { headers: { 'content-type': 'application/json' }, body });
  await write();
  const before = await scrape();
  await get(service, '/items/articles/1?fields=id,title');
  await write();
  await get(service, '/items/articles?limit=-1&fields=id');
  const after = await scrape();
  const grown = (kind: string): number => statements(after, kind) - statements(before, kind);
  t.equal(grown('read'), 1);
  t.equal(grown('batch'), 0);
  t.equal(grown('write'), 1, 'the change and its answer are one statement');
  t.equal(grown('stream'), 1);
  t.equal(grown('catalog'), 0);
});

t.test('batches of reads are counted by their size', async (t) => {
  const name = 'lateral_read_batch_size';
  const bucket = (samples: Samples, bound: string): number => samples.get(`${name}_bucket{le="${bound}"}`) ?? 0;
  let before = await scrape();
  let after = before;
  // What a read costs is learned first, on a busy machine from more of them.
  for (
    let turn = 0;
    turn < 20 && bucket(after, '+Inf') - bucket(after, '1') === bucket(before, '+Inf') - bucket(before, '1');
    turn++
  ) {
    before = await scrape();
    await Promise.all(Array.from({ length: 100 }, (_, n) => get(service, `/items/articles/${(n % 10) + 1}?fields=id`)));
    after = await scrape();
  }
  const carried = (samples: Samples): number => samples.get(`${name}_sum`) ?? 0;
  const sent = (samples: Samples): number => samples.get(`${name}_count`) ?? 0;
  t.equal(carried(after) - carried(before), 100, 'each read is in one of them');
  t.ok(sent(after) - sent(before) < 100, 'by fewer statements than reads');
  t.equal(bucket(after, '+Inf'), sent(after));
  t.ok(statements(after, 'batch') > statements(before, 'batch'));
});

t.test('work that waits for a connection is seen while it waits', async (t) => {
  const { waiting } = await sql.begin(async (transaction) => {
    await transaction`lock table tags in access exclusive mode`;
    const waiting = Array.from({ length: 5 }, (_, n) => get(service, `/items/tags/${n + 1}?fields=id`));
    let samples: Samples = new Map();
    await waitFor(async () => {
      samples = readSamples((await get(service, '/server/metrics')).text);
      return samples.get('lateral_pool_waiting{pool="read"}') === 4;
    }, 10_000);
    t.equal(samples.get('lateral_pool_connections_busy{pool="read"}'), 1);
    t.equal(samples.get('lateral_pool_connections_max{pool="read"}'), 1);
    t.equal(samples.get('lateral_pool_connections_busy{pool="write"}'), 0);
    return { waiting };
  });
  for (const { status } of await Promise.all(waiting)) t.equal(status, 200);
  const after = await scrape();
  t.equal(after.get('lateral_pool_connections_busy{pool="read"}'), 0);
  t.equal(after.get('lateral_pool_waiting{pool="read"}'), 0);
});

t.test('compiled shapes, reads of the schema and clients that left', async (t) => {
  const before = await scrape();
  const of = (samples: Samples, name: string): number => samples.get(name) ?? 0;
  await get(service, '/items/articles/1?fields=slug,status,views');
  await get(service, '/items/articles/2?fields=slug,status,views');
  const compiled = await scrape();
  const total = 'lateral_shapes_compiled_total';
  t.equal(of(compiled, total) - of(before, total), 1);
  const cached = 'lateral_shapes_cached{kind="read"}';
  t.equal(of(compiled, cached) - of(before, cached), 1);
  await sql`alter table tags add column colour text`;
  await waitFor(async () => (await get(service, '/items/tags?fields=colour')).status === 200, 10_000);
  const changed = await scrape();
  t.ok(of(changed, 'lateral_mirror_reads_total') > of(before, 'lateral_mirror_reads_total'));
  t.ok(of(changed, cached) < of(compiled, cached), 'shapes of the former model are gone');
  t.ok(
    of(changed, 'lateral_events_total{kind="model-loaded"}') > of(before, 'lateral_events_total{kind="model-loaded"}'),
  );
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(`GET /items/sleepers/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n\r\n`);
  await waitFor(async () => of(await scrape(), 'lateral_pool_connections_busy{pool="read"}') === 1, 10_000);
  socket.destroy();
  await waitFor(async () => requests(await scrape(), 'GET', '/items/:collection/:key', 499) === 1, 10_000);
});
