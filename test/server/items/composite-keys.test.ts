/**
 * Keys of several columns, of a unique index, declared ones and none: the key of an item is one string, its parts are columns like
 * others, and what cannot be named can still be listed.
 */
import { readFile } from 'node:fs/promises';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
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
import { StatementRecorder } from '../../support/statement-recorder.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'keys', ['keys.sql']);
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const recorder = await StatementRecorder.open(databaseUrl);
const service = await startTestService({ databaseUrl: recorder.url, WORKERS: '1', ...KNOWS_CALLERS });
await sql`insert into service_collections (collection, primary_key) values ('points', 'x, y')`;
await sql`
  insert into service_relations (many_collection, many_field, one_collection, one_field, junction_field, one_deselect_action) values
    ('order_lines', 'order_id', 'orders', 'lines', null, 'delete'),
    ('order_lines', 'product_id', 'products', 'lines', null, 'delete'),
    ('film_actor', 'film_id', 'films', 'actors', 'actor_id', 'delete'),
    ('film_actor', 'actor_id', 'actors', 'films', 'film_id', 'delete'),
    ('notes', 'film', 'films', 'notes', null, 'nullify')`;
await waitFor(async () => (await get(service, '/items/films?fields=notes.message,actors')).status === 200, 5_000);
await waitFor(async () => (await get(service, '/items/points/1~2')).status === 200, 5_000);

const headers = { 'content-type': 'application/json' };

function send(method: string, path: string, content: unknown, token?: string): Promise<Answer> {
  const body = content === undefined ? '' : JSON.stringify(content);
  const length = { 'content-length': String(Buffer.byteLength(body)) };
  return request(service, method, path, { headers: { ...headers, ...length }, body, ...(token ? { token } : {}) });
}

async function ask(query: string, variables: Record<string, unknown> = {}): Promise<unknown> {
  const { json } = await send('POST', '/graphql', { query, variables });
  return json;
}

function data(answer: Answer): unknown {
  return (answer.json as { data?: unknown } | undefined)?.data ?? answer.text;
}

t.test('an item is read by one string', async (t) => {
  t.strictSame(data(await get(service, '/items/order_lines/1~42?fields=quantity,product_id.name')), {
    quantity: 10,
    product_id: { name: 'paper' },
  });
  t.strictSame(data(await get(service, '/items/labels/a~b')), { word: 'plain', code: 'b', kind: 'a' });
  for (const [key, word] of [
    ['a\\~~c\\~d', 'tilde'],
    ['\\\\\\~~\\\\', 'slash'],
    ['~', 'blank'],
    ['"~*', 'sign'],
  ] as const)
    t.strictSame(
      data(await get(service, `/items/labels/${encodeURIComponent(key)}?fields=word`)),
      { word },
      `the key ${key}`,
    );
  const reading = '2024-02-29T12:00:00.500Z~2024-02-29~6f9619ff-8b86-d011-b42d-00cf4fc964ff~+/8=~1.50';
  t.strictSame(data(await get(service, `/items/readings/${encodeURIComponent(reading)}?fields=value`)), { value: 0.5 });
  t.strictSame(data(await get(service, '/items/payments/2024-08-01~2?fields=amount')), { amount: '2.00' });
  t.strictSame(data(await get(service, '/items/seats/B~1?fields=guest')), { guest: 'Bo' }, 'a unique index');
  t.strictSame(data(await get(service, '/items/points/3~4?fields=label')), { label: 'two' }, 'a declared key');
  for (const [content, type] of [
    [{ x: 5, label: 'none' }, 'required'],
    [{ x: 5, y: null }, 'nnull'],
  ] as const)
    t.match(await send('POST', '/items/points', content), {
      status: 400,
      json: { errors: [{ extensions: { collection: 'points', field: 'y', type } }] },
    });
});

