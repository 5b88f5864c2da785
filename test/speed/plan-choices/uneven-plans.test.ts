/**
 * Uneven values: each gets the plan that is right for it, whatever was asked before. What counts is how PostgreSQL has executed
 * the statements of the service: how many rows they have looked at, and whether they were planned for their values.
 */
import t from 'tap';
import { EXPLAINING, type ExecutedPlan, ExecutedPlans } from '../../support/executed-plans.js';
import { Connection } from '../../support/protocol-client.js';
import {
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase({ settings: EXPLAINING });
const databaseUrl = await createDatabase(server, 'uneven');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table places (id int primary key, country text not null);
      insert into places select n, case when n <= 5 then 'li' else 'de' end from generate_series(1, 2000) n;
      create index on places (country);
      create table items (
        id int primary key, kind text not null, at int not null, n int not null, owner int not null, place int references places (id)
      );
      insert into items
        select n, case when n % 10000 = 7 then 'rare' when n % 100 = 3 then 'some' when n % 2 = 0 then 'a' else 'b' end,
          hashint4(n), n, case when n % 3 = 0 then 1 else n end, n % 2000 + 1
        from generate_series(1, 100000) n;
      create index on items (kind);
      create index on items (at);
      create index on items (n);
      create index on items (owner);
      create index on items (place);
      create table marks (id int primary key, item int references items (id), tag text not null);
      insert into marks select n, n, case when n % 20000 = 0 then 'cold' else 'hot' end from generate_series(1, 100000) n;
      create index on marks (item);
      create index on marks (tag);
      analyze;`)
    .simple(),
);
const plans = ExecutedPlans.of(server);
t.teardown(() => plans.close());
const one = { databaseUrl, WORKERS: '1', DATABASE_POOL_SIZE: '1' };
const service = await startTestService({ ...one, STATISTICS_POLL_INTERVAL: '100ms' });
await withSql(
  databaseUrl,
  (sql) =>
    sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values ('marks', 'item', 'items', 'marks')`,
);
await waitFor(async () => (await get(service, '/items/items?fields=marks.tag&limit=1')).status === 200, 5_000);

const PAGE = 'fields=id,kind,at&sort=-at&limit=10';
type Way = 'plain' | 'fenced' | 'for its values';

function wayOf(plan: ExecutedPlan | undefined): Way | undefined {
  if (!plan) return undefined;
  return plan.isFenced ? 'fenced' : plan.isGeneric ? 'plain' : 'for its values';
}

async function run(path: string): Promise<ExecutedPlan | undefined> {
  const found = await plans.during('items', async () => {
    const answer = await get(service, path);
    if (answer.status !== 200) throw new Error(`${path}: ${answer.text}`);
  });
  t.equal(found.length, 1, `one statement: ${path}`);
  return found[0];
}

/** Asks often enough for the shape to be known. */
async function warm(path: string): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await get(service, path);
  await waitFor(async () => {
    await get(service, path);
    const [plan] = await plans.during('items', () => get(service, path));
    return wayOf(plan) !== 'for its values';
  }, 5_000).catch(() => {});
}

interface UnevenCase {
  /** Asked first and often. */
  readonly common: string;
  /** Null where the planner has the choice between both without a fence. */
  readonly expected: Readonly<Record<string, Way | null>>;
}

