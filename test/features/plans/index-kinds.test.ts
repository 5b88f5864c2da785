/**
 * Two missing indexes of each kind, on filled tables: `lateral advise` finds nearly all of them, each makes its read at least five times faster on the
 * real data, and reads that are fine get no advice. Times are the least of several runs.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { runCommand } from '../../support/command.js';
import { createDatabase, get, makeFolder, startDatabase, startTestService, withSql } from '../../support/service.js';

const LEAST_FOUND = 18;
const LEAST_SPEED = 5;
const RUNS = 5;

const MODEL = `
  create extension pg_trgm;
  create table people (id int primary key, name text, email text, city text, bio text, tags text[], data jsonb, born date, score int,
    deleted_at timestamptz, manager int references people, note text);
  create table visits (id int primary key, person int references people, page text, site text, at timestamptz, ms int, status text, ref jsonb,
    labels text[], body text, note text);
  insert into people select n, md5(n::text) || ' ' || md5((n * 7)::text), 'mail' || n || '@example.com', 'city' || n % 60, 'bio word' || n % 4000 || ' of person' || n,
    array['t' || n % 900, 'u' || n % 5], jsonb_build_object('k', n % 5000, 'level', n % 3), date '1900-01-01' + n % 36500, n % 1000,
    case when n % 3000 = 0 then now() end, nullif(n / 40, 0), repeat(md5(n::text), 6) from generate_series(1, 120000) n;
  insert into visits select n, 1 + n % 120000, 'p' || n % 3000, 's' || n % 70, timestamptz '2020-01-01' + n * interval '3 minutes', n % 100000,
    case when n % 2500 = 0 then null when n % 400 = 0 then 'failed' else 'ok' end, jsonb_build_object('r' || n % 2000, n, 'level', n % 3000),
    array['l' || n % 1500], 'body term' || n % 3000 || ' and more', repeat(md5(n::text), 6) from generate_series(1, 250000) n;
  create index people_city on people (city);
  create index visits_site on visits (site);
  insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('visits', 'person', 'people', 'visits'), ('people', 'manager', 'people', 'reports');`;

const CASES: readonly (readonly [kind: string, path: string])[] = [
  ['equality', '/items/people?filter[email][_eq]=mail77@example.com&fields=id'],
  ['equality', '/items/visits?filter[page][_in]=p5,p6&fields=id,note'],
  ['range', '/items/visits?filter[status][_eq]=failed&sort=-at&limit=20&fields=id'],
  ['range', '/items/people?filter[score][_gt]=998&fields=id,note&limit=50'],
  ['reference', '/items/people?limit=20&sort=id&fields=id,visits.id,visits.note'],
  ['reference', '/items/people/7?fields=id,reports.name,reports.note'],
  ['trigram', '/items/people?filter[name][_contains]=abcdef&fields=id'],
  ['trigram', '/items/people?filter[note][_icontains]=ABCDEF01&fields=id'],
  ['array', '/items/people?filter[tags][_contains_all]=t77&fields=id'],
  ['array', '/items/visits?filter[labels][_contains_any]=l55&fields=id'],
  ['document', '/items/people?filter[data][_json_contains]={"k":777}&fields=id'],
  ['document', '/items/visits?filter[ref][_has_key]=r55&fields=id'],
  ['words', '/items/people?filter[bio][_fts]=word777&fields=id'],
  ['words', '/items/visits?filter[body][_fts]=term55&fields=id'],
  ['partial', '/items/visits?filter[status][_null]=true&sort=id&limit=20&fields=id'],
  ['partial', '/items/people?filter[deleted_at][_nnull]=true&sort=score&limit=10&fields=id'],
  ['covering', '/items/visits?filter[site][_eq]=s5&aggregate[sum]=ms'],
  ['covering', '/items/people?filter[city][_eq]=city7&aggregate[avg]=score'],
  ['expression', '/items/people?filter[year(born)][_eq]=1937&aggregate[count]=*'],
  ['expression', '/items/visits?filter[ref][_json][level][_eq]=77&fields=id,note'],
];
const FINE = [
  '/items/people?filter[year(born)][_gt]=1910&fields=id&limit=10',
  '/items/people/5?fields=id,name,manager.name',
  '/items/people?limit=20&fields=id,name',
  '/items/visits/7?fields=id,page,person.name',
  '/items/people?filter[city][_eq]=city5&limit=5&fields=id',
  '/items/visits?sort=-id&limit=10',
];

interface Advice {
  readonly kind: string;
  readonly statement: string;
  readonly shapes: readonly { readonly request: string }[];
}

const server = await startDatabase({ settings: { shared_buffers: '1GB', max_wal_size: '8GB' } });
const url = await createDatabase(server, 'kinds');
const service = await startTestService({ databaseUrl: url, WORKERS: '1' });
await withSql(url, async (sql) => {
  await sql.unsafe(MODEL).simple();
  await sql`vacuum analyze`;
});

/** Milliseconds that PostgreSQL takes, at least. */
async function timeOf(path: string): Promise<number> {
  const times: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    const { json, text } = await get(service, path, { headers: { prefer: 'explain=analyze' } });
    const { data } = json as { data?: { plan: readonly [{ 'Execution Time': number }] } };
    if (!data) throw new Error(`${path}: ${text}`);
    times.push(data.plan[0]['Execution Time']);
  }
  return Math.min(...times);
}

t.test('missing indexes of ten kinds are found, and make reads faster', async (t) => {
  const requests = join(await makeFolder(), 'requests.txt');
  await writeFile(requests, [...CASES.map(([, path]) => path), ...FINE].map((path) => `GET ${path}\n`).join(''));
  const before = new Map<string, number>();
  for (const [, path] of CASES) before.set(path, await timeOf(path));
  const { code, output, complaints } = await runCommand(['advise', '--json', '--traffic', requests], {
    DATABASE_URL: url,
  });
  t.equal(code, 0, complaints);
  const { advice } = JSON.parse(output) as { advice: readonly Advice[] };
  const adviceFor = (path: string): readonly Advice[] =>
    advice.filter(({ shapes }) => shapes.some(({ request }) => request === `GET ${path}`));
  for (const path of FINE)
    t.strictSame(
      adviceFor(path).map(({ statement }) => statement),
      [],
      path,
    );
  await withSql(url, async (sql) => {
    for (const { statement } of advice) await sql.unsafe(statement);
    await sql`vacuum analyze`;
  });
  let found = 0;
  for (const [kind, path] of CASES) {
    const speed = (before.get(path) ?? 0) / (await timeOf(path));
    const proposed = adviceFor(path);
    const isFound = proposed.length > 0 && speed >= LEAST_SPEED;
    if (isFound) found++;
    const shown = proposed.map((each) => `${each.kind}: ${each.statement}`).join(' ');
    t.comment(`${isFound ? 'found' : 'MISSED'} ${kind} ${path}: ${speed.toFixed(1)} times faster; ${shown}`);
  }
  t.ok(found >= LEAST_FOUND, `${found} of ${CASES.length} found and at least ${LEAST_SPEED} times faster`);
});