t.test('keys stand for items: in lists of related ones, SEARCH and GraphQL', async (t) => {
  t.strictSame(data(await get(service, '/items/orders/1?fields=lines')), { lines: ['1~11', '1~42', '1~72'] });
  t.strictSame(data(await get(service, '/items/films?fields=title,actors,actors.actor_id.name&sort=id')), [
    { title: 'Alien', actors: [{ actor_id: { name: 'Sigourney' } }, { actor_id: { name: 'John' } }] },
    { title: 'Brazil', actors: [{ actor_id: { name: 'Jonathan' } }] },
  ]);
  t.strictSame(data(await get(service, '/items/films/1?fields=actors')), { actors: ['1~1', '2~1'] }, 'in key order');
  const searched = await send('SEARCH', '/items/order_lines', {
    keys: ['2~11', '1~72'],
    query: { fields: ['order_id', 'product_id'], sort: ['order_id'] },
  });
  t.strictSame(data(searched), [
    { order_id: 1, product_id: 72 },
    { order_id: 2, product_id: 11 },
  ]);
  t.strictSame(await ask('{ order_lines_by_id(id: "1~11") { quantity product_id { name } } }'), {
    data: { order_lines_by_id: { quantity: 12, product_id: { name: 'ink' } } },
  });
  t.match(await ask('{ order_lines_by_id(id: "1~99") { quantity } }'), {
    data: { order_lines_by_id: null },
    errors: [{ extensions: { code: 'FORBIDDEN' } }],
  });
});

t.test('lists: filters, sorts, cursors, counts, aggregates and exports', async (t) => {
  t.strictSame(data(await get(service, '/items/order_lines?fields=product_id&filter[order_id]=1&sort=-product_id')), [
    { product_id: 72 },
    { product_id: 42 },
    { product_id: 11 },
  ]);
  t.strictSame(data(await get(service, '/items/orders?fields=id&filter[lines][quantity][_gt]=9')), [{ id: 1 }]);
  t.strictSame(data(await get(service, '/items/orders?fields=id&filter[lines][product_id][_null]=true')), [{ id: 3 }]);
  const seen: unknown[] = [];
  let cursor = '';
  for (let page = 0; page < 10; page++) {
    const answer = await get(service, `/items/order_lines?limit=1&sort=-quantity&fields=quantity&cursor=${cursor}`);
    const { meta, data: items } = answer.json as { meta: { next_cursor: string | null }; data: unknown[] };
    seen.push(...items);
    if (meta.next_cursor === null || items.length === 0) break;
    cursor = meta.next_cursor;
  }
  t.strictSame(seen, [{ quantity: 12 }, { quantity: 10 }, { quantity: 9 }, { quantity: 5 }]);
  const all = await get(service, '/items/labels?cursor=&limit=2&fields=word');
  const { meta } = all.json as { meta: { next_cursor: string } };
  t.strictSame(
    data(await get(service, `/items/labels?cursor=${meta.next_cursor}&limit=2&fields=word`)),
    [{ word: 'slash' }, { word: 'plain' }],
    'without a sort, in the order of the key',
  );
  t.strictSame(data(await get(service, '/items/order_lines?aggregate[count]=*&groupBy=order_id&sort=order_id')), [
    { order_id: 1, count: 3 },
    { order_id: 2, count: 1 },
  ]);
  t.equal(
    (await get(service, '/items/order_lines?export=csv&fields=order_id,product_id')).text.trim().split('\n').length,
    5,
  );
});

t.test('one statement, which compares the columns of the key', async (t) => {
  const requests = [
    ['GET', '/items/order_lines/1~42'],
    ['GET', '/items/orders/1?fields=lines,lines.product_id.name'],
    ['SEARCH', '/items/order_lines', { keys: ['1~11', '1~42'] }],
  ] as const;
  for (const [method, path, body] of requests) {
    const sent = await recorder.during(() => send(method, path, body));
    t.equal(sent.length, 1, `${method} ${path}`);
    t.notMatch(sent[0]?.text.split(' where ')[1], /'~'/, 'no joined text is compared');
  }
});

