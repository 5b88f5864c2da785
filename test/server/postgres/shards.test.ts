/**
 * Tables whose partitions are on other servers: the three servers of docs/sharding.md, made by its own statements. Reads by key reach
 * one shard, nested reads are those of tables that are on one server, and a shard that is down takes only its own rows with it.
 */
import { readFile, writeFile } from 'node:fs/promises';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { blocksOf } from '../../program/docs/pages.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  request,
  type Sql,
  startDatabase,
  startTestService,
  type TestServer,
  withSql,
} from '../../support/service.js';
import { DATABASE_SCHEMAS } from '../../support/several-schemas.js';
import { createModel, createTable } from '../items/property/database.js';
import { drawn } from '../items/property/draw.js';
import { encodeRequest } from '../items/property/encode.js';
import { drawModel, type Model, type Table } from '../items/property/model.js';
import { drawRequest, type ReadRequest } from '../items/property/requests.js';

type Service = Awaited<ReturnType<typeof startTestService>>;

const MODELS = Number(process.env['SHARD_MODELS'] ?? 1);
const REQUESTS = Number(process.env['SHARD_REQUESTS'] ?? 25);

const [coordinator, ...shards] = await Promise.all([1, 2, 3].map(() => startDatabase({ own: true })));
if (!coordinator) throw new Error('there is no coordinator');
const [shard1, shard2] = shards as [TestServer, TestServer];

t.test('nested reads of random models are those of tables on one server', async (t) => {
  t.setTimeout(60_000 + MODELS * REQUESTS * 500);
  const template = await createDatabase(coordinator, 'template_of_models');
  await (await startTestService({ databaseUrl: template, WORKERS: '1' })).stop();
  for (let seed = 1; seed <= MODELS; seed++) await testModel(t, seed);
});

t.test('the three servers of docs/sharding.md', async (t) => {
  const page = { path: 'docs/sharding.md', text: await readFile(packagePath('docs', 'sharding.md'), 'utf8') };
  const blocks = blocksOf(page).filter(({ language }) => language === 'pgsql');
  t.equal(blocks.length, 3);
  for (const shard of shards) await createDatabase(shard, 'shop');
  const url = await createDatabase(coordinator, 'shop');
  const service = await startTestService({ databaseUrl: url, WORKERS: '1' });
  for (const { text } of blocks) {
    const servers = text.startsWith('-- on shard1 and shard2\n') ? shards : [coordinator];
    for (const server of servers)
      await withSql(databaseUrl(server, 'shop'), (sql) => sql.unsafe(located(text)).simple());
  }
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  // Shops 1 and 2 are on the first shard, 3 and 4 on the second.
  await sql.unsafe(`
    insert into shops select shop, 'Shop ' || shop from generate_series(1, 4) shop;
    insert into orders (shop, id, placed, total)
      select 1 + n % 4, n, date '2026-01-01' + n, n from generate_series(1, 400) n;
    insert into lines select shop, id, line, 'product ' || line, line from orders, generate_series(1, 3) line;
    select setval('order_ids', 1000);
    analyze;`);
  await request(service, 'POST', '/utils/cache/clear');
  t.strictSame(await countOn(shard1), 200);
  t.strictSame(await countOn(shard2), 200);
  await t.test('plans', (t) => testPlans(t, service, sql));
  await t.test('writes', (t) => testWrites(t, service));
  await t.test('a shard that is lost while it commits', (t) => testLostCommit(t, service));
  await t.test('a shard that is down', (t) => testOutage(t, service));
});

/** The addresses of the example are those of the servers of the test. */
function located(text: string): string {
  return text
    .replaceAll(/host '(shard[12])', port '5432'/g, (_, name) => {
      const { hostname, port } = new URL((name === 'shard1' ? shard1 : shard2).url);
      return `host '${hostname}', port '${port}'`;
    })
    .replaceAll(/server (shard[12]) options \(user 'lateral', password 'secret'\)/g, (_, name) => {
      const { username, password } = new URL((name === 'shard1' ? shard1 : shard2).url);
      return `server ${name} options (user '${username}', password '${password}')`;
    });
}

