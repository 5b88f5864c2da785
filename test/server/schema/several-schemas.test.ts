/**
 * Tables of several schemas as one model: what they are called, relations between them in every kind of request, names that are
 * taken, and changes of the schema, made by us and by others.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase({ settings: { 'pg_stat_statements.track': 'all' } });

type Service = Awaited<ReturnType<typeof startTestService>>;

/** A shop: what is sold is in public, who buys in sales, who works for it in hr. */
const SHOP = `
  create schema sales;
  create schema hr;
  create type sales.state as enum ('open', 'paid');
  create table hr.people (id serial primary key, name text not null, boss integer references hr.people);
  create table products (id serial primary key, title text not null, buyer integer references hr.people);
  create table sales.orders (
    id serial primary key, state sales.state not null default 'open', seller integer references hr.people, note text
  );
  create table sales.lines (
    id serial primary key, "order" integer references sales.orders on delete cascade, product integer references products, pieces integer
  );
  create table articles (id serial primary key, title text);
  create table sales.articles (id serial primary key, title text);
  insert into hr.people (name, boss) values ('Ada', null), ('Bob', 1), ('Cy', 1);
  insert into products (title, buyer) values ('Lamp', 3), ('Desk', null);
  insert into sales.orders (state, seller) values ('open', 2), ('paid', 2), ('paid', 3);
  insert into sales.lines ("order", product, pieces) values (1, 1, 2), (1, 2, 1), (2, 1, 5), (3, 2, 3)`;

const RELATIONS = `
  insert into service_relations (many_collection, many_field, one_collection, one_field) values
    ('sales_lines', 'order', 'sales_orders', 'lines'), ('sales_orders', 'seller', 'hr_people', 'orders'),
    ('sales_lines', 'product', 'products', 'lines')`;

const SCHEMAS = 'public,sales,hr';

async function makeShop(name: string): Promise<string> {
  const url = await createDatabase(server, name);
  await withSql(url, (sql) => sql.unsafe(SHOP));
  return url;
}

async function send(service: Service, method: string, path: string, body: unknown, token?: string): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { headers, body: JSON.stringify(body), ...(token ? { token } : {}) });
}