const MALFORMED = [
  '1~',
  '~',
  '1',
  '1~2~3',
  '',
  'x~y',
  '1~x',
  '1\\~2',
  '1~2\\',
  '\\x~1',
  '1~9999999999',
  '1~1.5',
  '1~\0',
  '~~',
  '1~-',
];

t.test('a malformed key names no item', async (t) => {
  for (const key of MALFORMED) {
    const path = `/items/order_lines/${encodeURIComponent(key)}`;
    if (key !== '') {
      t.equal((await get(service, path)).status, 403, `GET ${key}`);
      t.equal((await send('PATCH', path, { note: 'x' })).status, 403, `PATCH ${key}`);
      t.equal((await request(service, 'DELETE', path)).status, 403, `DELETE ${key}`);
    }
    t.equal((await send('SEARCH', '/items/order_lines', { keys: [key] })).status, 403, `keys ${key}`);
    t.equal((await send('DELETE', '/items/order_lines', ['1~11', key])).status, 403, `DELETE [${key}]`);
    t.equal(
      (await send('PATCH', '/items/order_lines', { keys: [key], data: { note: 'x' } })).status,
      403,
      `PATCH ${key}`,
    );
    const nested = await send('PATCH', '/items/orders/1', { lines: [key] });
    t.equal(nested.status, 403, `nested ${key}: ${nested.text}`);
    t.match(await ask('query ($id: ID!) { order_lines_by_id(id: $id) { note } }', { id: key }), {
      data: { order_lines_by_id: null },
      errors: [{ extensions: { code: 'FORBIDDEN' } }],
    });
  }
  for (const keys of [[1], [null], [true], [['1~2']], [{ order_id: 1, product_id: 11 }]])
    t.match(String((await send('DELETE', '/items/order_lines', keys)).status), /^40[03]$/, JSON.stringify(keys));
  const [{ count } = { count: 0 }] = await sql<
    { count: number }[]
  >`select count(*)::int from order_lines where note is distinct from 'x'`;
  t.equal(count, 4, 'and nothing was changed');
});

const INSERTS = (await readFile(packagePath('test', 'schemas', 'keys.sql'), 'utf8')).match(/^insert [^;]*;$/gm) ?? [];

/** The rows as they were; the tables stay, so that the model does. */
async function reset(): Promise<void> {
  await sql`
    truncate orders, products, order_lines, films, actors, film_actor, labels, readings, payments, seats, points, notes
    restart identity`;
  await sql.unsafe(INSERTS.join('\n')).simple();
}

