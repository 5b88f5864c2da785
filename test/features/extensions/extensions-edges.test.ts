/** Hooks at their edges: what is undone, what is limited, and what `afterWrite` gets. */
import t from 'tap';
import {
  type AfterWriteContext,
  type BeforeWriteContext,
  createLateral,
  defineExtension,
  Refused,
} from '../../../src/index.js';
import { ADMIN_TOKEN, connectSql, createDatabase, request, startDatabase, waitFor } from '../../support/service.js';

const ADMIN = { as: 'administrator' } as const;
const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'extensions_edges');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table people (id serial primary key, name text, visits integer not null default 0, rate float8, big bigint, notes jsonb);
  create table tags (id serial primary key, name text unique, person integer references people)`);

const written: Omit<AfterWriteContext, 'tx'>[] = [];
const committed: string[] = [];
let calls = 0;
const given: unknown[] = [];
let change: (payload: Readonly<Record<string, unknown>>) => unknown = () => undefined;
let refuses = false;
let before: (context: BeforeWriteContext) => unknown = () => undefined;

const extension = defineExtension({
  name: 'edges',
  collections: ['people', 'tags', 'service_users'],
  beforeWrite: (context) => {
    calls++;
    given.push(context.payload);
    return before(context) ?? change(context.payload);
  },
  afterWrite: {
    people: async ({ tx, ...context }) => {
      written.push(context);
      if (context.payload['name'] === 'undone') await tx.items('tags').create({ name: 'undone' });
      if (refuses) throw new Refused(418, 'TEAPOT', 'No.');
    },
  },
  afterCommit: ({ collection, payload }) => void committed.push(`${collection} ${payload['name']}`),
});
const lateral = createLateral(
  { databaseUrl, port: 0, logLevel: 'silent', adminToken: ADMIN_TOKEN, maxBatchMutation: 20 },
  { extensions: [extension] },
);
await lateral.start();
t.teardown(() => lateral.stop());
const people = lateral.items('people', ADMIN);

t.beforeEach(() => {
  written.length = 0;
  committed.length = 0;
  given.length = 0;
  change = () => undefined;
  refuses = false;
  before = () => undefined;
});

t.test('afterCommit is not called for what a failed call of a transaction wrote', async (t) => {
  await lateral.transaction(async (tx) => {
    await tx.items('people').create({ name: 'before' });
    refuses = true;
    await t.rejects(tx.items('people').create({ name: 'undone' }), { code: 'TEAPOT' });
    refuses = false;
    await tx.items('people').create({ name: 'after' });
  }, ADMIN);
  await waitFor(async () => committed.length >= 2, 5_000);
  t.strictSame(committed, ['people before', 'people after']);
  t.strictSame([...(await sql`select name from tags`)], []);
});

t.test('afterWrite gets numbers as numbers, and operators as the request named them', async (t) => {
  const [item] = await people
    .createMany([
      { name: 'n', visits: 7, rate: 1.5, big: '9007199254740993', notes: { a: 1 } },
      { name: 'm', visits: 2 },
    ])
    .then((items) => items ?? []);
  const id = Number(item?.['id']);
  t.strictSame(
    written.map(({ payload }) => payload),
    [
      { name: 'n', visits: 7, rate: 1.5, big: '9007199254740993', notes: { a: 1 } },
      { name: 'm', visits: 2 },
    ],
  );
  written.length = 0;
  await people.update(id, { visits: { _increment: 5 }, name: { _append: '!' }, notes: { _merge: { b: 2 } } });
  await lateral.fetch(
    new Request('http://lateral/items/people', {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify([
        { id, visits: { _increment: 1 } },
        { id: id + 1, visits: 9 },
      ]),
    }),
    ADMIN,
  );
  t.strictSame(
    written.map(({ keys, payload }) => [keys, payload]),
    [
      [[id], { name: { _append: '!' }, visits: { _increment: 5 }, notes: { _merge: { b: 2 } } }],
      [[id], { visits: { _increment: 1 } }],
      [[id + 1], { visits: 9 }],
    ],
  );
});

t.test('a request with too many rows is refused before the hooks of all of them', async (t) => {
  const rows = Array.from({ length: 500 }, (_, number) => ({ name: `many ${number}` }));
  calls = 0;
  await t.rejects(people.createMany(rows), { code: 'INVALID_PAYLOAD', message: /limit of 20/ });
  t.equal(calls, 20);
  calls = 0;
  const keyed = rows.map((row, number) => ({ id: 1_000 + number, ...row }));
  const upsert = lateral.items('people', ADMIN).createMany(keyed, { on_conflict: 'id', resolution: 'merge' });
  await t.rejects(upsert, { code: 'INVALID_PAYLOAD', message: /limit of 20/ });
  t.ok(calls <= 20);
  t.strictSame([...(await sql`select count(*)::int from people where name like 'many%'`)], [{ count: 0 }]);
  t.equal((await people.createMany(rows.slice(0, 20)))?.length, 20);
});

t.test('a hook gets passwords and operators alike, whatever the request', async (t) => {
  const users = lateral.items('service_users', ADMIN);
  const user = await users.create({ email: 'reader@example.com', password: 'first-secret' });
  const id = String(user?.['id']);
  await users.update(id, { password: 'second-secret' });
  await users.updateMany({ keys: [id] }, { password: 'third-secret' });
  t.strictSame(
    given.map((payload) => (payload as { password: unknown }).password),
    ['first-secret', 'second-secret', 'third-secret'],
  );
  const logIn = async (password: string): Promise<number> =>
    (
      await request(lateral, 'POST', '/auth/login', {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ email: 'reader@example.com', password }),
      })
    ).status;
  t.equal(await logIn('third-secret'), 200);
  change = ({ password }) => ({ password: `${password}!` });
  await users.updateMany({ keys: [id] }, { password: 'fourth-secret' });
  t.strictSame([await logIn('fourth-secret'), await logIn('fourth-secret!')], [401, 200]);

  change = () => undefined;
  const person = await people.create({ name: 'counted', visits: 1 });
  const document = 'mutation ($id: ID!) { update_people_item(id: $id, increment: { visits: 2 }) { visits } }';
  const visits = async (): Promise<unknown> =>
    (await lateral.graphql<{ update_people_item: { visits: number } }>(document, { id: person?.['id'] }, ADMIN))
      .update_people_item.visits;
  given.length = 0;
  t.equal(await visits(), 3);
  t.strictSame(given, [{ visits: { _increment: 2 } }]);
  change = (payload) => {
    (payload['visits'] as { _increment: number })._increment *= 5;
  };
  t.equal(await visits(), 13);
  change = () => ({ visits: 0 });
  t.equal(await visits(), 0);
});

t.test('any error of a hook refuses the request or is a 503', async (t) => {
  const thrower = (thrown: unknown) => async (): Promise<never> => {
    throw thrown;
  };
  const unreadable = {
    get status(): number {
      throw new Error('not readable');
    },
  };
  for (const thrown of [null, undefined, 'a text', Symbol('s'), { status: 399 }, { status: '404' }, unreadable]) {
    before = thrower(thrown);
    await t.rejects(people.create({ name: 'never' }), { status: 503, code: 'SERVICE_UNAVAILABLE' });
  }
  before = thrower({ status: 404 });
  await t.rejects(people.create({ name: 'never' }), { status: 404, message: 'The request was refused.' });
  before = thrower(Object.freeze({ status: 409, code: 'TAKEN', message: 'Taken.' }));
  await t.rejects(people.create({ name: 'never' }), { status: 409, code: 'TAKEN', message: 'Taken.' });
  t.strictSame([...(await sql`select count(*)::int from people where name = 'never'`)], [{ count: 0 }]);
});

t.test('all calls that a hook made are carried out, also those that it does not await', async (t) => {
  const names = Array.from({ length: 50 }, (_, number) => `made ${number}`);
  const count = async (): Promise<unknown> => (await sql`select count(*)::int from tags where name like 'made%'`)[0];
  const makeAll = ({ tx }: BeforeWriteContext): void => {
    for (const name of names) void tx.items('tags', { hooks: false }).create({ name });
  };
  before = ({ collection, ...context }) => (collection === 'people' ? makeAll({ collection, ...context }) : undefined);
  await people.create({ name: 'x' });
  t.strictSame(await count(), { count: 50 });
  await sql`delete from tags`;
  await lateral.transaction(async (tx) => {
    for (const name of names.slice(0, 20)) void tx.items('tags').create({ name });
  }, ADMIN);
  t.strictSame(await count(), { count: 20 });
  before = (context) => {
    if (context.collection !== 'people') return;
    makeAll(context);
    throw new Refused(409, 'NO', 'No.');
  };
  await sql`delete from tags`;
  await t.rejects(people.create({ name: 'x' }), { code: 'NO' });
  t.strictSame(await count(), { count: 0 });
});

t.test('calls answer items, no files', async (t) => {
  await t.rejects(people.read({ export: 'csv' }), { code: 'INVALID_QUERY', message: /"export" answers a file/ });
});

t.test('names that are no fields are refused before hooks see them', async (t) => {
  const person = (await people.create({ name: 'named' }))?.['id'];
  const send = async (method: string, path: string, body: string, more = {}) => {
    given.length = 0;
    const headers = { 'content-type': 'application/json', ...more };
    const answer = await request(lateral, method, path, { headers, body });
    t.match(answer, { status: 400, text: /is not a field of/ }, `${method} ${path} ${body}`);
    t.strictSame(given, [], `${method} ${path} ${body}: no hook was called`);
  };
  for (const name of ['misspelt', '__proto__', 'constructor', 'toString']) {
    const extra = `"${name}": {"polluted": 1}`;
    await send('POST', '/items/people', `{"name": "a", ${extra}}`);
    await send('POST', '/items/people', `[{"name": "a"}, {"name": "b", ${extra}}]`);
    await send('PATCH', `/items/people/${person}`, `{${extra}}`);
    await send('PATCH', '/items/people', `[{"id": ${person}, "name": "a"}, {"id": ${person}, ${extra}}]`);
    await send('PATCH', '/items/people', `{"keys": [${person}], "data": {${extra}}}`);
    await send('POST', '/items/tags', `{"name": "t", "person": {"name": "nested", ${extra}}}`);
    await send('POST', '/items/people?on_conflict=id&resolution=merge', `{"id": ${person}, ${extra}}`);
    const operations = `{"operations": [{"method": "POST", "path": "/items/people", "body": {"name": "a", ${extra}}}]}`;
    await send('POST', '/transactions', operations);
  }
  const nested = { notes: JSON.parse('{"__proto__": {"a": 1}}'), name: 'a value keeps its names' };
  t.equal(JSON.stringify((await people.create(nested))?.['notes']), '{"__proto__": {"a": 1}}'.replaceAll(' ', ''));
});

t.test('calls of the API in hooks do not wait for the connections that their own transactions have', async (t) => {
  await sql.unsafe(
    'create table parcels (id serial primary key, note text); create table notices (id serial primary key)',
  );
  const nesting = defineExtension({
    name: 'nesting',
    beforeWrite: {
      parcels: async ({ tx }): Promise<void> => {
        await tx.items('notices').create({});
        await Promise.all([1, 2, 3].map(() => few.items('notices', ADMIN).create({})));
      },
    },
  });
  const few = createLateral(
    { databaseUrl, port: 0, logLevel: 'silent', databaseWritePoolSize: 2, databaseWaitTimeout: '2s' },
    { extensions: [nesting] },
  );
  await few.start();
  t.teardown(() => few.stop());
  const created = Array.from({ length: 6 }, (_, n) => few.items('parcels', ADMIN).create({ note: `parcel ${n}` }));
  const outcomes = await Promise.allSettled(created);
  t.strictSame(
    outcomes.map((outcome) => (outcome.status === 'rejected' ? String(outcome.reason) : 'created')),
    outcomes.map(() => 'created'),
  );
  const [row] = await sql`select count(*)::int from notices`;
  t.equal(row?.['count'], 24);
});