async function countOn(shard: TestServer): Promise<number> {
  return withSql(databaseUrl(shard, 'shop'), async (sql) => (await sql`select from orders`).length);
}

const PLANS: Readonly<Record<string, string>> = {
  'by-key': '/items/orders/2~1?fields=placed,total',
  'by-key-nested': '/items/orders/2~1?fields=total,shop.name,lines.product',
  list: '/items/orders?fields=id,total&filter[total][_gt]=390&sort=-total&limit=3',
  'list-of-one-shard': '/items/orders?fields=id,total&filter[shop]=2&filter[total][_gt]=390&sort=-total&limit=3',
  'nested-list': '/items/shops?fields=name,orders.total&deep[orders][_limit]=2&deep[orders][_sort]=-total',
  aggregate: '/items/orders?aggregate[sum]=total&filter[shop]=2',
};

async function testPlans(t: Test, service: Service, sql: Sql): Promise<void> {
  for (const [name, path] of Object.entries(PLANS)) {
    const answer = await get(service, path, { headers: { prefer: 'explain' } });
    const { sql: text, parameters } = (answer.json as { data: { sql: string; parameters: string[] } }).data;
    const rows = await sql.unsafe(`explain (verbose, costs off) ${text}`, parameters);
    const lines = rows
      .map((row) => String(row['QUERY PLAN']))
      .filter((line) => !/^ *(Output|Query Identifier):/.test(line));
    const file = packagePath('test', 'golden', 'plans', `shards-${name}.txt`);
    const plan = `GET ${path}\n\n${lines.join('\n')}\n`;
    if (process.env['UPDATE_GOLDEN']) await writeFile(file, plan);
    t.equal(plan, await readFile(file, 'utf8'), name);
  }
}

async function testWrites(t: Test, service: Service): Promise<void> {
  const lines = [1, 2].map((line) => ({ line, product: `new ${line}`, quantity: line }));
  const made = await send(service, 'POST', '/items/orders?fields=id,lines.product', { shop: 2, total: '7.50', lines });
  t.match(made, { status: 200, json: { data: { id: '1001', lines: [{ product: 'new 1' }, { product: 'new 2' }] } } });
  t.equal(await countOn(shard1), 201, 'on its shard');
  const several = await send(service, 'POST', '/items/orders?fields=shop', [{ shop: 1 }, { shop: 2 }, { shop: 3 }]);
  t.strictSame(several.json, { data: [{ shop: 1 }, { shop: 2 }, { shop: 3 }] });
  t.equal((await countOn(shard1)) - 201, 2);
  t.equal((await countOn(shard2)) - 200, 1);
  const changed = await send(service, 'PATCH', '/items/orders/2~1001?fields=total,lines.quantity,lines.product', {
    total: 9,
    lines: {
      update: [{ line: 1, quantity: 50 }],
      create: [{ line: 3, product: 'third', quantity: 1 }],
      delete: ['2~1001~2'],
    },
  });
  t.strictSame(changed.json, {
    data: {
      total: '9.00',
      lines: [
        { quantity: 50, product: 'new 1' },
        { quantity: 1, product: 'third' },
      ],
    },
  });
  const both = await send(service, 'PATCH', '/items/orders?fields=total', {
    keys: ['2~1001', '3~2'],
    data: { total: 5 },
  });
  t.strictSame(both.json, { data: [{ total: '5.00' }, { total: '5.00' }] });
  t.match(await send(service, 'POST', '/items/orders', { shop: 2, id: 1, total: 1 }), {
    status: 400,
    json: { errors: [{ extensions: { code: 'FAILED_VALIDATION', type: 'unique', field: 'shop, id' } }] },
  });
  t.match(
    await send(service, 'PATCH', '/items/orders/2~1001', { shop: 3 }),
    { status: 400, text: /\\"shop\\" is a part of the key of \\"orders\\", which cannot be changed/ },
    'an item does not move to another shard',
  );
  t.match(await send(service, 'POST', '/items/lines', { order: '2~999', line: 1, product: 'p', quantity: 1 }), {
    status: 400,
    json: { errors: [{ extensions: { code: 'FAILED_VALIDATION', type: 'foreign_key' } }] },
  });
  t.equal((await request(service, 'DELETE', '/items/orders/2~1001')).status, 204);
  t.equal((await get(service, '/items/orders/2~1001')).status, 403);
}

