/** `lateral advise` finds missing indexes of several kinds, says nothing about reads that are fine, and shares its candidates with `Prefer: explain`. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { runCommand } from '../../support/command.js';
import { createDatabase, get, makeFolder, startDatabase, startTestService, withSql } from '../../support/service.js';

const server = await startDatabase();
const url = await createDatabase(server, 'advised');
const folder = await makeFolder();
const service = await startTestService({ databaseUrl: url, WORKERS: '1' });
await withSql(url, async (sql) => {
  await sql
    .unsafe(`
    create extension pg_trgm;
    create table customers (id int primary key, name text, email text, tags text[]);
    create table orders (id int primary key, customer int references customers, code text, at timestamptz, shipped timestamptz, memo text);
    insert into customers select n, md5(n::text) || md5(n::text || 'x'), 'm' || n || md5(n::text), array['t' || n % 2000] from generate_series(1, 20000) n;
    insert into orders select n, 1 + n % 20000, 'c' || n % 3000, timestamptz '2020-01-01' + n * interval '1 minute',
      case when n % 2000 <> 0 then now() end, repeat('x', 80) from generate_series(1, 40000) n;
    create index orders_at on orders (at);
    create index customers_email on customers (email);
    create index customers_email_id on customers (email, id);`)
    .simple();
  await sql`vacuum analyze`;
});

interface Advice {
  readonly kind: string;
  readonly statement: string;
  readonly bytes: number;
  readonly shapes: readonly { readonly request: string; readonly before: number; readonly after: number }[];
}

const MISSING: readonly (readonly [request: string, kind: string, index: RegExp])[] = [
  ['GET /items/orders?filter[code][_eq]=c5', 'equality', /on "public"."orders" \("code"\);$/],
  ['GET /items/customers/5?fields=id', '', /^$/],
  ['GET /items/customers?limit=50&fields=id,orders.id', 'reference', /on "public"."orders" \("customer"\);$/],
  ['GET /items/customers?filter[name][_contains]=abcdef&fields=id', 'trigram', /using gin \("name" gin_trgm_ops\);$/],
  ['GET /items/customers?filter[tags][_contains_all]=t7&fields=id', 'array', /using gin \("tags"\);$/],
  ['GET /items/orders?filter[shipped][_null]=true&sort=at&limit=5', 'partial', /\("at"\) where "shipped" is null;$/],
];
const FINE = [
  'GET /items/orders?sort=-at&limit=10',
  'GET /items/orders/7?fields=*,customer.name',
  'GET /items/customers?filter[email][_eq]=m5&fields=id',
  'GET /items/orders?filter[at][_between]=2020-01-01,2020-01-02',
];

t.test('missing indexes are found, and only those', async (t) => {
  await withSql(
    url,
    (sql) =>
      sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values ('orders', 'customer', 'customers', 'orders')`,
  );
  const requests = join(folder, 'requests.txt');
  await writeFile(requests, [...MISSING.map(([request]) => request), ...FINE].join('\n'));
  const { code, output, complaints } = await runCommand(['advise', '--json', '--traffic', requests], {
    DATABASE_URL: url,
  });
  t.equal(code, 0, complaints);
  const found = JSON.parse(output) as { advice: Advice[]; complaints: { kind: string; index: string }[] };
  for (const [request, kind, index] of MISSING) {
    const advice = found.advice.find(({ shapes }) => shapes.some((shape) => shape.request === request));
    if (kind === '') t.equal(advice, undefined, request);
    else t.match(advice, { kind, statement: index }, request);
    if (advice) t.ok(advice.bytes > 0 && advice.shapes.every(({ before, after }) => before >= 3 * after));
  }
  t.equal(found.advice.length, MISSING.length - 1, JSON.stringify(found.advice, null, 1));
  t.match(found.complaints, [{ kind: 'redundant', index: 'customers_email' }]);
});

t.test('an index with another operator class, collation, order or included column is not redundant', async (t) => {
  await withSql(url, async (sql) => {
    await sql
      .unsafe(`
      create table words (id int primary key, word text, note text, author int references customers);
      insert into words select n, md5(n::text), md5(n::text), n from generate_series(1, 20000) n;
      create index words_a on words (word);
      create index words_collation on words (word collate "C");
      create index words_desc on words (word desc, id);
      create index words_included on words (word) include (note);
      create index words_pattern on words (word text_pattern_ops, id);
      create index words_author on words (author desc);`)
      .simple();
    await sql`vacuum analyze words`;
  });
  const requests = join(folder, 'words.txt');
  await writeFile(requests, 'GET /items/words?limit=1');
  const { output } = await runCommand(['advise', '--json', '--traffic', requests], { DATABASE_URL: url });
  const found = JSON.parse(output) as { complaints: { kind: string; index: string; reason: string }[] };
  const about = found.complaints.filter(({ index }) => index.startsWith('words_'));
  t.match(
    about.filter(({ kind }) => kind === 'redundant'),
    [{ index: 'words_a', reason: /"words_included"/ }],
  );
  t.notOk(
    about.some(({ kind, index }) => kind === 'redundant' && index !== 'words_a'),
    JSON.stringify(about),
  );
  t.notOk(
    about.some(({ index }) => index === 'words_author'),
    'one on a foreign key',
  );
});

t.test('Prefer: explain proposes the same', async (t) => {
  const { json } = await get(service, '/items/customers?filter[name][_contains]=abcdef', {
    headers: { prefer: 'explain' },
  });
  t.match(json, {
    data: { indexes: [[{ kind: 'trigram', extension: 'pg_trgm', columns: ['name'], statement: /gin_trgm_ops\);$/ }]] },
  });
});

t.test('there must be requests', async (t) => {
  const { code, complaints } = await runCommand(['advise', '--plans', join(folder, 'none.yaml')], {
    DATABASE_URL: url,
  });
  t.equal(code, 2);
  t.match(complaints, /there are no requests to advise on: name a file of them with --traffic/);
});
