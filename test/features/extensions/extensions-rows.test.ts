/**
 * No row is written without its hooks. Triggers note each row that changes: a call of `beforeWrite` and one of `afterWrite` must name
 * it, whatever the way in.
 */
import t, { type Test } from 'tap';
import { type AfterWriteContext, type BeforeWriteContext, createLateral, defineExtension } from '../../../src/index.js';
import { type MadeCaller, makeCaller, type Permission } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import { ADMIN_TOKEN, type Answer, connectSql, createDatabase, request, startDatabase } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'extensions_rows');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const KEYS: Readonly<Record<string, readonly string[]>> = {
  people: ['id'],
  passports: ['id'],
  profiles: ['person'],
  badges: ['id'],
  orders: ['id'],
  order_lines: ['order_id', 'line'],
  buyers: ['person', 'ord'],
  rooms: ['house', 'number'],
  lamps: ['house', 'number', 'lamp'],
  pages: ['id'],
  page_blocks: ['id'],
  headings: ['id'],
  site: ['id'],
  gauges: ['id'],
};
const TRIGGERS = Object.entries(KEYS).map(
  ([table, key]) =>
    `create trigger note after insert or update or delete on ${table} for each row execute function note_change('${key.join("','")}')`,
);
await sql.unsafe(`
  create table people (id serial primary key, name text, code text unique, visits integer not null default 0);
  create table passports (id serial primary key, number text, person integer unique references people);
  create table profiles (person integer primary key references people, bio text);
  create table badges (id serial primary key, colour text, holder text unique references people (code));
  create table gauges (id serial primary key, "_increment" integer);
  create table orders (id serial primary key, note text, owner integer references people, gauge integer references gauges);
  create table order_lines (order_id integer references orders, line integer, text text, primary key (order_id, line));
  create table buyers (person integer references people, ord integer references orders, share integer, primary key (person, ord));
  create table rooms (house text, number integer, name text, primary key (house, number));
  create table lamps (house text, number integer, lamp integer, watt integer, primary key (house, number, lamp),
    foreign key (house, number) references rooms);
  create table pages (id serial primary key, title text);
  create table headings (id serial primary key, text text);
  create table page_blocks (id serial primary key, page integer references pages, collection text, item text);
  create table site (id serial primary key, title text);
  create table changed (place serial, action text, key text);
  insert into people (name, code) values ('Ada', 'a'), ('Bob', 'b'), ('Cid', 'c');
  insert into passports (number, person) values ('P1', 1), ('P2', 2), ('P3', null);
  insert into profiles values (1, 'counts');
  insert into badges (colour, holder) values ('blue', 'b');
  insert into orders (note, owner) values ('one', 1), ('two', 2), ('three', null);
  insert into order_lines values (1, 1, 'a'), (1, 2, 'b'), (2, 1, 'c');
  insert into buyers values (1, 1, 50), (2, 1, 50);
  insert into rooms values ('A', 1, 'Aurora'), ('A', 2, 'Atlas');
  insert into lamps values ('A', 1, 1, 60), ('A', 2, 1, 40);
  insert into pages (title) values ('first');
  insert into headings (text) values ('h1'), ('h2');
  insert into page_blocks (page, collection, item) values (1, 'headings', '1');
  create function note_change() returns trigger language plpgsql as $$
    declare item jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end); part text; parts text[];
    begin
      foreach part in array tg_argv loop parts := parts || (item ->> part); end loop;
      insert into changed (action, key) values (lower(tg_op), tg_table_name || ' ' || array_to_string(parts, '~'));
      return null;
    end $$;
  ${TRIGGERS.join(';\n')}`);
await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: databaseUrl });
await sql.unsafe(`
  insert into service_collections (collection, singleton) values ('site', true)
    on conflict (collection) do update set singleton = true;
  insert into service_collections (collection, versioning) values ('orders', true)
    on conflict (collection) do update set versioning = true;
  insert into service_relations (many_collection, many_field, one_collection_field, one_allowed_collections)
    values ('page_blocks', 'item', 'collection', 'headings')`);

