/** Objects in snapshots: checks, indexes, views and others survive a round trip, change, and are refused where they are not what they say. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { parse, stringify } from 'yaml';
import { runCommand } from '../../support/command.js';
import {
  createDatabase,
  createEmptyDatabase,
  createLibrary,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';
import { compareStructure, factsOf } from './snapshot/structure.js';

const server = await startDatabase();
const folder = await makeFolder();
const file = join(folder, 'snapshot.yaml');

interface Entry {
  name: string;
  definition: string;
  comment: string | null;
}

/** One of each kind, and of what snapshots leave out. */
const SCHEMA = `
  create type mood as enum ('glad', 'sad');
  create type unused as enum ('one', 'two');
  create domain price as numeric(9,2) default 1 constraint price_positive check (value >= 0);
  comment on domain price is 'in euros';
  create type pair as (one integer, two text);
  create sequence invoices as integer start with 100 increment by 5 cycle;
  create function half(value integer) returns integer immutable language sql return value / 2;
  create table "Odd Orders" (
    id serial primary key,
    number bigint generated always as identity (start with 1000),
    total price,
    stock bigint default 0 not null,
    code text collate "C" default lower(md5('a')) constraint code_unique unique nulls not distinct,
    note varchar(20) default 'none' check (note <> '' and note = any (array['none', 'some']::varchar[])),
    mood mood default 'glad',
    pair pair,
    during tstzrange,
    invoice integer default nextval('invoices'),
    halved integer generated always as (half(5)) stored,
    search tsvector generated always as (to_tsvector('english', coalesce(note, '') || jsonb_path_query_array('[]', '$[*]')::text)) stored,
    constraint during_apart exclude using gist (during with &&) deferrable initially deferred
  );
  alter table "Odd Orders" add constraint total_fits check (total < 1000 or stock = 0) not valid;
  create table lines (
    "order" integer constraint lines_to_orders references "Odd Orders" on delete set null,
    line integer, code text, amount integer, constraint lines_key primary key (line) include (amount)
  );
  create unique index orders_lower on "Odd Orders" (lower(code)) where stock > 0;
  create index orders_stock on "Odd Orders" (stock desc nulls last) include (note) with (fillfactor = 70);
  create index on "Odd Orders" using gin (search);
  create index orders_half on "Odd Orders" (half(5));
  create index lines_code on lines (code text_pattern_ops, amount);
  create index lines_amount on lines (amount);
  comment on index lines_amount is 'for reports';
  comment on constraint total_fits on "Odd Orders" is 'as agreed';
  create view a_report with (security_barrier) as select line, amount from lines;
  create view orders_view as select a_report.amount, "Odd Orders".code from a_report join lines using (line) join "Odd Orders" on id = "order";
  create materialized view totals as select count(*) as count from orders_view;
  create unique index totals_count on totals (count);
  create view halves as select half(line) as half from lines;
  create table measures (id integer, at date, primary key (id, at)) partition by range (at);
  create table measures_2025 partition of measures for values from ('2025-01-01') to ('2026-01-01');
  create table heir (extra text) inherits (lines);
  create unlogged table quick (id integer primary key) with (fillfactor = 50);
  create function touch() returns trigger language plpgsql as 'begin return new; end';
  create trigger touched before update on lines for each row execute function touch();
  alter table lines enable row level security;
  create policy everybody on lines using (true);
  create rule ignored as on delete to lines do instead nothing;
  create statistics lines_statistics on line, amount from lines;
  grant select on lines to public;`;

const source = { DATABASE_URL: await createDatabase(server, 'objects_source') };
await withSql(source.DATABASE_URL, (sql) => sql.unsafe(SCHEMA).simple());
const taken = await runCommand(['schema', 'snapshot', file], source);

async function emptyDatabase(name: string): Promise<{ DATABASE_URL: string }> {
  return { DATABASE_URL: await createDatabase(server, name) };
}

async function edited(change: (entries: Entry[]) => Entry[]): Promise<string> {
  const snapshot = parse(await readFile(file, 'utf8')) as { objects: Entry[] };
  const path = join(folder, 'edited.yaml');
  await writeFile(path, stringify({ ...snapshot, objects: change(snapshot.objects) }));
  return path;
}

const target = await emptyDatabase('objects_target');

t.test('a database made from a snapshot differs only in what was listed', async (t) => {
  t.equal(taken.code, 0, taken.complaints);
  t.match(await runCommand(['schema', 'apply', file, '--yes'], target), { code: 0, output: /Applied/ });
  const { differing, unlisted } = await compareStructure(source.DATABASE_URL, target.DATABASE_URL, taken.complaints);
  t.strictSame(unlisted, []);
  t.ok(differing.length > 10, 'functions and others are not there');
  const facts = (await factsOf(target.DATABASE_URL)).map(({ fact }) => fact).join('\n');
  for (const part of [
    'orders_lower',
    'NULLS NOT DISTINCT',
    'EXCLUDE',
    'a_report',
    'totals_count',
    'NOT VALID',
    'for reports',
    'invoices',
  ])
    t.match(facts, new RegExp(part));
  t.match(await runCommand(['schema', 'diff', file], target), { code: 0, output: 'No differences.\n' });
});

