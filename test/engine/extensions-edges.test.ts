/** Hooks at their edges: what is undone, what is limited, and what `afterWrite` gets. */
import t from 'tap';
import { type AfterWriteContext, createLateral, defineExtension, Refused } from '../../src/index.js';
import { ADMIN_TOKEN, connectSql, createDatabase, startDatabase, waitFor } from '../support/service.js';

const ADMIN = { as: 'administrator' } as const;
const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'extensions_edges');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table people (id serial primary key, name text, visits integer not null default 0, rate float8, big bigint, notes jsonb);
  create table tags (id serial primary key, name text unique)`);

const written: Omit<AfterWriteContext, 'tx'>[] = [];
const committed: string[] = [];
let calls = 0;
let refuses = false;

const extension = defineExtension({
  name: 'edges',
  collections: ['people', 'tags'],
  beforeWrite: () => void calls++,
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
  refuses = false;
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
