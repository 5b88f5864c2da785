/** POST /transactions: several writes of items in one transaction, all or nothing. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import { EventStream } from '../../support/event-stream.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'transactions');
const sql = connectSql(databaseUrl);
const holder = connectSql(databaseUrl);
t.teardown(() => Promise.all([sql.end(), holder.end()]));
await sql.unsafe(`
  create table orders (id serial primary key, customer text not null, note jsonb, total numeric);
  create table lines (
    id uuid primary key default gen_random_uuid(),
    "order" int not null references orders, amount int not null default 1, parent uuid references lines);
  create table stock (id int primary key, amount int not null check (amount >= 0));
  create table pairs (a int, b int, name text, primary key (a, b));
  create table wallets (id bigserial primary key, owner text unique);
  create table payments (id serial primary key, wallet bigint references wallets, pair_a int, pair_b int);
  create table left_out (id serial primary key, name text);
  create function leave_out() returns trigger language plpgsql as
    $$ begin return case when new.name = 'kept' then new end; end $$;
  create trigger leave_out before insert on left_out for each row execute function leave_out();
  create table redirected (id serial primary key, name text);
  create table redirected_2026 () inherits (redirected);
  create function redirect() returns trigger language plpgsql as
    $$ begin insert into redirected_2026 values (new.*); return null; end $$;
  create trigger redirect before insert on redirected for each row execute function redirect();
  create table late (id serial primary key, name text, constraint late_name unique (name) deferrable initially deferred);
  create table vaults (id uuid primary key default gen_random_uuid(), name text unique, owner text);
  create table cards (id uuid primary key default gen_random_uuid(), name text unique, owner text);
  create table slips (
    id text primary key default gen_random_uuid(), ref text, doc jsonb, vault uuid references vaults, card uuid references cards);
  create table badges (card uuid primary key references cards, label text);
  insert into vaults (name) values ('victim');
  insert into cards (name, owner) values ('mine', 'smuggler'), ('other', 'somebody');
  insert into slips (id) values ('known');
  insert into badges (card) select id from cards;
  insert into stock values (7, 10), (8, 10), (9, 10);
  insert into pairs values (1, 1, 'one');`);
await sql`insert into service_collections (collection, singleton) values ('stock', false)`;
await sql`insert into service_fields (collection, field, special) values ('vaults', 'id', 'conceal')`;
const smuggler = await makeCaller(sql, 'smuggler', [
  {
    permissions: [
      ...(['create', 'update'] as const).map((action) => ({ collection: 'vaults', action, fields: ['name'] })),
      ...(['create', 'update'] as const).map((action) => ({ collection: 'cards', action, fields: ['name'] })),
      { collection: 'cards', action: 'read', permissions: { owner: { _eq: 'smuggler' } } },
      ...(['create', 'read', 'update', 'delete'] as const).map((action) => ({ collection: 'slips', action })),
      { collection: 'badges', action: 'update', fields: ['label'] },
    ],
  },
]);
const clerk = await makeCaller(sql, 'clerk', [
  {
    permissions: [
      { collection: 'orders', action: 'create' },
      { collection: 'orders', action: 'read' },
      { collection: 'lines', action: 'create' },
      { collection: 'stock', action: 'update', permissions: { id: { _eq: 7 } } },
    ],
  },
]);
const counter = await StatementCounter.of(server, 'transactions');
const service = await startTestService({ databaseUrl, MAX_BATCH_MUTATION: '200', DATABASE_STATEMENT_TIMEOUT: '3s' });
await inForce(service, clerk, '/items/orders');

interface Sent {
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly to?: typeof service;
}

function send(operations: unknown, { token = ADMIN_TOKEN, headers = {}, to = service }: Sent = {}): Promise<Answer> {
  return request(to, 'POST', '/transactions', {
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ operations }),
    token,
  });
}

interface Failure {
  readonly message: string;
  readonly extensions: { readonly code: string; readonly operation?: number; readonly reason?: string };
}

function failureOf({ json }: Answer): Failure {
  const [failure] = (json as { errors: Failure[] }).errors;
  if (!failure) throw new Error('there is no error');
  return failure;
}

/** Everything that a transaction of these tests can change. */
async function state(): Promise<unknown> {
  const [row] = await sql`
    select (select count(*) from orders) as orders, (select count(*) from lines) as lines,
      (select json_agg(s order by id) from stock s) as stock, (select count(*) from tags) as tags,
      (select count(*) from service_activity) as activity, (select count(*) from service_revisions) as revisions,
      (select count(*) from service_receipts) as receipts`;
  return row;
}