t.test('snapshot, diff and doctor list the same things as left out', async (t) => {
  const diff = await runCommand(['schema', 'diff', file], source);
  t.equal(
    diff.complaints.replaceAll('not compared: ', ''),
    taken.complaints.replace(/^[0-9].*\n/m, '').replaceAll('left out: ', ''),
  );
  const { output } = await runCommand(['doctor', '--json'], source);
  for (const part of [
    'its trigger touched',
    'its row-level security policy everybody',
    'its grants',
    'its partitions',
    'needs function half',
  ])
    for (const text of [diff.complaints, output]) t.match(text, new RegExp(part));
});

t.test('a check is compared, restored and removed', async (t) => {
  const copy = await emptyDatabase('objects_check');
  const check = join(folder, 'check.yaml');
  await withSql(copy.DATABASE_URL, (sql) =>
    sql.unsafe('create table items (id integer primary key, price numeric check (price >= 0))').simple(),
  );
  await runCommand(['schema', 'snapshot', check], copy);
  await withSql(copy.DATABASE_URL, (sql) => sql`alter table items drop constraint items_price_check`);
  t.match(await runCommand(['schema', 'diff', check], copy), {
    code: 2,
    output: '  + constraint items.items_price_check\n',
  });
  t.match(await runCommand(['schema', 'apply', check], copy), { code: 0 });
  await t.rejects(
    withSql(copy.DATABASE_URL, (sql) => sql`insert into items values (1, -1)`),
    { code: '23514' },
  );
  const without = join(folder, 'without.yaml');
  const text = await readFile(check, 'utf8');
  await writeFile(without, stringify({ ...parse(text), objects: [] }));
  t.match(await runCommand(['schema', 'diff', without, '--merge'], copy), { code: 0 });
  t.match(await runCommand(['schema', 'apply', without, '--yes'], copy), { code: 0, output: /- constraint/ });
  await withSql(copy.DATABASE_URL, (sql) => sql`insert into items values (1, -1)`);
  await writeFile(without, stringify({ ...parse(text), objects: undefined }));
  t.match(
    await runCommand(['schema', 'diff', without], copy),
    { code: 0 },
    'an older snapshot says nothing of objects',
  );
  t.match(
    await runCommand(['schema', 'apply', check], copy),
    { code: 1, complaints: /items_price_check/ },
    'a row does not fit',
  );
  t.match(await runCommand(['schema', 'diff', check], copy), { code: 2 }, 'nothing was changed');
});

t.test('objects change, and get other names, without losing rows', async (t) => {
  await withSql(target.DATABASE_URL, (sql) =>
    sql.unsafe(`insert into "Odd Orders" (code, during) values ('a', 'empty'), ('b', 'empty')`).simple(),
  );
  const path = await edited((entries) =>
    entries.map((entry) => {
      if (entry.name === 'index lines.lines_amount')
        return { ...entry, name: 'index lines.lines_by_amount', comment: null };
      if (entry.name === 'view a_report')
        return { ...entry, definition: 'AS SELECT line,\n    amount,\n    code\n   FROM lines' };
      if (entry.name === 'domain price') return { ...entry, comment: 'in dollars' };
      if (entry.name === 'sequence invoices') return { ...entry, definition: entry.definition.replace('BY 5', 'BY 7') };
      if (/total_fits/.test(entry.name))
        return { ...entry, definition: 'CHECK (((total)::numeric < (2000)::numeric))' };
      if (/^identity/.test(entry.name))
        return { ...entry, definition: entry.definition.replace('ALWAYS', 'BY DEFAULT') };
      return entry;
    }),
  );
  const before = await withSql(target.DATABASE_URL, (sql) => sql`select 'lines_amount'::regclass::oid as oid`);
  const applied = await runCommand(['schema', 'apply', path, '--yes'], target);
  t.match(applied, { code: 0 }, applied.complaints);
  t.match(await runCommand(['schema', 'diff', path], target), { output: 'No differences.\n' });
  t.strictSame(
    await withSql(target.DATABASE_URL, (sql) => sql`select 'lines_by_amount'::regclass::oid as oid`),
    before,
    'the index was renamed',
  );
  const rows = await withSql(
    target.DATABASE_URL,
    (sql) => sql`insert into "Odd Orders" (code, during) values ('c', 'empty') returning id, number`,
  );
  t.match(rows, [{ id: 3, number: '1002' }], 'sequences continue');
  const back = await runCommand(['schema', 'apply', file, '--yes'], target);
  t.match(back, { code: 0 }, back.complaints);
  const { unlisted } = await compareStructure(source.DATABASE_URL, target.DATABASE_URL, taken.complaints);
  t.strictSame(unlisted, []);
});