const CASES: Readonly<Record<string, UnevenCase>> = {
  equality: {
    common: 'filter[kind][_eq]=a',
    expected: {
      'filter[kind][_eq]=a': 'plain',
      'filter[kind][_eq]=rare': 'fenced',
      'filter[kind][_eq]=absent': 'fenced',
      'filter[kind][_eq]=some': 'for its values',
    },
  },
  'a range': {
    common: 'filter[n][_gt]=10',
    expected: {
      'filter[n][_gt]=10': 'plain',
      'filter[n][_gt]=99990': 'fenced',
      'filter[n][_gt]=200000': 'fenced',
    },
  },
  between: {
    common: 'filter[n][_between]=5,25',
    expected: { 'filter[n][_between]=1,90000': 'for its values', 'filter[n][_between]=70000,70020': null },
  },
  'one of several': {
    common: 'filter[kind][_in]=a,b',
    expected: { 'filter[kind][_in]=a,b': null, 'filter[kind][_in]=rare,absent': 'fenced' },
  },
  'two columns that contradict each other': {
    common: 'filter[kind][_eq]=a&filter[n][_gt]=1',
    expected: { 'filter[kind][_eq]=a&filter[n][_gt]=1': null, 'filter[kind][_eq]=a&filter[n][_gt]=99980': 'fenced' },
  },
  'a to-many relation': {
    common: 'filter[marks][tag][_eq]=hot',
    expected: {
      'filter[marks][tag][_eq]=hot': 'for its values',
      'filter[marks][tag][_eq]=cold': 'for its values',
      'filter[marks][tag][_eq]=absent': 'for its values',
    },
  },
  'a many-to-one relation': {
    common: 'filter[place][country][_eq]=de',
    expected: {
      'filter[place][country][_eq]=de': 'for its values',
      'filter[place][country][_eq]=li': 'for its values',
      'filter[place][country][_eq]=absent': 'for its values',
    },
  },
  'a value that very many rows have': {
    common: 'filter[owner][_eq]=50',
    expected: { 'filter[owner][_eq]=50': 'plain', 'filter[owner][_eq]=1': 'for its values' },
  },
};

for (const [name, { common, expected }] of Object.entries(CASES)) {
  t.test(name, async (t) => {
    const path = (filter: string): string => `/items/items?${PAGE}&${filter}`;
    await warm(path(common));
    for (let turn = 0; turn < 8; turn++) await get(service, path(common));
    for (const [filter, way] of Object.entries(expected)) {
      const plan = await run(path(filter));
      if (way === 'for its values') t.not(wayOf(plan), 'plain', `${filter}: ${way}`);
      else if (way) t.equal(wayOf(plan), way, `${filter}: ${way}`);
      else t.notOk(plan?.isFenced, filter);
      t.ok((plan?.rowsRead ?? Infinity) < 10_000, `${filter}: ${plan?.rowsRead} rows were read`);
    }
  });
}

t.test('the answer is the same in every way', async (t) => {
  const filters = Object.values(CASES).flatMap(({ expected }) => Object.keys(expected));
  const plain = await startTestService({ ...one, STATISTICS_POLL_INTERVAL: '0' });
  for (const filter of filters) {
    const path = `/items/items?${PAGE}&${filter}&meta=filter_count`;
    t.equal((await get(service, path)).text, (await get(plain, path)).text, filter);
  }
});

t.test('GraphQL', async (t) => {
  const query =
    'query ($kind: String) { items(filter: { kind: { _eq: $kind } }, sort: ["-at"], limit: 10) { id at marks { tag } } }';
  const connection = new Connection(service);
  const ask = (kind: string): Promise<unknown> =>
    connection.request('POST', '/graphql', JSON.stringify({ query, variables: { kind } }));
  for (let turn = 0; turn < 3; turn++) await ask('a');
  await waitFor(async () => wayOf((await plans.during('items', () => ask('a')))[0]) === 'plain', 5_000);
  const [rare] = await plans.during('items', () => ask('rare'));
  t.equal(wayOf(rare), 'fenced');
  t.ok((rare?.rowsRead ?? Infinity) < 200, `${rare?.rowsRead} rows were read`);
  connection.close();
});

t.test('items that a query selects to be written are found by a plan for its values', async (t) => {
  const change = async (kind: string): Promise<ExecutedPlan[]> => {
    const query = { filter: { kind: { _eq: kind } }, sort: ['-at'], limit: 10 };
    const found = await plans.during('items', async () => {
      const body = JSON.stringify({ query, data: { owner: 7 } });
      const headers = { 'content-type': 'application/json' };
      const answer = await request(service, 'PATCH', '/items/items?fields=id', { headers, body });
      t.equal(answer.status, 200, answer.text);
    });
    return found.filter((plan) => plan.text.includes('limit'));
  };
  for (let turn = 0; turn < 8; turn++) await change('a');
  const [selection, ...others] = await change('rare');
  t.strictSame(others, []);
  t.notOk(selection?.isGeneric);
  t.ok((selection?.rowsRead ?? Infinity) < 1_000, `${selection?.rowsRead} rows were read`);
});

