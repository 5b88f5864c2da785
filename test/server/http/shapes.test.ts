/** GET /server/shapes: what statements took in the last minutes, told to administrators, within bounds. */
import { Agent } from 'node:http';
import t from 'tap';
import { countRows, p99, type ShapeReport, ShapeStats } from '../../../src/server/batching/shape-stats.js';
import { makeCaller } from '../../support/callers.js';
import { connectSql, createLibrary, get, request, startDatabase, startTestService } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'shapes');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`create table readings (id serial primary key, sensor integer, value integer)`;
await sql`insert into readings (sensor, value) select n % 7, n from generate_series(1, 200000) n`;
await sql`analyze readings`;
const reader = await makeCaller(sql, 'reader', [{ permissions: [{ collection: 'tags', action: 'read' }] }]);
const service = await startTestService({ databaseUrl, WORKERS: '1', READ_BATCHING: 'true' });

interface Shape {
  readonly id: string;
  readonly text: string;
  readonly plan: string;
  readonly calls: number;
  readonly statements: number;
  readonly failed: number;
  readonly total: number;
  readonly mean: number;
  readonly p99: number;
  readonly max: number;
  readonly rows: number | null;
}

async function shapes(of: { readonly url: string } = service): Promise<Shape[]> {
  const answer = await get(of, '/server/shapes?limit=1000');
  t.match(answer, { status: 200, headers: { 'cache-control': 'no-store' } });
  return (answer.json as { data: Shape[] }).data;
}

async function statementOf(path: string): Promise<string> {
  const { json } = await get(service, path, { headers: { prefer: 'explain' } });
  return (json as { data: { sql: string } }).data.sql;
}

t.test('it is for administrators', async (t) => {
  for (const path of ['/server/shapes', '/server/shapes/abc']) {
    t.match(await get(service, path, { token: null }), { status: 403 });
    t.match(await get(service, path, { token: reader.token }), { status: 403 });
    t.match(await get(service, path, { headers: { 'lateral-view-as': 'public' } }), { status: 403 });
  }
  for (const limit of ['0', '-1', 'x', '1001', '1.5'])
    t.match(await get(service, `/server/shapes?limit=${limit}`), { status: 400 }, limit);
  t.match(await get(service, '/server/shapes/abc'), { status: 403, text: /No statement of the last minutes/ });
});

t.test('reads by their shape: calls, times and rows', async (t) => {
  const path = '/items/tags?fields=name&sort=id&limit=';
  for (let count = 0; count < 12; count++) await get(service, `${path}2`);
  const text = await statementOf(`${path}2`);
  const found = (await shapes()).filter((shape) => shape.text === text);
  t.match(found, [{ plan: 'generic', calls: 12, statements: 12, failed: 0, rows: 2 }]);
  const [shape] = found;
  if (!shape) return;
  t.ok(shape.mean > 0 && shape.mean <= shape.p99 * 1.001 && shape.p99 <= shape.max && shape.max <= shape.total);
  t.ok(Math.abs(shape.mean * 12 - shape.total) < 0.01, 'the mean is of statements');
  const explained = await get(service, `/server/shapes/${shape.id}`);
  t.match(explained, {
    status: 200,
    json: { data: { text, calls: 12, explain: [{ Plan: { 'Total Cost': Number } }] } },
  });
});

t.test('the slowest come first, and values are not told', async (t) => {
  const secret = 'value-that-nobody-may-read';
  for (let count = 0; count < 8; count++) await get(service, '/items/readings?aggregate[countDistinct]=value');
  await get(service, `/items/tags?filter[name][_eq]=${secret}`);
  const found = await shapes();
  t.strictSame(
    found.map(({ total }) => total),
    found.map(({ total }) => total).sort((one, other) => other - one),
  );
  t.match(found[0]?.text, /"readings"/, 'what reads the large table');
  t.notMatch(JSON.stringify(found), secret);
  t.equal(((await get(service, '/server/shapes?limit=1')).json as { data: Shape[] }).data.length, 1);
});

t.test('reads that travel together are as many calls, and each answer says so', async (t) => {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  t.teardown(() => agent.destroy());
  let together = 0;
  for (let round = 0; round < 40; round++) {
    const keys = Array.from({ length: 64 }, (_, position) => position + 1);
    const answers = await Promise.all(
      keys.map((key) =>
        get(service, `/items/readings/${key}?fields=id,value`, { agent, headers: { prefer: 'timing' } }),
      ),
    );
    for (const { headers, json } of answers) {
      const timing = String(headers['server-timing']);
      const size = Number(/, batch;desc="(\d+)"$/.exec(timing)?.[1] ?? 1);
      if (size > 1) together++;
      t.ok(size <= 64 && /execute;dur=/.test(timing) && 'data' in (json as object));
    }
  }
  t.ok(together > 0, 'some travelled in a batch');
  const text = await statementOf('/items/readings/1?fields=id,value');
  const found = (await shapes()).find((shape) => shape.text === text);
  // Those of a batch that takes too long are sent once more.
  t.ok(found && found.calls >= 64 * 40 && found.statements < found.calls, 'fewer statements than calls');
  t.equal(found?.rows, 1);
  const alone = await get(service, '/items/readings/1?fields=id,value');
  t.notMatch(alone.headers['server-timing'], 'batch');
});