t.test('collections of several schemas', async (t) => {
  const url = await makeShop('shop');
  const service = await startTestService({
    databaseUrl: url,
    DATABASE_SCHEMAS: SCHEMAS,
    WORKERS: '1',
    ...KNOWS_CALLERS,
  });
  await withSql(url, (sql) => sql.unsafe(RELATIONS));
  await waitFor(async () => (await get(service, '/items/hr_people?fields=orders')).status === 200, 5_000);
  const counter = await StatementCounter.of(server, 'shop');

  t.test('have the name of their table in the first schema, and schema_table in others', async (t) => {
    const { json } = await get(service, '/collections');
    const { data } = json as { data: { collection: string; schema: object | null }[] };
    t.strictSame(
      data.flatMap(({ collection, schema }) => (collection.startsWith('service_') ? [] : [[collection, schema]])),
      [
        ['articles', { schema: 'public', name: 'articles', kind: 'table', comment: null, primary_key: ['id'] }],
        ['hr_people', { schema: 'hr', name: 'people', kind: 'table', comment: null, primary_key: ['id'] }],
        ['products', { schema: 'public', name: 'products', kind: 'table', comment: null, primary_key: ['id'] }],
        ['sales_articles', { schema: 'sales', name: 'articles', kind: 'table', comment: null, primary_key: ['id'] }],
        ['sales_lines', { schema: 'sales', name: 'lines', kind: 'table', comment: null, primary_key: ['id'] }],
        ['sales_orders', { schema: 'sales', name: 'orders', kind: 'table', comment: null, primary_key: ['id'] }],
      ],
    );
    t.match(await get(service, '/fields/sales_orders/seller'), {
      json: { data: { schema: { table: 'sales_orders', foreign_key_table: 'people' } } },
    });
  });

  t.test('are read across schemas, at any depth and in one statement', async (t) => {
    const path =
      '/items/hr_people?sort=id&fields=name,boss.name,orders.state,orders.lines.pieces,orders.lines.product.title,orders.lines.product.buyer.name';
    await get(service, path);
    const { answer, counts } = await counter.count(() => get(service, path));
    t.strictSame(
      counts.map(({ calls }) => calls),
      [1],
      counts.map(({ query }) => query).join(),
    );
    const lamp = { title: 'Lamp', buyer: { name: 'Cy' } };
    const desk = { title: 'Desk', buyer: null };
    t.strictSame(answer.json, {
      data: [
        { name: 'Ada', boss: null, orders: [] },
        {
          name: 'Bob',
          boss: { name: 'Ada' },
          orders: [
            {
              state: 'open',
              lines: [
                { pieces: 2, product: lamp },
                { pieces: 1, product: desk },
              ],
            },
            { state: 'paid', lines: [{ pieces: 5, product: lamp }] },
          ],
        },
        { name: 'Cy', boss: { name: 'Ada' }, orders: [{ state: 'paid', lines: [{ pieces: 3, product: desk }] }] },
      ],
    });
    const filter = JSON.stringify({ lines: { order: { seller: { name: { _eq: 'Cy' } } } } });
    t.match(await get(service, `/items/products?fields=title&filter=${encodeURIComponent(filter)}`), {
      json: { data: [{ title: 'Desk' }] },
    });
    t.match(await get(service, '/items/sales_lines?aggregate[sum]=pieces&groupBy=order.seller'), { status: 200 });
  });

  t.test('are written across schemas, all of it or nothing, in one statement and its read-back', async (t) => {
    const body = {
      state: 'open',
      seller: { name: 'Dee', boss: { name: 'Eve' } },
      lines: [
        { pieces: 7, product: { title: 'Chair', buyer: 1 } },
        { pieces: 8, product: 1 },
      ],
    };
    const path = '/items/sales_orders?fields=state,seller.name,seller.boss.name,lines.pieces,lines.product.title';
    await send(service, 'POST', path, body);
    const { answer, counts } = await counter.count(() => send(service, 'POST', path, body));
    t.strictSame(answer.json, {
      data: {
        state: 'open',
        seller: { name: 'Dee', boss: { name: 'Eve' } },
        lines: [
          { pieces: 7, product: { title: 'Chair' } },
          { pieces: 8, product: { title: 'Lamp' } },
        ],
      },
    });
    const writes = counts.filter(({ query }) => /insert into/i.test(query));
    t.strictSame(
      writes.map(({ calls }) => calls),
      [1],
    );
    const before = await get(service, '/items/hr_people?aggregate[count]=*');
    const failing = { ...body, lines: [{ pieces: 1, product: 4040 }] };
    t.match(await send(service, 'POST', path, failing), {
      status: 400,
      json: { errors: [{ extensions: { collection: 'sales_lines', field: 'product' } }] },
    });
    t.equal((await get(service, '/items/hr_people?aggregate[count]=*')).text, before.text, 'nothing was written');
    t.match(await send(service, 'PATCH', '/items/sales_orders/3?fields=lines.pieces', { lines: [] }), {
      json: { data: { lines: [] } },
    });
  });

  t.test('have permissions of their own', async (t) => {
    const { token } = await withSql(url, (sql) =>
      makeCaller(sql, 'clerk', [
        {
          permissions: [
            { collection: 'sales_orders', action: 'read', permissions: { seller: { name: { _eq: 'Bob' } } } },
            { collection: 'hr_people', action: 'read', fields: ['name'] },
            { collection: 'sales_lines', action: 'create', fields: ['pieces', 'order'] },
            { collection: 'sales_lines', action: 'read', fields: ['pieces'] },
          ],
        },
      ]),
    );
    const rows = '/items/sales_orders?sort=id&fields=id,seller.name,lines.pieces';
    await waitFor(async () => (await get(service, rows, { token })).text.includes('pieces'), 5_000);
    t.strictSame((await get(service, rows, { token })).json, {
      data: [
        { id: 1, seller: { name: 'Bob' }, lines: [{ pieces: 2 }, { pieces: 1 }] },
        { id: 2, seller: { name: 'Bob' }, lines: [{ pieces: 5 }] },
      ],
    });
    t.match(await get(service, '/items/hr_people?fields=boss', { token }), { status: 403 });
    t.match(await get(service, '/items/products', { token }), { status: 403 });
    t.match(await send(service, 'POST', '/items/sales_lines', { pieces: 1, order: 1 }, token), { status: 200 });
    t.match(await send(service, 'POST', '/items/sales_lines', { pieces: 1, product: 1 }, token), { status: 403 });
  });

  t.test('are in GraphQL, in OpenAPI and in the types', async (t) => {
    const query = `{ sales_orders(sort: ["id"], limit: 1) { state seller { name orders_func { count } } lines { product { title } } }
      hr_people_by_id(id: 1) { name } }`;
    const warm = (): Promise<Answer> => send(service, 'POST', '/graphql', { query });
    await warm();
    const { answer, counts } = await counter.count(warm);
    t.match(answer.json, {
      data: { sales_orders: [{ state: 'open', seller: { name: 'Bob' } }], hr_people_by_id: { name: 'Ada' } },
    });
    t.strictSame(
      counts.map(({ calls }) => calls),
      [1],
    );
    const mutation =
      'mutation { create_sales_lines_item(data: { pieces: 1, order: { note: "x", seller: { name: "G" } } }) { order { seller { name } } } }';
    t.match(await send(service, 'POST', '/graphql', { query: mutation }), {
      json: { data: { create_sales_lines_item: { order: { seller: { name: 'G' } } } } },
    });
    const api = (await get(service, '/server/specs/oas')).json as { paths: object; components: { schemas: object } };
    t.ok('/items/sales_orders' in api.paths && 'Items_hr_people' in api.components.schemas);
    const types = await runCommand(['types'], { DATABASE_URL: url, DATABASE_SCHEMAS: SCHEMAS });
    t.match(types.output, /sales_orders/);
    t.match(types.output, /hr_people/);
  });

  t.test('get the relations that foreign keys of any schema imply', async (t) => {
    const found = await runCommand(['relations', 'suggest'], { DATABASE_URL: url, DATABASE_SCHEMAS: SCHEMAS });
    t.match(found.output, /hr_people\.\w+ +one-to-many +products, by its buyer/);
    t.match(
      found.output,
      /create index concurrently sales_lines_order_index|create index concurrently "?lines_order_index/,
    );
    t.match(found.output, /on "sales"\."lines" \("order"\)/);
  });
});