async function testLostCommit(t: Test, service: Service): Promise<void> {
  await withSql(databaseUrl(shard2, 'shop'), (sql) =>
    sql.unsafe(`
      create function leave() returns trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
      create constraint trigger leave after insert on orders deferrable initially deferred for each row when (new.total = 13) execute function leave()`),
  );
  t.match(await send(service, 'POST', '/items/orders', { shop: 3, total: 13 }), {
    status: 503,
    json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE', outcome: 'unknown' } }] },
  });
  t.match(await send(service, 'POST', '/items/orders', { shop: 3, total: 14 }), { status: 200 });
}

async function testOutage(t: Test, service: Service): Promise<void> {
  await shard2.stop();
  const unreachable = {
    status: 503,
    headers: { 'retry-after': /\d/ },
    json: {
      errors: [
        {
          message: /A foreign server that it uses cannot be reached/,
          extensions: { code: 'SERVICE_UNAVAILABLE', detail: /shard2/ },
        },
      ],
    },
  };
  // The connection that was open breaks, then none can be opened.
  for (const round of ['first', 'second']) {
    t.match(await get(service, '/items/orders?fields=id'), unreachable, round);
    t.match(await get(service, '/items/orders/3~2?fields=total'), unreachable, round);
    t.match(await send(service, 'POST', '/items/orders', { shop: 3, total: 1 }), unreachable, round);
  }
  t.strictSame(
    (await get(service, '/items/orders/2~1?fields=total')).json,
    { data: { total: '1.00' } },
    'others answer',
  );
  t.match(await get(service, '/items/orders?filter[shop]=2&limit=1'), { status: 200 }, 'with the keys of its lines');
  t.strictSame((await get(service, '/items/orders/2~1?fields=shop.name,lines.line')).json, {
    data: { shop: { name: 'Shop 2' }, lines: [{ line: 1 }, { line: 2 }, { line: 3 }] },
  });
  t.match(await get(service, '/items/shops/1?fields=name'), { status: 200 });
  t.match(await get(service, '/server/ready'), { status: 200 });
}

async function send(service: Service, method: string, path: string, content: unknown): Promise<Answer> {
  const body = JSON.stringify(content);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
  return request(service, method, path, { headers, body });
}

/** The same rows and requests twice: with all tables on one server, and with every table on two. */
async function testModel(t: Test, seed: number): Promise<void> {
  const [model] = fc.sample(drawn(drawModel), { seed, numRuns: 1 }) as [Model];
  const whole = await serveModel(`whole_${seed}`, model, (sql) => createModel(sql, model));
  const sharded = await serveModel(`sharded_${seed}`, model, (sql, name) => createSharded(sql, name, model));
  const requests = fc.asyncProperty(
    drawn((draw) => drawRequest(model, draw)),
    async (drawnRequest) => {
      const [expected, found] = await Promise.all([ask(whole, drawnRequest), ask(sharded, drawnRequest)]);
      const isSame = found.status === expected.status && (found.status !== 200 || isAlike(found.json, expected.json));
      const { method, path, body } = encodeRequest(drawnRequest);
      if (!isSame)
        throw new Error(
          `${method} ${path} ${body ?? ''}\nexpected ${expected.text.slice(0, 2_000)}\nfound ${found.text.slice(0, 2_000)}`,
        );
    },
  );
  const result = await fc.check(requests, { seed, numRuns: REQUESTS, endOnFailure: true });
  t.notOk(
    result.failed,
    `model ${seed}, ${result.numRuns} requests${result.failed ? `: ${result.errorInstance}` : ''}`,
  );
  await whole.stop();
  await sharded.stop();
}