t.test('an item is made by its columns, changed and deleted by its key', async (t) => {
  t.teardown(reset);
  t.strictSame(data(await send('POST', '/items/order_lines', { order_id: 2, product_id: 42, quantity: 3 })), {
    order_id: 2,
    product_id: 42,
    quantity: 3,
    note: null,
  });
  t.strictSame(
    data(
      await send('POST', '/items/order_lines?fields=product_id,order_id', [
        { order_id: 3, product_id: 72 },
        { order_id: 3, product_id: 11, quantity: 2 },
      ]),
    ),
    [
      { product_id: 72, order_id: 3 },
      { product_id: 11, order_id: 3 },
    ],
    'in the order of the payload',
  );
  t.match(await send('POST', '/items/order_lines', { order_id: 2, product_id: 42 }), { status: 400 }, 'taken');
  t.match(await send('POST', '/items/order_lines', { order_id: 2 }), { status: 400 }, 'a part is missing');
  t.strictSame(data(await send('PATCH', '/items/order_lines/2~42?fields=quantity,note', { note: 'more' })), {
    quantity: 3,
    note: 'more',
  });
  t.strictSame(
    data(await send('PATCH', '/items/order_lines?fields=note', { keys: ['3~72', '1~11'], data: { note: 'both' } })),
    [{ note: 'both' }, { note: 'both' }],
  );
  t.strictSame(
    data(
      await send('PATCH', '/items/order_lines?fields=quantity', [
        { order_id: 3, product_id: 72, quantity: 7 },
        { product_id: 11, order_id: 3, quantity: 8 },
      ]),
    ),
    [{ quantity: 7 }, { quantity: 8 }],
  );
  t.strictSame(
    data(
      await send('PATCH', '/items/order_lines?fields=order_id', {
        query: { filter: { order_id: { _eq: 3 } } },
        data: { quantity: 1 },
      }),
    ),
    [{ order_id: 3 }, { order_id: 3 }],
  );
  const moved = await send('PATCH', '/items/order_lines/2~42', { product_id: 72 });
  t.match(moved, { status: 400, text: /part of the key/ });
  t.equal((await send('PATCH', '/items/order_lines/2~42', { product_id: 42, note: 'same' })).status, 200);
  t.equal((await request(service, 'DELETE', '/items/order_lines/2~42')).status, 204);
  t.equal((await request(service, 'DELETE', '/items/order_lines/2~42')).status, 403);
  t.equal((await send('DELETE', '/items/order_lines', ['3~72', '1~11'])).status, 204);
  t.equal((await send('DELETE', '/items/order_lines', { query: { filter: { order_id: { _eq: 3 } } } })).status, 204);
  t.strictSame(
    [...(await sql`select order_id, product_id from order_lines order by 1, 2`)],
    [
      { order_id: 1, product_id: 42 },
      { order_id: 1, product_id: 72 },
      { order_id: 2, product_id: 11 },
    ],
  );
  const activity = await sql`select action, item from service_activity where collection = 'order_lines' order by id`;
  t.strictSame([...activity].map(({ action, item }) => `${action} ${item}`).slice(0, 4), [
    'create 2~42',
    'create 3~72',
    'create 3~11',
    'update 2~42',
  ]);
  const revisions = await sql`select item from service_revisions where collection = 'order_lines' order by id limit 1`;
  t.equal(revisions[0]?.['item'], '2~42');
});

t.test('keys that the database fills, and of every type', async (t) => {
  t.teardown(reset);
  t.match(data(await send('POST', '/items/payments', { paid: '2024-09-01', amount: 5 })), { id: 4, amount: '5.00' });
  t.match(data(await send('PATCH', '/items/payments/2024-09-01~4', { amount: 6 })), { amount: '6.00' });
  t.equal((await request(service, 'DELETE', '/items/payments/2024-09-01~4')).status, 204);
  const word = { kind: '~\\', code: '\\~~', word: 'new' };
  t.strictSame(data(await send('POST', '/items/labels', word)), { ...word });
  const path = `/items/labels/${encodeURIComponent('\\~\\\\~\\\\\\~\\~')}`;
  t.strictSame(data(await send('PATCH', `${path}?fields=word`, { word: 'newer' })), { word: 'newer' });
  const [logged] = await sql`select item from service_activity where collection = 'labels' order by id desc limit 1`;
  t.equal(logged?.['item'], '\\~\\\\~\\\\\\~\\~');
  t.equal((await request(service, 'DELETE', path)).status, 204);
  const reading = '2024-02-29T12:00:00.500Z~2024-02-29~6f9619ff-8b86-d011-b42d-00cf4fc964ff~+/8=~1.50';
  t.match(data(await send('PATCH', `/items/readings/${encodeURIComponent(reading)}`, { value: 2 })), { value: 2 });
  t.match(data(await send('PATCH', '/items/seats/A~2', { guest: 'Cy' })), { guest: 'Cy' });
  t.match(data(await send('PATCH', '/items/points/1~2', { label: 'uno' })), { label: 'uno' });
  t.match(data(await send('POST', '/items/points', { x: 5, y: 6, label: 'three' })), { label: 'three' });
});

