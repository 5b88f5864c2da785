/**
 * Creates that may meet items which exist: found by a unique index, changed or left alone, with the permissions of both, in one
 * statement; over REST, GraphQL and imports.
 */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
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
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase();
const url = await createDatabase(server, 'on_conflict');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table shops (id serial primary key, name text);
  create table products (
    id serial primary key, sku text unique, name text not null default 'none', price numeric, shop integer references shops,
    note text, owner uuid, changed timestamptz, unique (shop, name)
  );
  create table words (id uuid primary key, lang text, word text, meaning text);
  create unique index on words (lang, word);
  create unique index on words (meaning) where lang = 'de';
  create table ones (
    id serial primary key, code text unique, amount numeric(8, 2) not null default 7, tags text[], facts jsonb, shop integer references shops,
    seen timestamptz, made timestamptz, changed timestamptz, unique (shop)
  );
  create table lists (like ones including all);
  alter table lists add foreign key (shop) references shops;
  create sequence lists_id_seq owned by lists.id;
  alter table lists alter id set default nextval('lists_id_seq');
  create table slots (id serial primary key, day date, room text, note text, unique nulls not distinct (day, room));
  create table pairs (one integer, other text, amount integer not null default 1, primary key (one, other));
  insert into shops (name) values ('one'), ('two');
  insert into products (sku, name, price, shop) values ('a', 'A', 1, 1), ('b', 'B', 2, 1)`);
const counter = await StatementCounter.of(server, 'on_conflict');
const service = await startTestService({ databaseUrl: url, ...KNOWS_CALLERS });
await sql`insert into service_fields (collection, field, special) values ('words', 'id', 'uuid'), ('ones', 'made', 'date-created'),
  ('ones', 'changed', 'date-updated'), ('lists', 'made', 'date-created'), ('lists', 'changed', 'date-updated'), ('products', 'changed', 'date-updated')`;

await waitFor(async () => (await get(service, '/fields/products/changed')).text.includes('date-updated'), 10_000);

const headers = { 'content-type': 'application/json' };
const post = (path: string, body: unknown, token?: string): Promise<Answer> =>
  request(service, 'POST', path, { headers, body: JSON.stringify(body), ...(token ? { token } : {}) });
const PRODUCTS = '/items/products?fields=sku,name,price,note';
const product = (sku: string) =>
  sql`select id, name, price::text, note, owner, changed is not null as changed from products where sku = ${sku}`.then(
    ([row]) => ({ ...row }),
  );
const dataOf = ({ json, status, text }: Answer): unknown => {
  t.equal(status, 200, text.slice(0, 300));
  return (json as { data: unknown }).data;
};

t.test('merge changes what exists and makes the rest, in the order given', async (t) => {
  const answer = await post(`${PRODUCTS}&on_conflict=sku`, [
    { sku: 'c', name: 'C', price: 3 },
    { sku: 'a', price: 10 },
    { sku: 'd', name: 'D' },
    { sku: 'b', note: 'noted' },
  ]);
  t.strictSame(dataOf(answer), [
    { sku: 'c', name: 'C', price: '3', note: null },
    { sku: 'a', name: 'A', price: '10', note: null },
    { sku: 'd', name: 'D', price: null, note: null },
    { sku: 'b', name: 'B', price: '2', note: 'noted' },
  ]);
  t.match(await product('a'), { id: 1, changed: true });
  t.match(await product('c'), { id: 3, changed: false }, 'no value of the sequence is lost');
  const recorded = await sql`select action, item from service_activity where collection = 'products' order by item`;
  t.strictSame(
    recorded.map(({ action, item }) => `${action} ${item}`),
    ['update 1', 'update 2', 'create 3', 'create 4'],
  );
  const one = await post(`${PRODUCTS}&on_conflict=sku&resolution=merge`, { sku: 'a', note: 'alone' });
  t.strictSame(dataOf(one), { sku: 'a', name: 'A', price: '10', note: 'alone' });
  t.strictSame(
    dataOf(await post('/items/products?fields=id&on_conflict=sku', { sku: 'a' })),
    { id: 1 },
    'nothing to set',
  );
});

t.test('ignore leaves what exists alone, and out of the answer', async (t) => {
  const answer = await post(`${PRODUCTS}&on_conflict=sku&resolution=ignore`, [
    { sku: 'e', name: 'E' },
    { sku: 'a', price: 99 },
    { sku: 'f', name: 'F' },
  ]);
  t.strictSame(
    (dataOf(answer) as { sku: string }[]).map(({ sku }) => sku),
    ['e', 'f'],
  );
  t.match(await product('a'), { price: '10' });
  t.match(await post(`${PRODUCTS}&on_conflict=sku&resolution=ignore`, { sku: 'a' }), { status: 204, text: '' });
  t.strictSame(dataOf(await post(`${PRODUCTS}&resolution=ignore`, [{ id: 1, note: 'no' }])), []);
});

t.test('several columns, nulls, the key, and keys that are made', async (t) => {
  const path = '/items/products?fields=shop,name,note&on_conflict=shop,name';
  const found = [
    { name: 'A', shop: 1, note: 'found' },
    { name: 'A', shop: 2, note: 'new' },
    { name: 'A', shop: null, note: 'a null is equal to nothing' },
  ];
  t.strictSame(
    dataOf(await post(path, found)),
    found.map(({ shop, name, note }) => ({ shop, name, note })),
  );
  t.match(await product('a'), { note: 'found' });
  t.strictSame(
    dataOf(
      await post('/items/products?fields=id,note&on_conflict=id', [
        { id: 1, note: 'by key' },
        { id: 500 },
        { sku: 'x' },
      ]),
    ),
    [
      { id: 1, note: 'by key' },
      { id: 500, note: null },
      { id: 501, note: null },
    ],
  );
  const words = '/items/words?fields=word,meaning&on_conflict=lang,word';
  await post(words, [{ lang: 'de', word: 'Haus', meaning: 'hut' }]);
  const [before] = await sql`select id from words`;
  t.strictSame(dataOf(await post(words, [{ lang: 'de', word: 'Haus', meaning: 'house' }])), [
    { word: 'Haus', meaning: 'house' },
  ]);
  t.strictSame([...(await sql`select id from words`)], [before]);
});

t.test('an impossible upsert is refused and changes nothing', async (t) => {
  const refused: [path: string, body: unknown, text: RegExp][] = [
    ['on_conflict=price', {}, /Possible: id or shop,name or sku/],
    ['on_conflict=nothing', {}, /Possible/],
    ['on_conflict=name', {}, /Possible/],
    ['on_conflict=', {}, /names of columns/],
    ['on_conflict=sku,sku', {}, /each once/],
    ['on_conflict=sku&resolution=replace', {}, /one of merge, ignore/],
    ['on_conflict=sku&resolution=merge&resolution=ignore', {}, /once/],
    ['on_conflict=sku', { name: 'x' }, /is required/],
    ['on_conflict=sku', [{ sku: 'z' }, { sku: 'z' }], /Entry 0 has the same/],
    ['on_conflict=sku', [{ sku: 'a', note: 'z' }, { sku: 'a' }], /Entry 0 has the same/],
    ['on_conflict=sku&resolution=ignore', [{ sku: 'z' }, { sku: 'z' }], /Entry 0 has the same/],
    ['on_conflict=id', [{ id: 1 }, { id: 1 }], /Entry 1 has the same/],
    ['on_conflict=sku', { sku: 'a', id: 77 }, /not the key of the item/],
    ['on_conflict=sku', { sku: 'z', id: 1 }, /has to be unique/],
    ['on_conflict=sku', { sku: 'z', shop: { name: 'new' } }, /cannot be nested/],
    ['on_conflict=sku', { sku: 'z', unknown: 1 }, /is not a field/],
    ['on_conflict=sku', { sku: 'z', shop: 1, name: 'A' }, /unique/],
  ];
  const before = await sql`select count(*)::int, md5(string_agg(p::text, ',' order by id)) from products p`;
  for (const [query, body, text] of refused)
    t.match(await post(`/items/products?${query}`, body), { status: 400, text }, `${query} ${JSON.stringify(body)}`);
  t.match(await post('/items/words?on_conflict=meaning', {}), { status: 400 }, 'an index over some rows is none');
  t.match(await post('/users?on_conflict=email', { email: 'a@example.com' }), { status: 400 });
  t.strictSame(
    [...(await sql`select count(*)::int, md5(string_agg(p::text, ',' order by id)) from products p`)],
    [...before],
  );
});

t.test('permissions of both', async (t) => {
  const allow = (action: 'create' | 'read' | 'update', rest: object = {}) => ({
    collection: 'products',
    action,
    ...rest,
  });
  const clerk = await makeCaller(sql, 'clerk', [
    {
      permissions: [
        allow('read'),
        allow('create', { fields: ['sku', 'price', 'note'], presets: { note: 'made', owner: '$CURRENT_USER' } }),
        allow('update', {
          fields: ['price'],
          permissions: { sku: { _in: ['a', 'b'] } },
          validation: { price: { _lt: 50 } },
          presets: { note: 'changed', sku: 'moved' },
        }),
      ],
    },
  ]);
  const maker = await makeCaller(sql, 'maker', [{ permissions: [allow('read'), allow('create')] }]);
  await waitFor(async () => (await get(service, '/items/products', { token: maker.token })).status === 200, 5_000);
  const path = `${PRODUCTS}&on_conflict=sku`;
  t.strictSame(
    dataOf(
      await post(
        path,
        [
          { sku: 'a', price: 20 },
          { sku: 'p', price: 60 },
        ],
        clerk.token,
      ),
    ),
    [
      { sku: 'a', name: 'A', price: '20', note: 'changed' },
      { sku: 'p', name: 'none', price: '60', note: 'made' },
    ],
  );
  t.match(await product('p'), { owner: clerk.user });
  t.match(await product('a'), { owner: null });
  t.match(await post(path, { sku: 'a', price: 60 }, clerk.token), { status: 400, text: /FAILED_VALIDATION/ });
  t.match(await post(path, { sku: 'c', price: 1 }, clerk.token), { status: 403 }, 'a row that may not be changed');
  t.match(await post(path, { sku: 'a', note: 'x' }, clerk.token), { status: 403 }, 'a field that may not be changed');
  t.match(await post(path, { sku: 'q', name: 'x' }, clerk.token), { status: 403 }, 'a field that may not be made');
  t.match(await post(`${PRODUCTS}&on_conflict=shop,name`, {}, clerk.token), { status: 400, text: /Possible: sku"/ });
  t.match(await post(path, { sku: 'a', price: 1 }, maker.token), { status: 403 });
  t.match(await post(`${path}&resolution=ignore`, [{ sku: 'a' }, { sku: 'r' }], maker.token), {
    status: 200,
    text: /"r"/,
  });
  t.match(await product('a'), { price: '20' });
});

t.test('the key of an item that may not be changed cannot be guessed', async (t) => {
  const prober = await makeCaller(sql, 'prober', [
    {
      permissions: [
        { collection: 'products', action: 'create', fields: ['id', 'sku', 'price'] },
        { collection: 'products', action: 'update', fields: ['price'], permissions: { sku: { _eq: 'a' } } },
      ],
    },
  ]);
  const probe = (id: number, sku: string) => post('/items/products?on_conflict=sku', { id, sku }, prober.token);
  await waitFor(async () => (await probe(1, 'a')).status === 204, 5_000);
  const { id } = (await product('c')) as { id: number };
  const [right, wrong] = [await probe(id, 'c'), await probe(id + 1, 'c')];
  t.equal(right.status, 403);
  t.strictSame([wrong.status, wrong.text], [right.status, right.text]);
  t.match(await probe(77, 'a'), { status: 400, text: /not the key of the item/ }, 'of one that may be changed');
});

t.test('GraphQL and imports', async (t) => {
  const query = (text: string): Promise<unknown> => post('/graphql', { query: text }).then(({ json }) => json);
  t.strictSame(
    await query(
      'mutation { create_products_items(data: [{sku: "a", price: 5}, {sku: "g"}], on_conflict: ["sku"], resolution: merge) { sku price } }',
    ),
    {
      data: {
        create_products_items: [
          { sku: 'a', price: 5 },
          { sku: 'g', price: null },
        ],
      },
    },
  );
  t.strictSame(
    await query(
      'mutation { create_products_item(data: {sku: "a"}, on_conflict: ["sku"], resolution: ignore) { sku } }',
    ),
    { data: { create_products_item: null } },
  );
  const rows = [{ sku: 'a', note: 'imported' }, { sku: 'i' }, { sku: 'i', note: 'again' }];
  t.strictSame(dataOf(await post('/utils/import/products?on_conflict=sku', rows)), { imported: 3 });
  t.match(await product('i'), { note: 'again' }, 'rows of a file come one after the other');
  const ignored = await post('/utils/import/products?on_conflict=sku&resolution=ignore', [{ sku: 'a' }, { sku: 'j' }]);
  t.strictSame(dataOf(ignored), { imported: 1 });
  t.match(await post('/utils/import/products?on_conflict=price', rows), { status: 400 });
});

t.test('requests that meet each other all succeed', async (t) => {
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, price) =>
      post('/items/products?fields=sku&on_conflict=sku', [
        { sku: 'race', price },
        { sku: 'other', price },
      ]),
    ),
  );
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200]);
  t.strictSame([...(await sql`select count(*)::int from products where sku in ('race', 'other')`)], [{ count: 2 }]);
});

t.test('one statement, and the read of what it wrote', async (t) => {
  const path = `${PRODUCTS}&on_conflict=sku`;
  await post(path, [{ sku: 'a', note: '1' }]);
  const { counts } = await counter.count(() => post(path, [{ sku: 'a', note: '2' }]));
  const statements = counts.filter(({ query }) => !/^(begin|commit)/i.test(query));
  t.equal(statements.length, 2, JSON.stringify(counts));
});

/** The rows of a table with its log, without the times and the numbers of the log. */
async function stateOf(table: string): Promise<unknown> {
  const rows = await sql.unsafe(`
    select id, code, amount::text, tags, facts, shop, seen, made is not null as made, changed is not null as changed from ${table} order by id`);
  const log = await sql`
    select a.action, a.item, r.data::text as data, r.delta::text as delta from service_activity a
    left join service_revisions r on r.activity = a.id where a.collection = ${table} order by a.id`;
  const [sequence] = await sql.unsafe(`select last_value::int from ${table}_id_seq`);
  const timeless = (text: string | null): string | undefined =>
    text?.replaceAll(/"(made|changed)":"[^"]+"/g, (_, name) => `"${name}":"T"`);
  return {
    rows: rows.map((row) => ({ ...row })),
    log: log.map(({ data, delta, ...rest }) => ({ ...rest, data: timeless(data), delta: timeless(delta) })),
    sequence,
  };
}

t.test('the plain statement of one item does what the chain does for a list of one', async (t) => {
  const requests: [query: string, item: Record<string, unknown>][] = [
    ['on_conflict=code', { code: 'a' }],
    ['on_conflict=code', { code: 'a', amount: 2.5, tags: ['x', 'y,"z'], facts: { deep: [1, null] } }],
    ['on_conflict=code', { code: 'a', amount: 3.25 }],
    ['on_conflict=code', { code: 'b', amount: { _increment: 5 }, shop: 1 }],
    ['on_conflict=code', { code: 'b', amount: { _increment: 5 }, tags: null }],
    ['on_conflict=code', { code: 'b', amount: '99999999' }],
    ['on_conflict=code', { code: 'b', amount: null }],
    ['on_conflict=code', { code: 'b', facts: { _merge: { a: 1 } } }],
    ['on_conflict=code', { code: 'a', facts: { _merge: { a: 1 } } }],
    ['on_conflict=code', { code: null, seen: '2024-02-29T12:00:00Z' }],
    ['on_conflict=code', { code: null, shop: 2 }],
    ['on_conflict=code', { code: 'c', shop: 99 }],
    ['on_conflict=code', { code: 'c', shop: 1 }],
    ['on_conflict=code', { code: 'c', id: 2, amount: 1 }],
    ['on_conflict=code', { code: 'b', id: 77, amount: 1 }],
    ['on_conflict=id', { id: 2, amount: 8, made: '2001-01-01T00:00:00Z' }],
    ['on_conflict=id', { id: 40, code: 'forty' }],
    ['on_conflict=id', { code: 'made by the sequence', amount: 4 }],
    ['resolution=merge', { id: 40, code: 'a' }],
    ['resolution=ignore', { id: 40, code: 'ignored' }],
    ['on_conflict=shop', { shop: 1, amount: 11 }],
    ['on_conflict=shop', { shop: 2, amount: 'many' }],
  ];
  const fields = 'fields=id,code,amount,tags,facts,shop,seen';
  for (const [query, item] of requests) {
    const name = `${query} ${JSON.stringify(item)}`;
    const one = await post(`/items/ones?${fields}&${query}`, item);
    const list = await post(`/items/lists?${fields}&${query}`, [item]);
    t.equal(one.status === 204 ? 200 : one.status, list.status, `${name} ${one.text} ${list.text}`);
    const [first = null] = (list.json as { data?: unknown[] }).data ?? [];
    if (list.status === 200) t.strictSame(one.status === 204 ? null : dataOf(one), first, name);
    t.strictSame(await stateOf('ones'), await stateOf('lists'), name);
  }
  for (let times = 0; times < 3; times++)
    t.match(await post('/items/pairs?on_conflict=one,other', { other: 'x', one: 5, amount: times }), {
      json: { data: { one: 5, other: 'x', amount: times } },
    });
  t.equal((await sql`select count(*)::int as count from pairs`)[0]?.['count'], 1);
});

t.test('one item is one statement, and an item that the caller may not change stays', async (t) => {
  const keeper = await makeCaller(sql, 'keeper', [
    {
      permissions: [
        { collection: 'ones', action: 'read', permissions: { code: { _neq: 'secret' } } },
        { collection: 'ones', action: 'create' },
        { collection: 'ones', action: 'update', permissions: { code: { _in: ['a', 'secret'] } } },
      ],
    },
  ]);
  const path = '/items/ones?fields=code,amount&on_conflict=code';
  await waitFor(async () => (await post(path, { code: 'a', amount: 1 }, keeper.token)).status === 200, 5_000);
  const { counts } = await counter.count(() => post(path, { code: 'a', amount: 2 }, keeper.token));
  // The service may ask once more who the caller is: the new policy has just come into force.
  const writing = counts.filter(({ query }) => query.includes('"ones"'));
  t.equal(writing.length, 1, JSON.stringify(counts));
  const before = await stateOf('ones');
  const refused = await post(path, { code: 'b', amount: 3 }, keeper.token);
  t.equal(refused.status, 403, refused.text);
  const patched = await request(service, 'PATCH', '/items/ones/2', {
    headers,
    token: keeper.token,
    body: '{"amount":3}',
  });
  t.strictSame(refused.json, patched.json);
  t.strictSame(await stateOf('ones'), before);
  t.match(
    await post(path, { code: 'secret', amount: 3 }, keeper.token),
    { status: 204, text: '' },
    'created, not shown',
  );
  t.match(await post(path, { code: 'secret', amount: 4 }, keeper.token), { status: 204, text: '' });
  t.strictSame([...(await sql`select amount::text from ones where code = 'secret'`)], [{ amount: '4.00' }]);
});

t.test('an item that is deleted while the statement waits for it is created', async (t) => {
  const replacer = await makeCaller(sql, 'replacer', [
    {
      permissions: [
        { collection: 'ones', action: 'read' },
        { collection: 'ones', action: 'create' },
        { collection: 'ones', action: 'update', permissions: { amount: { _lt: 1_000 } } },
      ],
    },
  ]);
  const path = '/items/ones?fields=code,amount&on_conflict=code';
  await waitFor(async () => (await post(path, { code: 'one', amount: 1 }, replacer.token)).status === 200, 5_000);
  const other = await sql.reserve();
  for (const [key, amount] of [
    ['one', 2],
    ['list', 3],
  ] as const) {
    const entry = { code: 'one', amount };
    await other`begin`;
    await other`delete from ones where code = 'one'`;
    const made = post(path, key === 'one' ? entry : [entry], replacer.token);
    await waitFor(async () => {
      const waiting = await other`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return waiting.length > 0;
    }, 5_000);
    await other`commit`;
    const shown = { code: 'one', amount: `${amount}.00` };
    t.match(await made, { status: 200, json: { data: key === 'one' ? shown : [shown] } }, key);
  }
  await other.release();
});

