/**
 * `lateral relations suggest` on databases that know nothing of the service: which lists the foreign keys imply, what they
 * are called, and that one command makes them navigable while a service runs.
 */
import t from 'tap';
import { runCommand } from '../../support/command.js';
import {
  createDatabase,
  get,
  request,
  runProgram,
  type Sql,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();

const SHOP = `
  create table customers (id serial primary key, name text, orders text);
  create table orders (id serial primary key, customer_id integer not null references customers, "billedTo" integer references customers);
  create table products (id uuid primary key default gen_random_uuid(), name text);
  create table order_lines (id serial primary key, order_id integer references orders, product_id uuid references products, amount integer, price numeric);
  create table labels (id serial primary key, name text);
  create table products_labels (id serial primary key, product uuid references products, label integer references labels, note text, position integer);
  create table also_labelled (id serial primary key, product uuid references products, label integer references labels, added_at timestamptz default now());
  create table friendships (id serial primary key, left_id integer references customers, right_id integer references customers);
  create table categories (id serial primary key, parent_id integer references categories);
  create table "Über. uns" (id serial primary key, category integer references categories);
  create table empty ();
  create table composite (product uuid references products, label integer references labels, primary key (product, label));
  create table visits (id serial primary key, customer integer unique references customers, about text);
`;

const SHOP_SUGGESTIONS = [
  'categories.Über_uns|one-to-many|Über. uns, by its category',
  'categories.children|one-to-many|categories, by its parent_id',
  'customers.friendships_by_left|many-to-many|customers, through friendships (left_id, right_id)',
  'customers.friendships_by_right|many-to-many|customers, through friendships (right_id, left_id)',
  'customers.orders_by_billedTo|one-to-many|orders, by its billedTo',
  'customers.orders_by_customer|one-to-many|orders, by its customer_id',
  'customers.visits|one-to-one|visits, by its customer',
  'labels.composite|many-to-many|products, through composite (label, product)',
  'labels.products_labels|many-to-many|products, through products_labels (label, product)',
  'labels.products|many-to-many|products, through also_labelled (label, product)',
  // A price is more than a link.
  'orders.order_lines|one-to-many|order_lines, by its order_id',
  'products.composite|many-to-many|labels, through composite (product, label)',
  'products.labels|many-to-many|labels, through also_labelled (product, label)',
  'products.order_lines|one-to-many|order_lines, by its product_id',
  'products.products_labels|many-to-many|labels, through products_labels (product, label), ordered by position',
];

t.test('lists and junctions are found, named without collisions and written at once', async (t) => {
  const url = await createDatabase(server, 'shop');
  await withSql(url, (sql) => sql.unsafe(SHOP));
  const service = await startTestService({ databaseUrl: url });
  const environment = { DATABASE_URL: url };

  const shown = await runProgram(['relations', 'suggest'], environment);
  t.match(shown, { code: 0, complaints: '' });
  const rows = shown.output.split('\n').map((line) => line.split(/ {2,}/).join('|'));
  t.equal(rows[0], 'FIELD|KIND|LEADS TO');
  t.match(shown.output, /\n\d+ relations suggested, nothing written\. Write them with --apply\.\n/);
  t.match(shown.output, /Not served, so without relations:\n {2}empty: has no columns/);
  t.strictSame(rows.slice(1, rows.indexOf('')).sort(), [...SHOP_SUGGESTIONS].sort());
  await withSql(url, async (sql) => {
    t.equal(await countRows(sql), 0, 'nothing was written');
  });

  const some = await runCommand(['relations', 'suggest', 'categories', '--apply'], environment);
  t.match(some, { code: 0, output: /^2 relations written\.$/m });
  const rest = await runCommand(['relations', 'suggest', '--apply', '--database-url', url]);
  t.match(rest, { code: 0, output: /^\d+ relations written\.$/m });
  const again = await runCommand(['relations', 'suggest', '--apply'], environment);
  t.match(again, { code: 0, output: /^Nothing to suggest/ });

  await waitFor(
    async () => (await get(service, '/items/customers?fields=orders_by_customer.id')).status === 200,
    5_000,
  );
  const written = await request(
    service,
    'POST',
    '/items/customers?fields=name,orders_by_customer.order_lines.product_id.name',
    {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        name: 'Ada',
        orders_by_customer: [{ order_lines: [{ product_id: { name: 'Lamp' }, amount: 2 }] }],
      }),
    },
  );
  t.match(written, { status: 200 });
  t.strictSame((written.json as { data: unknown }).data, {
    name: 'Ada',
    orders_by_customer: [{ order_lines: [{ product_id: { name: 'Lamp' } }] }],
  });
  const linked = await request(service, 'POST', '/items/products?fields=products_labels.label.name,labels.id', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      name: 'Chair',
      products_labels: [
        { label: { name: 'b' }, position: 2 },
        { label: { name: 'a' }, position: 1 },
      ],
    }),
  });
  t.strictSame((linked.json as { data: unknown }).data, {
    products_labels: [{ label: { name: 'a' } }, { label: { name: 'b' } }],
    labels: [],
  });
  const meta = await withSql(
    url,
    (sql) => sql`select special, interface from service_fields where field = 'friendships_by_left'`,
  );
  t.strictSame([...meta], [{ special: 'm2m', interface: 'list-m2m' }]);
  await service.stop();
});