const calls: BeforeWriteContext[] = [];
const written: AfterWriteContext[] = [];
let change: (context: BeforeWriteContext) => unknown = () => undefined;
const watch = defineExtension({
  name: 'watch',
  collections: Object.keys(KEYS),
  beforeWrite: (context) => {
    calls.push({ ...context, payload: { ...context.payload } });
    return change(context);
  },
  afterWrite: (context) => void written.push(context),
});
const lateral = createLateral(
  { databaseUrl, port: 0, logLevel: 'silent', adminToken: ADMIN_TOKEN, readCacheSize: 0 },
  { extensions: [watch] },
);
await lateral.start();
t.teardown(() => lateral.stop());

type Call = Pick<BeforeWriteContext, 'collection' | 'action' | 'keys'>;

function text({ collection, action, keys }: Call): string {
  return `${collection} ${action} ${keys.join()}`.trim();
}

interface ChangedRow {
  readonly action: 'insert' | 'update' | 'delete';
  readonly key: string;
}

/** The actions of calls that name a row which changed in this way. */
const ACTIONS = {
  insert: ['create', 'upsert'],
  update: ['update', 'upsert', 'unlink'],
  delete: ['delete'],
} as const;

/** The rows that changed and that no call names. A call without a key stands for one new row, or for rows that leave a list. */
function missed(rows: readonly ChangedRow[], made: readonly Call[]): string[] {
  const open = made.filter(({ action, keys }) => (action === 'create' || action === 'upsert') && keys.length === 0);
  return rows.flatMap(({ action, key: name }) => {
    const [collection, key = ''] = name.split(' ');
    const own = made.filter((call) => call.collection === collection);
    const names = (...actions: string[]): boolean =>
      own.some((call) => actions.includes(call.action) && call.keys.map(String).includes(key));
    if (names(...ACTIONS[action])) return [];
    const leaves = action === 'delete' ? ['delete'] : ['unlink'];
    if (action !== 'insert' && own.some((call) => leaves.includes(call.action) && call.keys.length === 0)) return [];
    const isOpen = (call: Call): boolean =>
      call.collection === collection && (action === 'insert' || (action === 'update' && call.action === 'upsert'));
    const position = open.findIndex(isOpen);
    if (position >= 0) open.splice(position, 1);
    return position >= 0 ? [] : [`${action} ${name}`];
  });
}

const headers = { 'content-type': 'application/json' };

function send(
  method: string,
  path: string,
  body: unknown,
  { token }: Pick<MadeCaller, 'token'> = { token: ADMIN_TOKEN },
): Promise<Answer> {
  const text = body === undefined ? '' : JSON.stringify(body);
  const length = { 'content-length': String(Buffer.byteLength(text)) };
  return request(lateral, method, path, { token, headers: { ...headers, ...length }, body: text });
}

interface Outcome {
  readonly status: number;
  readonly before: readonly string[];
  readonly answer: Answer;
}

/** Sends a write, and compares the rows that changed with the calls of hooks. */
async function checked(t: Test, title: string, run: () => Promise<Answer>): Promise<Outcome> {
  await sql`truncate changed`;
  calls.length = 0;
  written.length = 0;
  const answer = await run();
  const rows = await sql<ChangedRow[]>`select action, key from changed order by place`;
  t.strictSame(missed(rows, calls), [], `${title}: beforeWrite`);
  t.strictSame(missed(rows, written), [], `${title}: afterWrite`);
  if (answer.status >= 300) t.strictSame([...rows], [], `${title}: nothing was written`);
  return { status: answer.status, before: calls.map(text), answer };
}

t.beforeEach(() => {
  change = () => undefined;
});