t.test('lists of related items: made, changed, linked, replaced and removed', async (t) => {
  t.teardown(reset);
  const rows = async () =>
    (
      await sql`select order_id || '~' || product_id || ' ' || quantity as line from order_lines order by order_id, product_id`
    ).map(({ line }) => line as string);
  const made = await send('POST', '/items/orders?fields=customer,lines.product_id,lines.quantity', {
    customer: 'Di',
    lines: [{ product_id: 42, quantity: 2 }, { product_id: { id: 99, name: 'tape' } }],
  });
  t.strictSame(data(made), {
    customer: 'Di',
    lines: [
      { product_id: 42, quantity: 2 },
      { product_id: 99, quantity: 1 },
    ],
  });
  const replaced = await send('PATCH', '/items/orders/1?fields=lines', {
    lines: [{ product_id: 11, quantity: 1 }, '1~72', { product_id: 99 }],
  });
  t.strictSame(data(replaced), { lines: ['1~11', '1~72', '1~99'] });
  const detailed = await send('PATCH', '/items/orders/1?fields=lines', {
    lines: { create: [{ product_id: 42 }], update: [{ product_id: 11, quantity: 4 }], delete: ['1~72'] },
  });
  t.strictSame(data(detailed), { lines: ['1~11', '1~42', '1~99'] }, detailed.text);
  t.strictSame(await rows(), ['1~11 4', '1~42 1', '1~99 1', '2~11 9', '4~42 2', '4~99 1']);
  t.match(await send('PATCH', '/items/orders/2', { lines: ['1~11'] }), { status: 400, text: /part of the key/ });
  t.match(await send('PATCH', '/items/orders/2', { lines: ['2~42'] }), { status: 403 }, 'there is none');
  t.equal((await send('PATCH', '/items/orders/2', { lines: [] })).status, 200);
  t.strictSame(await rows(), ['1~11 4', '1~42 1', '1~99 1', '4~42 2', '4~99 1']);
});

t.test('a junction whose key is its two references', async (t) => {
  t.teardown(reset);
  const actors = async (film: number) =>
    (await sql`select actor_id from film_actor where film_id = ${film} order by 1`).map(
      ({ actor_id }) => actor_id as number,
    );
  const before = await sql`select updated from film_actor where actor_id = 1 and film_id = 1`;
  const linked = await send('PATCH', '/items/films/1?fields=actors.actor_id.name', {
    actors: [{ actor_id: 1 }, { actor_id: 3 }, { actor_id: { name: 'Ian' } }],
  });
  t.strictSame(data(linked), {
    actors: [{ actor_id: { name: 'Sigourney' } }, { actor_id: { name: 'Jonathan' } }, { actor_id: { name: 'Ian' } }],
  });
  t.strictSame(await actors(1), [1, 3, 4]);
  t.strictSame(await sql`select updated from film_actor where actor_id = 1 and film_id = 1`, before, 'kept as it was');
  t.equal(
    (await send('PATCH', '/items/films/1', { actors: { create: [{ actor_id: 2 }], delete: ['3~1', '4~1'] } })).status,
    200,
  );
  t.strictSame(await actors(1), [1, 2]);
  t.equal((await send('PATCH', '/items/actors/2', { films: [{ film_id: 2 }] })).status, 200, 'from the other side');
  t.strictSame(await actors(1), [1]);
  t.strictSame(await actors(2), [2, 3]);
  const renamed = await send('PATCH', '/items/films/2?fields=actors.actor_id.name', {
    actors: [{ actor_id: { id: 2, name: 'Jon' } }],
  });
  t.strictSame(data(renamed), { actors: [{ actor_id: { name: 'Jon' } }] });
  const mutation = `mutation { update_films_item(id: "1", data: { actors: [{ actor_id: { id: "3" } }] }) { actors { actor_id { name } } } }`;
  t.strictSame(await ask(mutation), { data: { update_films_item: { actors: [{ actor_id: { name: 'Jonathan' } }] } } });
  t.strictSame(await ask('mutation { delete_film_actor_item(id: "3~1") { id } }'), {
    data: { delete_film_actor_item: { id: '3~1' } },
  });
  t.strictSame(await actors(1), []);
});