t.test('a relation that is described already keeps what it says', async (t) => {
  const url = await createDatabase(server, 'described');
  await withSql(url, async (sql) => {
    await sql`create table authors (id serial primary key)`;
    await sql`create table books (id serial primary key, author integer references authors, editor integer references authors, nth integer)`;
  });
  await (await startTestService({ databaseUrl: url })).stop();
  await withSql(url, async (sql) => {
    await sql`insert into service_relations (many_collection, many_field, one_collection, one_field, sort_field, one_deselect_action)
      values ('books', 'author', 'authors', null, 'nth', 'nullify'), ('books', 'editor', 'authors', 'edited', null, 'delete')`;
    const { output } = await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: url });
    t.match(output, /authors\.books_by_author {2}one-to-many {2}books, by its author\n\n1 relation written\./);
    const rows = await sql`select many_field, one_field, sort_field, one_deselect_action from service_relations
      where many_collection = 'books' order by many_field`;
    t.strictSame(
      [...rows],
      [
        { many_field: 'author', one_field: 'books_by_author', sort_field: 'nth', one_deselect_action: 'nullify' },
        { many_field: 'editor', one_field: 'edited', sort_field: null, one_deselect_action: 'delete' },
      ],
    );
  });
});

t.test('a database that grew without the service is navigable after one command', async (t) => {
  const url = await createDatabase(server, 'foreign', ['foreign.sql']);
  const { code, output } = await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: url });
  t.equal(code, 0);
  t.match(output, /people\.messages_by_sender +one-to-many +messages, by its sender\n/);
  t.match(output, /people\.profiles +one-to-one +profiles, by its person\n/);
  t.match(output, /no_columns: has no columns/);
  const service = await startTestService({ databaseUrl: url });
  const fields = 'name,people_by_manager.name,messages_by_sender.id,profiles.bio';
  t.strictSame((await get(service, `/items/people/1?fields=${fields}`)).json, {
    data: {
      name: 'Root',
      people_by_manager: [{ name: 'Child' }],
      messages_by_sender: [{ id: 1 }, { id: 2 }],
      profiles: { bio: 'shares its key' },
    },
  });
  const listed = [...output.matchAll(/^(.+)\.([^.\s]+) +(?:one-to-many|many-to-many) /gm)];
  t.ok(listed.length >= 8, `${listed.length} relations`);
  for (const [, collection = '', field = ''] of listed) {
    const answer = await get(service, `/items/${encodeURIComponent(collection)}?fields=${encodeURIComponent(field)}.*`);
    t.equal(answer.status, 200, `${collection}.${field}: ${answer.text.slice(0, 100)}`);
  }
  await service.stop();
});

t.test('hubs, lists that are hidden and foreign keys without an index are told', async (t) => {
  const url = await createDatabase(server, 'hub');
  const numbers = Array.from({ length: 9 }, (_, number) => number);
  await withSql(url, async (sql) => {
    await sql`create table users (id serial primary key, email text unique)`;
    for (const number of numbers) {
      await sql.unsafe(`
        create table ${`part_${number}`} (id serial primary key, owner integer references users, place integer);
        create index on ${`part_${number}`} (owner, place)`);
    }
    await sql.unsafe(`
      create table "Odd notes" (id serial primary key, "author's" text references users (email), part integer references part_0,
        created_by integer references part_1);
      create table logs (id bigint primary key, part integer references part_0) partition by range (id)`);
  });
  const environment = { DATABASE_URL: url };
  const { code, output } = await runCommand(['relations', 'suggest', '--apply'], environment);
  t.equal(code, 0);
  t.match(output, /Referenced by very many tables: .*\n {2}users: 10 lists\n/);
  t.match(output, 'create index concurrently "odd_notes_author_s_');
  t.match(output, 'on "public"."Odd notes" ("author\'s");');
  t.match(output, 'create index concurrently "odd_notes_part_');
  t.match(output, 'create index "logs_part_index" on "public"."logs" ("part");');
  t.notMatch(output, /on "public"."part_0" \("owner"\)/, 'an index over more columns serves as well');
  const [, hidden = ''] = /Hidden in forms by default:\n((?: {2}.*\n)*)/.exec(output) ?? [];
  t.equal(hidden.trim().split('\n').length, 11, 'those of the hub, and of who made a row');
  t.match(hidden, /part_1\.Odd_notes/);
  const rows = await withSql(
    url,
    (sql) => sql`select collection, hidden from service_fields where hidden and special = 'o2m'`,
  );
  t.equal(rows.filter(({ collection }) => collection === 'users').length, 10);
  const part = await runCommand(['relations', 'suggest', 'part_3'], environment);
  t.notMatch(part.output, /create index/);
  const lines = output.match(/create index .*;/g) ?? [];
  t.equal(lines.length, 4);
  await withSql(url, async (sql) => {
    for (const line of lines) await sql.unsafe(line);
  });
  const again = await runCommand(['relations', 'suggest'], environment);
  t.match(again, { code: 0 });
  t.notMatch(again.output, /create index/, 'once they are made nothing is missing');
});

t.test('wrong words end with one line, --help explains', async (t) => {
  const environment = { DATABASE_URL: server.url };
  t.match(await runCommand(['relations', '--help']), { code: 0, output: /^Usage: lateral relations suggest/ });
  t.match(await runCommand(['relations', 'suggest', '--help']), { code: 0, output: /--apply/ });
  t.match(await runCommand(['--help']), { code: 0, output: /relations {3}finds the relations/ });
  t.match(await runCommand(['relations'], environment), { code: 2, complaints: /expects suggest/ });
  t.match(await runCommand(['relations', 'suggest', '--aply'], environment), { code: 2, complaints: /"--aply"/ });
  t.match(await runCommand(['relations', 'suggest', 'nowhere'], environment), {
    code: 1,
    complaints: 'lateral: there is no collection "nowhere"\n',
  });
});

async function countRows(sql: Sql): Promise<number> {
  const [row] = await sql`select count(*)::int from service_relations where many_collection not like 'service%'`;
  return row?.['count'] as number;
}