t.test('a serial column becomes an identity, and one again', async (t) => {
  const [serial, identity] = [await emptyDatabase('objects_serial'), await emptyDatabase('objects_identity')];
  const create = (database: typeof serial, type: string): Promise<unknown> =>
    withSql(database.DATABASE_URL, (sql) =>
      sql
        .unsafe(
          `create table counted (id ${type} primary key, name text); insert into counted (name) values ('a'), ('b')`,
        )
        .simple(),
    );
  await create(serial, 'serial');
  await create(identity, 'integer generated by default as identity');
  const [one, other] = [join(folder, 'serial.yaml'), join(folder, 'identity.yaml')];
  await runCommand(['schema', 'snapshot', one], serial);
  await runCommand(['schema', 'snapshot', other], identity);
  for (const [path, id] of [
    [other, 3],
    [one, 4],
    [other, 5],
  ] as const) {
    const applied = await runCommand(['schema', 'apply', path, '--yes'], serial);
    t.match(applied, { code: 0 }, applied.complaints);
    t.match(await runCommand(['schema', 'diff', path], serial), { output: 'No differences.\n' });
    t.match(await withSql(serial.DATABASE_URL, (sql) => sql`insert into counted (name) values ('c') returning id`), [
      { id },
    ]);
  }
});

t.test('an entry defines the object that it names, and nothing else', async (t) => {
  const refused: [entry: Partial<Entry>, complaint: RegExp][] = [
    [{ name: 'function f', definition: '' }, /kind and a name/],
    [{ name: 'constraint items', definition: 'CHECK (true)' }, /kind and a name/],
    [{ name: 'constraint a.b', definition: 'CHECK (true); drop table a' }, /exactly one AlterTableStmt/],
    [{ name: 'constraint a.b', definition: 'CHECK (true), drop column c' }, /several ways/],
    [{ name: 'index a.b', definition: 'USING btree (c); create index x on a (c)' }, /exactly one IndexStmt/],
    [{ name: 'view a', definition: 'AS WITH gone AS (DELETE FROM b RETURNING *) SELECT * FROM gone' }, /DeleteStmt/],
    [{ name: 'sequence a', definition: 'OWNED BY' }, /syntax error/],
    [{ name: 'enum a', definition: "('one') /*" }, /unterminated/],
  ];
  const before = await factsOf(target.DATABASE_URL);
  for (const [entry, complaint] of refused) {
    const path = await edited((entries) => [...entries, { comment: null, definition: '', name: '', ...entry }]);
    t.match(await runCommand(['schema', 'apply', path, '--yes'], target), { code: 1, complaints: complaint });
  }
  t.strictSame(await factsOf(target.DATABASE_URL), before);
});

t.test('HTTP compares objects, and applies none', async (t) => {
  const service = await startTestService({ databaseUrl: source.DATABASE_URL, WORKERS: '1' });
  const send = (path: string, body?: unknown) =>
    request(service, body ? 'POST' : 'GET', path, {
      headers: { 'content-type': 'application/json' },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
  const { data } = (await send('/schema/snapshot?objects=true')).json as { data: { objects: Entry[] } };
  t.strictSame(data, parse(await readFile(file, 'utf8')));
  t.match(await send('/schema/diff', data), { status: 204 });
  const changed = await send('/schema/diff', { ...data, objects: data.objects.slice(1) });
  t.match(changed, { status: 200, json: { data: { diff: { objects: [{ diff: [{ kind: 'D' }] }] } } } });
  const answer = await send('/schema/apply', (changed.json as { data: unknown }).data);
  t.match(answer, { status: 400 });
  t.match(answer.text, /only the command line applies/);
  const plain = (await send('/schema/snapshot')).json as { data: object };
  t.notOk('objects' in plain.data);
});

t.test('policies are compared with a database that was never started, and applied to it', async (t) => {
  const started = { DATABASE_URL: await createLibrary(server, 'objects_policies') };
  const path = join(folder, 'policies.yaml');
  await (await startTestService({ databaseUrl: started.DATABASE_URL, WORKERS: '1' })).stop();
  t.match(await runCommand(['schema', 'snapshot', path, '--policies'], started), { code: 0 });
  const fresh = { DATABASE_URL: await createEmptyDatabase(server, 'objects_never_started') };
  t.match(await runCommand(['schema', 'diff', path], fresh), { code: 2, output: /\+ policy Administrator/ });
  const applied = await runCommand(['schema', 'apply', path, '--yes'], fresh);
  t.match(applied, { code: 0 }, applied.complaints);
  t.match(await runCommand(['schema', 'diff', path], fresh), { code: 0, output: 'No differences.\n' });
  const service = await startTestService({ databaseUrl: fresh.DATABASE_URL, WORKERS: '1' });
  t.match(
    await request(service, 'GET', '/policies?fields=name'),
    { status: 200 },
    'the first administrator has the policy',
  );
  t.match(
    await withSql(
      fresh.DATABASE_URL,
      (sql) => sql`select count(*)::int from service_roles where name = 'Administrator'`,
    ),
    [{ count: 1 }],
  );
});
