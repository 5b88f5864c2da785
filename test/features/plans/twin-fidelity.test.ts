/**
 * The twin plans like the filled database: generated shapes over Pagila, Northwind and Chinook, filled to about a million rows each with skewed values, and
 * a schema of 500 tables. SAMPLE_DATABASES is a folder with pagila-schema.sql, pagila-data.sql.gz, northwind.sql and chinook.sql,
 * which are not part of this repository.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { gunzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { PROGRAM, withCore, withDatabase } from '../../../src/app/start.js';
import { createObserver } from '../../../src/base/observe.js';
import { loadGrammar } from '../../../src/compiler/sql/grammar.js';
import { type PlannedClass, RequestPlanner } from '../../../src/features/plans/plan-requests.js';
import { planLines } from '../../../src/features/plans/plan-tree.js';
import type { RecordedRequest } from '../../../src/features/plans/requests.js';
import { takeStatistics } from '../../../src/features/plans/take-statistics.js';
import { withTwin } from '../../../src/features/plans/twin.js';
import { runCommand } from '../../support/command.js';
import { generateShapes } from '../../support/generated-shapes.js';
import { installedVersions, startInstalled } from '../../support/installed-server.js';
import { createDatabase, type Sql, startDatabase, withSql } from '../../support/service.js';

const folder = process.env['SAMPLE_DATABASES'];
const SHAPES = Number(process.env['TWIN_SHAPES'] ?? 340);
const LEAST_EQUAL = 0.95;
const MOST_BUILD_SECONDS = 20;
const observe = createObserver('error');

/** Each copies rows with other keys. Most copies have one value in a column, a few have others. */
const FILLED: Readonly<Record<string, string>> = {
  chinook: `
    insert into track select track_id + 10000 * k, name || ' ' || k, album_id, media_type_id, case when k % 40 = 0 then genre_id else 1 end, composer,
      milliseconds + k, bytes, unit_price from track, generate_series(1, 60) k;
    insert into invoice select invoice_id + 1000 * k, case when k % 10 = 0 then customer_id else 1 + customer_id % 5 end, invoice_date + k * interval '1 hour',
      billing_address, billing_city, billing_state, billing_country, billing_postal_code, total + k % 7 from invoice, generate_series(1, 500) k;
    insert into invoice_line select invoice_line_id + 10000 * k, invoice_id + 1000 * k, track_id + 10000 * (k % 60), unit_price, quantity
      from invoice_line, generate_series(1, 200) k;`,
  northwind: `
    alter table order_details alter order_id type int, alter product_id type int;
    alter table orders alter order_id type int; alter table products alter product_id type int;
    insert into orders select order_id + 2000 * k, case when k % 20 = 0 then customer_id else 'ALFKI' end, employee_id, order_date + k, required_date + k,
      case when k % 30 = 0 then null else shipped_date + k end, ship_via, freight + k, ship_name, ship_address, ship_city, ship_region, ship_postal_code, ship_country
      from orders, generate_series(1, 250) k;
    insert into order_details select order_id + 2000 * k, product_id, unit_price, quantity, discount from order_details, generate_series(1, 250) k;
    insert into products select product_id + 100 * k, product_name || ' ' || k, supplier_id, category_id, quantity_per_unit, unit_price + k, units_in_stock,
      units_on_order, reorder_level, case when k % 50 = 0 then 1 else 0 end from products, generate_series(1, 300) k;`,
  pagila: `
    insert into film (title, description, language_id, rental_duration, rental_rate, length, replacement_cost, rating, special_features, fulltext, release_year)
      select title || ' ' || k, description, language_id, rental_duration, rental_rate, length + k, replacement_cost,
        case when k % 20 = 0 then rating else 'PG' end, special_features, fulltext, release_year from film, generate_series(1, 40) k;
    insert into rental (rental_period, inventory_id, customer_id, staff_id)
      select tsrange(lower(rental_period) + k * interval '400 days', upper(rental_period) + k * interval '400 days'), inventory_id,
        case when k % 10 = 0 then customer_id else 1 + customer_id % 9 end, staff_id from rental, generate_series(1, 12) k;
    insert into payment (customer_id, staff_id, rental_id, amount, payment_date)
      select customer_id, staff_id, rental_id, amount + k % 3, payment_date + k * interval '1 minute' from payment, generate_series(1, 20) k;`,
};

const FILES: Readonly<Record<string, readonly string[]>> = {
  chinook: ['chinook.sql'],
  northwind: ['northwind.sql'],
  pagila: ['pagila-schema.sql', 'pagila-data.sql.gz'],
};

await loadGrammar();
const server = await startDatabase({ settings: { max_wal_size: '8GB', shared_buffers: '512MB' } });
let [equal, all] = [0, 0];

const skip = folder === undefined && 'SAMPLE_DATABASES is not set';

for (const name of Object.keys(FILES))
  await t.test(`plans of ${name}`, { skip }, async (t) => {
    const { plans, differing } = await comparePlans(t, await load(server.url, server.prefix + name, name), name);
    equal += plans - differing;
    all += plans;
    t.ok(plans > SHAPES / 2, `${plans} plans`);
    t.ok(differing <= plans * (1 - LEAST_EQUAL), `${differing} of ${plans} differ`);
  });

/** The twin plans with 18, so plans of earlier versions are reported and have no limit. */
for (const version of installedVersions().filter((each) => Number(each) < 18))
  await t.test(`plans of PostgreSQL ${version} are reported`, { skip }, async (t) => {
    const url = await startInstalled(version, { max_wal_size: '8GB', shared_buffers: '256MB' });
    // Dumps of Pagila need a newer version.
    for (const name of ['chinook', 'northwind']) {
      const { plans, differing } = await comparePlans(t, await load(url, name, name), `${name} on ${version}`);
      t.comment(`PostgreSQL ${version}, ${name}: ${plans - differing} of ${plans} plans are equal`);
      t.ok(plans > SHAPES / 2, `${plans} plans`);
    }
  });