const order = (customer: string) => ({ method: 'POST', path: '/items/orders?fields=customer', body: { customer } });

t.test('an order, its lines and the stock', async (t) => {
  const answer = await send([
    { method: 'POST', path: '/items/orders?fields=id,customer', body: { customer: 'Ada', note: { big: 1e2 } } },
    { method: 'PATCH', path: '/items/stock/7?fields=amount', body: { amount: { _decrement: 2 } } },
    { method: 'POST', path: '/items/lines?fields=order,amount', body: { order: { $ref: '0' }, amount: 2 } },
    { method: 'DELETE', path: '/items/stock/9' },
  ]);
  t.equal(answer.status, 200);
  const [made] = await sql`select id from orders where customer = 'Ada'`;
  t.equal(
    answer.text,
    `{"data":[{"status":200,"data":{"id":${made?.['id']},"customer":"Ada"}},{"status":200,"data":{"amount":8}},` +
      `{"status":200,"data":{"order":${made?.['id']},"amount":2}},{"status":204}]}`,
  );
  t.equal((await sql`select from stock where id = 9`).length, 0);
  await sql`insert into stock values (9, 10)`;
  const activity = await sql`select action, collection from service_activity order by id desc limit 4`;
  t.strictSame(activity.map(({ action, collection }) => `${action} ${collection}`).reverse(), [
    'create orders',
    'update stock',
    'create lines',
    'delete stock',
  ]);
});

t.test('an error of the last operation undoes all', async (t) => {
  const before = await state();
  for (const [last, status, code] of [
    [{ method: 'PATCH', path: '/items/stock/8', body: { amount: -1 } }, 400, 'FAILED_VALIDATION'],
    [{ method: 'PATCH', path: '/items/stock/12345', body: { amount: 1 } }, 403, 'FORBIDDEN'],
    [{ method: 'DELETE', path: '/items/stock/12345' }, 403, 'FORBIDDEN'],
    [{ method: 'DELETE', path: '/items/stock', body: [7, 12345] }, 403, 'FORBIDDEN'],
    [{ method: 'POST', path: '/items/lines', body: { order: 999_999 } }, 400, 'FAILED_VALIDATION'],
    [{ method: 'POST', path: '/items/orders', body: { customer: null } }, 400, 'FAILED_VALIDATION'],
    [{ method: 'POST', path: '/items/orders', body: { nobody: 1 } }, 400, 'INVALID_PAYLOAD'],
    [{ method: 'POST', path: '/items/nothing', body: {} }, 403, 'FORBIDDEN'],
    [{ method: 'POST', path: '/items/service_users', body: {} }, 403, 'FORBIDDEN'],
    [{ method: 'POST', path: '/items/lines', body: { order: { $ref: '0' }, amount: 'many' } }, 400, 'INVALID_PAYLOAD'],
  ] as const) {
    const answer = await send([
      order('nobody'),
      { method: 'PATCH', path: '/items/stock', body: { query: { filter: { id: { _eq: 7 } } }, data: { amount: 1 } } },
      { method: 'POST', path: '/items/tags', body: [{ name: 'a' }, { name: 'b' }] },
      last,
    ]);
    t.equal(answer.status, status, JSON.stringify(last));
    t.match(failureOf(answer).extensions, { code, operation: 3 }, JSON.stringify(last));
  }
  t.strictSame(await state(), before);
});

t.test('the failing operation is named among those that are sent together', async (t) => {
  const before = await state();
  for (const failing of [0, 4, 9]) {
    const operations = Array.from({ length: 10 }, (_, index) =>
      index === failing ? { method: 'PATCH', path: '/items/stock/8', body: { amount: -1 } } : order(`o${index}`),
    );
    const { extensions } = failureOf(await send(operations));
    t.match(extensions, { code: 'FAILED_VALIDATION', operation: failing });
  }
  t.strictSame(await state(), before);
  const late = await send([
    { method: 'POST', path: '/items/late', body: { name: 'same' } },
    { method: 'POST', path: '/items/late', body: { name: 'same' } },
  ]);
  t.equal(late.status, 400, 'a constraint that is checked at the commit');
  t.equal(failureOf(late).extensions.operation, undefined, 'belongs to no operation');
  t.equal((await sql`select from late`).length, 0);
});

