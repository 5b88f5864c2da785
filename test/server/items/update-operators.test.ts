/** Operators in changes: the new value is computed by PostgreSQL from the stored one, so that no change is lost. */
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { isOutcomeUnknown } from '../../../src/base/errors.js';
import type { Session } from '../../../src/server/postgres/pools/sessions.js';
import { WriteBatcher } from '../../../src/speed/batching/write-batcher.js';
import { makeCaller, type Permission } from '../../support/callers.js';
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
const databaseUrl = await createLibrary(server, 'update_operators');
const sql = connectSql(databaseUrl);
const holder = connectSql(databaseUrl);
t.teardown(() => Promise.all([sql.end(), holder.end()]));
await sql.unsafe(`
  create domain percentage as int check (value between 10 and 100);
  create table counters (
    id serial primary key, name text unique, n int, small smallint default 5, big bigint, price numeric(6, 2), ratio real, rate double precision,
    cash money, pause interval, share percentage, word varchar(8), fixed char(6), label text, numbers int[], words text[], facts jsonb,
    notes json, list text, kind text default 'a', pairs jsonb[], done bool, day date, twice int generated always as (n * 2) stored,
    stock int check (stock >= 0), secret text, parent int references counters);
  insert into counters (n, name) select 0, 'counter ' || g from generate_series(1, 60) g;
  create table lone (id serial primary key, hits int default 100, tags jsonb);
  create view shown as select id, n, label from counters;
  create function write_shown() returns trigger language plpgsql as
    $$ begin update counters set n = new.n where id = old.id; return new; end $$;
  create view computed as select id, n from counters;
  create trigger write_shown instead of update on computed for each row execute function write_shown();`);
await sql`insert into service_collections (collection, singleton, accountability) values ('lone', true, 'all')`;
await sql`insert into service_fields (collection, field, special, validation, validation_message) values
  ('counters', 'list', 'cast-csv', null, null), ('counters', 'children', 'o2m', null, null), ('counters', 'secret', 'conceal', null, null),
  ('counters', 'ratio', null, ${JSON.stringify({ ratio: { _lte: 10 } })}::text::json, 'At most ten')`;
await sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values
  ('counters', 'parent', 'counters', 'children')`;
await sql`insert into service_collections (collection, primary_key) values ('shown', 'id'), ('computed', 'id')`;

const allow = (
  action: Permission['action'],
  fields: readonly string[],
  rest: Partial<Permission> = {},
): Permission => ({
  collection: 'counters',
  action,
  permissions: null,
  fields,
  ...rest,
});
const limited = await makeCaller(sql, 'limited', [
  {
    permissions: [
      allow('read', ['id', 'name', 'n', 'rate', 'facts'], { permissions: { id: { _lt: 50 } } }),
      allow('read', ['label'], { permissions: { name: { _eq: 'counter 3' } } }),
      allow('update', ['n', 'stock', 'label', 'rate'], { validation: { n: { _lte: 10 } } }),
    ],
  },
]);
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });

function send(
  method: string,
  path: string,
  body?: unknown,
  token = ADMIN_TOKEN,
  to: Service = service,
): Promise<Answer> {
  const content = body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) };
  return request(to, method, path, { headers: { 'content-type': 'application/json' }, token, ...content });
}

/** The one field of the answer to a change. */
async function change(id: number, field: string, value: unknown): Promise<unknown> {
  const { status, json } = await send('PATCH', `/items/counters/${id}?fields=${field}`, { [field]: value });
  return status === 200 ? (json as { data: Record<string, unknown> }).data[field] : json;
}

function refused({ status, json }: Answer): string {
  const [error] = (json as { errors?: { message: string; extensions: { code: string } }[] }).errors ?? [];
  return `${status} ${error?.extensions.code}: ${error?.message}`;
}

const CASES: readonly (readonly [field: string, steps: readonly (readonly [value: unknown, result: unknown])[]])[] = [
  [
    'n',
    [
      [{ _increment: 2 }, 2],
      [{ _decrement: 5 }, -3],
      [{ _set: 7 }, 7],
      [{ _increment: '1' }, 8],
    ],
  ],
  [
    'small',
    [
      [{ _increment: 3 }, 8],
      [null, null],
      [{ _decrement: 1 }, -1],
    ],
  ],
  [
    'big',
    [
      [{ _increment: '9007199254740993' }, '9007199254740993'],
      [{ _increment: 1 }, '9007199254740994'],
    ],
  ],
  [
    'price',
    [
      [{ _increment: 1.25 }, '1.25'],
      [{ _decrement: '0.50' }, '0.75'],
    ],
  ],
  ['ratio', [[{ _increment: 1.5 }, 1.5]]],
  ['rate', [[{ _decrement: 0.5 }, -0.5]]],
  [
    'cash',
    [
      [{ _increment: '2.50' }, '$2.50'],
      [{ _decrement: '1.00' }, '$1.50'],
    ],
  ],
  [
    'pause',
    [
      [{ _increment: '1 day' }, '1 day'],
      [{ _increment: '02:00:00' }, '1 day 02:00:00'],
    ],
  ],
  [
    'share',
    [
      [12, 12],
      [{ _increment: 3 }, 15],
    ],
  ],
  [
    'word',
    [
      [{ _append: 'ab' }, 'ab'],
      [{ _append: 'cd' }, 'abcd'],
    ],
  ],
  [
    'fixed',
    [
      [{ _append: 'ab' }, 'ab    '],
      [{ _append: 'cd' }, 'abcd  '],
    ],
  ],
  [
    'label',
    [
      [{ _append: 'a"b' }, 'a"b'],
      [{ _append: 5 }, 'a"b5'],
    ],
  ],
  [
    'numbers',
    [
      [{ _append: 1 }, [1]],
      [{ _append: [2, null] }, [1, 2, null]],
      [{ _append: [] }, [1, 2, null]],
    ],
  ],
  [
    'words',
    [
      [{ _append: 'a,b' }, ['a,b']],
      [{ _append: ['c"'] }, ['a,b', 'c"']],
    ],
  ],
  [
    'pairs',
    [
      [{ _append: { a: 1 } }, [{ a: 1 }]],
      [{ _append: [{ b: [2] }] }, [{ a: 1 }, { b: [2] }]],
    ],
  ],
  [
    'list',
    [
      [{ _append: ['a', 'b'] }, ['a', 'b']],
      [{ _append: 'c' }, ['a', 'b', 'c']],
      [{ _append: [] }, ['a', 'b', 'c']],
    ],
  ],
  [
    'facts',
    [
      [{ _append: 1 }, [1]],
      [{ _append: [[2], { _increment: 1 }] }, [1, [2], { _increment: 1 }]],
      [{ _set: null }, null],
      [{ _merge: { a: { b: 1 } } }, { a: { b: 1 } }],
      [{ _merge: { a: { c: 2 }, d: null } }, { a: { c: 2 }, d: null }],
      [{ _set: { _increment: 1 } }, { _increment: 1 }],
      [{ _set: { _set: 1, more: 2 } }, { _set: 1, more: 2 }],
      [{ _other: 1 }, { _other: 1 }],
    ],
  ],
  [
    'notes',
    [
      [{ _append: 'x' }, ['x']],
      [{ _append: ['y'] }, ['x', 'y']],
      [{ _set: {} }, {}],
      [{ _merge: { a: 1 } }, { a: 1 }],
    ],
  ],
];

for (const [field, steps] of CASES)
  t.test(`operators of ${field}`, async (t) => {
    for (const [value, result] of steps) t.strictSame(await change(1, field, value), result, JSON.stringify(value));
  });

t.test('numbers keep all of their digits', async (t) => {
  await change(2, 'big', '9223372036854775000');
  const { json } = await send('PATCH', '/items/counters/2?fields=big', '{"big":{"_increment":807}}');
  t.strictSame(json, { data: { big: '9223372036854775807' } });
  await send('PATCH', '/items/counters/2', '{"facts":{"_set":{"exact":1}}}');
  await send('PATCH', '/items/counters/2', '{"facts":{"_merge":{"digits":12345678901234567890.12345678901}}}');
  const [row] = await sql`select facts::text from counters where id = 2`;
  t.equal(row?.['facts'], '{"exact": 1, "digits": 12345678901234567890.12345678901}');
});

t.test('many items, by a list, by keys and by a query', async (t) => {
  await sql`update counters set n = id, label = null, small = 0 where id between 10 and 15`;
  const each = [
    { id: 10, n: { _increment: 5 } },
    { id: 11, n: { _decrement: 5 }, label: { _append: 'x' } },
    { id: 12, n: 3 },
    { id: 13, n: null },
    { id: 14, label: 'literal' },
  ];
  const { json } = await send('PATCH', '/items/counters?fields=id,n,label', each);
  t.strictSame(json, {
    data: [
      { id: 10, n: 15, label: null },
      { id: 11, n: 6, label: 'x' },
      { id: 12, n: 3, label: null },
      { id: 13, n: null, label: null },
      { id: 14, n: 14, label: 'literal' },
    ],
  });
  const byKeys = { keys: [10, 13], data: { n: { _increment: 1 } } };
  t.strictSame((await send('PATCH', '/items/counters?fields=n', byKeys)).json, { data: [{ n: 16 }, { n: 1 }] });
  const query = { filter: { id: { _between: [10, 12] } }, sort: ['id'] };
  const byQuery = await send('PATCH', '/items/counters?fields=small', { query, data: { small: { _decrement: 2 } } });
  t.strictSame(byQuery.json, { data: [{ small: -2 }, { small: -2 }, { small: -2 }] });
});

t.test('related items', async (t) => {
  await sql`update counters set n = 0, small = 5, parent = null`;
  const body = {
    n: { _increment: 1 },
    parent: { id: 21, n: { _increment: 2 } },
    children: [
      { id: 22, n: { _increment: 3 } },
      { id: 900, name: 'new', n: { _increment: 4 }, small: { _increment: 4 } },
    ],
  };
  const fields = 'n,parent.n,children.id,children.n,children.small';
  const { json } = await send('PATCH', `/items/counters/20?fields=${fields}`, body);
  t.strictSame(json, {
    data: {
      n: 1,
      parent: { n: 2 },
      children: [
        { id: 22, n: 3, small: 5 },
        { id: 900, n: 4, small: 9 },
      ],
    },
  });
  const staged = { children: { update: [{ id: 22, n: { _increment: 1 } }] } };
  t.strictSame(
    (await send('PATCH', '/items/counters/20?fields=children.n&deep={"children":{"_sort":"id"}}', staged)).json,
    {
      data: { children: [{ n: 4 }, { n: 4 }] },
    },
  );
  t.match(
    refused(await send('PATCH', '/items/counters/20', { parent: { _increment: 1 } })),
    /^400 INVALID_PAYLOAD.*_increment/,
  );
  const created = { children: { create: [{ n: { _increment: 1 } }] } };
  t.match(
    refused(await send('PATCH', '/items/counters/20', created)),
    /^400 .*children\.create\.0\.n.*"_increment".*new item/,
  );
});

t.test('on_conflict counts on, from the default of the column in a new item', async (t) => {
  const body = { name: 'upserted', n: { _increment: 1 }, small: { _increment: 1 } };
  const path = '/items/counters?on_conflict=name&fields=n,small';
  t.strictSame((await send('POST', path, body)).json, { data: { n: 1, small: 6 } });
  t.strictSame((await send('POST', path, body)).json, { data: { n: 2, small: 7 } });
  t.match(
    refused(await send('POST', path, { name: { _append: 'x' } })),
    /^400 INVALID_PAYLOAD.*"name" must be a value/,
  );
  t.match(refused(await send('POST', `${path}&resolution=ignore`, body)), /^400 INVALID_PAYLOAD.*"_increment"/);
  await Promise.all(Array.from({ length: 20 }, () => send('POST', path, { ...body, name: 'raced' })));
  const [row] = await sql`select n, small from counters where name = 'raced'`;
  t.strictSame({ ...row }, { n: 20, small: 25 });
});

t.test('a singleton that does not exist starts from its defaults', async (t) => {
  t.strictSame(
    (await send('PATCH', '/items/lone?fields=hits,tags', { hits: { _increment: 1 }, tags: { _append: 1 } })).json,
    {
      data: { hits: 101, tags: [1] },
    },
  );
  t.strictSame((await send('PATCH', '/items/lone?fields=hits', { hits: { _increment: 1 } })).json, {
    data: { hits: 102 },
  });
});

t.test('views of a table, and views that a trigger writes', async (t) => {
  await sql`update counters set n = 5 where id = 30`;
  await Promise.all(Array.from({ length: 20 }, () => send('PATCH', '/items/shown/30', { n: { _increment: 1 } })));
  t.match((await send('GET', '/items/shown/30')).json, { data: { n: 25 } });
  t.equal((await send('PATCH', '/items/computed/30', { n: 1 })).status, 200);
  const answer = await send('PATCH', '/items/computed/30', { n: { _increment: 1 } });
  t.match(refused(answer), /^400 INVALID_PAYLOAD: .*"n": "_increment".*a view that a trigger writes/);
});

t.test('new items have no operators', async (t) => {
  t.match(
    refused(await send('POST', '/items/counters', { n: { _increment: 1 } })),
    /^400 INVALID_PAYLOAD: .*"n": "_increment" changes an item that exists/,
  );
  const made = { facts: { _increment: 1 }, notes: { _set: { _merge: {} } }, n: { _set: 4 } };
  t.strictSame((await send('POST', '/items/counters?fields=facts,notes,n', made)).json, {
    data: { facts: { _increment: 1 }, notes: { _merge: {} }, n: 4 },
  });
});

t.test('operators that do not fit are refused, and nothing changes', async (t) => {
  await sql`update counters set n = 1, facts = '{"a":1}', word = 'abcdefg', stock = 1 where id = 40`;
  const cases: [unknown, RegExp][] = [
    [{ done: { _increment: 1 } }, /^400 INVALID_PAYLOAD: .*"done": "_increment" does not apply.*boolean.*_set/],
    [{ n: { _append: 1 } }, /^400 INVALID_PAYLOAD: .*"n": "_append".*_increment, _decrement, _set/],
    [{ day: { _decrement: 1 } }, /^400 INVALID_PAYLOAD: .*"day": "_decrement"/],
    [{ facts: { _increment: 1 } }, /^400 INVALID_PAYLOAD: .*"facts": "_increment".*_append, _merge, _set/],
    [{ facts: { _merge: [1] } }, /^400 INVALID_PAYLOAD: .*"facts\._merge" must be an object/],
    [{ facts: { _append: 1 } }, /^400 INVALID_PAYLOAD: .*"facts".*"_append" needs a list/],
    [{ facts: { _set: 1, b: 2 } }, /^400 INVALID_PAYLOAD: .*"facts".*"_set"/],
    [{ facts: { _merge: {}, _append: 1 } }, /^400 INVALID_PAYLOAD: .*"facts".*"_set"/],
    [{ n: { _increment: null } }, /^400 INVALID_PAYLOAD: .*"n\._increment"/],
    [{ n: { _increment: 'x' } }, /^400 INVALID_PAYLOAD: .*"n\._increment" must be a whole number/],
    [{ n: { _increment: 1.5 } }, /^400 INVALID_PAYLOAD: .*"n\._increment" must be a whole number/],
    [{ n: { _increment: { _increment: 1 } } }, /^400 INVALID_PAYLOAD: .*"n\._increment"/],
    [{ n: { _increment: 2147483647 } }, /^400 FAILED_VALIDATION: .*"n"/],
    [{ n: { _increment: 3000000000 } }, /^400 FAILED_VALIDATION: .*"n"/],
    [{ word: { _append: 'hij' } }, /^400 FAILED_VALIDATION: .*"word"/],
    [{ stock: { _decrement: 2 } }, /^400 FAILED_VALIDATION: /],
    [{ share: { _increment: 1 } }, /^400 FAILED_VALIDATION: .*"share"/],
    [{ twice: { _increment: 1 } }, /^400 INVALID_PAYLOAD: .*"twice"/],
    [{ id: { _increment: 1 } }, /^400 INVALID_PAYLOAD: .*"id"/],
    [{ secret: { _append: 'x' } }, /^400 INVALID_PAYLOAD: .*"secret": "_append"/],
    [{ n: { _multiply: 2 } }, /^400 INVALID_PAYLOAD: .*"n"/],
    [{ numbers: { _append: 'x' } }, /^400 INVALID_PAYLOAD: .*"numbers\._append\.0"/],
  ];
  for (const [body, expected] of cases)
    t.match(refused(await send('PATCH', '/items/counters/40', body)), expected, JSON.stringify(body));
  const chained = await send('PATCH', '/items/counters', [
    { id: 40, n: { _increment: 2147483647 } },
    { id: 41, label: 'never' },
  ]);
  t.match(refused(chained), /^400 FAILED_VALIDATION: .*"n"/);
  const mixed = await send('PATCH', '/items/counters', [
    { id: 41, n: 1 },
    { id: 40, facts: { _append: 1 } },
  ]);
  t.match(refused(mixed), /^400 INVALID_PAYLOAD: .*"1\.facts".*needs a list/);
  const twice = [
    { id: 40, n: { _increment: 1 } },
    { id: 40, n: { _increment: 1 } },
  ];
  t.match(refused(await send('PATCH', '/items/counters', twice)), /^400 INVALID_PAYLOAD: .*"1\.n".*twice/);
  const [row] = await sql`select n, facts, word, stock, share, label from counters where id = 40`;
  t.strictSame({ ...row }, { n: 1, facts: { a: 1 }, word: 'abcdefg', stock: 1, share: null, label: null });
});

t.test('an import stores objects as they are', async (t) => {
  const rows = JSON.stringify([
    { id: 5, facts: { _increment: 1 } },
    { id: 6, facts: { _set: 2 } },
  ]);
  const { status, text } = await send('POST', '/utils/import/counters', rows);
  t.equal(status < 300, true, text);
  const stored = await sql`select facts from counters where id in (5, 6) order by id`;
  t.strictSame(
    stored.map(({ facts }) => facts),
    [{ _increment: 1 }, { _set: 2 }],
  );
});

t.test('rules and validations see the result', async (t) => {
  await sql`update counters set n = 9, ratio = 9.5, stock = 5 where id = 3`;
  const update = (body: unknown) => send('PATCH', '/items/counters/3', body, limited.token);
  t.match((await update({ n: { _increment: 1 } })).json, { data: { n: 10 } });
  t.match(refused(await update({ n: { _increment: 1 } })), /^400 FAILED_VALIDATION.*"n"/);
  t.match(refused(await update({ n: { _decrement: -1 } })), /^400 FAILED_VALIDATION.*"n"/);
  const admin = await send('PATCH', '/items/counters/3', { ratio: { _increment: 1 } });
  t.match(refused(admin), /^400 FAILED_VALIDATION.*At most ten/);
  t.equal((await send('PATCH', '/items/counters/3', { ratio: { _increment: 0.5 } })).status, 200);
  const several = [
    { id: 3, n: { _decrement: 1 } },
    { id: 4, n: { _increment: 11 } },
  ];
  await sql`update counters set n = 0 where id = 4`;
  const answer = await send('PATCH', '/items/counters', several, limited.token);
  t.match(refused(answer), /^400 FAILED_VALIDATION.*"n"/);
  t.match(answer.json, { errors: [{ extensions: { path: ['1', 'n'] } }] });
  const [row] = await sql`select n, ratio from counters where id = 3`;
  t.strictSame({ ...row }, { n: 10, ratio: 10 });
});

t.test('an operator needs permission to read the field, in the row that it changes', async (t) => {
  await sql`update counters set n = 0, stock = 5, label = 'l' where id in (3, 4, 55)`;
  const update = (id: number, body: unknown) => send('PATCH', `/items/counters/${id}`, body, limited.token);
  t.equal((await update(3, { stock: 6 })).status, 200, 'a value needs no permission to read');
  for (const amount of [1, 1000])
    t.match(refused(await update(3, { stock: { _decrement: amount } })), /^403 FORBIDDEN.*"stock"/);
  t.equal((await update(55, { n: 2 })).status, 204, 'the row is not readable');
  for (const amount of [1, 2147483647])
    t.match(refused(await update(55, { n: { _increment: amount } })), /^403 FORBIDDEN/);
  t.equal((await update(3, { label: { _append: 'm' } })).status, 200);
  t.match(
    refused(await update(4, { label: { _append: 'm' } })),
    /^403 FORBIDDEN/,
    'the field is not readable in this row',
  );
  t.match(
    refused(await update(3, { facts: { _merge: {} } })),
    /^403 FORBIDDEN.*"facts"/,
    'the field cannot be written',
  );
  const both = [
    { id: 4, label: 'set' },
    { id: 3, label: { _append: 'n' } },
  ];
  t.equal((await send('PATCH', '/items/counters', both, limited.token)).status, 200, 'only where an operator reads');
  const rows = await sql`select id, n, stock, label from counters where id in (3, 4, 55) order by id`;
  t.strictSame(
    rows.map((row) => ({ ...row })),
    [
      { id: 3, n: 0, stock: 6, label: 'lmn' },
      { id: 4, n: 0, stock: 5, label: 'set' },
      { id: 55, n: 2, stock: 5, label: 'l' },
    ],
  );
});

t.test('operations of a transaction', async (t) => {
  await sql`update counters set n = 5, stock = 1 where id in (16, 17)`;
  const transfer = (amount: number): Promise<Answer> =>
    send('POST', '/transactions', {
      operations: [
        { method: 'PATCH', path: '/items/counters/16', body: { n: { _increment: amount } } },
        { method: 'PATCH', path: '/items/counters/17', body: { stock: { _decrement: amount } } },
      ],
    });
  t.equal((await transfer(1)).status, 200);
  t.match(refused(await transfer(1)), /^400 FAILED_VALIDATION/);
  const rows = await sql`select n, stock from counters where id in (16, 17) order by id`;
  t.strictSame(
    rows.map((row) => ({ ...row })),
    [
      { n: 6, stock: 1 },
      { n: 5, stock: 0 },
    ],
  );
});

t.test('a write that may have been done is not sent again', async (t) => {
  const sent: string[] = [];
  const session = {
    runBatch: async ({ text }: { text: string }, onRow: (number: number, cell: null) => void) => {
      sent.push(text);
      // One of three rows was skipped, one could not be shown for lack of memory.
      onRow(1, null);
      onRow(0, null);
    },
    runPipelined: async ([{ text }]: [{ text: string }]) => {
      sent.push(text);
      return [Buffer.from('alone')];
    },
  };
  for (const isRepeatable of [true, false]) {
    const batcher = new WriteBatcher((work) => work(session as unknown as Session));
    const statement = { text: 'single', parameters: [], prepare: true, columns: 1 } as const;
    const results = await Promise.allSettled(
      ['1', '2', '3'].map((key) => batcher.write({ statement, batchText: 'batch', key, isRepeatable, caller: key })),
    );
    t.strictSame(
      results.map(({ status }) => status),
      isRepeatable ? ['fulfilled', 'fulfilled', 'fulfilled'] : ['fulfilled', 'rejected', 'rejected'],
    );
    for (const result of results) if (result.status === 'rejected') t.equal(isOutcomeUnknown(result.reason), true);
    t.strictSame(sent.splice(0), isRepeatable ? ['batch', 'single', 'single'] : ['batch']);
  }
});

t.test('activity and revisions have the result', async (t) => {
  await sql`update counters set n = 41, label = 'a' where id = 45`;
  await send('PATCH', '/items/counters/45', { n: { _increment: 1 } });
  await send('PATCH', '/items/counters', [
    { id: 45, n: { _increment: 1 }, label: { _append: 'b' } },
    { id: 46, n: 1 },
  ]);
  const rows =
    await sql`select delta, data from service_revisions where collection = 'counters' and item = '45' order by id`;
  t.strictSame(
    rows.map(({ delta }) => delta),
    [{ n: 42 }, { n: 43, label: 'ab' }],
  );
  t.strictSame(
    rows.map(({ data }) => [data.n, data.label, data.twice]),
    [
      [42, 'a', 84],
      [43, 'ab', 86],
    ],
  );
});

t.test('GraphQL has an argument for each operator', async (t) => {
  await sql`update counters set n = 1, label = 'a', facts = '{"a":1}', numbers = null where id in (47, 48)`;
  const ask = (query: string, token = ADMIN_TOKEN) => send('POST', '/graphql', { query }, token);
  const one = await ask(`mutation { update_counters_item(id: 47, data: { kind: "g" }, increment: { n: 2, big: "5" },
    append: { label: "b", numbers: [1, 2] }, merge: { facts: { b: 2 } }) { n big label numbers facts kind } }`);
  t.strictSame(one.json, {
    data: {
      update_counters_item: { n: 3, big: '5', label: 'ab', numbers: [1, 2], facts: { a: 1, b: 2 }, kind: 'g' },
    },
  });
  const several = await ask('mutation { update_counters_items(ids: [47, 48], decrement: { n: 1 }) { n } }');
  t.strictSame(several.json, { data: { update_counters_items: [{ n: 2 }, { n: 0 }] } });
  const steps = await ask(`mutation { a: update_counters_item(id: 48, increment: { n: 1 }) { n }
    b: update_counters_item(id: 48, increment: { n: 1 }) { n } lone: update_lone(increment: { hits: 1 }) { hits } }`);
  t.match(steps.json, { data: { a: { n: 1 }, b: { n: 2 }, lone: { hits: Number } } });
  const literal = await ask('mutation { update_counters_item(id: 48, data: { facts: { _increment: 1 } }) { facts } }');
  t.strictSame(literal.json, { data: { update_counters_item: { facts: { _increment: 1 } } } });
  for (const [query, message] of [
    ['update_counters_item(id: 48, data: { n: 1 }, increment: { n: 1 })', /"n" has a value and an operator/],
    ['update_counters_item(id: 48, increment: { label: "x" })', /label/],
    ['update_counters_item(id: 48, increment: { id: 1 })', /id/],
    ['update_counters_item(id: 48, increment: { n: null })', /n\._increment/],
    ['update_counters_item(id: 48, increment: { n: 2147483647 })', /"n"/],
    ['update_counters_item(id: 48)', /"data" is required, or one of increment, decrement, append, merge/],
    ['update_counters_item(id: 48, append: { secret: "x" })', /secret/],
    ['create_counters_item(data: { n: 1 }, increment: { n: 1 })', /increment/],
  ] as const) {
    const answer = await ask(`mutation { ${query} { id } }`);
    t.match(refused(answer), message, query);
  }
  const [row] = await sql`select n from counters where id = 48`;
  t.equal(row?.['n'], 2);
  const { text } = await request(service, 'GET', '/server/specs/graphql', { token: limited.token });
  t.match(text, /input increment_counters_input \{\s+n: Int\s+rate: Float\s+\}/, 'fields to read and update');
  t.match(text, /input append_counters_input \{\s+label: String\s+\}/);
  t.notMatch(text, /merge_counters_input/);
});

t.test('GraphQL has operators in items of a batch and in related items', async (t) => {
  await sql`update counters set n = 1, label = 'a', facts = '{"a":1}', parent = null where id between 50 and 53`;
  await sql`update counters set parent = 50 where id in (52, 53)`;
  const ask = (query: string, token = ADMIN_TOKEN) => send('POST', '/graphql', { query }, token);
  const batch = await ask(`mutation { update_counters_batch(data: [
    { id: 50, _increment: { n: 2 }, label: "b" }, { id: 51, _append: { label: "c" }, _merge: { facts: { b: 2 } } }]) { n label facts } }`);
  t.strictSame(batch.json, {
    data: {
      update_counters_batch: [
        { n: 3, label: 'b', facts: { a: 1 } },
        { n: 1, label: 'ac', facts: { a: 1, b: 2 } },
      ],
    },
  });
  const nested = await ask(`mutation { update_counters_item(id: 50, data: { _decrement: { n: 1 },
    children: [{ update: [{ id: 52, _increment: { n: 4 } }] }] }, append: { label: "d" }) { n label } }`);
  t.strictSame(nested.json, { data: { update_counters_item: { n: 2, label: 'bd' } } });
  const parent =
    await ask(`mutation { update_counters_item(id: 53, data: { parent: { id: 50, _increment: { n: 10 } } }) {
    parent { n } } }`);
  t.strictSame(parent.json, { data: { update_counters_item: { parent: { n: 12 } } } });
  const [child] = await sql`select n from counters where id = 52`;
  t.equal(child?.['n'], 5);
  for (const [query, message] of [
    ['update_counters_batch(data: [{ id: 50, n: 1, _increment: { n: 1 } }])', /"data.0.n" has a value and an operator/],
    ['update_counters_batch(data: [{ id: 50, _increment: { n: 1 }, _decrement: { n: 1 } }])', /"data.0.n" has a value/],
    ['update_counters_batch(data: [{ id: 50, _increment: { label: "x" } }])', /label/],
    ['update_counters_item(id: 50, data: { _increment: { n: 1 } }, increment: { n: 1 })', /"n" has a value/],
    [
      'update_counters_item(id: 50, data: { children: [{ name: "never", _increment: { n: 1 } }] })',
      /a new item cannot/,
    ],
    ['create_counters_item(data: { _increment: { n: 1 } })', /_increment/],
  ] as const) {
    const answer = await ask(`mutation { ${query} { id } }`);
    t.match(refused(answer), message, query);
  }
  const [row] =
    await sql`select n, (select count(*)::int from counters where name = 'never') as made from counters where id = 50`;
  t.strictSame({ ...row }, { n: 12, made: 0 });
});

t.test('_set writes a reference, and no key', async (t) => {
  await sql`update counters set n = 1, parent = 1 where id = 54`;
  const update = (body: unknown) => send('PATCH', '/items/counters/54?fields=n,parent', body);
  t.strictSame((await update({ parent: { _set: 2 } })).json, { data: { n: 1, parent: 2 } });
  t.strictSame((await update({ parent: { _set: null } })).json, { data: { n: 1, parent: null } });
  const made = await send('POST', '/items/counters?fields=parent', { parent: { _set: 3 } });
  t.strictSame(made.json, { data: { parent: 3 } });
  const upsert = '/items/counters?fields=parent&on_conflict=name';
  t.strictSame((await send('POST', upsert, { name: 'set', parent: { _set: 4 } })).json, { data: { parent: 4 } });
  for (const [body, expected] of [
    [{ id: { _set: 99 } }, /"id" is a part of the key of "counters", which cannot be changed/],
    [{ id: { _set: 54 } }, /"id" is a part of the key/],
    [{ parent: { _set: 5, n: 1 } }, /"parent" has other keys next to "_set"/],
    [{ parent: { _increment: 1 } }, /"parent": "_increment" does not apply/],
    [{ parent: { _set: 'x' } }, /"parent" must be a whole number/],
  ] as const)
    t.match(refused(await update({ n: 2, ...body })), expected, JSON.stringify(body));
  t.match(refused(await send('POST', '/items/counters', { id: { _set: 99 } })), /^400 INVALID_PAYLOAD: .*key/);
  const [row] =
    await sql`select n, parent, (select count(*)::int from counters where id = 99) as others from counters where id = 54`;
  t.strictSame({ ...row }, { n: 1, parent: null, others: 0 });
});

/** Holds the row in a transaction of its own, and changes it before it ends. */
async function whileHeld(id: number, work: () => Promise<unknown>): Promise<void> {
  await holder.begin(async (transaction) => {
    await transaction`update counters set n = n + 1000 where id = ${id}`;
    void work();
    const isBlocked = async (): Promise<boolean> => {
      const [row] =
        await sql`select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and query like '%counters%'`;
      return Number(row?.['n']) > 0;
    };
    await waitFor(isBlocked, 10_000);
    await transaction`update counters set n = n + 10000 where id = ${id}`;
  });
}

for (const WRITE_BATCHING of ['true', 'false'])
  t.test(`increments of one row at once all count, WRITE_BATCHING=${WRITE_BATCHING}`, async (t) => {
    const other = await startTestService({ databaseUrl, WORKERS: '1', WRITE_BATCHING, ...KNOWS_CALLERS });
    await sql`update counters set n = 0, small = 0, facts = null`;
    const batches = async (): Promise<number> => {
      const { text } = await request(other, 'GET', '/server/metrics', { token: ADMIN_TOKEN });
      const sample = (name: string): number => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
      return sample('lateral_write_batch_size_sum') - sample('lateral_write_batch_size_count');
    };
    const increment = { n: { _increment: 1 } };
    const answers = await Promise.all([
      ...Array.from({ length: 50 }, () => send('PATCH', '/items/counters/7?fields=n', increment, ADMIN_TOKEN, other)),
      ...Array.from({ length: 50 }, () => send('PATCH', '/items/counters/7?fields=n', increment)),
      ...Array.from({ length: 50 }, (_, k) =>
        send('PATCH', `/items/counters/${(k % 5) + 7}?fields=n`, increment, ADMIN_TOKEN, other),
      ),
      ...Array.from({ length: 25 }, () =>
        send('PATCH', '/items/counters', [
          { id: 8, ...increment },
          { id: 7, n: { _increment: 2 } },
        ]),
      ),
      ...Array.from({ length: 25 }, (_, k) =>
        send('PATCH', '/items/counters/7', { facts: { _append: k } }, ADMIN_TOKEN, other),
      ),
    ]);
    t.strictSame([...new Set(answers.map(({ status }) => status))], [200]);
    t.equal((await batches()) > 0, WRITE_BATCHING === 'true', 'increments of several rows share a statement');
    const rows = await sql`select n from counters where id between 7 and 11 order by id`;
    t.strictSame(
      rows.map(({ n }) => n),
      [160, 35, 10, 10, 10],
    );
    const [row] = await sql`select facts from counters where id = 7`;
    t.strictSame(
      [...(row?.['facts'] ?? [])].sort((a, b) => a - b),
      Array.from({ length: 25 }, (_, k) => k),
    );
    let held: Promise<Answer[]> = Promise.resolve([]);
    await whileHeld(12, async () => {
      const ids = [12, 13, 12, 14, 12];
      held = Promise.all(
        ids.map((id) => send('PATCH', `/items/counters/${id}?fields=n`, increment, ADMIN_TOKEN, other)),
      );
      await held;
    });
    t.strictSame(new Set((await held).map(({ status }) => status)), new Set([200]));
    const after = await sql`select n from counters where id between 12 and 14 order by id`;
    t.strictSame(
      after.map(({ n }) => n),
      [11_003, 1, 1],
      'each increment re-reads the row that another transaction changed',
    );
    const alone = answers.slice(0, 150).map(({ json }) => (json as { data: { n: number } }).data.n);
    t.equal(Math.max(...alone) <= 160, true);
    const [log] =
      await sql`select count(*)::int as n from service_revisions where collection = 'counters' and (delta->>'n')::int = 160`;
    t.equal(Number(log?.['n']) >= 1, true, 'the last increment has the sum in its revision');
  });
