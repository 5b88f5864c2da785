/** Payloads whose statement is known: their values are checked as those of the first, and rights and schema apply as they are now. */
import t from 'tap';
import { addPermission, inForce, makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'known_writes');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table parts (id serial primary key, name text not null, amount int not null default 0, price numeric(6, 2), kind varchar(5),
    made timestamptz, changed timestamptz, maker uuid, facts jsonb, parent int references parts, secret text);
  insert into parts (name) select 'part ' || n from generate_series(1, 20) n`);
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });
await sql.unsafe(`
  insert into service_fields (collection, field, special) values ('parts', 'made', 'date-created'),
    ('parts', 'changed', 'date-updated'), ('parts', 'maker', 'user-created'), ('parts', 'secret', 'conceal')`);

function send(method: string, path: string, body: unknown, token = ADMIN_TOKEN): Promise<Answer> {
  return request(service, method, path, {
    headers: { 'content-type': 'application/json' },
    token,
    body: JSON.stringify(body),
  });
}

/** Sends it until its statement is known. */
async function warm(method: string, path: string, body: unknown, token = ADMIN_TOKEN): Promise<Answer> {
  await send(method, path, body, token);
  await send(method, path, body, token);
  return send(method, path, body, token);
}

await waitFor(async () => (await send('POST', '/items/parts', { name: 'x' })).text.includes('"made":"2'), 10_000);

t.test('values are checked as those of the first payload', async (t) => {
  const first = await warm('POST', '/items/parts?fields=name,amount,price,kind', {
    name: 'a',
    amount: 1,
    price: 2,
    kind: 'k',
  });
  t.same(first.json, { data: { name: 'a', amount: 1, price: '2.00', kind: 'k' } });
  const refused: [Record<string, unknown>, RegExp][] = [
    [{ amount: 'many' }, /whole number/],
    [{ amount: 9_999_999_999 }, /amount.*range/i],
    [{ amount: null }, /amount/],
    [{ price: 123_456.5 }, /price/],
    [{ kind: 'too long' }, /kind/],
    [{ name: null }, /name/],
    [{ name: 'a\u0000b' }, /NUL/],
    [{ name: ['a'] }, /name/],
    [{ nome: 'a' }, /nome/],
    // Its key must not read as that of the two names.
    [{ 'ame 5=price': null }, /ame 5=price/],
  ];
  for (const [change, message] of refused) {
    const { status, text } = await send('POST', '/items/parts?fields=name,amount,price,kind', {
      ...{ name: 'a', amount: 1, price: 2, kind: 'k' },
      ...change,
    });
    t.equal(status, 400, JSON.stringify(change));
    t.match(text, message);
  }
  const { json } = await send('POST', '/items/parts?fields=amount,price,kind', {
    ...{ name: '12', amount: '7', price: '1e1', kind: true },
  });
  t.same(json, { data: { amount: 7, price: '10.00', kind: 'true' } });
});

t.test('the stages of the planner are skipped', async (t) => {
  const stages = async (body: unknown): Promise<string> =>
    String((await send('PATCH', '/items/parts/1', body)).headers['server-timing']);
  await warm('PATCH', '/items/parts/1', { amount: 3, price: 1 });
  t.match(await stages({ amount: 4, price: 1 }), /parse.*compile.*execute/);
  t.notMatch(await stages({ amount: 4, price: 1 }), /plan/);
  t.match(await stages({ amount: 4, facts: {} }), /plan/);
});

t.test('operators are known by their names', async (t) => {
  const path = '/items/parts/4?fields=amount,kind';
  await sql`update parts set amount = 0, kind = null where id = 4`;
  await warm('PATCH', path, { amount: { _increment: 2 }, kind: { _append: 'a' } });
  const stages = async (body: unknown): Promise<string> =>
    String((await send('PATCH', path, body)).headers['server-timing']);
  t.notMatch(await stages({ amount: { _increment: 3 }, kind: { _append: 'b' } }), /plan/);
  t.match(await stages({ amount: { _decrement: 1 }, kind: { _append: 'c' } }), /plan/, 'another operator');
  t.match((await send('PATCH', path, { amount: 1, kind: 'x' })).json, { data: { amount: 1, kind: 'x' } });
  await warm('PATCH', path, { amount: { _increment: 1 } });
  for (const [operand, message] of [
    ['many', /amount\._increment.*whole number/],
    [null, /amount\._increment.*must not be null/],
    [2_147_483_647, /amount/],
    [[1], /amount/],
  ] as const) {
    const { status, text } = await send('PATCH', path, { amount: { _increment: operand } });
    t.equal(status, 400, JSON.stringify(operand));
    t.match(text, message);
  }
  t.equal((await send('PATCH', path, { amount: { _increment: 1, more: 1 } })).status, 400);
  t.same(await sql`select amount, kind from parts where id = 4`, [{ amount: 4, kind: 'x' }]);
});

t.test('an item that does not exist, and a key that is none', async (t) => {
  await warm('PATCH', '/items/parts/1', { amount: 3 });
  t.equal((await send('PATCH', '/items/parts/999999', { amount: 3 })).status, 403);
  t.equal((await send('PATCH', '/items/parts/abc', { amount: 3 })).status, 403);
  t.equal((await send('PATCH', '/items/parts/2', { amount: 4, id: 5 })).status, 200);
  t.same(await sql`select id, amount from parts where id in (1, 2, 5) order by id`, [
    { id: 1, amount: 3 },
    { id: 2, amount: 4 },
    { id: 5, amount: 0 },
  ]);
});

t.test('flags of fields fill in the time and the caller of each request', async (t) => {
  const permissions = (['create', 'read', 'update'] as const).map((action) => ({ collection: 'parts', action }));
  const callers = [
    await makeCaller(sql, 'one', [{ permissions }]),
    await makeCaller(sql, 'two', [{ permissions }]),
  ] as const;
  for (const caller of callers) await inForce(service, caller, '/items/parts');
  for (const { token, user } of callers) {
    const body = { name: 'own', made: '2001-01-01T00:00:00Z' };
    const { json } = await warm('POST', '/items/parts?fields=maker,made', body, token);
    const { maker, made } = (json as { data: { maker: string; made: string } }).data;
    t.equal(maker, user);
    t.ok(Date.now() - Date.parse(made) < 60_000, 'the service alone says when an item was made');
  }
  const changedAt = async (): Promise<string> =>
    ((await warm('PATCH', '/items/parts/3?fields=changed', { amount: 1 })).json as { data: { changed: string } }).data
      .changed;
  const before = await changedAt();
  await waitFor(() => Promise.resolve(Date.now() > Date.parse(before) + 5), 5_000);
  t.not(await changedAt(), before);
});

t.test('a secret as it is shown leaves the stored one', async (t) => {
  await warm('PATCH', '/items/parts/4', { secret: 'deep' });
  await send('PATCH', '/items/parts/4', { secret: '**********' });
  t.same(await sql`select secret from parts where id = 4`, [{ secret: 'deep' }]);
});

t.test('nested items and documents behind plain values', async (t) => {
  await warm('PATCH', '/items/parts/6', { parent: 1 });
  const nested = await send('PATCH', '/items/parts/6?fields=parent.name', { parent: { name: 'new parent' } });
  t.same(nested.json, { data: { parent: { name: 'new parent' } } });
  await warm('PATCH', '/items/parts/6', { facts: 'text' });
  const document = await send('PATCH', '/items/parts/6?fields=facts', { facts: { a: [1] } });
  t.same(document.json, { data: { facts: { a: [1] } } });
});

t.test('permissions that change apply to the next request', async (t) => {
  const caller = await makeCaller(sql, 'limited', [
    {
      permissions: [
        { collection: 'parts', action: 'read' },
        { collection: 'parts', action: 'update' },
      ],
    },
  ]);
  await inForce(service, caller, '/items/parts');
  t.equal((await warm('PATCH', '/items/parts/7', { amount: 1 }, caller.token)).status, 200);
  await sql`delete from service_permissions where policy = ${caller.policies[0] ?? ''} and action = 'update'`;
  const fields = ['name'];
  await addPermission(sql, caller.policies[0] ?? '', { collection: 'parts', action: 'update', fields });
  await waitFor(
    async () => (await send('PATCH', '/items/parts/7', { amount: 2 }, caller.token)).status === 403,
    10_000,
  );
  t.equal((await warm('PATCH', '/items/parts/7', { name: 'b' }, caller.token)).status, 200);
});

t.test('a schema that changes applies to the next request', async (t) => {
  t.equal((await warm('PATCH', '/items/parts/8', { kind: 'k' })).status, 200);
  await sql`alter table parts alter column kind type varchar(2) using left(kind, 2)`;
  await waitFor(async () => (await send('PATCH', '/items/parts/8', { kind: 'kkk' })).status === 400, 10_000);
  await sql`alter table parts drop column kind`;
  t.equal((await send('PATCH', '/items/parts/8', { kind: 'k' })).status, 400);
  t.equal((await send('POST', '/items/parts', { name: 'a', kind: 'k' })).status, 400);
});
