/**
 * `lateral statistics` and `lateral plans check`: an empty twin plans like the filled database that its statistics come from, and a plan
 * that got worse ends the check with status 1, the shape and the reason.
 */
import { readdirSync } from 'node:fs';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { PROGRAM, withCore, withDatabase } from '../../../src/app/start.js';
import { createObserver } from '../../../src/base/observe.js';
import { loadGrammar } from '../../../src/compiler/sql/grammar.js';
import { RequestPlanner } from '../../../src/features/plans/plan-requests.js';
import { planLines } from '../../../src/features/plans/plan-tree.js';
import { readRequests } from '../../../src/features/plans/requests.js';
import type { StatisticsFile } from '../../../src/features/plans/statistics-file.js';
import { takeStatistics } from '../../../src/features/plans/take-statistics.js';
import { withTwin } from '../../../src/features/plans/twin.js';
import { endLine, headerLine, requestLine } from '../../../src/features/traffic/traffic-file.js';
import { runCommand } from '../../support/command.js';
import {
  createDatabase,
  makeFolder,
  type Outcome,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const READER = '11111111-1111-4111-8111-111111111111';
const POLICY = '22222222-2222-4222-8222-222222222222';
const USER = '33333333-3333-4333-8333-333333333333';

const TABLES = `
  create table customers (id int primary key, name text, email text, country text, tags text[], profile jsonb, period int4range);
  create table orders (id int primary key, customer int references customers, status text, at timestamptz, total numeric, memo text);
  create table lines (id int primary key, orders_id int references orders, product text, quantity int);
  create table readings (id int, day date, value int, primary key (id, day)) partition by range (day);
  create table readings_2023 partition of readings for values from ('2023-01-01') to ('2024-01-01');
  create table readings_2024 partition of readings for values from ('2024-01-01') to ('2025-01-01');
  create view failed_orders as select id, at from orders where status = 'failed';`;

const INDEXES = `
  create index orders_at on orders (at);
  create index orders_status on orders (status);
  create index orders_customer on orders (customer);
  create index lines_orders on lines (orders_id);
  create index customers_lower on customers (lower(email));
  create index customers_tags on customers using gin (tags);
  create index customers_profile on customers using gin (profile);
  create index customers_li on customers (name) where country = 'li';
  create index readings_value on readings (value);`;

const ROWS = `
  insert into customers select n, 'Name ' || md5(n::text), 'mail' || n || '@example.com', case when n % 997 = 0 then 'li' when n % 3 = 0 then 'fr' else 'de' end,
    array['t' || n % 500, 'u' || n % 7], jsonb_build_object('a', n % 1000), int4range(n, n + 5) from generate_series(1, 6000) n;
  insert into orders select n, 1 + n % 6000, case when n % 1000 = 0 then 'failed' when n % 20 = 0 then 'open' else 'done' end,
    timestamptz '2020-01-01' + n * interval '1 minute', n % 977, repeat(md5(n::text), 3) from generate_series(1, 40000) n;
  insert into lines select n, 1 + n % 40000, 'p' || n % 300, n % 9 from generate_series(1, 60000) n;
  insert into readings select n, date '2023-01-01' + n % 700, n % 1000 from generate_series(1, 20000) n;`;

const REQUESTS = `
# Pages by a common and by a rare value.
GET /items/orders?filter[status][_eq]=done&sort=-at&limit=10
GET /items/orders?filter[status][_eq]=failed&sort=-at&limit=10
GET /items/orders/5?fields=*,customer.name,customer.country
GET /items/orders?filter[customer][country][_eq]=li&sort=at&limit=5
GET /items/orders?filter[total][_gt]=970&fields=id,total
GET /items/orders?filter[at][_between]=2020-01-02,2020-01-03&limit=-1
GET /items/orders?aggregate[sum]=total&groupBy=status
GET /items/customers?filter[tags][_contains_all]=t3&fields=id
GET /items/customers?filter[profile][_json_contains]={"a":5}&fields=id
GET /items/customers?filter[country][_eq]=li&sort=name&fields=id,name
GET /items/customers?search=Name
GET /items/lines?filter[product][_in]=p3,p4&aggregate[count]=*
GET /items/lines?filter[orders_id][status][_eq]=failed&fields=id,orders_id.at
GET /items/readings?filter[day][_eq]=2024-02-01&sort=value
GET /items/readings?filter[value][_eq]=5
GET /items/failed_orders?sort=-at&limit=3
SEARCH /items/orders {"query":{"filter":{"customer":{"_eq":7}},"limit":20}}
POST /graphql {"query":"query Page { orders(filter: { status: { _eq: \\"open\\" } }, sort: [\\"at\\"], limit: 3) { id customer { name } } }"}
`;

const server = await startDatabase({ own: true });
const url = await createDatabase(server, 'original');
const folder = await makeFolder();
const path = (name: string): string => join(folder, name);
await (await startTestService({ databaseUrl: url, WORKERS: '1' })).stop();
await withSql(url, async (sql) => {
  await sql.unsafe(TABLES + INDEXES + ROWS).simple();
  await sql`vacuum analyze`;
  await sql
    .unsafe(`
    insert into service_roles (id, name) values ('${READER}', 'Reader');
    insert into service_policies (id, name) values ('${POLICY}', 'Reader');
    insert into service_access (id, role, policy) values (gen_random_uuid(), '${READER}', '${POLICY}');
    insert into service_permissions (policy, collection, action, permissions, fields)
      values ('${POLICY}', 'orders', 'read', '{"status":{"_eq":"open"}}', 'id,at,total');`)
    .simple();
});
await writeFile(path('requests.txt'), REQUESTS);

const PAGE = { method: 'GET', path: '/items/orders?sort=at&limit=5&fields=id', status: 200, ms: 1.5 };
/** As a recording has them: by a user with the role, and by the public. */
const RECORDED = [
  { ...PAGE, user: USER, role: READER },
  { ...PAGE, user: null, role: null },
  { ...PAGE, method: 'PATCH', path: '/items/orders/1', body: { total: 1 }, user: USER, role: READER },
].map((line) => JSON.stringify(line));

function check(...words: string[]): Promise<Outcome> {
  return runCommand(['plans', 'check', '--statistics', path('s.gz'), '--plans', path('plans.yaml'), ...words]);
}

async function script(name: string, text: string | Buffer): Promise<string> {
  await writeFile(path(name), text);
  return path(name);
}

await t.test('statistics need the fields that are concealed', async (t) => {
  const planner = await createDatabase(server, 'hidden');
  await (await startTestService({ databaseUrl: planner, WORKERS: '1' })).stop();
  await withSql(planner, (sql) => sql`create role planner login password 'planner'`);
  const address = new URL(planner);
  [address.username, address.password] = ['planner', 'planner'];
  const words = ['statistics', '-o', path('hidden.gz')];
  const refused = await runCommand(words, { DATABASE_URL: address.toString() });
  t.match(refused, { code: 1, complaints: /grant it select on .*public\.service_fields, public\.service_functions/ });
  const [, tables = ''] = /select on (.*)/.exec(refused.complaints) ?? [];
  await withSql(planner, (sql) => sql.unsafe(`grant select on ${tables} to planner`));
  t.match(await runCommand(words, { DATABASE_URL: address.toString() }), { code: 0 });
});

await t.test('statistics hold no rows, no secrets and no redacted values', async (t) => {
  const words = ['statistics', '-o', path('s.json'), '--redact', 'readings.value,customers.email'];
  const { code, complaints } = await runCommand(words, { DATABASE_URL: url });
  t.equal(code, 0, complaints);
  // Without those of the service, and with the indexes of partitions.
  t.match(complaints, /^6 tables, 17 indexes, statistics of \d+ columns written to/);
  const text = await readFile(path('s.json'), 'utf8');
  t.notMatch(text, /mail\d+@example\.com/, 'neither of the column nor of the index over it');
  const file = JSON.parse(text) as StatisticsFile;
  t.match(file, { format: 'lateral-statistics', version: 1, schemas: ['public'] });
  t.strictSame(file.redacted, ['readings.value', 'customers.email']);
  const hidden = file.columns.filter(
    ({ table, column }) => table.startsWith('service_') || (/^readings_\d+$/.test(table) && column === 'value'),
  );
  t.ok(
    hidden.some(({ table }) => table === 'readings_2024'),
    'also of partitions',
  );
  t.ok(hidden.every((each) => each.most_common_vals === null && each.histogram_bounds === null));
  const missing = await runCommand([...words.slice(0, -1), 'customers.mail'], { DATABASE_URL: url });
  t.equal(missing.code, 2);
  const elsewhere = await runCommand([...words.slice(0, -1), 'other.customers.email'], { DATABASE_URL: url });
  t.equal(elsewhere.code, 2, 'another schema');
  t.equal((await stat(path('s.json'))).mode & 0o777, 0o600);
  t.match(missing.complaints, /--redact: there is no column "customers.mail"/);
  const whole = await runCommand(['statistics', '-o', path('s.gz')], { DATABASE_URL: url });
  t.equal(whole.code, 0, whole.complaints);
});

await t.test('the twin plans like the database', async (t) => {
  await loadGrammar();
  const config = readConfig({ DATABASE_URL: url, WORKERS: '1' });
  const observe = createObserver('error');
  const statistics = await withDatabase(
    config,
    observe,
    () => {},
    (database) => takeStatistics(database, { system: null, redact: [] }),
  );
  const requests = await readRequests(path('requests.txt'));
  const real = await withCore(
    config,
    observe,
    () => {},
    (core) => new RequestPlanner({ core, config, statistics }).planAll(requests),
  );
  const abandoned = join(tmpdir(), 'lateral-twin-of-a-killed-command');
  await mkdir(abandoned);
  await writeFile(join(abandoned, 'postgres.lock'), '{"pid":2147483646}');
  const twin = await withTwin(
    { program: PROGRAM, config, statistics, plan: { migrations: null, pending: [] } },
    async (built) => {
      t.strictSame(built.unbuilt, [], 'all of the structure was built');
      t.strictSame(built.unknown, []);
      return new RequestPlanner(built).planAll(requests);
    },
  );
  t.strictSame(real.unplanned, []);
  t.strictSame(twin.unplanned, []);
  t.ok(real.planned.length >= 18, `${real.planned.length} plans`);
  const shown = ({ planned }: typeof real) =>
    planned.map(({ request, kind, plan }) => [request.path, kind, planLines(plan)]);
  t.strictSame(shown(twin), shown(real));
  t.strictSame(
    readdirSync(tmpdir()).filter((name) => name.startsWith('lateral-twin-')),
    [],
    'and is removed, as is the twin of a command that was killed',
  );
});

await t.test('a recording names the caller of each request', async (t) => {
  const header = headerLine({ started: new Date(), sample: 1, service: '1.0.0' });
  const recorded = { ...PAGE, t: 0, path: '/items/orders', query: 'sort=at', bytes: 10 };
  const lines = [
    requestLine({ ...recorded, user: USER, role: READER }),
    requestLine({ ...recorded, t: 1, method: 'PATCH', body: '{"total":1}', user: null, role: null }),
    requestLine({ ...PAGE, t: 2, bytes: 1, path: '/items/:collection', omitted: 'secret', user: null, role: null }),
  ];
  const end = endLine({ milliseconds: 5, requests: 3, dropped: 0 });
  await writeFile(path('traffic.lateral'), gzipSync(`${[header, ...lines, end].join('\n')}\n`));
  t.match(await readRequests(path('traffic.lateral')), [
    { path: '/items/orders?sort=at', caller: { user: USER, role: READER }, ms: 1.5, body: null },
    { method: 'PATCH', body: '{"total":1}', caller: { user: null, role: null } },
    { path: '/items/:collection', isOmitted: true },
  ]);
  const { output } = await check('--accept', '--traffic', path('traffic.lateral'), '--plans', path('recorded.yaml'));
  t.match(output, /not planned {2}GET \/items\/:collection\n {2}it was recorded without its values/);
});

/** Requests that cannot be planned, with the reason. */
const WRONG: readonly (readonly [line: string, reason: RegExp])[] = [
  ['GET /items/%zz', /%zz\n {2}it cannot be read: URI malformed/],
  ['SEARCH /items/orders {"query":}', /SEARCH \/items\/orders\n {2}it cannot be read: .*JSON/],
  ['{"method":"GET","path":"/items/lines","role":"editors"}', /lines\n {2}a caller .* "editors" is no UUID/],
  [
    'GET /items/orders?filter[status][_eq]=done&filter[at][_gt]=soon',
    /soon\n {2}(the service|PostgreSQL) refuses it: /,
  ],
];

await t.test('plans are accepted with the permissions of their callers', async (t) => {
  const wrong = WRONG.map(([line]) => line);
  await writeFile(path('mixed.txt'), `${REQUESTS}${[...RECORDED, ...wrong].join('\n')}`);
  const none = await check('--traffic', path('mixed.txt'));
  t.equal(none.code, 2, 'there is no file to compare with');
  t.match(none.complaints, /plans.yaml" does not exist: --accept writes it/);
  const { code, output, complaints } = await check('--accept', '--traffic', path('mixed.txt'));
  t.equal(code, 0, complaints);
  t.match(output, /new {6}GET \/items\/orders\?sort=at&limit=5&fields=id \(Reader, shape/);
  t.match(output, /not planned {2}GET .*limit=5&fields=id\n {2}the service refuses it: You don't have permission/);
  t.match(output, /not planned {2}PATCH \/items\/orders\/1\n {2}it is a write/);
  for (const [, reason] of WRONG) t.match(output, reason);
  const accepted = await readFile(path('plans.yaml'), 'utf8');
  t.match(
    accepted,
    /request: GET \/items\/orders\?filter\[status\]\[_eq\]=failed[\s\S]*indexes:\n {6}- orders_status\n/,
  );
  t.match(accepted, new RegExp(`role: Reader\n {4}caller:\n {6}user: .?${USER}`));
});

await t.test('a dropped index, a changed type and a dropped column end the check, with shape and reason', async (t) => {
  const drop = 'drop index concurrently orders_status; alter table orders drop column total;';
  const type =
    'alter table lines drop constraint lines_orders_id_fkey; alter table lines alter orders_id type numeric;';
  const relation = `insert into service_relations (many_collection, many_field, one_collection) values ('lines', 'orders_id', 'orders')`;
  const { code, output } = await check('--json', '--apply', await script('worse.sql', `${drop} ${type} ${relation}`));
  t.equal(code, 1);
  const { compared } = JSON.parse(output) as { compared: Compared[] };
  const worse = compared.filter(({ verdict }) => verdict === 'worse');
  const complaintsOf = (request: string) => worse.find((each) => each.request === request);
  t.match(complaintsOf('GET /items/orders?filter[status][_eq]=failed&sort=-at&limit=10'), {
    complaints: [/the cost grew \d+(\.\d)? times/, 'the plan lost the index "orders_status"'],
    reasons: [/^index "orders_status" no longer exists \(CREATE INDEX/],
  });
  t.match(complaintsOf('GET /items/lines?filter[orders_id][status][_eq]=failed&fields=id,orders_id.at'), {
    complaints: [/the cost grew/, 'the plan lost the index "lines_orders"'],
    reasons: [/"orders_status"/, 'the type of "lines"."orders_id" changed from integer to numeric'],
  });
  t.match(complaintsOf('GET /items/orders?filter[total][_gt]=970&fields=id,total'), {
    complaints: [/the request cannot be planned: .*"total"/],
    reasons: ['column "orders"."total" no longer exists'],
  });
});

await t.test('a table or a key that is gone is named', async (t) => {
  const gone = 'drop table lines; alter table orders drop constraint orders_pkey cascade;';
  const { code, output } = await check('--json', '--apply', await script('gone.sql', gone));
  t.equal(code, 1);
  const { compared } = JSON.parse(output) as { compared: Compared[] };
  const reasonsOf = (request: string) => compared.find((each) => each.request === request)?.reasons;
  t.match(reasonsOf('GET /items/lines?filter[product][_in]=p3,p4&aggregate[count]=*'), [
    'table "lines" no longer exists',
  ]);
  t.match(reasonsOf('GET /items/orders/5?fields=*,customer.name,customer.country'), [
    /^index "orders_pkey" no longer exists \(CREATE UNIQUE INDEX/,
  ]);
});

interface Compared {
  readonly request: string;
  readonly verdict: string;
  readonly complaints: readonly string[];
  readonly reasons: readonly string[];
}

await t.test('migrations that build the same schema and a new index pass', async (t) => {
  await mkdir(path('migrations'));
  await script('migrations/2_indexes.sql', `${INDEXES}\n-- migrate:down\ndrop table orders;`);
  // As pg_dump writes it, with a role of production and a table of the service.
  const own = 'create table public.service_users (id uuid primary key); create index on public.service_users (id);';
  const watch = `
    create function public.service_watch_more() returns event_trigger language plpgsql as 'begin end';
    create event trigger service_watch_more on ddl_command_end execute function public.service_watch_more();
    alter event trigger service_watch_more owner to "the owner";`;
  const owned = 'alter table orders owner to "the owner";';
  const dumped = ['\\restrict abc', own, TABLES, owned, watch, '\\unrestrict abc'];
  await script('migrations/1_tables.sql', dumped.join('\n'));
  await script('migrations/10_more.sql', 'create index concurrently on orders (status, at);');
  const { code, output, complaints } = await check('--migrations', path('migrations'));
  t.equal(code, 0, output + complaints);
  t.match(output, /: 0 worse, \d changed, \d+ equal; 0 new\.\n$/);
  t.match(output, /index public.orders_status_at_idx is not in the statistics: its size is estimated/);
});

await t.test('old statistics are a reason', async (t) => {
  await withSql(url, async (sql) => {
    await sql
      .unsafe(
        'alter table lines set (autovacuum_enabled = off); create statistics pair on product, quantity from lines',
      )
      .simple();
    await sql.unsafe(`insert into lines select n, 1 + n % 40000, 'q', 1 from generate_series(60001, 200000) n`);
    await sql.unsafe('select pg_stat_force_next_flush()');
  });
  const { code, output } = await runCommand(['plans', 'check', '--plans', path('plans.yaml')], { DATABASE_URL: url });
  t.equal(code, 1, output);
  t.match(
    output,
    /WORSE {4}GET \/items\/lines\?filter\[product\][\s\S]*reason: table "lines" grew from 60,000 to \d+,\d+ rows/,
  );
  t.match(output, /reason: the statistics of "lines" are old: 140,000 rows changed since ANALYZE on \d{4}-/);
  t.match(output, /- extended statistics "pair" of public.lines cannot be restored/);
});

await t.test('a snapshot is the schema, and one that cannot be applied is status 2', async (t) => {
  const original = await createDatabase(server, 'snapshots');
  await (await startTestService({ databaseUrl: original, WORKERS: '1' })).stop();
  await withSql(original, async (sql) => {
    await sql`create table teams (id int primary key, name text)`;
    await sql`create table members (id int primary key, team int references teams)`;
    await sql`create index on members (team)`;
    await sql`insert into service_relations (many_collection, many_field, one_collection, one_field)
      values ('members', 'team', 'teams', 'members')`;
    await sql`insert into service_fields (collection, field, special) values ('members', 'team', 'm2o')`;
  });
  const environment = { DATABASE_URL: original };
  const run = (...words: string[]): Promise<Outcome> => runCommand(words, environment);
  t.match(await run('statistics', '-o', path('teams.gz')), { code: 0 });
  t.match(await run('schema', 'snapshot', path('teams.yaml')), { code: 0 });
  await writeFile(path('teams.txt'), 'GET /items/teams?fields=name,members.id');
  const words = ['plans', 'check', '--statistics', path('teams.gz'), '--plans', path('teams-plans.yaml')];
  const schema = ['--snapshot', path('teams.yaml')];
  const accepted = await run(...words, ...schema, '--traffic', path('teams.txt'), '--accept');
  t.match(accepted, { code: 0, complaints: /1 plan accepted/ });
  t.match(await run(...words, ...schema), { code: 0, output: /1 equal/ });
  const changed = (await readFile(path('teams.yaml'), 'utf8')).replaceAll('integer', 'nothing');
  await writeFile(path('wrong.yaml'), changed);
  t.match(await run(...words, '--snapshot', path('wrong.yaml')), {
    code: 2,
    complaints: /"fields\[\d\].type" must be/,
  });
});

await t.test('tables whose rows were counted, but never measured, are named', async (t) => {
  const loaded = await createDatabase(server, 'loaded');
  await withSql(loaded, async (sql) => {
    await sql`create table parts with (autovacuum_enabled = off) as select n as id from generate_series(1, 5000) n`;
    await sql`alter table parts add primary key (id)`;
  });
  const environment = { DATABASE_URL: loaded };
  const taken = await runCommand(['statistics', '-o', path('loaded.gz')], environment);
  t.match(taken, {
    code: 0,
    complaints:
      /^1 table, 1 index, .*\nno statistics, because ANALYZE has not run or the role may not read the tables: parts\n$/,
  });
  const traffic = await script('parts.txt', 'GET /items/parts/1');
  const words = ['plans', 'check', '--statistics', path('loaded.gz'), '--plans', path('parts.yaml')];
  const accepted = await runCommand([...words, '--traffic', traffic, '--accept']);
  t.match(accepted, { code: 0, output: /taken today; 1 table;[\s\S]*- no statistics/ });
  t.notMatch(accepted.output, /may not see/);
  // In a file with other statements, none of these may run concurrently.
  const migration = await script(
    'concurrently.sql',
    'create table days (day date) partition by range (day); create table old partition of days for values from (minvalue) to (maxvalue);' +
      'reindex index concurrently parts_pkey; reindex (verbose) table concurrently parts; alter table days detach partition old concurrently;',
  );
  t.match(await runCommand([...words, '--apply', migration]), { code: 0, output: /1 equal/ });
});

await t.test('damaged files are status 2, with a reason', async (t) => {
  const plan = await readFile(path('plans.yaml'), 'utf8');
  const statistics = await readFile(path('s.gz'));
  const cases = [
    ['--statistics', await script('cut.gz', statistics.subarray(0, 3_000)), /is not a file of .*, or is damaged/],
    ['--statistics', await script('bare.json', '{"format":"lateral-statistics","version":1}'), /has no "database"/],
    ['--plans', await script('cut.yaml', plan.slice(0, plan.indexOf('indexes:'))), /not a file of accepted plans/],
    ['--plans', await script('bare.yaml', 'version: 1\nplans: []\n'), /is damaged: it has no "settings"/],
    ['--plans', await script('cost.yaml', plan.replace(/cost: .*/, 'cost: high')), /plan 1 is not complete/],
  ] as const;
  for (const [option, file, complaint] of cases)
    t.match(await check(option, file), { code: 2, complaints: complaint }, String(complaint));
});

await t.test('bad usage is status 2', async (t) => {
  for (const [words, complaint] of [
    [['plans'], /plans expects check/],
    [['plans', 'check', '--traffic', path('requests.txt'), '--accept', '--workers', 'many'], /WORKERS: must be/],
    [['advise', '--traffic', path('requests.txt'), '--workers', 'many'], /WORKERS: must be/],
    [['statistics', '-o', path('never.gz'), '--workers', 'many'], /WORKERS: must be/],
    [['plans', 'check', '--factor', '1'], /--factor must be a number above 1/],
    [
      ['plans', 'check', '--statistics', path('requests.txt'), '--plans', path('plans.yaml')],
      /is not a file of "lateral statistics"/,
    ],
    [['plans', 'check', '--plans', path('requests.txt')], /requests.txt"/],
    [['plans', 'check', '--traffic', path('none'), '--accept'], /none" cannot be read/],
    [
      ['plans', 'check', '--migrations', folder, '--snapshot', path('x'), '--plans', path('plans.yaml')],
      /exclude each other/,
    ],
  ] as const) {
    const { code, complaints } = await runCommand(words);
    t.equal(code, 2, words.join(' '));
    t.match(complaints, complaint);
  }
});