t.test('references', async (t) => {
  const answer = await send([
    { method: 'POST', path: '/items/articles?fields=id', body: { title: 'first' } },
    { method: 'POST', path: '/items/tags?fields=id', body: [{ name: 'x' }, { name: 'y' }, { name: 'z' }] },
    { method: 'PATCH', path: '/items/articles?fields=id', key: { $ref: '0' }, body: { meta: { of: { $ref: '1.2' } } } },
    {
      method: 'PATCH',
      path: '/items/articles?fields=comments.body,tags.tags_id.name',
      body: {
        keys: [{ $ref: '0' }],
        data: {
          comments: { create: [{ body: 'nested', article: { $ref: '0' } }], update: [], delete: [] },
          tags: [{ tags_id: { $ref: '1.1' } }, { tags_id: { $ref: '1.2' } }],
        },
      },
    },
    { method: 'DELETE', path: '/items/tags', key: { $ref: '1.0' } },
    { method: 'POST', path: '/items/wallets?fields=id', body: { owner: 'Ada' } },
    { method: 'POST', path: '/items/pairs?fields=name', body: { a: 5, b: 6, name: 'pair' } },
    { method: 'PATCH', path: '/items/pairs?fields=name', key: { $ref: '6' }, body: { name: 'changed' } },
    { method: 'POST', path: '/items/payments?fields=wallet', body: { wallet: { $ref: '5' } } },
    { method: 'POST', path: '/items/stock?fields=id', body: { id: 21, amount: 1 } },
    { method: 'PATCH', path: '/items/stock?fields=amount', key: { $ref: '9' }, body: { amount: 2 } },
    {
      method: 'PATCH',
      path: '/items/stock?fields=amount',
      body: { query: { filter: { id: { _eq: { $ref: '9' } } } }, data: { amount: 3 } },
    },
  ]);
  t.equal(answer.status, 200, answer.text);
  const { data } = answer.json as {
    data: { status: number; data: Record<string, unknown> & Record<string, unknown>[] }[];
  };
  t.strictSame(
    data.map(({ status }) => status),
    [200, 200, 200, 200, 204, 200, 200, 200, 200, 200, 200, 200],
  );
  const tags = data[1]?.data as unknown as { id: number }[];
  t.strictSame(data[3]?.data, [
    { comments: [{ body: 'nested' }], tags: [{ tags_id: { name: 'y' } }, { tags_id: { name: 'z' } }] },
  ]);
  t.strictSame(data[7]?.data, { name: 'changed' });
  t.strictSame(data[8]?.data, { wallet: data[5]?.data['id'] });
  t.strictSame(data[11]?.data, [{ amount: 3 }]);
  const [article] = await sql`select meta from articles where id = ${String(data[0]?.data['id'])}`;
  t.strictSame(article?.['meta'], { of: tags[2]?.id }, 'a number in JSON');
  t.strictSame(
    (await sql`select name from tags where name in ('x', 'y', 'z') order by name`).map(({ name }) => name),
    ['y', 'z'],
  );
  const chain = await send([
    order('chain'),
    { method: 'POST', path: '/items/lines', body: { order: { $ref: '0' } } },
    {
      method: 'POST',
      path: '/items/lines?fields=parent.order.customer',
      body: { order: { $ref: '0' }, parent: { $ref: '1' } },
    },
  ]);
  t.match(chain.json, { data: [{}, {}, { data: { parent: { order: { customer: 'chain' } } } }] });
  const upserted = await send([
    { method: 'POST', path: '/items/wallets?on_conflict=owner&fields=id', body: { owner: 'Ada' } },
    { method: 'POST', path: '/items/payments?fields=wallet', body: { wallet: { $ref: '0' } } },
  ]);
  t.match(upserted.json, { data: [{ data: { id: data[5]?.data['id'] } }, { data: { wallet: data[5]?.data['id'] } }] });
});

t.test('a literal that looks like a reference', async (t) => {
  const literal = { _set: { $ref: '#/definitions/order' } };
  const answer = await send([
    { method: 'POST', path: '/items/orders?fields=note', body: { customer: 'literal', note: literal } },
    { method: 'PATCH', path: '/items/orders?fields=note', key: { $ref: '0' }, body: { note: literal } },
    { ...order('b'), path: '/items/orders?fields=note', body: { customer: 'b', note: { $ref: '0', of: 'more' } } },
  ]);
  const note = { $ref: '#/definitions/order' };
  t.strictSame(answer.json, {
    data: [
      { status: 200, data: { note } },
      { status: 200, data: { note } },
      { status: 200, data: { note: { $ref: '0', of: 'more' } } },
    ],
  });
});

