/**
 * How PostgreSQL finds items by keys of several columns: by the index of the key, in one partition of a hundred, on another server.
 * And what becomes of keys that are made up: KEY_FUZZ says how many.
 */
import t from 'tap';
import { joinKey, splitKey } from '../../../src/compiler/sql/key-text.js';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  databaseUrl as urlOf,
  waitFor,
} from '../../support/service.js';

const FUZZ = Number(process.env['KEY_FUZZ'] ?? 100);
t.setTimeout(120_000 + FUZZ * 250);
const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'key_plans', ['keys.sql']);
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table measures (day integer, sensor integer, value integer, primary key (day, sensor)) partition by list (day);
  do $$ begin for day in 0..99 loop
    execute format('create table measures_%s partition of measures for values in (%s)', day, day);
  end loop; end $$;
  insert into measures select day, sensor, day * 1000 + sensor from generate_series(0, 99) day, generate_series(1, 20) sensor;
  create table many (a integer, b text, value integer, primary key (a, b));
  insert into many select n % 1000, 'b' || n, n from generate_series(1, 50000) n;
  analyze;`);
await createDatabase(server, 'elsewhere');
const far = connectSql(urlOf(server, 'elsewhere'));
t.teardown(() => far.end());
await far.unsafe(`
  create table places (country text, code integer, name text, primary key (country, code));
  insert into places values ('fr', 1, 'Paris'), ('fr', 2, 'Lyon'), ('it', 1, 'Roma');`);
const { hostname, port, username, password } = new URL(server.url);
await sql.unsafe(`
  create extension postgres_fdw;
  create server far foreign data wrapper postgres_fdw options (host '${hostname}', port '${port}', dbname '${server.prefix}elsewhere');
  create user mapping for current_user server far options (user '${decodeURIComponent(username)}', password '${decodeURIComponent(password)}');
  import foreign schema public limit to (places) from server far into public;`);
const service = await startTestService({ databaseUrl, WORKERS: '1' });
await sql`insert into service_collections (collection, primary_key) values ('places', 'country,code')`;
await waitFor(async () => (await get(service, '/items/places/it~1')).status === 200, 5_000);

const headers = { 'content-type': 'application/json' };

function send(method: string, path: string, content: unknown, token?: string): Promise<Answer> {
  const body = JSON.stringify(content);
  const length = { 'content-length': String(Buffer.byteLength(body)) };
  return request(service, method, path, { headers: { ...headers, ...length }, body, ...(token ? { token } : {}) });
}

interface Scan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Actual Loops': number;
  readonly Plans?: readonly Scan[];
}

/** The scans of tables that were carried out. */
async function scansOf(method: string, path: string, content?: unknown): Promise<string[]> {
  const body = content === undefined ? '' : JSON.stringify(content);
  const answer = await request(service, method, path, { headers: { ...headers, prefer: 'explain=analyze' }, body });
  const { data } = answer.json as { data: { plan: readonly { Plan: Scan }[] | { Plan: Scan } } };
  const [first] = Array.isArray(data.plan) ? (data.plan as { Plan: Scan }[]) : [data.plan as { Plan: Scan }];
  const scans: string[] = [];
  const walk = (node: Scan): void => {
    if (node['Relation Name'] !== undefined && node['Actual Loops'] > 0)
      scans.push(`${node['Node Type']} ${node['Relation Name']}`);
    node.Plans?.forEach(walk);
  };
  if (first) walk(first.Plan);
  return scans;
}

t.test('every value of every row is that of SQL, in lists and by key', async (t) => {
  const collections: Readonly<Record<string, readonly string[]>> = {
    order_lines: ['order_id', 'product_id', 'quantity', 'note'],
    film_actor: ['actor_id', 'film_id'],
    labels: ['kind', 'code', 'word'],
    payments: ['paid', 'id', 'amount'],
    seats: ['row_letter', 'seat', 'guest', 'code', 'floor'],
    measures: ['day', 'sensor', 'value'],
    places: ['country', 'code', 'name'],
    notes: ['at', 'message', 'film'],
  };
  for (const [name, columns] of Object.entries(collections)) {
    const isKeyless = name === 'notes';
    const texts = columns.map((column) => sql`${sql(column)}::text as ${sql(column)}`);
    const select = texts.reduce((list, text) => sql`${list}, ${text}`);
    const order = isKeyless ? sql`at, message, film` : sql`${sql(columns.slice(0, 2))}`;
    const rows = [...(await sql`select ${select} from ${sql(name)} t order by ${order}`)].map((row) => ({ ...row }));
    const shown = (item: Record<string, unknown>): Record<string, string | null> =>
      Object.fromEntries(columns.map((column) => [column, item[column] === null ? null : String(item[column])]));
    const sorted = (list: readonly object[]): string[] => list.map((each) => JSON.stringify(each)).sort();
    const list = await get(service, `/items/${name}?limit=-1&fields=${columns.join(',')}`);
    const { data } = list.json as { data: Record<string, unknown>[] };
    t.strictSame(sorted(data.map(shown)), sorted(rows), `${name}: ${rows.length} rows`);
    for (const item of isKeyless || name === 'measures' ? [] : data) {
      const key = joinKey(columns.slice(0, 2).map((column) => item[column]));
      const one = await get(service, `/items/${name}/${encodeURIComponent(key)}?fields=${columns.join(',')}`);
      t.strictSame(one.json, { data: item }, `${name} ${key}`);
    }
  }
});

t.test('a read by key looks into one of a hundred partitions', async (t) => {
  for (const day of [0, 42, 99])
    t.match(await scansOf('GET', `/items/measures/${day}~7`), [new RegExp(`(Index|Bitmap|Seq).* measures_${day}$`)]);
  const answer = await get(service, '/items/measures/42~7');
  t.strictSame(answer.json, { data: { day: 42, sensor: 7, value: 42_007 } });
});

t.test('keys are found by the index of the key', async (t) => {
  t.match(await scansOf('GET', '/items/many/7~b7'), [/^Index (Only )?Scan many$/]);
  const keys = Array.from({ length: 50 }, (_, n) => `${(n + 1) % 1000}~b${n + 1}`);
  t.match(await scansOf('SEARCH', '/items/many', { keys }), [/^Index (Only )?Scan many$/]);
  t.equal(((await send('SEARCH', '/items/many', { keys })).json as { data: unknown[] }).data.length, 50);
});

t.test('a table of another server, by a declared key', async (t) => {
  t.strictSame((await get(service, '/items/places/fr~2')).json, { data: { country: 'fr', code: 2, name: 'Lyon' } });
  t.strictSame((await get(service, '/items/places?fields=name&filter[country]=fr')).json, {
    data: [{ name: 'Paris' }, { name: 'Lyon' }],
  });
  t.match(await send('POST', '/items/places', { country: 'it', code: 2, name: 'Milano' }), { status: 200 });
  t.match(await send('PATCH', '/items/places/it~2?fields=name', { name: 'Milan' }), {
    json: { data: { name: 'Milan' } },
  });
  t.equal((await request(service, 'DELETE', '/items/places/it~2')).status, 204);
  t.equal((await far`select from places`).length, 3);
});

t.test('permissions on items whose key has several columns', async (t) => {
  const everything = ['*'];
  const clerk = await makeCaller(sql, 'clerk', [
    {
      permissions: [
        { collection: 'order_lines', action: 'read', permissions: { order_id: { _eq: 1 } }, fields: everything },
        { collection: 'order_lines', action: 'update', permissions: { quantity: { _gt: 5 } }, fields: ['note'] },
        { collection: 'order_lines', action: 'create', validation: { quantity: { _lt: 50 } }, fields: everything },
        { collection: 'order_lines', action: 'delete', permissions: { product_id: { _neq: 11 } } },
        { collection: 'film_actor', action: 'read', fields: ['film_id'] },
      ],
    },
  ]);
  const { token } = clerk;
  await waitFor(async () => (await get(service, '/items/order_lines', { token })).status === 200, 5_000);
  const status = async (method: string, path: string, content?: unknown) =>
    (content === undefined ? await request(service, method, path, { token }) : await send(method, path, content, token))
      .status;
  t.equal(await status('GET', '/items/order_lines/1~11'), 200);
  t.equal(await status('GET', '/items/order_lines/2~11'), 403, 'not of those that may be seen');
  t.equal(await status('PATCH', '/items/order_lines/1~42', { note: 'ten' }), 200);
  t.equal(await status('PATCH', '/items/order_lines/1~72', { note: 'five' }), 403, 'not of those that may be changed');
  t.equal(await status('PATCH', '/items/order_lines/1~42', { quantity: 11 }), 403, 'not a field that may be');
  t.equal(await status('POST', '/items/order_lines', { order_id: 3, product_id: 11, quantity: 49 }), 204, 'unseen');
  t.equal(await status('POST', '/items/order_lines', { order_id: 3, product_id: 42, quantity: 50 }), 400);
  t.equal(await status('DELETE', '/items/order_lines', ['1~42', '1~11']), 403, 'one of them may not go');
  t.equal(await status('DELETE', '/items/order_lines', ['1~42']), 204);
  t.equal((await sql`select from order_lines`).length, 4);
  t.strictSame((await get(service, '/items/film_actor', { token })).json, {
    data: [{ film_id: 1 }, { film_id: 1 }, { film_id: 2 }],
  });
  t.equal(await status('GET', '/items/film_actor?cursor='), 403, 'a cursor would tell the part that may not be seen');
  const schema = await request(service, 'POST', '/graphql', {
    token,
    headers,
    body: JSON.stringify({ query: '{ film_actor_by_id(id: "1~1") { film_id } }' }),
  });
  t.equal(schema.status, 400, 'no field by a key that may not be seen');
});

t.test('keys are joined and taken apart', async (t) => {
  const texts = ['', 'a', '~', '\\', '~~', '\\~', 'a~b', '\\\\', 'é', '"', '\n'];
  for (const one of texts)
    for (const other of texts) t.strictSame(splitKey(joinKey([one, other]), 2), [one, other], joinKey([one, other]));
  for (const wrong of ['', 'a', 'a~b~c', 'a~\\', '\\x~b', 'a\\~b']) t.equal(splitKey(wrong, 2), null, wrong);
});

t.test('keys that are made up name an item or none, and are never a fault', async (t) => {
  t.setTimeout(60_000 + FUZZ * 250);
  let state = 20_240_229;
  const random = (below: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
  const pieces = [
    '~',
    '~',
    '\\',
    '\\~',
    '1',
    '2',
    '11',
    '42',
    '-',
    '.',
    '0',
    '9'.repeat(12),
    'a',
    'b',
    ' ',
    '"',
    "'",
    '%',
    '\0',
    'é',
    '\u{1F600}',
    '2024-08-01',
    '{',
    ',',
    '1e9',
    'NaN',
    '$NOW',
    '+/8=',
    '6f9619ff-8b86-d011-b42d-00cf4fc964ff',
  ];
  const collections = { order_lines: 2, labels: 2, readings: 5, payments: 2, seats: 2, points: 2, measures: 2 };
  const names = Object.keys(collections);
  const existing = new Set(
    (await sql`select order_id, product_id from order_lines`).map((row) => `${row['order_id']}~${row['product_id']}`),
  );
  for (let turn = 0; turn < FUZZ; turn++) {
    const key = Array.from({ length: 1 + random(6) }, () => pieces[random(pieces.length)]).join('');
    const name = names[random(names.length)] as string;
    const path = `/items/${name}/${encodeURIComponent(key)}`;
    const answers = [
      await get(service, path),
      await send('SEARCH', `/items/${name}`, { keys: [key] }),
      await send('PATCH', path, {}),
      await send('POST', '/graphql', {
        query: `query ($id: ID!) { ${name}_by_id(id: $id) { __typename } }`,
        variables: { id: key },
      }),
    ];
    if (!existing.has(key)) answers.push(await send('DELETE', '/items/order_lines', [key]));
    const wrong = answers.filter(({ status }) => status !== 200 && status !== 400 && status !== 403);
    if (wrong.length > 0)
      t.fail(
        `${name} ${JSON.stringify(key)}: ${wrong.map(({ status, text }) => `${status} ${text.slice(0, 200)}`).join(' ')}`,
      );
    if (name === 'order_lines' && existing.has(key) !== (answers[0]?.status === 200))
      t.fail(`${key}: ${answers[0]?.text}`);
  }
  t.equal((await sql`select from order_lines`).length, existing.size, `${FUZZ} keys changed nothing`);
});