t.test('a name that is taken is refused with the reason, until a row gives another one', async (t) => {
  const url = await makeShop('collisions');
  await withSql(url, (sql) =>
    sql.unsafe(`
    create table sales_orders (id serial primary key, title text);
    insert into sales_orders (title) values ('of the first schema');
    create schema service;
    create table service.users (id serial primary key, login text)`),
  );
  const service = await startTestService({ databaseUrl: url, DATABASE_SCHEMAS: `${SCHEMAS},service` });
  t.match(await get(service, '/items/sales_orders?fields=title'), {
    json: { data: [{ title: 'of the first schema' }] },
  });
  t.match(await get(service, '/items/sales.orders'), {
    status: 403,
    json: { errors: [{ message: /would be called "sales_orders".*schema "public".*service_collections/ }] },
  });
  t.match(await get(service, '/items/service.users'), {
    status: 403,
    json: { errors: [{ message: /service_users/ }] },
  });
  t.match(await get(service, '/users?fields=email'), { json: { data: [{ email: 'admin@example.com' }] } });
  t.match(
    await get(service, '/items/sales_lines?fields=order&sort=id&limit=1'),
    { json: { data: [{ order: 1 }] } },
    'what refers to a table that is not served is a plain value',
  );

  const named = { collection: 'orders', meta: { schema: 'sales', table: 'orders', note: 'renamed' } };
  t.match(await send(service, 'POST', '/collections', named), {
    status: 200,
    json: { data: { collection: 'orders', schema: { schema: 'sales', name: 'orders' }, meta: { note: 'renamed' } } },
  });
  t.match(await get(service, '/items/orders?fields=state,seller.name&sort=id&limit=1'), {
    json: { data: [{ state: 'open', seller: { name: 'Bob' } }] },
  });
  t.match(await get(service, '/items/sales_lines?fields=order.state&sort=id&limit=1'), {
    json: { data: [{ order: { state: 'open' } }] },
  });
  t.match(await get(service, '/items/sales.orders'), { status: 403 });
  t.notMatch((await get(service, '/items/sales.orders')).text, /would be called/);

  await withSql(
    url,
    (sql) => sql`insert into service_collections (collection, "schema", "table") values ('logins', 'service', 'users')`,
  );
  await waitFor(async () => (await get(service, '/items/logins')).status === 200, 5_000);
  await withSql(url, (sql) => sql`insert into service_collections (collection, "table") values ('goods', 'products')`);
  await waitFor(async () => (await get(service, '/items/goods')).status === 200, 5_000);
  t.match(await get(service, '/items/products'), { status: 403 }, 'a table has one name');
});

t.test('the tables of another installation are not served', async (t) => {
  const url = await makeShop('two_installations');
  const other = await startTestService({ databaseUrl: url, DATABASE_SCHEMA: 'sales' });
  t.match(await get(other, '/items/orders?fields=id&limit=1'), { json: { data: [{ id: 1 }] } });
  await other.stop();
  const service = await startTestService({ databaseUrl: url, DATABASE_SCHEMAS: SCHEMAS });
  t.match(await get(service, '/items/sales_orders?fields=id&limit=1'), { json: { data: [{ id: 1 }] } });
  t.match(await get(service, '/items/sales_service_users'), {
    status: 403,
    json: { errors: [{ message: /belongs to another installation/ }] },
  });
});