t.test('references that lead nowhere', async (t) => {
  const before = await state();
  const line = (reference: unknown) => ({ method: 'POST', path: '/items/lines', body: { order: reference } });
  for (const [operations, operation, text] of [
    [[line({ $ref: '1' }), order('later')], 0, /must name an earlier operation/],
    [[line({ $ref: '0' })], 0, /must name an earlier operation/],
    [[order('a'), line({ $ref: '7' })], 1, /must name an earlier operation/],
    [[order('a'), line({ $ref: 0 })], 1, /as a string/],
    [[order('a'), line({ $ref: '00' })], 1, /as a string/],
    [[order('a'), line({ $ref: 'orders' })], 1, /as a string/],
    [[order('a'), line({ $ref: '0.0' })], 1, /creates one item/],
    [[{ ...order('a'), body: [{ customer: 'a' }] }, line({ $ref: '0' })], 1, /such as "0.0"/],
    [[{ ...order('a'), body: [{ customer: 'a' }] }, line({ $ref: '0.1' })], 1, /creates 1 items/],
    [[{ method: 'DELETE', path: '/items/stock/8' }, line({ $ref: '0' })], 1, /is not one/],
    [
      [
        { method: 'POST', path: '/items/left_out', body: { name: 'a' } },
        { method: 'PATCH', path: '/items/left_out', key: { $ref: '0' }, body: { name: 'b' } },
      ],
      1,
      /did not create all/,
    ],
    [
      [
        { method: 'POST', path: '/items/left_out', body: [{ name: 'a' }, { name: 'kept' }] },
        { method: 'POST', path: '/items/orders', body: { customer: 'a', total: { $ref: '0.1' } } },
      ],
      1,
      /did not create all/,
    ],
    [
      [
        {
          method: 'POST',
          path: '/items/wallets?on_conflict=owner&resolution=ignore',
          body: [{ owner: 'Ada' }, { owner: 'Eve' }],
        },
        { method: 'POST', path: '/items/payments', body: { wallet: { $ref: '0.1' } } },
      ],
      1,
      /did not create all/,
    ],
  ] as const) {
    const answer = await send(operations);
    t.ok(answer.status === 400 || answer.status === 403, `${answer.status} ${JSON.stringify(operations)}`);
    t.match(failureOf(answer), { message: text, extensions: { operation } }, JSON.stringify(operations));
  }
  t.strictSame(await state(), before);
  t.equal((await sql`select from wallets where owner = 'Eve'`).length, 0);
});

t.test('a reference to an item that a trigger stores', async (t) => {
  const answer = await send([
    { method: 'POST', path: '/items/left_out?fields=name', body: { name: 'kept' } },
    { method: 'PATCH', path: '/items/left_out?fields=name', key: { $ref: '0' }, body: { name: 'changed' } },
    { method: 'POST', path: '/items/redirected?fields=name', body: { name: 'moved' } },
    { method: 'PATCH', path: '/items/redirected?fields=name', key: { $ref: '2' }, body: { name: 'found' } },
  ]);
  t.strictSame(answer.json, {
    data: ['kept', 'changed', 'moved', 'found'].map((name) => ({ status: 200, data: { name } })),
  });
});

t.test('Prefer: return=minimal leaves out the results', async (t) => {
  const operations = [order('minimal'), { method: 'DELETE', path: '/items/orders', key: { $ref: '0' } }];
  const headers = { prefer: 'return=minimal', 'idempotency-key': randomUUID() };
  const minimal = await send(operations, { headers });
  t.strictSame([minimal.status, minimal.text], [204, '']);
  t.equal(minimal.headers['preference-applied'], 'return=minimal');
  t.equal((await send(operations, { headers })).status, 204, 'the repetition');
  const failed = await send([order('a'), { method: 'POST', path: '/items/orders', body: {} }], {
    headers: { prefer: 'return=minimal' },
  });
  t.equal(failed.status, 400);
  t.equal(failed.headers['preference-applied'], undefined, 'an error honours no preference');
  const whole = await send([order('whole')], { headers: { prefer: 'return=representation' } });
  t.strictSame(whole.json, { data: [{ status: 200, data: { customer: 'whole' } }] });
  t.equal(whole.headers['preference-applied'], 'return=representation');
});

