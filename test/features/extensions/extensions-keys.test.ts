/** A key that `beforeWrite` gives a new item: the caller can do no more with it than with a key of their own. */
import t from 'tap';
import { createLateral, defineExtension } from '../../../src/index.js';
import { inForce, type MadeCaller, makeCaller, type Permission } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import { ADMIN_TOKEN, type Answer, connectSql, createDatabase, request, startDatabase } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'extensions_keys');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table people (id serial primary key, name text, team integer);
  create table notes (id serial primary key, text text, author integer references people);
  create table passports (id serial primary key, number text, person integer unique references people);
  create table seats (hall integer, seat integer, holder text, primary key (hall, seat));
  create table tickets (id serial primary key, hall integer, seat integer, label text, foreign key (hall, seat) references seats)`);
await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: databaseUrl });

/** The keys that the hook gives, by collection; null for none. */
let given: Readonly<Record<string, object>> | null = null;
const called: string[] = [];
const extension = defineExtension({
  name: 'keys',
  beforeWrite: ({ collection, action, keys, payload }) => {
    called.push(`${collection} ${action} ${keys.join()}`.trim());
    if (given && action === 'create') Object.assign(payload, given[collection]);
  },
});
const lateral = createLateral(
  { databaseUrl, port: 0, logLevel: 'silent', adminToken: ADMIN_TOKEN },
  { extensions: [extension] },
);
await lateral.start();
t.teardown(() => lateral.stop());

async function reset(): Promise<void> {
  called.length = 0;
  await sql.unsafe(`
    truncate people, notes, passports, seats, tickets restart identity;
    insert into people (name, team) values ('Ada', 1), ('Bob', 2);
    insert into notes (text, author) values ('of Ada', 1), ('of Bob', 2), ('of nobody', null);
    insert into passports (number, person) values ('P1', 1), ('P2', 2);
    insert into seats values (1, 1, 'Ada'), (1, 2, 'Bob');
    select setval('people_id_seq', 100), setval('notes_id_seq', 100), setval('passports_id_seq', 100)`);
}

/** All rows. Generated keys are the same in both runs: each begins with the same sequences. */
async function rows(): Promise<unknown> {
  const [found] = await sql`
    select (select json_agg(p order by id) from people p) as people, (select json_agg(n order by id) from notes n) as notes,
      (select json_agg(p order by id) from passports p) as passports, (select json_agg(s order by hall, seat) from seats s) as seats,
      (select json_agg(t order by id) from tickets t) as tickets`;
  return found;
}

function send(method: string, path: string, body: object, { token }: Pick<MadeCaller, 'token'>): Promise<Answer> {
  return request(lateral, method, path, {
    token,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

/** How far the caller may create and update people, passports and seats. */
const CREATES: Readonly<Record<string, readonly string[] | null>> = {
  'may create': ['*'],
  'may create without keys': ['name', 'team', 'number', 'person', 'holder', 'text', 'author', 'notes'],
};
const UPDATES: Readonly<Record<string, Omit<Permission, 'collection' | 'action'> | null>> = {
  'may not update': null,
  'may update all': {},
  'may update one field': { fields: ['team'] },
};
const RULES: Readonly<Record<string, object>> = {
  people: { team: { _eq: 1 } },
  passports: { number: { _eq: 'P1' } },
  notes: { text: { _eq: 'of Ada' } },
  seats: { holder: { _eq: 'Ada' } },
};

const LIMITED = ['people', 'passports', 'seats'];

async function callers(): Promise<Map<string, MadeCaller>> {
  const made = new Map<string, MadeCaller>();
  for (const [created, fields] of Object.entries(CREATES))
    for (const [updated, update] of [...Object.entries(UPDATES), ['may update by a rule', {}] as const]) {
      const isRuled = updated === 'may update by a rule';
      const limited = LIMITED.flatMap((collection): Permission[] => [
        { collection, action: 'create', fields },
        ...(update
          ? [{ collection, action: 'update', ...update, ...(isRuled && { permissions: RULES[collection] }) } as const]
          : []),
      ]);
      const free = ['people', 'notes', 'passports', 'seats', 'tickets'].flatMap((collection): Permission[] => [
        { collection, action: 'read' },
        ...(LIMITED.includes(collection)
          ? []
          : [{ collection, action: 'create' } as const, { collection, action: 'update' } as const]),
      ]);
      const name = `${created}, ${updated}`;
      const caller = await makeCaller(sql, name.replaceAll(/[ ,]+/g, '-'), [{ permissions: [...limited, ...free] }]);
      await inForce(lateral as never, caller, '/items/notes');
      made.set(name, caller);
    }
  return made;
}

interface Case {
  readonly method: string;
  readonly path: string;
  /** The body with the key of the item, or without it. */
  readonly body: (key: object) => object;
  readonly collection: string;
}

const CASES: Readonly<Record<string, Case>> = {
  'an item that a column refers to': {
    ...{ method: 'POST', path: '/items/notes', collection: 'people' },
    body: (key) => ({ text: 'new', author: { ...key, name: 'changed' } }),
  },
  'one of a change': {
    ...{ method: 'PATCH', path: '/items/notes/3', collection: 'people' },
    body: (key) => ({ author: { ...key, name: 'changed' } }),
  },
  'one without fields': {
    ...{ method: 'POST', path: '/items/notes', collection: 'people' },
    body: (key) => ({ text: 'new', author: key }),
  },
  'one with a list': {
    ...{ method: 'POST', path: '/items/notes', collection: 'people' },
    body: (key) => ({ text: 'new', author: { ...key, name: 'changed', notes: [{ text: 'listed' }] } }),
  },
  'the item of a one-to-one relation': {
    ...{ method: 'PATCH', path: '/items/people/1', collection: 'passports' },
    body: (key) => ({ passports: { ...key, number: 'changed' } }),
  },
  'an item of a list': {
    ...{ method: 'PATCH', path: '/items/people/1', collection: 'passports' },
    body: (key) => ({ passports: { ...key, number: 'changed' }, notes: [] }),
  },
  'a composite key': {
    ...{ method: 'POST', path: '/items/tickets', collection: 'seats' },
    body: (key) => ({ label: 'new', seat: { ...key, holder: 'changed' } }),
  },
  'the item of the request': {
    ...{ method: 'POST', path: '/items/people', collection: 'people' },
    body: (key) => ({ ...key, name: 'changed' }),
  },
  'several items': {
    ...{ method: 'POST', path: '/items/notes', collection: 'people' },
    body: (key) => [{ text: 'new', author: { ...key, name: 'changed' } }],
  },
};

function keysFor(collection: string): readonly object[] {
  return collection === 'seats'
    ? [
        { hall: 1, seat: 1 },
        { hall: 1, seat: 2 },
        { hall: 9, seat: 9 },
      ]
    : [{ id: 1 }, { id: 2 }, { id: 50 }];
}

t.test('a key from a hook gives the caller no more rights than their own key', async (t) => {
  const known = await callers();
  const outcomes = { written: 0, refused: 0 };
  for (const [title, { method, path, body, collection }] of Object.entries(CASES))
    for (const [name, caller] of known)
      for (const key of keysFor(collection)) {
        await reset();
        given = { [collection]: key };
        const byHook = await send(method, path, body({}), caller);
        const left = await rows();
        given = null;
        await reset();
        const before = await rows();
        const own = await send(method, path, body(key), caller);
        const place = `${title}, ${name}, ${JSON.stringify(key)}: ${byHook.text} | ${own.text}`;
        if (byHook.status < 300) {
          outcomes.written++;
          t.equal(own.status, byHook.status, place);
          t.strictSame(left, await rows(), place);
        } else {
          outcomes.refused++;
          t.ok(byHook.status < 500, place);
          t.strictSame(left, before, place);
        }
      }
  t.comment(JSON.stringify(outcomes));
  t.ok(outcomes.written > 20 && outcomes.refused > 20);
});

t.test('items that leave an item have their hooks, also if a hook names that item', async (t) => {
  const leaves = { author: { name: 'changed', notes: [{ text: 'listed' }] } };
  const runs: readonly (readonly [string, string, object])[] = [
    ['POST', '/items/notes', leaves],
    ['PATCH', '/items/passports/1', { person: leaves.author }],
  ];
  for (const [method, path, body] of runs) {
    await reset();
    given = { people: { id: 2 } };
    const answer = await send(method, path, body, { token: ADMIN_TOKEN });
    t.equal(answer.status, path === '/items/notes' ? 200 : 400, answer.text);
    t.match(called.join(' | '), /people create \| notes unlink \| notes create/);
  }
  await reset();
  given = { people: { id: 50 }, passports: { id: 2 } };
  const child = { name: 'new', passports: { number: 'taken' } };
  t.equal((await send('POST', '/items/notes', { author: child }, { token: ADMIN_TOKEN })).status, 200);
  t.match(called.join(' | '), /people create \| passports unlink \| passports create/);
  given = null;
});