t.test('an object with a key alone may create the item that a column refers to', async (t) => {
  const nested = { note: 'x', owner: { id: 77 } };
  const made = await checked(t, 'an administrator', () => send('POST', '/items/orders', nested));
  t.match(made, { status: 200, before: ['orders create', 'people upsert 77'] });
  const again = await checked(t, 'it exists', () => send('PATCH', '/items/orders/3', { owner: { id: 77 } }));
  t.match(again, { status: 200, before: ['orders update 3', 'people upsert 77'] });
  change = ({ collection, payload }) => {
    if (collection === 'people') Object.assign(payload, { id: 1, name: 'by the hook' });
  };
  t.equal((await checked(t, 'with a field', () => send('POST', '/items/orders', { owner: { id: 78 } }))).status, 200);
  t.strictSame([...(await sql`select name from people where id = 78`)], [{ name: 'by the hook' }]);
  t.strictSame([...(await sql`select name from people where id = 1`)], [{ name: 'Ada' }], 'a hook cannot name another');
  change = () => undefined;
  const any = { page: 1, collection: 'headings', item: { id: 55 } };
  const anyMade = await checked(t, 'many-to-any', () => send('POST', '/items/page_blocks', any));
  t.match(anyMade, { status: 200, before: ['page_blocks create', 'headings upsert 55'] });
  const all = (collection: string, action: Permission['action']): Permission => ({
    collection,
    action,
    fields: ['*'],
    permissions: {},
  });
  const writer = await makeCaller(sql, 'rows-writer', [
    { permissions: [all('orders', 'create'), all('orders', 'read'), all('people', 'read')] },
  ]);
  const refers = await checked(t, 'a reference', () => send('POST', '/items/orders', { owner: { id: 1 } }, writer));
  t.match(refers, { status: 200, before: ['orders create'] }, 'the caller may not create people: it only refers');
});

t.test('keys that follow from the place of an item', async (t) => {
  const lines = [
    { line: 1, text: 'changed' },
    { line: 3, text: 'new' },
  ];
  const listed = await checked(t, 'a list', () => send('PATCH', '/items/orders/1', { order_lines: lines }));
  t.match(listed, { status: 200 });
  t.strictSame(listed.before, [
    'orders update 1',
    'order_lines delete',
    'order_lines upsert 1~1',
    'order_lines upsert 1~3',
  ]);
  const staged = { order_lines: { update: [{ line: 3, text: 'again' }], create: [{ line: 4 }], delete: ['1~1'] } };
  const detailed = await checked(t, 'lists', () => send('PATCH', '/items/orders/1', staged));
  t.strictSame(detailed.before, [
    'orders update 1',
    'order_lines create',
    'order_lines update 1~3',
    'order_lines delete 1~1',
  ]);
  const created = await checked(t, 'a new parent', () => send('POST', '/items/orders', { order_lines: lines }));
  t.strictSame(created.before, ['orders create', 'order_lines create', 'order_lines create']);
  const keyed = await checked(t, 'a new parent with a key', () =>
    send('POST', '/items/orders', { id: 500, order_lines: [{ line: 1, order_id: 1 }] }),
  );
  t.strictSame(keyed.before, ['orders create', 'order_lines upsert 500~1']);
  const several = await checked(t, 'several parents', () =>
    send('PATCH', '/items/orders', { keys: [1, 2], data: { order_lines: { update: [{ line: 9 }], create: [] } } }),
  );
  t.equal(several.status, 403, 'there is no such line');
  const both = await checked(t, 'a list of several parents', () =>
    send('PATCH', '/items/orders', { keys: [1, 2], data: { order_lines: [{ line: 9, text: 'both' }] } }),
  );
  t.match(both, { status: 200 });
  t.strictSame(both.before, ['orders update 1,2', 'order_lines delete', 'order_lines upsert 1~9,2~9']);
  const room = await checked(t, 'a composite reference', () =>
    send('PATCH', '/items/rooms/A~1', { lamps: [{ lamp: 1, watt: 5 }, { lamp: 2 }] }),
  );
  t.match(room, { status: 200 });
  t.strictSame(room.before, ['rooms update A~1', 'lamps delete', 'lamps upsert A~1~1', 'lamps upsert A~1~2']);
  const buyers = await checked(t, 'a junction', () =>
    send('PATCH', '/items/orders/1', {
      people: [{ person: { id: 1, name: 'Ada B' }, share: 1 }, { person: { name: 'N' } }],
    }),
  );
  t.match(buyers, { status: 200 });
  t.strictSame(buyers.before, [
    'orders update 1',
    'buyers delete',
    'buyers upsert 1~1',
    'people upsert 1',
    'buyers create',
    'people create',
  ]);
});