t.test('permissions are those of the caller', async (t) => {
  const allowed = await send(
    [
      order('clerk'),
      { method: 'PATCH', path: '/items/stock/7', body: { amount: 5 } },
      { method: 'POST', path: '/items/lines', body: { order: { $ref: '0' } } },
    ],
    { token: clerk.token },
  );
  t.strictSame(allowed.json, {
    data: [{ status: 200, data: { customer: 'clerk' } }, { status: 204 }, { status: 204 }],
  });
  const before = await state();
  for (const refused of [
    { method: 'POST', path: '/items/tags', body: { name: 'forbidden' } },
    { method: 'PATCH', path: '/items/stock/8', body: { amount: 5 } },
    { method: 'DELETE', path: '/items/stock/7' },
    { method: 'POST', path: '/items/hidden', body: {} },
  ]) {
    const answer = await send([order('a'), refused, order('b')], { token: clerk.token });
    t.equal(answer.status, 403, JSON.stringify(refused));
    t.match(failureOf(answer).extensions, { code: 'FORBIDDEN', operation: 1 });
  }
  const nobody = await request(service, 'POST', '/transactions', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ operations: [order('a')] }),
    token: null,
  });
  t.equal(nobody.status, 403);
  const view = await send([order('a')], { headers: { 'lateral-view-as': `user:${clerk.user}` } });
  t.ok(view.status === 403 || view.status === 400, `a view may not write: ${view.status}`);
  t.strictSame(await state(), before);
});

t.test('a reference discloses no key that the caller may not read', async (t) => {
  const upsert = (collection: string, name: string) => ({
    method: 'POST',
    path: `/items/${collection}?on_conflict=name`,
    body: { name },
  });
  const ref = { $ref: '0' };
  const slip = (body: unknown) => ({ method: 'POST', path: '/items/slips?fields=ref,doc,vault,card', body });
  const values = [
    slip({ ref }),
    slip([{ ref: 'x' }, { doc: { deep: [ref] } }]),
    slip({ id: ref }),
    { method: 'PATCH', path: '/items/slips/known', body: { ref: { _append: ref } } },
    { method: 'PATCH', path: '/items/slips', body: [{ id: 'known', ref }] },
    { method: 'PATCH', path: '/items/slips', body: { keys: [ref], data: { ref: 'x' } } },
    { method: 'PATCH', path: '/items/slips', body: { query: { filter: { id: { _gt: ref } } }, data: { ref: 'x' } } },
    { method: 'PATCH', path: '/items/slips', key: ref, body: { ref: 'x' } },
    { method: 'DELETE', path: '/items/slips', key: ref },
    { method: 'DELETE', path: '/items/slips', body: [ref] },
  ];
  await waitFor(async () => (await send([upsert('cards', 'mine')], { token: smuggler.token })).status === 200, 5_000);
  const state = (): Promise<unknown> => sql`select * from slips order by id`;
  const before = await state();
  for (const [collection, name] of [
    ['vaults', 'victim'],
    ['vaults', 'new'],
    ['cards', 'other'],
    ['cards', 'new'],
  ] as const)
    for (const operation of [...values, slip({ [collection === 'cards' ? 'vault' : 'card']: ref })]) {
      const answer = await send([upsert(collection, name), operation], { token: smuggler.token });
      t.equal(answer.status, 403, `${collection} ${name} ${JSON.stringify(operation)}`);
      t.match(failureOf(answer).extensions, { code: 'FORBIDDEN', operation: 1 });
    }
  t.strictSame(await state(), before);
  t.equal((await sql`select from vaults where name = 'new'`).length, 0);

  const linked = [
    slip({ vault: ref }),
    slip([{ vault: ref }, { vault: { id: ref, name: 'victim' } }]),
    { method: 'PATCH', path: '/items/slips/known', body: { vault: ref } },
    { method: 'PATCH', path: '/items/slips', body: { keys: ['known'], data: { vault: ref } } },
    { method: 'PATCH', path: '/items/vaults', key: ref, body: { name: 'victim' } },
    { method: 'PATCH', path: '/items/vaults', body: [{ id: ref, name: 'victim' }] },
  ];
  for (const operation of linked) {
    const answer = await send([upsert('vaults', 'victim'), operation], { token: smuggler.token });
    t.equal(answer.status, 200, `${JSON.stringify(operation)} ${answer.text}`);
  }
  const badge = { method: 'PATCH', path: '/items/badges', key: ref, body: { label: 'x' } };
  for (const operation of [slip({ card: ref }), badge])
    t.equal((await send([upsert('cards', 'other'), operation], { token: smuggler.token })).status, 200);
  const readable = await send([upsert('cards', 'mine'), slip({ ref, doc: [ref] })], { token: smuggler.token });
  const [mine] = await sql`select id from cards where name = 'mine'`;
  t.match(readable.json, { data: [{}, { data: { ref: mine?.['id'], doc: [mine?.['id']] } }] });

  // Nobody reads a concealed key, administrators neither.
  t.equal((await send([upsert('vaults', 'victim'), slip({ ref })])).status, 403);
  t.equal((await send([upsert('cards', 'other'), slip({ ref })])).status, 200);
});

