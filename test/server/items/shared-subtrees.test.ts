/**
 * A to-one subtree that holds a list is computed once per distinct reference of a page, not once per row: counted in the plan, not in
 * time. What is shown is the same as row by row, with permissions, cursors, GraphQL and reads that travel together.
 */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
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
const url = await createDatabase(server, 'shared');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table currencies (id serial primary key, code text, secret boolean default false);
  create table rates (id serial primary key, currency int references currencies, day int);
  create table shops (id serial primary key, name text);
  create table orders (id serial primary key, currency int references currencies, shop int references shops, title text);
  create table limits (id serial primary key, currency int unique references currencies, amount int);
  insert into currencies (code, secret) select 'C' || n, n = 2 from generate_series(1, 30) n;
  insert into rates (currency, day) select 1 + n % 30, n from generate_series(0, 2999) n;
  insert into shops (name) values ('one'), ('two');
  insert into orders (currency, shop, title) select 1, 1, 'same ' || n from generate_series(1, 20) n;
  insert into orders (currency, shop, title) select n, 2, 'own ' || n from generate_series(1, 20) n;
  insert into orders (currency, title) values (null, 'none');
  insert into limits (currency, amount) select n, n from generate_series(1, 30) n;
  create index on rates (currency);
  create index on orders (shop);
  analyze`);
const service = await startTestService({ databaseUrl: url, READ_BATCHING: 'true' });
await sql.unsafe(`
  insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('rates', 'currency', 'currencies', 'rates'), ('orders', 'shop', 'shops', 'orders'), ('orders', 'currency', 'currencies', 'orders')`);
await waitFor(async () => (await get(service, '/items/shops?fields=orders.currency.rates.day')).status === 200, 10_000);

interface PlanNode {
  readonly 'Relation Name'?: string;
  readonly 'Actual Loops': number;
  readonly Plans?: readonly PlanNode[];
}

/** How often each table was looked into. */
async function lookupsOf(path: string): Promise<Record<string, number>> {
  const { json } = await request(service, 'GET', path, { headers: { prefer: 'explain=analyze' } });
  const { plan } = (json as { data: { plan: [{ Plan: PlanNode }] } }).data;
  const counts: Record<string, number> = {};
  const walk = (node: PlanNode): void => {
    const name = node['Relation Name'];
    if (name !== undefined) counts[name] = (counts[name] ?? 0) + node['Actual Loops'];
    node.Plans?.forEach(walk);
  };
  walk(plan[0].Plan);
  return counts;
}

const FIELDS = 'fields=title,currency.code,currency.rates.day';
const read = async (path: string, token?: string): Promise<unknown> => {
  const answer = await get(service, path, token ? { token } : {});
  t.equal(answer.status, 200, answer.text.slice(0, 300));
  return (answer.json as { data: unknown }).data;
};
/** Row by row: a single item has nothing to share. */
const oneByOne = async (keys: readonly number[], token?: string): Promise<unknown> => {
  const items: unknown[] = [];
  for (const key of keys) items.push(await read(`/items/orders/${key}?${FIELDS}`, token));
  return items;
};

t.test('twenty rows that share a subtree compute it once', async (t) => {
  const path = `/items/orders?${FIELDS}&filter[title][_starts_with]=same&sort=id&limit=20`;
  t.match(await lookupsOf(path), { rates: 1, currencies: 1, orders: 1 });
  t.strictSame(await read(path), await oneByOne(Array.from({ length: 20 }, (_, n) => n + 1)));
});

t.test('twenty rows that have one each compute twenty; a row without one shows null', async (t) => {
  const path = `/items/orders?${FIELDS}&filter[title][_starts_with]=own&sort=-id&limit=20`;
  t.match(await lookupsOf(path), { rates: 20, currencies: 20 });
  t.strictSame(await read(path), await oneByOne(Array.from({ length: 20 }, (_, n) => 40 - n)));
  t.strictSame(await read(`/items/orders/41?${FIELDS}`), { title: 'none', currency: null });
  t.strictSame(await read(`/items/orders?${FIELDS}&filter[title][_eq]=none`), [{ title: 'none', currency: null }]);
});

t.test('below a list, deeper subtrees, counts, and with a cursor', async (t) => {
  t.match(await lookupsOf('/items/shops?fields=orders.currency.rates.day&filter[id][_eq]=1'), { rates: 1 });
  t.match(await lookupsOf('/items/orders?fields=currency.orders.shop.name&limit=20'), { shops: 21 }, 'not 420');
  const deep = '/items/orders?fields=currency.rates&deep[currency][rates][_limit]=2&limit=20';
  t.match(await lookupsOf(deep), { rates: 1 });
  t.strictSame(((await read(deep)) as unknown[])[19], { currency: { rates: [1, 31] } });
  const page = await get(service, `/items/orders?${FIELDS}&sort=id&limit=3&cursor=`);
  t.strictSame((page.json as { data: unknown }).data, await oneByOne([1, 2, 3]));
});

t.test('subtrees without lists, single items and unique references are read as before', async (t) => {
  t.match(await lookupsOf('/items/orders?fields=title,currency.code&filter[title][_starts_with]=own&limit=20'), {
    currencies: 20,
  });
  const { json } = await get(service, '/items/limits?fields=currency.rates.day&limit=20', {
    headers: { prefer: 'explain' },
  });
  t.notMatch(JSON.stringify(json), /distinct/i);
});

t.test('rows and fields that a caller may see', async (t) => {
  const { token } = await makeCaller(sql, 'trader', [
    {
      permissions: [
        { collection: 'orders', action: 'read', fields: ['id', 'title'] },
        {
          collection: 'orders',
          action: 'read',
          fields: ['currency'],
          permissions: { title: { _nin: ['same 3', 'own 4'] } },
        },
        { collection: 'currencies', action: 'read', permissions: { secret: { _eq: false } } },
        { collection: 'rates', action: 'read', permissions: { day: { _lt: 100 } } },
      ],
    },
  ]);
  await waitFor(async () => (await get(service, '/items/orders', { token })).status === 200, 10_000);
  const seen = await read(`/items/orders?${FIELDS}&sort=id&limit=40`, token);
  t.strictSame(
    seen,
    await oneByOne(
      Array.from({ length: 40 }, (_, n) => n + 1),
      token,
    ),
  );
  const [, , third, ...rest] = seen as { currency: { rates: { day: number }[] } | null }[];
  t.equal(third?.currency, null, 'a field that may not be seen in this row');
  t.equal(rest[18]?.currency, null, 'a currency that may not be seen');
  t.ok(rest.every(({ currency }) => currency?.rates.every(({ day }) => day < 100) ?? true));
});

t.test('reads that travel together, GraphQL and streams', async (t) => {
  const paths = Array.from({ length: 40 }, (_, n) => `/items/orders?${FIELDS}&filter[id][_gt]=${n}&sort=id&limit=5`);
  const alone: unknown[] = [];
  for (const path of paths) alone.push(await read(path));
  t.strictSame(await Promise.all(paths.map((path) => read(path))), alone);
  const query = '{ orders(limit: 20, sort: "id") { title currency { code rates { day } } } }';
  const headers = { 'content-type': 'application/json' };
  const { json } = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) });
  t.strictSame(
    (json as { data: { orders: unknown } }).data.orders,
    await read(`/items/orders?${FIELDS}&sort=id&limit=20`),
  );
  t.strictSame(
    ((await read(`/items/orders?${FIELDS}&sort=id&limit=-1`)) as unknown[]).slice(0, 20),
    await read(`/items/orders?${FIELDS}&sort=id&limit=20`),
  );
});