for (const role of ['superuser', 'plain'] as const) {
  t.test(`changes in every schema are noticed (${role})`, async (t) => {
    const url = await makeShop(`watched_${role}`);
    const sql = connectSql(url);
    t.teardown(() => sql.end());
    let used = url;
    if (role === 'plain') {
      await sql.unsafe(`
        create role plain login password 'plain';
        grant all on database watched_plain to plain;
        grant all on schema public, sales, hr to plain;
        grant all on all tables in schema public, sales, hr to plain;
        grant all on all sequences in schema public, sales, hr to plain;
        alter default privileges in schema public, sales, hr grant all on tables to plain`);
      const login = new URL(url);
      login.username = 'plain';
      login.password = 'plain';
      used = login.href;
    }
    const service = await startTestService({
      databaseUrl: used,
      DATABASE_SCHEMAS: SCHEMAS,
      SCHEMA_POLL_INTERVAL: '100ms',
    });
    t.match(await get(service, '/items/hr_rooms'), { status: 403 });
    await sql.unsafe(
      'create table hr.rooms (id serial primary key, floor integer, person integer references hr.people)',
    );
    await waitFor(async () => (await get(service, '/items/hr_rooms?fields=person.name')).status === 200, 8_000);
    await sql.unsafe('alter table sales.orders add column urgent boolean');
    await waitFor(async () => (await get(service, '/items/sales_orders?fields=urgent')).status === 200, 8_000);
    await sql.unsafe('drop table hr.rooms');
    await waitFor(async () => (await get(service, '/items/hr_rooms')).status === 403, 8_000);
  });
}

t.test('tables of every schema are made, changed and deleted', async (t) => {
  const url = await makeShop('changed');
  const service = await startTestService({ databaseUrl: url, DATABASE_SCHEMAS: SCHEMAS });
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  const column = { field: 'urgent', type: 'boolean', schema: { is_indexed: true } };
  t.match(await send(service, 'POST', '/fields/sales_orders', column), { status: 200 });
  t.match(await sql`select schemaname from pg_indexes where indexdef like '%urgent%'`, [{ schemaname: 'sales' }]);
  const relation = { collection: 'articles', field: 'author', related_collection: 'hr_people', meta: {} };
  t.match(await send(service, 'POST', '/fields/articles', { field: 'author', type: 'integer' }), { status: 200 });
  t.match(await send(service, 'POST', '/relations', { ...relation, schema: {} }), {
    status: 200,
    json: { data: { schema: { foreign_key_schema: 'hr', foreign_key_table: 'people' } } },
  });
  const rooms = { collection: 'hr_rooms', schema: { schema: 'hr' }, fields: [{ field: 'floor', type: 'integer' }] };
  t.match(await send(service, 'POST', '/collections', rooms), {
    status: 200,
    json: { data: { collection: 'hr_rooms', schema: { schema: 'hr', name: 'rooms' } } },
  });
  t.match(await send(service, 'POST', '/items/hr_rooms', { floor: 2 }), { json: { data: { id: 1, floor: 2 } } });
  const desks = { collection: 'desks', schema: { schema: 'hr', comment: 'to sit at' } };
  t.match(await send(service, 'POST', '/collections', desks), {
    status: 200,
    json: { data: { schema: { schema: 'hr', name: 'desks', comment: 'to sit at' }, meta: { table: 'desks' } } },
  });
  t.match(await send(service, 'POST', '/collections', { collection: 'x', schema: { schema: 'nowhere' } }), {
    status: 400,
    json: { errors: [{ message: /"nowhere".*DATABASE_SCHEMAS/ }] },
  });
  t.match(await send(service, 'POST', '/collections', { collection: 'x', schema: { schema: 'hr', name: 'people' } }), {
    status: 400,
    json: { errors: [{ message: /is already the collection "hr_people"/ }] },
  });
  t.match(await request(service, 'DELETE', '/collections/hr_rooms'), { status: 204 });
  t.match(await sql`select to_regclass('hr.rooms') as found`, [{ found: null }]);
});