t.test('batches do not mix values that want different plans', async (t) => {
  const busy = await startTestService({ ...one, READ_BATCHING: 'true' });
  const crowd = Array.from({ length: 24 }, () => new Connection(busy));
  const path = (kind: string): string => `/items/items?fields=id,at&sort=-at&limit=10&filter[kind][_eq]=${kind}`;
  const ask = async (): Promise<void> => {
    await Promise.all(crowd.map((each, position) => each.request('GET', path(position % 4 === 0 ? 'rare' : 'a'))));
  };
  const batches = new Set<string>();
  await waitFor(async () => {
    const found = await plans.during('items', async () => {
      for (let turn = 0; turn < 10; turn++) await ask();
    });
    for (const plan of found.filter(({ isBatch }) => isBatch)) {
      batches.add(plan.isFenced ? 'fenced' : 'plain');
      const [hasRare, hasCommon] = [/[{,]rare[,}]/.test(plan.parameters), /[{,]a[,}]/.test(plan.parameters)];
      if (hasRare && hasCommon) t.fail(`one batch has both: ${plan.parameters}`);
      if (hasRare !== plan.isFenced) t.fail(`${plan.parameters} in the other way`);
    }
    return batches.size === 2;
  }, 30_000);
  t.strictSame([...batches].sort(), ['fenced', 'plain']);
  for (const each of crowd) each.close();
});

t.test('MAX_QUERY_COST: by the plan for the value', async (t) => {
  const limited = await startTestService({ ...one, MAX_QUERY_COST: '500' });
  const count = (kind: string): string => `/items/items?aggregate[count]=*&filter[kind][_eq]=${kind}`;
  for (let turn = 0; turn < 3; turn++) t.match(await get(limited, count('rare')), { status: 200 });
  const refused = { status: 400, json: { errors: [{ extensions: { option: 'MAX_QUERY_COST' } }] } };
  t.match(await get(limited, count('a')), refused, 'though the shape was found cheap for another value');
  t.match(await get(limited, count('rare')), { status: 200 });
});

t.test('statistics are read again after ANALYZE', async (t) => {
  const path = `/items/items?${PAGE}&filter[kind][_eq]=rare`;
  t.equal(wayOf(await run(path)), 'fenced');
  await withSql(databaseUrl, async (sql) => {
    await sql`update items set kind = 'rare' where kind = 'b'`;
    await sql`analyze items`;
  });
  await waitFor(async () => wayOf((await plans.during('items', () => get(service, path)))[0]) === 'plain', 10_000);
  t.ok(((await run(path))?.rowsRead ?? Infinity) < 200, 'it is common now');
});

t.test('tables without statistics get custom plans until ANALYZE', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql
      .unsafe(`
        create table strangers (id serial primary key, kind text, at int) with (autovacuum_enabled = false);
        insert into strangers (kind, at) select 'a', hashint4(n) from generate_series(1, 400000) n;
        create index on strangers (at);
        create index on strangers (kind);`)
      .simple(),
  );
  await waitFor(async () => (await get(service, '/items/strangers?limit=1')).status === 200, 5_000);
  const path = (kind: string): string => `/items/strangers?${PAGE}&filter[kind][_eq]=${kind}`;
  const ask = (kind: string): Promise<ExecutedPlan[]> => plans.during('strangers', () => get(service, path(kind)));
  for (let turn = 0; turn < 10; turn++)
    for (const plan of await ask('a')) t.equal(wayOf(plan), 'for its values', 'never analyzed');
  await withSql(databaseUrl, (sql) => sql`analyze strangers`);
  await waitFor(async () => wayOf((await ask('absent')).at(-1)) === 'fenced', 20_000);
  t.equal((await ask('absent')).at(-1)?.rowsRead, 0);
});