t.test('the item of a one-to-one relation', async (t) => {
  const same = await checked(t, 'the key is the reference', () =>
    send('PATCH', '/items/people/1', { profiles: { bio: 'changed' } }),
  );
  t.match(same, { status: 200 });
  t.strictSame(same.before, ['people update 1', 'profiles upsert 1'], 'no other item leaves');
  const made = await checked(t, 'it does not exist', () =>
    send('PATCH', '/items/people/2', { profiles: { bio: 'new' } }),
  );
  t.strictSame(made.before, ['people update 2', 'profiles upsert 2']);
  const other = await checked(t, 'a new item', () => send('PATCH', '/items/people/1', { passports: { number: 'P9' } }));
  t.strictSame(other.before, ['people update 1', 'passports unlink', 'passports create']);
  const moved = await checked(t, 'a key', () => send('PATCH', '/items/people/1', { passports: 3 }));
  t.strictSame(moved.before, ['people update 1', 'passports unlink', 'passports update 3']);
  const unique = await checked(t, 'a reference to another column', () =>
    send('PATCH', '/items/people/1', { badges: { colour: 'red' } }),
  );
  t.match(unique, { status: 200 });
  const left = await checked(t, 'null', () => send('PATCH', '/items/people/1', { profiles: null, passports: null }));
  t.match(left, { status: 200 });
});

t.test('a hook changes items that are linked by their key, and creates none', async (t) => {
  change = ({ collection, payload }) => {
    if (collection === 'orders') payload['note'] = 'linked';
    if (collection === 'order_lines') payload['text'] = 'linked';
  };
  const linked = await checked(t, 'a key', () => send('PATCH', '/items/people/3', { orders: [3] }));
  t.match(linked, { status: 200 });
  t.strictSame([...(await sql`select note, owner from orders where id = 3`)], [{ note: 'linked', owner: 3 }]);
  t.equal((await checked(t, 'no such item', () => send('PATCH', '/items/people/3', { orders: [999] }))).status, 403);
  const foreign = await checked(t, 'the key of another parent', () =>
    send('PATCH', '/items/orders/3', { order_lines: ['2~1'] }),
  );
  t.equal(foreign.status, 400, foreign.answer.text);
  change = ({ collection, payload }) => {
    if (collection === 'people' && 'name' in payload) payload['name'] = `<${payload['name']}>`;
    if (collection === 'buyers') Object.assign(payload, { person: 2, ord: 2, share: 7 });
  };
  const update = [{ person: { id: 1, name: 'Nested' } }];
  const nested = await checked(t, 'an item in a key', () => send('PATCH', '/items/orders/1', { people: { update } }));
  t.match(nested, { status: 200 });
  t.strictSame([...(await sql`select name from people where id = 1`)], [{ name: '<Nested>' }]);
  t.strictSame([...(await sql`select share from buyers where person = 1 and ord = 1`)], [{ share: 7 }]);
});