t.test('if_match', async (t) => {
  await sql`update stock set amount = 5 where id = 7`;
  const path = '/items/stock/7?fields=amount';
  const tag = String((await request(service, 'GET', path)).headers.etag);
  const change = { method: 'PATCH', path, body: { amount: { _increment: 1 } }, if_match: tag };
  t.match(await send([order('matched'), change]), { status: 200, json: { data: [{}, { data: { amount: 6 } }] } });
  const before = await state();
  for (const late of [change, { method: 'DELETE', path: '/items/stock/7', if_match: tag }]) {
    const answer = await send([order('late'), late, order('later')]);
    t.equal(answer.status, 412, late.method);
    t.match(failureOf(answer).extensions, { code: 'PRECONDITION_FAILED', operation: 1 });
  }
  for (const wrong of [
    { ...change, if_match: 7 },
    { ...change, if_match: 'no tag' },
    { ...order('a'), if_match: tag },
    { method: 'PATCH', path: '/items/stock', body: [{ id: 7, amount: 1 }], if_match: tag },
    { method: 'DELETE', path: '/items/stock', body: [7], if_match: tag },
  ]) {
    const answer = await send([order('a'), wrong]);
    t.equal(answer.status, 400, JSON.stringify(wrong));
    t.equal(failureOf(answer).extensions.operation, 1);
  }
  t.strictSame(await state(), before);
});

t.test('bad requests change nothing', async (t) => {
  const before = await state();
  const ok = order('fine');
  for (const [operations, operation] of [
    [[], undefined],
    [undefined, undefined],
    ['all', undefined],
    [Array.from({ length: 101 }, () => ok), undefined],
    [[ok, null], 1],
    [[ok, []], 1],
    [[ok, { ...ok, extra: 1 }], 1],
    [[ok, { ...ok, method: 'GET' }], 1],
    [[ok, { ...ok, method: 'post' }], 1],
    [[ok, { ...ok, method: 'constructor' }], 1],
    [[ok, { path: ok.path, body: ok.body }], 1],
    [[ok, { method: 'POST', body: ok.body }], 1],
    [[ok, { ...ok, path: '/users' }], 1],
    [[ok, { ...ok, path: '/items' }], 1],
    [[ok, { ...ok, path: '/items/' }], 1],
    [[ok, { ...ok, path: 'items/orders' }], 1],
    [[ok, { ...ok, path: 'https://example.com/items/orders' }], 1],
    [[ok, { ...ok, path: '/items/orders/1/2' }], 1],
    [[ok, { ...ok, path: '/items/orders%E0%A4%A' }], 1],
    [[ok, { ...ok, path: '/items/orders/1' }], 1],
    [[ok, { ...ok, path: 7 }], 1],
    [[ok, { ...ok, path: '/items/orders?filter[id]=1' }], 1],
    [[ok, { ...ok, path: '/items/orders?fields=nothing.of.this' }], 1],
    [[ok, { ...ok, body: undefined }], 1],
    [[ok, { ...ok, body: 'text' }], 1],
    [[ok, { ...ok, key: 1 }], 1],
    [[ok, { method: 'PATCH', path: '/items/stock/7', key: 7, body: {} }], 1],
    [[ok, { method: 'PATCH', path: '/items/stock', key: { a: 1 }, body: {} }], 1],
    [[ok, { method: 'PATCH', path: '/items/stock', key: null, body: {} }], 1],
    [[ok, { method: 'PATCH', path: '/items/stock/7' }], 1],
    [[ok, { method: 'DELETE', path: '/items/stock/7', body: [8] }], 1],
    [[ok, { method: 'DELETE', path: '/items/stock' }], 1],
  ] as const) {
    const answer = await send(operations);
    const label = JSON.stringify(operations)?.slice(-120) ?? 'none';
    t.ok(answer.status === 400 || answer.status === 403, `${answer.status} ${label}`);
    t.equal(failureOf(answer).extensions.operation, operation, label);
  }
  const unknown = await request(service, 'POST', '/transactions', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ operations: [ok], isolation: 'serializable' }),
  });
  t.equal(unknown.status, 400);
  t.match(failureOf(unknown).message, /"isolation"/);
  t.match(failureOf(await send([{ ...ok, extra: 1 }])).message, /"extra" is not allowed/);
  t.equal(
    (
      await request(service, 'POST', '/transactions?filter[id]=1', {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ operations: [ok] }),
      })
    ).status,
    400,
  );
  t.equal((await request(service, 'GET', '/transactions')).status, 404);
  t.strictSame(await state(), before);
  t.equal((await send(Array.from({ length: 100 }, () => ok))).status, 200, '100 operations are allowed');
});