t.test('imports and repeated requests', async (t) => {
  t.teardown(reset);
  const boundary = 'x';
  const file = 'order_id,product_id,quantity\n1,11,100\n2,72,200\n';
  const body = `--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n${file}\r\n--x--\r\n`;
  const imported = await request(service, 'POST', '/utils/import/order_lines', {
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
    body,
  });
  t.equal(imported.status, 200, imported.text);
  t.strictSame(
    (await sql`select quantity from order_lines where quantity >= 100 order by 1`).map(
      ({ quantity }) => quantity as number,
    ),
    [100, 200],
  );
  const post = () =>
    request(service, 'POST', '/items/order_lines', {
      headers: { ...headers, 'idempotency-key': 'once' },
      body: JSON.stringify({ order_id: 3, product_id: 11 }),
    });
  const [first, again] = [await post(), await post()];
  t.strictSame(again.json, first.json);
  t.equal(first.status, 200, first.text);
});

t.test('a collection without a key can be listed', async (t) => {
  t.strictSame(data(await get(service, '/items/notes?sort=-at&fields=at,film.title&limit=2')), [
    { at: 3, film: { title: 'Brazil' } },
    { at: 3, film: { title: 'Brazil' } },
  ]);
  t.strictSame(data(await get(service, '/items/notes?filter[film][title]=Alien&aggregate[count]=*')), [{ count: 2 }]);
  t.strictSame(data(await get(service, '/items/films/1?fields=notes.message')), {
    notes: [{ message: 'seen' }, { message: 'seen' }],
  });
  t.equal((await get(service, '/items/notes?export=csv')).status, 200);
  t.equal(
    ((await get(service, '/items/notes?meta=total_count')).json as { meta: { total_count: number } }).meta.total_count,
    4,
  );
  t.match(await ask('{ notes(sort: ["at"], limit: 1) { at message } notes_aggregated { countAll } }'), {
    data: { notes: [{ at: 1, message: 'seen' }], notes_aggregated: [{ countAll: 4 }] },
  });
  const refusal = { status: 403, text: /has no key/ };
  t.match(await get(service, '/items/notes/1'), refusal);
  t.match(await send('SEARCH', '/items/notes', { keys: ['1'] }), refusal);
  t.match(await send('POST', '/items/notes', { at: 9 }), refusal);
  t.match(await send('PATCH', '/items/notes/1', { at: 9 }), refusal);
  t.match(await send('PATCH', '/items/notes', { query: { filter: { at: { _eq: 1 } } }, data: { at: 9 } }), refusal);
  t.match(await send('PATCH', '/items/notes', [{ at: 1 }]), { status: 400 });
  t.match(await send('DELETE', '/items/notes', ['1']), refusal);
  t.match(await send('DELETE', '/items/notes', { query: { filter: { at: { _eq: 1 } } } }), refusal);
  for (const notes of [[{ at: 9 }], [], null, { delete: ['1'] }])
    t.match(await send('PATCH', '/items/films/1', { notes }), refusal, JSON.stringify(notes));
  t.match(await get(service, '/items/notes?cursor='), { status: 400, text: /has none/ });
  const [{ count } = { count: 0 }] = await sql<{ count: number }[]>`select count(*)::int from notes where at < 9`;
  t.equal(count, 4);
});

t.test('a key that holds an array is none: PostgreSQL has no lists of arrays', async (t) => {
  await sql`create table paths (steps integer[], part integer, primary key (steps, part))`;
  await sql`insert into paths values ('{1,2}', 1)`;
  await waitFor(async () => (await get(service, '/items/paths')).status === 200, 5_000);
  t.strictSame(data(await get(service, '/items/paths')), [{ steps: [1, 2], part: 1 }]);
  const refusal = { status: 403, text: /has no key/ };
  t.match(await send('SEARCH', '/items/paths', { keys: ['{1,2}~1'] }), refusal);
  t.match(await send('POST', '/items/paths', { steps: [1], part: 2 }), refusal);
});