t.test('a snapshot carries the tables of all schemas', async (t) => {
  const url = await makeShop('snapshot_from');
  const service = await startTestService({ databaseUrl: url, DATABASE_SCHEMAS: SCHEMAS });
  await withSql(
    url,
    (sql) => sql`alter table sales.orders alter column state drop default, alter column state type text`,
  );
  const named = { collection: 'wares', meta: { schema: 'sales', table: 'articles' } };
  t.match(await send(service, 'POST', '/collections', named), { status: 200 });
  await waitFor(async () => (await get(service, '/items/wares')).status === 200, 5_000);
  const { data } = (await get(service, '/schema/snapshot')).json as { data: unknown };
  t.match(await send(service, 'POST', '/schema/diff', data), { status: 204 }, 'it is no difference to itself');

  const target = await createDatabase(server, 'snapshot_to');
  await withSql(target, (sql) => sql.unsafe('create schema sales; create schema hr'));
  const copy = await startTestService({ databaseUrl: target, DATABASE_SCHEMAS: SCHEMAS });
  const diff = await send(copy, 'POST', '/schema/diff', data);
  t.match(diff, { status: 200 });
  t.match(await send(copy, 'POST', '/schema/apply', (diff.json as { data: unknown }).data), { status: 204 });
  const again = (await get(copy, '/schema/snapshot')).json as { data: unknown };
  t.strictSame(again.data, data);
  t.match(
    await send(copy, 'POST', '/items/sales_orders?fields=seller.name', { state: 'open', seller: { name: 'Ada' } }),
    {
      json: { data: { seller: { name: 'Ada' } } },
    },
  );
  t.match(await get(copy, '/collections/wares'), { json: { data: { schema: { schema: 'sales', name: 'articles' } } } });

  const narrow = await createDatabase(server, 'snapshot_narrow');
  const one = await startTestService({ databaseUrl: narrow });
  t.match(
    await send(one, 'POST', '/schema/diff', data),
    { status: 400, json: { errors: [{ message: /in schema "\w+", which is not in DATABASE_SCHEMAS/ }] } },
    'where a schema is not served nothing is made in its place',
  );
});

/** What the start says, line by line, without the time. */
async function startLines(databaseUrl: string, options: Record<string, string> = {}): Promise<string[]> {
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: { PATH: process.env['PATH'] ?? '', PORT: '0', DATABASE_URL: databaseUrl, ...options },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let text = '';
  child.stderr.on('data', (piece: Buffer) => {
    text += piece;
    if (text.includes('listening on')) child.kill('SIGTERM');
  });
  await once(child, 'close');
  const lines = text
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as { level: number; msg: string }]));
  return lines.map(({ level, msg }) => `${level === 40 ? 'warn: ' : ''}${msg}`);
}

t.test('the start tells what is served, what is not and why, and which other schemas hold tables', async (t) => {
  const url = await makeShop('told');
  await withSql(url, (sql) =>
    sql.unsafe(`
    create table sales_orders (id serial primary key);
    create view staff as select * from hr.people;
    do $$ begin for n in 1..25 loop execute format('create table many_%s (id serial primary key)', n); end loop; end $$;
    do $$ begin for n in 1..11 loop
      execute format('create view view_%s as select 1 as x', n);
      execute format('create table odd_%s ("%%x" integer)', n);
    end loop; end $$`),
  );
  const lines = await startLines(url, { DATABASE_SCHEMAS: 'public,sales' });
  t.ok(lines.some((line) => /^serving articles, many_1, .* and 22 more \(LOG_LEVEL=debug shows all\)$/.test(line)));
  t.ok(lines.some((line) => /^"sales.orders" is not served: it would be called "sales_orders"/.test(line)));
  t.ok(
    lines.some((line) =>
      /^without a key, so that items can be listed but not named or written: staff, view_1, .*view_9$/.test(line),
    ),
    lines.join('\n'),
  );
  t.ok(
    lines.some((line) => /^11 are not served: odd_1, .*odd_9; each has a column whose name starts with %$/.test(line)),
  );
  t.ok(lines.includes('lateral doctor shows how keys are declared, and all that is not served'));
  t.ok(
    lines.includes(
      'schemas with tables that are not served: hr (1); to serve them set DATABASE_SCHEMAS=public,sales,hr',
    ),
  );
  const all = await startLines(url, { DATABASE_SCHEMAS: 'public,sales', LOG_LEVEL: 'debug' });
  t.ok(all.some((line) => line.startsWith('serving ') && line.endsWith(', view_9')));
  t.ok(all.some((line) => /^"odd_11" is not served: it has a column/.test(line)));

  const elsewhere = await createDatabase(server, 'elsewhere');
  await withSql(elsewhere, (sql) =>
    sql.unsafe('create schema sales; create table sales.orders (id serial primary key)'),
  );
  t.ok(
    (await startLines(elsewhere)).includes(
      'warn: there is nothing to serve: schema public has no tables; other schemas with tables: sales (1); set DATABASE_SCHEMAS=sales',
    ),
  );
});
