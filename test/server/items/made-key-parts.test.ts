/** Parts of keys that the database makes: by a sequence, also behind keys that clients supply, or by an expression. */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'made_key_parts');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table stays (day date, no serial, label text, primary key (day, no));
  create table loaded (day date, no serial, label text, primary key (day, no));
  insert into loaded select '2024-01-01', n, 'loaded' from generate_series(1, 40) n;
  create table measures (place text, no integer generated always as identity, value integer, primary key (place, no)) partition by list (place);
  create table measures_a partition of measures for values in ('a');
  create table sums (a integer, b integer generated always as (a * 2) stored, label text, twice integer generated always as (a + 1) stored, primary key (a, b));
  create table slugs (slug text generated always as (lower(name)) stored primary key, name text unique, note text);
  create table prices (id serial primary key, net integer, gross integer generated always as (net * 2) stored);
  create table orders (id serial primary key, label text);
  create table lines (order_id integer references orders, line integer, primary key (order_id, line));
  insert into prices (net) values (1), (2);
  insert into sums values (1, default, 'one'), (2, default, 'two');
  insert into slugs values (default, 'One', 'first')`);
await (await startTestService({ databaseUrl })).stop();
await sql`insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action) values ('lines', 'order_id', 'orders', 'lines', 'delete')`;
const service = await startTestService({ databaseUrl, WORKERS: '1' });

function send(method: string, path: string, content: unknown): Promise<Answer> {
  const body = typeof content === 'string' ? content : JSON.stringify(content);
  const type = typeof content === 'string' ? 'text/csv' : 'application/json';
  const headers = { 'content-type': type, 'content-length': String(Buffer.byteLength(body)) };
  return request(service, method, path, { headers, body });
}

const DAY = '2024-01-01';

t.test('a sequence is put ahead of the parts that clients supply', async (t) => {
  t.match(await send('POST', '/items/stays', { day: DAY, no: 1 }), { status: 200 });
  t.match(await send('POST', '/items/stays?fields=no', { day: DAY }), { status: 200, json: { data: { no: 2 } } });
  const mixed = [{ day: DAY, no: 4 }, { day: DAY }, { day: DAY, no: 3 }, { day: DAY }];
  t.match(await send('POST', '/items/stays?fields=no', mixed), {
    status: 200,
    json: { data: [{ no: 4 }, { no: 5 }, { no: 3 }, { no: 6 }] },
  });
  t.match(await send('POST', '/items/stays', { day: DAY, no: 6 }), { status: 400, text: /unique/ });
  t.match(await send('POST', '/items/stays?on_conflict=day,no', { day: DAY, no: 7, label: 'met' }), { status: 200 });
  t.match(await send('POST', '/utils/import/stays', `day,no,label\n${DAY},8,file\n`), { status: 200 });
  t.match(await send('POST', '/items/stays?fields=no', { day: DAY }), { status: 200, json: { data: { no: 9 } } });
});

t.test('a sequence that was left behind by a load catches up', async (t) => {
  t.match(await send('POST', '/items/loaded?fields=no', [{ day: DAY }, { day: DAY }]), {
    status: 200,
    json: { data: [{ no: 41 }, { no: 42 }] },
  });
  await sql`select setval('loaded_no_seq', 1)`;
  t.match(await send('POST', '/utils/import/loaded', [{ day: DAY, label: 'x' }]), { status: 200 });
  await sql`insert into measures overriding system value select 'a', n, n from generate_series(1, 40) n`;
  t.match(await send('POST', '/items/measures?fields=no', { place: 'a', value: 1 }), {
    status: 200,
    json: { data: { no: 41 } },
  });
});

t.test('requests that meet supplied keys all succeed', async (t) => {
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      send('POST', '/items/stays', n % 2 ? { day: '2024-02-02' } : { day: '2024-02-02', no: 1000 * (n + 1) }),
    ),
  );
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200]);
});

t.test(
  'generated columns: what was exported can be imported, and what cannot be written is refused by name',
  async (t) => {
    for (const name of ['prices', 'sums', 'slugs']) {
      const before = await sql`select ${sql(name)}::text as row from ${sql(name)} order by 1`;
      const file = (await get(service, `/items/${name}?export=csv`)).text;
      const json = (await get(service, `/items/${name}?export=json`)).json;
      t.match(await send('POST', `/utils/import/${name}`, file), { status: 200 }, `${name} over itself`);
      await sql`delete from ${sql(name)}`;
      t.match(await send('POST', `/utils/import/${name}`, file), { status: 200 }, `${name} into an empty table`);
      t.strictSame([...(await sql`select ${sql(name)}::text as row from ${sql(name)} order by 1`)], [...before]);
      await sql`delete from ${sql(name)}`;
      t.match(await send('POST', `/utils/import/${name}`, json), { status: 200 }, `${name} as JSON`);
      t.strictSame([...(await sql`select ${sql(name)}::text as row from ${sql(name)} order by 1`)], [...before]);
    }
    const wrong = /would differ from the one in the payload/;
    const rows: [method: string, path: string, body: unknown, refused?: RegExp][] = [
      ['POST', '/items/sums', { a: 5, label: 'five' }, /"b.*" is required.*generates/],
      ['POST', '/items/sums', { a: 6, b: 12 }],
      ['POST', '/items/sums', { a: 7, b: 99 }, wrong],
      ['POST', '/items/sums', { a: 7, b: 14, twice: 8 }, /twice.* is generated by the database/],
      [
        'POST',
        '/items/sums?on_conflict=a,b',
        [
          { a: 8, b: 16 },
          { a: 1, b: 2, label: 'merged' },
        ],
      ],
      ['POST', '/items/sums?on_conflict=a,b', { a: 9, b: 16 }, wrong],
      ['PATCH', '/items/sums/1~2', { b: 2, label: 'changed' }],
      ['PATCH', '/items/sums', [{ a: 1, b: 2, label: 'changed' }]],
      ['POST', '/items/slugs', { name: 'Two' }, /"slug.*" is required.*generates/],
      ['POST', '/items/slugs', { slug: 'three', name: 'Three' }],
      ['POST', '/items/slugs', { slug: 'wrong', name: 'Four' }, wrong],
      ['POST', '/items/slugs?on_conflict=name', { name: 'Five' }, /"slug.*" is required/],
      ['PATCH', '/items/slugs/one', { note: 'changed' }],
      ['PATCH', '/items/slugs/one', { name: 'Other' }, wrong],
      ['POST', '/utils/import/slugs', 'slug,name\nsix,Other\n', wrong],
    ];
    for (const [method, path, body, refused] of rows) {
      const wanted = refused ? { status: 400, text: refused } : { status: 200 };
      t.match(await send(method, path, body), wanted, `${method} ${path} ${JSON.stringify(body)}`);
    }
    t.strictSame(
      [...(await sql`select slug from slugs order by 1`)],
      [{ slug: 'one' }, { slug: 'three' }],
      'nothing of what was refused',
    );
  },
);

t.test(
  'a key that the payload has twice is refused, also below a new item and beside keys that are known',
  async (t) => {
    const orders = [{ id: 50, lines: [{ line: 2 }] }, { lines: { create: [{ line: 1 }, { line: 1 }] } }];
    t.match(await send('POST', '/items/orders', orders), { status: 400, text: /unique/ });
    t.equal((await sql`select from orders`).length, 0);
    await sql`insert into orders values (60)`;
    await sql`insert into lines values (60, 1)`;
    const both = { lines: { create: [{ line: 1 }], update: [{ line: 1 }] } };
    t.match(await send('PATCH', '/items/orders/60', both), { status: 400, text: /contradicts/ }, 'new and not new');
    const again = { lines: { create: [{ line: 1 }], delete: ['60~1'] } };
    t.match(await send('PATCH', '/items/orders/60', again), { status: 400, text: /contradicts/ }, 'new and deleted');
    const other = { lines: { create: [{ line: 2 }], delete: ['60~1'] } };
    t.match(await send('PATCH', '/items/orders/60', other), { status: 200 });
  },
);