async function serveModel(
  name: string,
  { options }: Model,
  create: (sql: Sql, name: string) => Promise<void>,
): Promise<Service> {
  if (!coordinator) throw new Error('there is no coordinator');
  await withSql(coordinator.url, (sql) => sql`create database ${sql(name)} template template_of_models`);
  const url = databaseUrl(coordinator, name);
  await withSql(url, (sql) => create(sql, name));
  return startTestService({
    databaseUrl: url,
    DATABASE_SCHEMAS,
    QUERY_LIMIT_DEFAULT: String(options.defaultLimit),
    STREAM_ABOVE: String(options.streamAbove),
    QUERYSTRING_MAX_PARSE_DEPTH: '100',
    MAX_RELATIONAL_DEPTH: '20',
    MAX_QUERY_NODES: '100000',
    DATABASE_POOL_SIZE: '2',
    WORKERS: '1',
  });
}

/** Every table in two halves, each of them a plain table of a shard. What PostgreSQL cannot keep of foreign tables is declared. */
async function createSharded(sql: Sql, name: string, model: Model): Promise<void> {
  await sql`create extension postgres_fdw`;
  const halves: Sql[] = [];
  for (const [position, shard] of shards.entries()) {
    const half = connectSql(await createDatabase(shard, name));
    await half`create extension ltree`;
    const { hostname, port, username, password } = new URL(shard.url);
    await sql.unsafe(`
      create server half${position} foreign data wrapper postgres_fdw options (host '${hostname}', port '${port}', dbname '${name}');
      create user mapping for current_user server half${position} options (user '${username}', password '${password}')`);
    halves.push(half);
  }
  const declared = { ...model, tables: model.tables.map(withoutConstraints) };
  await createModel(sql, declared, async (table) => {
    for (const half of halves) await createTable(half, table);
    await createTable(sql, { ...table, name: `${table.name} columns` });
    const by = (table.key.at(-1) ?? table.columns[0])?.name ?? '';
    await sql`create table ${sql(table.name)} (like ${sql(`${table.name} columns`)}) partition by hash (${sql(by)})`;
    await sql`drop table ${sql(`${table.name} columns`)}`;
    for (const position of halves.keys()) {
      const half = sql(`${table.name} half ${position}`);
      const options = sql.unsafe(`(modulus 2, remainder ${position}) server half${position}`);
      await sql`create foreign table ${half} partition of ${sql(table.name)} for values with ${options}
        options (table_name ${sql.unsafe(`'${table.name.replaceAll("'", "''")}'`)})`;
    }
  });
  for (const half of halves) await half.end();
}

function withoutConstraints(table: Table): Table {
  return {
    ...table,
    keyBy: 'declared',
    partitioned: false,
    relations: table.relations.map((relation) =>
      relation.kind === 'one' ? { ...relation, constrained: false, declared: true } : relation,
    ),
  };
}

function ask(service: Service, drawnRequest: ReadRequest): Promise<Answer> {
  const { method, path, body } = encodeRequest(drawnRequest);
  return request(service, method, path, body === null ? {} : { body, headers: { 'content-type': 'application/json' } });
}

/** Sums of floating-point numbers depend on the order of the rows. */
function isAlike(found: unknown, expected: unknown): boolean {
  if (typeof found === 'number' && typeof expected === 'number')
    return Math.abs(found - expected) <= Math.abs(expected) * 1e-9;
  if (typeof found !== 'object' || typeof expected !== 'object' || found === null || expected === null)
    return found === expected;
  const [left, right] = [Object.entries(found), Object.entries(expected)];
  return (
    left.length === right.length &&
    left.every(([name, value], position) => name === right[position]?.[0] && isAlike(value, right[position]?.[1]))
  );
}