t.test('rows of all operations count against MAX_BATCH_MUTATION', async (t) => {
  const before = await state();
  const many = (count: number) => ({
    method: 'POST',
    path: '/items/tags',
    body: Array.from({ length: count }, () => ({ name: 'n' })),
  });
  const answer = await send([many(150), many(51)]);
  t.equal(answer.status, 400);
  t.match(failureOf(answer), { message: /limit of 200/, extensions: { operation: 1 } });
  t.match(failureOf(await send([many(200), { method: 'DELETE', path: '/items/stock/7' }])).extensions, {
    operation: 1,
  });
  t.match(failureOf(await send([many(199), { method: 'DELETE', path: '/items/stock', body: [7, 8] }])).extensions, {
    operation: 1,
  });
  t.strictSame(await state(), before);
});

t.test('Idempotency-Key', async (t) => {
  const name = randomUUID();
  const headers = { 'idempotency-key': name };
  const operations = [
    { ...order(name), path: '/items/orders?fields=id' },
    { method: 'PATCH', path: '/items/stock/7?fields=amount', body: { amount: 4 } },
  ];
  const first = await send(operations, { headers });
  await sql`update stock set amount = 6 where id = 7`;
  const second = await send(operations, { headers });
  t.equal(first.status, 200);
  t.equal(second.text, first.text, 'the same answer');
  const other = await send([order(name)], { headers });
  t.equal(other.status, 422);
  t.equal((await sql`select from orders where customer = ${name}`).length, 1);
  t.equal((await sql`select amount from stock where id = 7`)[0]?.['amount'], 6, 'nothing was written again');
  const failing = { 'idempotency-key': `${name} failing` };
  const wrong = [order(name), { method: 'PATCH', path: '/items/stock/8', body: { amount: -1 } }];
  t.equal((await send(wrong, { headers: failing })).status, 400);
  t.equal((await send(wrong, { headers: failing })).status, 400, 'a transaction that was undone takes no key');
});

t.test('the same Idempotency-Key while the first request still runs', async (t) => {
  const name = randomUUID();
  const headers = { 'idempotency-key': name };
  const operations = [order(name), { method: 'PATCH', path: '/items/stock/8?fields=amount', body: { amount: 3 } }];
  const both = await holder.begin(async (other) => {
    await other`select from stock where id = 8 for update`;
    const first = send(operations, { headers });
    const waiting = async (): Promise<number> =>
      (await sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).length;
    await waitFor(async () => (await waiting()) === 1, 5_000);
    const second = send(operations, { headers });
    await waitFor(async () => (await waiting()) === 2, 5_000);
    return { first, second };
  });
  const [first, second] = await Promise.all([both.first, both.second]);
  t.equal(first.status, 200);
  t.equal(second.text, first.text);
  t.equal((await sql`select from orders where customer = ${name}`).length, 1);
});

t.test('transactions in opposite order: a deadlock is retried', async (t) => {
  await sql`update stock set amount = 0 where id in (7, 8)`;
  await sql`create function pause() returns trigger language plpgsql as 'begin perform pg_sleep(0.3); return new; end'`;
  await sql`create trigger pause after update on stock for each row execute function pause()`;
  const before = await deadlocks();
  const change = (id: number, amount: number) => ({ method: 'PATCH', path: `/items/stock/${id}`, body: { amount } });
  const answers = await Promise.all([send([change(7, 1), change(8, 1)]), send([change(8, 2), change(7, 2)])]);
  await sql`drop trigger pause on stock`;
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200],
  );
  await waitFor(async () => (await deadlocks()) > before, 10_000);
  const [one, other] = await sql`select amount from stock where id in (7, 8)`;
  t.equal(one?.['amount'], other?.['amount'], 'one transaction came after the other');
});