t.test('the descriptions of the API know them', async (t) => {
  const openapi = await get(service, '/server/specs/oas');
  t.equal(openapi.status, 200);
  const { paths } = openapi.json as { paths: Record<string, Record<string, { parameters: unknown[] }>> };
  t.match(paths['/items/order_lines/{key}']?.['get']?.parameters[0], { name: 'key', schema: { type: 'string' } });
  t.notOk(paths['/items/notes/{key}']);
  t.strictSame(
    Object.keys(paths['/items/notes'] ?? {}).filter((method) => method !== 'search' && method !== 'x-search'),
    ['get'],
  );
});

t.test('a caller who may not see a part of a key does not find out by trying', async (t) => {
  const lines = (fields: string[], permissions: object | null = null) =>
    ({ collection: 'order_lines', action: 'read', fields, permissions }) as const;
  const blind = await makeCaller(sql, 'blind', [
    {
      permissions: [
        lines(['order_id', 'quantity']),
        { collection: 'order_lines', action: 'update', fields: ['quantity'] },
      ],
    },
  ]);
  const half = await makeCaller(sql, 'half', [
    { permissions: [lines(['order_id', 'quantity']), lines(['product_id'], { order_id: { _eq: 2 } })] },
  ]);
  await waitFor(async () => (await get(service, '/items/order_lines', half)).status === 200, 5_000);
  for (const { token } of [blind, half]) {
    const missing = await get(service, '/items/order_lines/1~99999', { token });
    const present = await get(service, '/items/order_lines/1~42', { token });
    t.equal(present.status, 403);
    t.equal(present.text, missing.text);
    const search = async (key: string) => (await send('SEARCH', '/items/order_lines', { keys: [key] }, token)).text;
    t.equal(await search('1~42'), await search('1~99999'));
  }
  t.match(data(await get(service, '/items/order_lines/2~11?fields=quantity', half)), { quantity: 9 });
  const asked = await send('POST', '/graphql', { query: '{ order_lines_by_id(id: "1~42") { quantity } }' }, half.token);
  t.match(asked.json, { errors: [{ extensions: { code: 'FORBIDDEN' } }] });
  const changed = await send('PATCH', '/items/order_lines/1~42?fields=quantity', { quantity: 10 }, blind.token);
  t.strictSame(data(changed), { quantity: 10 }, 'who wrote an item reads it back');
});

t.test('a client builds keys from what the API says of them', async (t) => {
  await sql`create table ordk (a integer, b integer, note text, primary key (b, a))`;
  await sql`insert into ordk values (1, 2, 'a is 1'), (2, 1, 'a is 2')`;
  await waitFor(async () => (await get(service, '/items/ordk')).status === 200, 5_000);
  type Described = { schema: { primary_key: string[] | null } };
  const fields = (await get(service, '/fields/ordk')).json as { data: (Described & { field: string })[] };
  t.strictSame(
    fields.data.map(({ field, schema }) => [field, schema.primary_key]),
    [
      ['a', ['b', 'a']],
      ['b', ['b', 'a']],
      ['note', null],
    ],
  );
  t.match((await get(service, '/fields/ordk/a')).json, { data: { schema: { primary_key: ['b', 'a'] } } });
  const collection = (await get(service, '/collections/ordk')).json as { data: Described };
  const key = collection.data.schema.primary_key ?? [];
  const row: Record<string, number> = { a: 1, b: 2 };
  t.match((await get(service, `/items/ordk/${key.map((name) => row[name]).join('~')}`)).json, {
    data: { a: 1, b: 2, note: 'a is 1' },
  });
  const { components } = (await get(service, '/server/specs/oas')).json as { components: { schemas: object } };
  t.ok(Object.values(components.schemas).some((each) => String(each['x-primary-key']) === 'b,a'));
});