t.test('each way in', async (t) => {
  const ways: readonly (readonly [string, () => Promise<Answer>])[] = [
    ['several items', () => send('POST', '/items/people', [{ name: 'x' }, { name: 'y', orders: [{ note: 'z' }] }])],
    [
      'by a query',
      () => send('PATCH', '/items/people', { query: { filter: { id: { _lt: 3 } } }, data: { name: 'q' } }),
    ],
    [
      'each by its key',
      () =>
        send('PATCH', '/items/people', [
          { id: 1, name: 'e' },
          { id: 2, name: 'f' },
        ]),
    ],
    ['an operator', () => send('PATCH', '/items/people/1', { visits: { _increment: 2 } })],
    [
      'an operator, several',
      () => send('PATCH', '/items/people', { keys: [1, 2], data: { visits: { _increment: 2 } } }),
    ],
    [
      'a unique value',
      () => send('POST', '/items/people?on_conflict=code&resolution=merge', [{ code: 'a', name: 'm' }, { code: 'n' }]),
    ],
    [
      'a unique value, ignored',
      () => send('POST', '/items/people?on_conflict=code&resolution=ignore', [{ code: 'a', name: 'm' }, { code: 'o' }]),
    ],
    ['a related item in _set', () => send('PATCH', '/items/orders/1', { owner: { _set: { name: 'set' } } })],
    ['one that exists in _set', () => send('PATCH', '/items/orders/1', { owner: { _set: { id: 2, name: 'set' } } })],
    ['a new item with _set', () => send('POST', '/items/orders', { note: 'n', owner: { _set: { name: 'set' } } })],
    [
      '_set in a list, and of many-to-any',
      () =>
        send('POST', '/items/pages', { page_blocks: [{ collection: 'headings', item: { _set: { text: 'set' } } }] }),
    ],
    ['a field called like an operator', () => send('PATCH', '/items/orders/1', { gauge: { _increment: 3 } })],
    ['a singleton', () => send('PATCH', '/items/site', { title: 'first' })],
    ['a singleton that exists', () => send('PATCH', '/items/site', { title: 'second' })],
    [
      'blocks of a page',
      () =>
        send('PATCH', '/items/pages/1', {
          page_blocks: [
            { collection: 'headings', item: { text: 'new' } },
            { id: 1, item: { id: 2, text: 't' }, collection: 'headings' },
          ],
        }),
    ],
    [
      'GraphQL',
      () =>
        send('POST', '/graphql', {
          query:
            'mutation { create_orders_item(data: { note: "g", order_lines: [{ line: 1 }] }) { id } update_people_items(ids: [1, 2], data: { name: "g" }) { id } update_people_batch(data: [{ id: 3, name: "b" }]) { id } delete_orders_item(id: 3) { id } }',
        }),
    ],
    [
      'GraphQL, a singleton',
      () => send('POST', '/graphql', { query: 'mutation { update_site(data: { title: "g" }) { id } }' }),
    ],
    [
      'a transaction',
      () =>
        send('POST', '/transactions', {
          operations: [
            { method: 'POST', path: '/items/orders', body: { note: 't', owner: { id: 90 } } },
            { method: 'PATCH', path: '/items/orders', key: { $ref: '0' }, body: { order_lines: [{ line: 1 }] } },
            {
              method: 'PATCH',
              path: '/items/people',
              body: { query: { filter: { id: { _eq: 1 } } }, data: { visits: { _increment: 1 } } },
            },
            { method: 'DELETE', path: '/items/headings', body: [1] },
          ],
        }),
    ],
    ['deletion by a query', () => send('DELETE', '/items/order_lines', { query: { filter: { line: { _eq: 9 } } } })],
    ['deletion by keys', () => send('DELETE', '/items/page_blocks', [1])],
    ['deletion of one', () => send('DELETE', '/items/headings/2', undefined)],
  ];
  for (const [title, run] of ways) {
    const { status, answer, before } = await checked(t, title, run);
    t.ok(status < 300 && !/"errors"/.test(answer.text), `${title}: ${answer.text}`);
    t.not(before.length, 0, title);
  }
});
