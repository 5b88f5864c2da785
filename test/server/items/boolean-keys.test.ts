/** Keys of type boolean: requests give them as responses show them. */
import t from 'tap';
import {
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'boolean_keys');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table settings (id boolean primary key default true check (id), v text);
  create table sides (id boolean primary key, v text);
  create table parts (side boolean references sides, number integer, v text, primary key (side, number));
  create table uses (id integer primary key generated always as identity, side boolean references sides)`);
const service = await startTestService({ databaseUrl });
await sql`
  insert into service_relations (many_collection, many_field, one_collection, one_field)
  values ('uses', 'side', 'sides', 'uses')`;
await waitFor(async () => (await get(service, '/items/sides?fields=uses.id')).status === 200, 5_000);

async function send(method: string, path: string, body: unknown): Promise<{ status: number; json: unknown }> {
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  const { status, json } = await request(service, method, path, { headers, body: text });
  return { status, json: json === undefined ? null : json };
}

t.beforeEach(() => sql`truncate settings, sides, parts, uses`);

t.test('an item with a boolean key is created, merged, changed and deleted', async (t) => {
  t.strictSame(await send('POST', '/items/settings', { id: true, v: 'a' }), {
    status: 200,
    json: { data: { id: true, v: 'a' } },
  });
  t.match(await send('POST', '/items/settings', { id: true, v: 'b' }), { status: 400 }, 'a duplicate is refused');
  t.match(await send('POST', '/items/settings', { id: false, v: 'b' }), { status: 400 }, 'the check applies');
  t.match(await send('POST', '/items/settings?on_conflict=id', { id: true, v: 'c' }), {
    status: 200,
    json: { data: { id: true, v: 'c' } },
  });
  t.match(await send('PATCH', '/items/settings/true', { v: 'd' }), { json: { data: { id: true, v: 'd' } } });
  t.match(await send('PATCH', '/items/settings', [{ id: true, v: 'e' }]), { json: { data: [{ id: true, v: 'e' }] } });
  t.match(await send('PATCH', '/items/settings', { keys: [true], data: { v: 'f' } }), {
    json: { data: [{ id: true, v: 'f' }] },
  });
  t.match(await send('SEARCH', '/items/settings', { keys: [true] }), { json: { data: [{ id: true, v: 'f' }] } });
  t.strictSame((await get(service, '/items/settings/true?fields=v')).json, { data: { v: 'f' } });
  t.match(await send('DELETE', '/items/settings', [false]), { status: 403 });
  t.match(await send('DELETE', '/items/settings', [true]), { status: 204 });
  t.equal((await sql`select from settings`).length, 0);
});

t.test('lists, imports, transactions and GraphQL take boolean keys', async (t) => {
  t.match(
    await send('POST', '/items/sides', [
      { id: false, v: 'left' },
      { id: true, v: 'right' },
    ]),
    { json: { data: [{ id: false }, { id: true }] } },
  );
  t.match(
    await send('PATCH', '/items/sides?fields=v', [
      { id: true, v: 'r' },
      { id: false, v: 'l' },
    ]),
    { json: { data: [{ v: 'r' }, { v: 'l' }] } },
  );
  const operations = [
    { method: 'PATCH', path: '/items/sides', key: false, body: { v: 'left' } },
    { method: 'DELETE', path: '/items/sides', body: [true] },
  ];
  t.match(await send('POST', '/transactions', { operations }), { status: 200 });
  t.strictSame([...(await sql`select * from sides`)], [{ id: false, v: 'left' }]);
  const query = 'mutation { update_sides_item(id: "false", data: { v: "L" }) { id v } }';
  t.strictSame((await send('POST', '/graphql', { query })).json, {
    data: { update_sides_item: { id: 'false', v: 'L' } },
  });
});

t.test('a boolean is no key of another type', async (t) => {
  await sql`create table if not exists words (id text primary key)`;
  await sql`insert into words values ('true')`;
  await waitFor(async () => (await get(service, '/items/words')).status === 200, 5_000);
  t.match(await send('DELETE', '/items/words', [true]), { status: 400 });
  t.match(await send('POST', '/items/words', { id: true }), { status: 400 });
  t.match(await send('PATCH', '/items/uses', [{ id: true, side: null }]), { status: 400 });
  t.equal((await sql`select from words`).length, 1);
});

t.test('relations and composite keys take boolean keys', async (t) => {
  t.match(await send('POST', '/items/uses?fields=side.*', { side: { id: true, v: 'new' } }), {
    json: { data: { side: { id: true, v: 'new' } } },
  });
  const [use] = await sql`select id from uses`;
  t.match(await send('POST', '/items/uses?fields=side.v', { side: true }), { json: { data: { side: { v: 'new' } } } });
  t.match(await send('PATCH', '/items/sides/true?fields=uses.side', { v: 'x', uses: [{ id: use?.['id'] }] }), {
    json: { data: { uses: [{ side: true }] } },
  });
  t.match(await send('POST', '/items/uses?fields=side.v', { side: { id: true, v: 'y' } }), {
    json: { data: { side: { v: 'y' } } },
  });
  t.match(await send('POST', '/items/parts', [{ side: true, number: 1, v: 'a' }]), { status: 200 });
  t.match(await send('PATCH', '/items/parts', [{ side: true, number: 1, v: 'b' }]), {
    json: { data: [{ side: true, number: 1, v: 'b' }] },
  });
  t.match(await send('POST', '/items/parts?on_conflict=side,number', { side: true, number: 1, v: 'c' }), {
    json: { data: { side: true, number: 1, v: 'c' } },
  });
  t.match(await send('DELETE', '/items/parts', ['true~1']), { status: 204 });
});