t.test('streams, writes and operations of GraphQL', async (t) => {
  await get(service, '/items/readings?fields=sensor&limit=-1');
  const streamed = (await shapes()).find(({ rows }) => rows === 200_000);
  t.match(streamed, { calls: 1, statements: 1 });
  const body = JSON.stringify([{ name: 'one' }, { name: 'two' }, { name: 'three' }]);
  const headers = { 'content-type': 'application/json' };
  t.equal((await request(service, 'POST', '/items/tags', { headers, body })).status, 200);
  const written = (await shapes()).find(({ text }) => /insert into "tags"|insert into "public"."tags"/.test(text));
  t.match(written, { calls: 1, rows: 3, plan: 'generic', failed: 0 });
  const [before] = await sql`select count(*) from tags`;
  t.match(await get(service, `/server/shapes/${written?.id}`), {
    status: 200,
    json: { data: { explain: [{ Plan: {} }] } },
  });
  t.strictSame((await sql`select count(*) from tags`)[0], before, 'the plan of a write writes nothing');
  const query = '{ tags(limit: 2) { id } readings(limit: 3) { id } readings_by_id(id: 1) { id } }';
  await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) });
  const operation = (await shapes()).find(
    ({ text }) => text.includes('"readings_by_id') || text.includes("'readings_by_id"),
  );
  t.match(operation, { calls: 1, rows: 6 });
});

t.test('the counts of all threads are one', async (t) => {
  const threads = await startTestService({ databaseUrl, WORKERS: '2' });
  const path = '/items/tags/1?fields=id,name';
  for (let count = 0; count < 40; count++) await get(threads, path);
  const text = await statementOf(path);
  const found = (await shapes(threads)).filter((shape) => shape.text === text);
  t.match(found, [{ calls: 40, rows: 1 }]);
  t.match(await get(threads, `/server/shapes/${found[0]?.id}`), { status: 200, json: { data: { calls: 40 } } });
});

t.test('of very many shapes those stay that took the most time', async (t) => {
  const stats = new ShapeStats();
  for (let number = 0; number < 10_000; number++)
    stats.of(`select ${number}`, 'custom', 0).addSingle(number === 77 ? 5_000 : 0.1, 1, false);
  const { reports } = stats;
  t.ok(reports.length <= 300 && reports.length >= 100, String(reports.length));
  t.ok(reports.some(({ text }) => text === 'select 77'));
  const long = 'x'.repeat(100_000);
  for (let number = 0; number < 200; number++) stats.of(`${long}${number}`, 'generic', 0).addSingle(0.1, 1, false);
  const length = stats.reports.reduce((sum, { text }) => sum + text.length, 0);
  t.ok(length <= 4_000_000, `${length} characters`);
});

t.test('the 99th of a hundred, and the rows of an answer', async (t) => {
  const stats = new ShapeStats();
  for (let number = 1; number <= 1_000; number++) stats.of('select', 'generic', 0).addSingle(number, 1, false);
  const [report] = stats.reports;
  const slowest = p99(report as ShapeReport);
  t.ok(slowest >= 990 && slowest <= 1_000, String(slowest));
  stats.of('failing', 'generic', 0).addSingle(0, 0, true);
  t.match(stats.reports[1], { failed: 1, statements: 1, samples: 0 });
  const rows: [string, boolean, number][] = [
    ['{"data":[]}', false, 0],
    ['{"data":[{"a":[1,2,{"b":"],\\"["}]},{"a":null}]}', false, 2],
    ['{"meta":{"total_count":3},"data":[{"a":1}]}', false, 1],
    ['{"data":{"id":1,"list":[1,2,3]}}', false, 1],
    ['{"data":{"a":[{"x":[1,2]},{"x":[]}],"b":{"id":1},"c":null,"d":[]}}', true, 3],
  ];
  for (const [text, isOperation, expected] of rows) t.equal(countRows(Buffer.from(text), isOperation), expected, text);
  const many = JSON.stringify({ data: Array.from({ length: 50_000 }, (_, id) => ({ id: 1_000_000 + id })) });
  t.ok(Math.abs(countRows(Buffer.from(many), false) - 50_000) < 100, 'of a long answer about as many');
  t.equal(countRows(null, false), 0);
});
