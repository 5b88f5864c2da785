/**
 * Pages behind a cursor: each order over nullable keys and those that are not visits every row once, and the page is found
 * where it begins in the index, not by reading all rows before it.
 */
import t from 'tap';
import {
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'cursor_pages');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table points (id int primary key, a int, b int, c int not null);
      insert into points
        select n, nullif(n % 3, 0), nullif(n / 3 % 3, 0), n / 9 % 2 from generate_series(0, 35) n;
      create table visits (id int primary key, at int, seen int not null, body text);
      insert into visits select n, case when n % 4 > 0 then n / 3 end, n / 3, 'Visit' from generate_series(1, 20000) n;
      create index on visits (at);
      create index on visits (seen);
      create index on visits (at desc, id);
      analyze;`)
    .simple(),
);
const service = await startTestService({ databaseUrl });

interface Point {
  readonly id: number;
  readonly a: number | null;
  readonly b: number | null;
  readonly c: number;
}

/** Nulls are larger than everything else. */
function compare(one: number | null, other: number | null): number {
  return (one ?? Number.POSITIVE_INFINITY) === (other ?? Number.POSITIVE_INFINITY)
    ? 0
    : (one ?? Number.POSITIVE_INFINITY) - (other ?? Number.POSITIVE_INFINITY);
}

/** Every choice of these keys, in every order and direction. */
function orders(names: readonly (keyof Point)[]): string[][] {
  return names.flatMap((name) =>
    [name, `-${name}`].flatMap((key) => [
      [key],
      ...orders(names.filter((other) => other !== name)).map((rest) => [key, ...rest]),
    ]),
  );
}

t.test('every order visits every row once', async (t) => {
  const points = ((await get(service, '/items/points?fields=id,a,b,c&limit=100')).json as { data: Point[] }).data;
  t.equal(points.length, 36);
  let pages = 0;
  for (const [position, sort] of orders(['a', 'b', 'c']).entries()) {
    const expected = [...points]
      .sort((one, other) => {
        for (const key of sort) {
          const name = key.replace('-', '') as keyof Point;
          const difference = compare(one[name], other[name]) * (key.startsWith('-') ? -1 : 1);
          if (difference !== 0) return difference;
        }
        return one.id - other.id;
      })
      .map(({ id }) => id);
    const seen: number[] = [];
    const limit = 3 + (position % 5);
    for (let cursor: string | null = ''; cursor !== null; pages++) {
      const path: string = `/items/points?fields=id&sort=${sort}&limit=${limit}&cursor=${cursor}`;
      const answer = (await get(service, path)).json as { data: Point[]; meta: { next_cursor: string | null } };
      seen.push(...answer.data.map(({ id }) => id));
      if (seen.length > 36) break;
      cursor = answer.meta.next_cursor;
    }
    t.strictSame(seen, expected, sort.join());
  }
  t.ok(pages > 500, `${pages} pages`);
});

interface PlanNode {
  readonly 'Index Cond'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly PlanNode[];
}

/** The rows that all scans of a plan have looked at. */
function rowsRead(node: PlanNode): number {
  const below = (node.Plans ?? []).reduce((sum, each) => sum + rowsRead(each), 0);
  if (node.Plans) return below;
  return (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'];
}

const PAGES: Readonly<Record<string, readonly [sort: string, cursor: readonly (string | null)[]]>> = {
  'one direction': ['seen', ['6000', '18000']],
  'both directions': ['-seen', ['300', '900']],
  'nullable, ascending': ['at', ['6000', '18001']],
  'nullable, descending': ['-at', ['300', '901']],
  'nullable, descending, two keys': ['-at,seen', ['300', '300', '901']],
  'among nulls, descending': ['-at', [null, '1996']],
};

t.test('a page deep in the order reads little more than itself', async (t) => {
  for (const [name, [sort, values]] of Object.entries(PAGES)) {
    const cursor = Buffer.from(JSON.stringify(values)).toString('base64url');
    const path = `/items/visits?fields=id,body&sort=${sort}&limit=10&cursor=${cursor}`;
    const { json } = await request(service, 'GET', path, { headers: { prefer: 'explain=analyze' } });
    const { plan } = (json as { data: { plan: [{ Plan: PlanNode }] } }).data;
    t.equal(((await get(service, path)).json as { data: unknown[] }).data.length, 10, name);
    const read = rowsRead(plan[0].Plan);
    t.ok(read < 100, `${name}: ${read} rows were read`);
    t.match(JSON.stringify(plan), /Index Cond/, name);
  }
});

t.test('behind the last value come the nulls', async (t) => {
  const page = async (sort: string, values: readonly (string | null)[]): Promise<unknown[]> => {
    const cursor = Buffer.from(JSON.stringify(values)).toString('base64url');
    const { json } = await get(service, `/items/visits?fields=id&sort=${sort}&limit=3&cursor=${cursor}`);
    return (json as { data: { id: number }[] }).data.map(({ id }) => id);
  };
  t.strictSame(await page('at', ['6666', '19998']), [19999, 4, 8]);
  t.strictSame(await page('at', [null, '19992']), [19996, 20000]);
  t.strictSame(await page('-at', [null, '19996']), [20000, 19998, 19999]);
  t.strictSame(await page('-at', ['0', '1']), [2]);
});

t.test('jsonb is sorted as PostgreSQL does, in pages too; json has no order', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql
      .unsafe(`
        create table documents (id int primary key, doc jsonb, plain json, docs jsonb[], parent int references documents);
        insert into documents
        select n, doc::jsonb, doc::json, case when doc is not null then array[doc::jsonb, null] end, nullif(n % 5, 0)
        from unnest(array['null', null, '1.0', '1', '"1"', '"a"', '[]', '[1]', '{}', '{"a": 1}', '{"a": "é"}', 'true',
          '"x\\\\ny"', '12345678901234567890', null, '"null"']) with ordinality list (doc, n);
        insert into service_relations (many_collection, many_field, one_collection, one_field) values
          ('documents', 'parent', 'documents', 'kids')`)
      .simple(),
  );
  await waitFor(async () => (await get(service, '/items/documents?fields=kids')).status === 200, 5_000);
  for (const [sort, order] of [
    ['doc', 'doc, id'],
    ['-doc', 'doc desc, id'],
    ['-doc,-id', 'doc desc, id desc'],
    ['docs', 'docs, id'],
    ['parent.doc,id', '(select doc from documents p where p.id = d.parent), id'],
  ] as const) {
    const rows = await withSql(databaseUrl, (sql) => sql.unsafe(`select id from documents d order by ${order}`));
    const expected = rows.map(({ id }) => id as number);
    const all = (await get(service, `/items/documents?fields=id&sort=${sort}`)).json as { data: { id: number }[] };
    t.strictSame(
      all.data.map(({ id }) => id),
      expected,
      sort,
    );
    for (const limit of [1, 3]) {
      const seen: number[] = [];
      for (let cursor: string | null = ''; cursor !== null; ) {
        const path: string = `/items/documents?fields=id&sort=${sort}&limit=${limit}&cursor=${cursor}`;
        const { json } = await get(service, path);
        const { data, meta } = json as { data: { id: number }[]; meta: { next_cursor: string | null } };
        seen.push(...data.map(({ id }) => id));
        cursor = meta.next_cursor;
      }
      t.strictSame(seen, expected, `${sort}, ${limit} at once`);
    }
  }
  const kids = await get(service, '/items/documents/1?fields=kids.id&deep[kids][_sort]=-doc&deep[kids][_limit]=2');
  t.strictSame(kids.json, { data: { kids: [{ id: 11 }, { id: 16 }] } }, kids.text);
  const groups = await get(service, '/items/documents?groupBy=doc&aggregate[count]=*&sort=-doc&limit=3');
  t.strictSame(groups.json, {
    data: [
      { doc: null, count: 2 },
      { doc: { a: 1 }, count: 1 },
      { doc: { a: 'é' }, count: 1 },
    ],
  });
  t.match(await get(service, '/items/documents?sort=plain'), {
    status: 400,
    text: /json have no order.*json\(plain, path\)/,
  });
  t.equal((await get(service, '/items/documents?sort=kids.doc,id&limit=2&cursor=')).status, 200);
});