async function comparePlans(
  t: Test,
  url: string,
  name: string,
): Promise<{ readonly plans: number; readonly differing: number }> {
  const config = readConfig({ DATABASE_URL: url, WORKERS: '1' });
  const statistics = await withDatabase(
    config,
    observe,
    () => {},
    (database) => takeStatistics(database, { system: null, redact: [] }),
  );
  const { real, requests } = await withCore(
    config,
    observe,
    () => {},
    async (core) => {
      const paths = await withSql(url, (sql) => generateShapes(core.mirror.model, sql, SHAPES));
      const wanted = paths.map(requestOf);
      const planner = new RequestPlanner({ core, config, statistics });
      return { real: await planner.planAll(wanted), requests: wanted };
    },
  );
  const twin = await withTwin(
    { program: PROGRAM, config, statistics, plan: { migrations: null, pending: [] } },
    async (built) => {
      t.strictSame(built.unbuilt, [], 'the whole structure is built');
      t.comment(`built in ${(built.buildMs / 1_000).toFixed(1)} s`);
      return new RequestPlanner(built).planAll(requests);
    },
  );
  const differing = differences(real.planned, twin.planned);
  t.comment(`${name}: ${real.planned.length} plans, ${differing.length} differ, ${real.unplanned.length} not planned`);
  for (const text of differing.slice(0, 20)) t.comment(text);
  return { plans: real.planned.length, differing: differing.length };
}

await t.test('500 tables are built in time', async (t) => {
  const url = await createDatabase(server, 'many');
  await withSql(url, async (sql) => {
    for (let from = 0; from < 500; from += 50) {
      await sql.unsafe(Array.from({ length: 50 }, (_, number) => table(from + number)).join(';')).simple();
    }
    await sql`vacuum analyze`;
  });
  const config = readConfig({ DATABASE_URL: url, WORKERS: '1' });
  const statistics = await withDatabase(
    config,
    observe,
    () => {},
    (database) => takeStatistics(database, { system: null, redact: [] }),
  );
  t.ok(statistics.tables.length >= 500);
  const request = requestOf('GET /items/t7?filter[name][_eq]=n5&sort=at&limit=5&fields=id,owner.name');
  await withTwin({ program: PROGRAM, config, statistics, plan: { migrations: null, pending: [] } }, async (built) => {
    const seconds = built.buildMs / 1_000;
    t.strictSame(built.unbuilt, []);
    t.ok(seconds < MOST_BUILD_SECONDS, `${seconds.toFixed(1)} s`);
    t.equal((await new RequestPlanner(built).planAll([request])).planned.length, 1);
  });
});

t.teardown(() => t.comment(`${equal} of ${all} plans are equal`));

function table(number: number): string {
  const owner = number === 0 ? '' : `, owner int references t${number - 1}`;
  return `create table t${number} (id int primary key, name text, at timestamptz, amount numeric, tags text[]${owner});
    create index on t${number} (name); create index on t${number} (at);
    insert into t${number} (id, name, at, amount, tags)
      select n, 'n' || n % 50, now() - n * interval '1 hour', n, array['x' || n % 9] from generate_series(1, 500) n`;
}

/** Makes a database of a server with the rows of a sample. */
async function load(serverUrl: string, database: string, name: string): Promise<string> {
  await withSql(serverUrl, (sql) => sql`create database ${sql(database)}`);
  const { href: url } = Object.assign(new URL(serverUrl), { pathname: `/${database}` });
  await withSql(url, async (sql) => {
    for (const file of FILES[name] ?? []) {
      const bytes = await readFile(join(folder ?? '', file));
      await run(
        sql,
        (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString().replace(/^ALTER .* OWNER TO .*;$/gm, ''),
      );
    }
    await sql`set search_path = public`;
    // References are right, and checking each takes long.
    await sql`set session_replication_role = 'replica'`;
    await sql.unsafe(FILLED[name] ?? '').simple();
  });
  // Lists of related items, which dumps of others do not declare.
  const { complaints, code } = await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: url });
  if (code !== 0) throw new Error(complaints);
  await withSql(url, (sql) => sql`vacuum analyze`);
  return url;
}

/** A dump: statements, and rows behind "copy … from stdin" up to a line with a backslash and a point. */
async function run(sql: Sql, text: string): Promise<void> {
  for (const [index, part] of text.split(/^(COPY .* FROM stdin;\n[\s\S]*?)^\\\.\n/m).entries()) {
    if (index % 2 === 0) {
      await sql.unsafe(part).simple();
      continue;
    }
    const [, copy = '', rows = ''] = /^(COPY .*);\n([\s\S]*)$/.exec(part) ?? [];
    const stream = await sql.unsafe(copy).writable();
    stream.end(rows);
    await finished(stream);
  }
}

function requestOf(line: string): RecordedRequest {
  const [method = '', path = ''] = line.split(' ');
  return { method, path, body: null, caller: null, ms: 0 };
}

function differences(real: readonly PlannedClass[], twin: readonly PlannedClass[]): string[] {
  const byId = new Map(twin.map((each) => [`${each.id} ${each.kind}`, each]));
  return real.flatMap((each) => {
    const other = byId.get(`${each.id} ${each.kind}`);
    const [one, two] = [each, other].map((plan) =>
      plan ? `${plan.kind}\n${planLines(plan.plan).join('\n')}` : 'none',
    );
    return one === two ? [] : [`${each.request.path}\nreal: ${each.cost} ${one}\ntwin: ${other?.cost} ${two}`];
  });
}