t.test('many transactions in any order end soon, although they meet deadlocks', async (t) => {
  await sql`update stock set amount = 0 where id in (7, 8, 9)`;
  await sql`insert into stock (id, amount) values (7, 0), (8, 0), (9, 0) on conflict do nothing`;
  const change = (id: number) => ({
    method: 'PATCH',
    path: `/items/stock/${id}?fields=id`,
    body: { amount: { _increment: 1 } },
  });
  const orders = [
    [7, 8, 9],
    [9, 8, 7],
    [8, 7, 9],
    [9, 7, 8],
  ];
  const to = await startTestService({ databaseUrl });
  const begun = performance.now();
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, index) => send((orders[index % 4] ?? []).map(change), { to })),
  );
  const took = Math.round(performance.now() - begun);
  t.ok(
    answers.every(({ status }) => status === 200),
    answers.map(({ status }) => status).join(),
  );
  const rows = await sql`select amount from stock where id in (7, 8, 9)`;
  t.strictSame(
    rows.map(({ amount }) => amount),
    [40, 40, 40],
  );
  t.ok(took < 15_000, `${took} ms`);
});

async function deadlocks(): Promise<number> {
  const [row] = await sql`select deadlocks::int from pg_stat_database where datname = current_database()`;
  return row?.['deadlocks'];
}

t.test('a killed backend: 503, and nothing is half done', async (t) => {
  const before = await state();
  const answer = await holder.begin(async (other) => {
    await other`select from stock where id = 8 for update`;
    const sent = send([
      order('killed'),
      { method: 'PATCH', path: '/items/stock/8', body: { amount: 1 } },
      order('killed'),
    ]);
    await waitFor(async () => {
      const killed = await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and application_name like 'lateral%'`;
      return killed.length > 0;
    }, 5_000);
    return sent;
  });
  t.equal(answer.status, 503);
  t.strictSame(await state(), before);
});

t.test('a transaction has the time of one statement', async (t) => {
  await sql`create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.8); return new; end'`;
  await sql`create trigger slow after insert on tags for each row execute function slow()`;
  const before = await state();
  const begun = performance.now();
  const answer = await send(
    Array.from({ length: 10 }, (_, n) => ({ method: 'POST', path: '/items/tags', body: { name: `s${n}` } })),
  );
  const took = performance.now() - begun;
  await sql`drop trigger slow on tags`;
  t.match(answer, { status: 400, json: { errors: [{ message: /took too long/ }] } });
  t.ok(took < 6_000, `${Math.round(took)} ms, not the 8 s of all statements`);
  t.strictSame(await state(), before);
  t.equal((await send([order('after')])).status, 200);
});

t.test('independent operations are one statement each, and two round trips together', async (t) => {
  const operations = [
    ...Array.from({ length: 9 }, (_, n) => order(`n${n}`)),
    { method: 'PATCH', path: '/items/stock/7?fields=amount', body: { amount: 1 } },
  ];
  await send(operations);
  const { counts } = await counter.count(() => send(operations));
  const writes = counts.filter(({ query }) => /orders|stock/.test(query));
  t.equal(
    writes.reduce((sum, { calls }) => sum + calls, 0),
    10,
    counts.map(({ query, calls }) => `${calls} ${query.slice(0, 80)}`).join('\n'),
  );
});

t.test('a live query sees the transaction at once', async (t) => {
  await sql`update stock set amount = 1 where id in (7, 8)`;
  const path = '/items/stock?fields=id,amount&filter[id][_in]=7,8&sort=id';
  const live = new EventStream(service, path);
  t.teardown(() => live.close());
  await live.count(1);
  await send([
    { method: 'PATCH', path: '/items/stock/7', body: { amount: 5 } },
    { method: 'PATCH', path: '/items/stock/8', body: { amount: 6 } },
  ]);
  await live.count(2);
  t.strictSame(live.last, {
    data: [
      { id: 7, amount: 5 },
      { id: 8, amount: 6 },
    ],
  });
});
