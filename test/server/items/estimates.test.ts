/** `meta=estimated_count`: exact for few rows, the planner's estimate for many, of the rows that the caller may see and asks for. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'estimates');
await withSql(databaseUrl, async (sql) => {
  await sql
    .unsafe(`
    create table owners (id int primary key, name text);
    insert into owners values (1, 'o''hare'), (2, 'back\\slash');
    create table things (id int primary key, kind text, size numeric, tags text[], at timestamptz, owner int references owners);
    insert into things select n, case when n % 4 = 0 then 'few' else 'many' end, n, array['t' || n % 2], '2024-01-01'::timestamptz + n * interval '1 hour', n % 2 + 1
      from generate_series(1, 40000) n;
    create table small (id int primary key);
    insert into small select generate_series(1, 10000);
    create table empty (id int primary key);
    analyze;`)
    .simple();
});
const service = await startTestService({ databaseUrl, STREAM_ABOVE: '100' });

function estimateOf({ status, json, text }: Answer): number | string {
  return status === 200 ? (json as { meta: { estimated_count: number } }).meta.estimated_count : text;
}

async function estimate(query: string, collection = 'things', token?: string): Promise<number | string> {
  const path = encodeURI(`/items/${collection}?fields=id&limit=1&meta=estimated_count&${query}`);
  return estimateOf(await get(service, path, token === undefined ? {} : { token }));
}

t.test('few rows are counted', async (t) => {
  t.equal(await estimate('', 'empty'), 0);
  t.equal(await estimate('', 'small'), 10_000);
  t.equal(await estimate('filter[id][_lte]=9999'), 9_999);
  t.equal(await estimate('filter[kind][_eq]=few'), 10_000);
  t.equal(await estimate('filter[kind][_eq]=none'), 0);
  await withSql(databaseUrl, (sql) => sql`insert into empty select generate_series(1, 50)`);
  t.equal(await estimate('', 'empty'), 50, 'whatever the statistics say');
});

t.test('many rows are estimated, with the values of the request', async (t) => {
  const near = async (query: string, count: number): Promise<void> => {
    const found = await estimate(query);
    t.ok(typeof found === 'number' && Math.abs(found - count) < count * 0.1, `${query}: ${found}, near ${count}`);
  };
  await near('', 40_000);
  await near('filter[kind][_eq]=many', 30_000);
  await near('filter[id][_gt]=15000', 25_000);
  await near('filter[id][_between]=5001,35000', 30_000);
  await near('filter[size][_gt]=12000.5', 28_000);
  await near('filter[at][_gt]=2024-06-01T00:00:00Z', 36_350);
  await near('filter[tags][_contains_all]=t1', 20_000);
  const most = await estimate(`filter[owner][name][_eq]=o'hare`);
  t.ok(Number(most) > 10_000 && Number(most) <= 40_000, `through a relation: ${most}`);
  const searched = await estimate('search=ny');
  t.ok(Number(searched) > 10_000, `a search: ${searched}`);
});

t.test('of what the caller may see', async (t) => {
  const permissions = { _and: [{ kind: { _eq: 'many' } }, { owner: { name: { _contains: "o'" } } }] };
  const { token } = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'some', [
      { permissions: [{ collection: 'things', action: 'read', permissions: { kind: { _eq: 'many' } } }] },
    ]),
  );
  const few = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'few', [
      {
        permissions: [
          { collection: 'things', action: 'read', permissions: { ...permissions, id: { _lt: 11 } } },
          { collection: 'owners', action: 'read' },
        ],
      },
    ]),
  );
  await request(service, 'POST', '/utils/cache/clear');
  const seen = Number(await estimate('', 'things', token));
  t.ok(Math.abs(seen - 30_000) < 3_000, `30,000 of 40,000: ${seen}`);
  t.equal(await estimate('', 'things', few.token), 3, 'counted where there are few');
});

t.test('beside other counts, in streams, with cursors, in batches', async (t) => {
  const all = await get(service, '/items/things?fields=id&limit=1&meta=estimated_count,filter_count&filter[id][_lt]=5');
  t.strictSame(all.json, { meta: { filter_count: 4, estimated_count: 4 }, data: [{ id: 1 }] }, all.text);
  const star = await get(service, '/items/things?fields=id&limit=1&meta=*');
  t.strictSame((star.json as { meta: object }).meta, { total_count: 40_000, filter_count: 40_000 });
  const stream = await get(service, '/items/things?fields=id&limit=-1&meta=estimated_count');
  t.ok(Number(estimateOf(stream)) > 35_000, 'a stream');
  const page = await get(
    service,
    '/items/things?fields=id&limit=1&meta=estimated_count&cursor=&sort=id&filter[id][_gt]=39990',
  );
  t.match(page.json, { meta: { estimated_count: 10, next_cursor: /./ }, data: [{ id: 39_991 }] }, page.text);
  const together = await Promise.all(Array.from({ length: 20 }, (_, n) => estimate(`filter[id][_lte]=${n * 100}`)));
  t.strictSame(
    together,
    Array.from({ length: 20 }, (_, n) => n * 100),
  );
  t.match(await get(service, '/items/things?meta=estimated'), { status: 400 });
  t.match(await get(service, '/items/things?meta=estimated_count&filter[id][_gt]=x'), { status: 400 });
});

t.test('groups', async (t) => {
  const answer = await get(
    service,
    '/items/things?aggregate[count]=*&groupBy=kind&meta=estimated_count&filter[id][_lt]=9',
  );
  t.match(answer.json, { meta: { estimated_count: 8 } }, answer.text);
});