t.test('items that meet each other all count', async (t) => {
  const path = '/items/ones?fields=code&on_conflict=code';
  const answers = await Promise.all(
    Array.from({ length: 30 }, () => post(path, { code: 'met', amount: { _increment: 1 } })),
  );
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200]);
  t.strictSame([...(await sql`select amount::text from ones where code = 'met'`)], [{ amount: '37.00' }]);
});

t.test('an index that takes nulls as equal finds items with nulls', async (t) => {
  const path = '/items/slots?fields=day,room,note&on_conflict=day,room';
  const notes = async (): Promise<unknown[]> =>
    (await sql`select day::text, room, note from slots order by day, room`).map(({ day, room, note }) => [
      day,
      room,
      note,
    ]);
  const day = '2026-01-02';
  t.strictSame(dataOf(await post(path, { day, room: null, note: 'a' })), { day, room: null, note: 'a' });
  t.strictSame(dataOf(await post(path, { day, room: null, note: 'b' })), { day, room: null, note: 'b' }, 'one item');
  t.strictSame(
    dataOf(
      await post(path, [
        { day, room: null, note: 'c' },
        { day: null, room: null, note: 'd' },
        { day, room: 'x', note: 'e' },
      ]),
    ),
    [
      { day, room: null, note: 'c' },
      { day: null, room: null, note: 'd' },
      { day, room: 'x', note: 'e' },
    ],
    'a list',
  );
  t.strictSame(
    dataOf(
      await post(`${path}&resolution=ignore`, [
        { day, room: null, note: 'f' },
        { day: null, room: 'x', note: 'g' },
      ]),
    ),
    [{ day: null, room: 'x', note: 'g' }],
  );
  const twice = await post(path, [
    { day: null, room: null, note: 'h' },
    { day: null, room: null, note: 'i' },
  ]);
  t.match(twice, { status: 400, text: /Entry \d has the same/ });
  t.strictSame(await notes(), [
    [day, 'x', 'e'],
    [day, null, 'c'],
    [null, 'x', 'g'],
    [null, null, 'd'],
  ]);
  const rows = [null, null, 'x'].map((room, index) => ({ day: null, room, note: ['first', 'second', 'third'][index] }));
  const imported = await post('/utils/import/slots?on_conflict=day,room', rows);
  t.ok(imported.status < 300, imported.text);
  t.strictSame((await notes()).slice(2), [
    [null, 'x', 'third'],
    [null, null, 'second'],
  ]);
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => post(path, { day: '2026-01-03', room: null, note: String(index) })),
  );
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200], 'requests that meet each other');
});
