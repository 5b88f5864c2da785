/** `lateral doctor`: what it finds, what it calls fine, what it prints and how it ends. It must leave no trace in the database. */
import t from 'tap';
import { runCommand } from '../../support/command.js';
import {
  connectSql,
  createDatabase,
  databaseUrl,
  type Outcome,
  runProgram,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase({ own: true });

interface Report {
  readonly ok: boolean;
  readonly problems: number;
  readonly notes: number;
  readonly findings: readonly {
    readonly section: string;
    readonly status: string;
    readonly message: string;
    readonly details: readonly { readonly name: string; readonly message: string; readonly fix?: string }[];
  }[];
}

const MODEL = `
  create schema sales;
  create schema stock;
  create table authors (id serial primary key, name text);
  create table articles (id serial primary key, author integer references authors);
  create index on articles (author);
  create table sales_orders (id serial primary key);
  create table sales.orders (id serial primary key, article integer references articles);
  create table sales.lines (nr integer, part integer, primary key (nr, part));
  create table sales.notes (nr integer, part integer, foreign key (nr, part) references sales.lines);
  create view long_articles as select id, author from articles;
  create table stock.shelves (id serial primary key)`;

function run(url: string, ...words: string[]): Promise<Outcome> {
  return runCommand(['doctor', ...words], { DATABASE_URL: url });
}

async function findings(url: string, options: Record<string, string> = {}): Promise<Report & { code: number }> {
  const { output, code } = await runCommand(['doctor', '--json'], { DATABASE_URL: url, ...options });
  return { ...(JSON.parse(output) as Report), code };
}

t.test('a database in order has no problems', async (t) => {
  const url = await createDatabase(server, 'fine');
  await withSql(url, (sql) =>
    sql.unsafe('create table authors (id serial primary key); create table pens (id serial primary key)'),
  );
  const { code, output, complaints } = await runProgram(['doctor'], { DATABASE_URL: url });
  t.equal(code, 0, output);
  t.equal(complaints, '');
  t.match(output, /^Connection\n {2}ok +PostgreSQL \d+.*, database fine, role \w+ \(superuser\)$/m);
  t.match(output, /^Collections\n {2}ok +2 served: authors, pens$/m);
  t.match(output, /^Relations\n {2}ok +every reference has an index$/m);
  t.match(output, /^Snapshots\n {2}ok +snapshots contain the whole schema$/m);
  t.match(output, / {2}ok +wal_level \w+$/m);
  t.match(output, /the service opens up to \d+ of \d+ connections/);
  t.match(output, /\nNo problems, \d notes?\.\n$/);
  t.notMatch(output, /PROBLEM/);
  const tables = await withSql(url, (sql) => sql`select from pg_tables where tablename like 'service%'`);
  t.equal(tables.length, 0, 'and it still has no table of ours');
});

t.test('the tables of an adopted Directus are one line, and their indexes are not missed', async (t) => {
  const url = await createDatabase(server, 'adopted', ['directus.sql', 'directus-data.sql']);
  const { code } = await runCommand(['adopt'], { DATABASE_URL: url, SYSTEM_SCHEMA: 'ours' });
  t.equal(code, 0);
  const { findings: found } = await findings(url, { SYSTEM_SCHEMA: 'ours' });
  const [unserved] = found.filter(({ message }) => message === 'not served for other reasons');
  t.match(unserved?.details, [{ name: /^\d\d tables$/, message: /^each belongs to Directus: .* \(\w+ and others\)$/ }]);
  t.equal(unserved?.details.length, 1);
  const fixes = found.flatMap(({ details }) => details.flatMap(({ fix = '' }) => (fix.includes('index') ? [fix] : [])));
  t.ok(fixes.length > 0, 'tables that are served');
  t.notMatch(fixes.join(), /"directus_/);
});

t.test('a missing index, a missing right and a name that is taken are found, with what solves them', async (t) => {
  const url = await createDatabase(server, 'ill');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql.unsafe(MODEL);
  await sql.unsafe(`
    create role clerk login password 'clerk';
    grant usage on schema public, sales to clerk;
    grant create on schema public to clerk;
    grant all on all tables in schema public, sales to clerk;
    grant all on all sequences in schema public, sales to clerk;
    revoke select, delete on authors from clerk;
    revoke usage on sequence sales.orders_id_seq from clerk`);
  const login = databaseUrl(server, 'ill', { user: 'clerk', password: 'clerk' });
  const schemas = { DATABASE_SCHEMAS: 'public,sales' };
  for (const installed of [false, true]) {
    if (installed) await (await startTestService({ databaseUrl: url, ...schemas })).stop();
    if (installed)
      await sql.unsafe(`
        grant all on all tables in schema public to clerk;
        revoke select, delete on authors from clerk`);
    const report = await findings(login, schemas);
    t.match(report, { ok: false, code: 1 });
    const details = (section: string): unknown =>
      report.findings.find((each) => each.section === section && each.status !== 'ok')?.details;
    t.strictSame(details('Relations'), [
      {
        name: 'sales.notes',
        message: 'nr, part',
        fix: 'create index concurrently "notes_nr_part_index" on "sales"."notes" ("nr", "part");',
      },
      {
        name: 'sales.orders',
        message: 'article',
        fix: 'create index concurrently "orders_article_index" on "sales"."orders" ("article");',
      },
    ]);
    t.strictSame(details('Privileges'), [
      {
        name: 'public.authors',
        message: 'missing: select, delete',
        fix: 'grant select, delete on "public"."authors" to "clerk";',
      },
    ]);
    t.match(details('Names'), [
      {
        name: 'sales.orders',
        message: /would be called "sales_orders"/,
        fix: `insert into "public".service_collections (collection, "schema", "table") values ('sales_orders_table', 'sales', 'orders');`,
      },
    ]);
    t.match(
      report.findings.filter(({ section }) => section === 'Keys'),
      [
        {
          message:
            '2 tables and views have no key: items can be listed, but not named or written. Tables: sales_notes. Views: long_articles',
          details: [{ name: 'sales_notes', message: /if nr identifies/, fix: /values \('sales_notes', 'nr'\);$/ }],
        },
      ],
    );
    t.match(
      report.findings.filter(({ section, status }) => section === 'Relations' && status === 'note'),
      [{ message: /^2 lists and objects of related items can be added; lateral relations suggest shows them/ }],
    );
    t.match(
      report.findings.filter(
        ({ status, message }) => status === 'note' && /schemas with tables that are not served/.test(message),
      ),
      [
        {
          section: 'Schemas',
          message:
            'schemas with tables that are not served: stock (1); DATABASE_SCHEMAS=public,sales,stock serves them',
        },
      ],
    );
    const names = report.findings.find(({ section }) => section === 'Names')?.details[0];
    // What it says solves the problem.
    if (installed) await sql.unsafe(names?.fix ?? '');
  }
  for (const { fix } of (await findings(login, schemas)).findings.flatMap(({ section, details }) =>
    section === 'Privileges' || section === 'Relations' ? details : [],
  ))
    for (const statement of (fix ?? '').split(/(?<=;) /)) await sql.unsafe(statement);
  const healed = await findings(login, schemas);
  t.match(healed, { ok: true, problems: 0, code: 0 });
  await sql.unsafe(`
    alter table sales_orders add column author integer, add column pen integer;
    create index on sales_orders (pen, author);
    insert into service_relations (many_collection, many_field, one_collection) values
      ('sales_orders', 'author', 'authors'), ('sales_orders', 'pen', 'articles')`);
  t.match(
    (await findings(login, schemas)).findings.find(({ section }) => section === 'Relations'),
    { status: 'problem', details: [{ name: 'public.sales_orders', message: 'author', fix: /\("author"\);$/ }] },
    'a relation without a foreign key needs an index too',
  );
});

t.test('a role that may only read is a note, too few connections are a problem', async (t) => {
  const url = await createDatabase(server, 'readonly');
  await withSql(url, (sql) =>
    sql.unsafe(`
    create table authors (id serial primary key);
    create role reader login password 'reader' connection limit 5;
    grant select on authors to reader`),
  );
  const report = await findings(databaseUrl(server, 'readonly', { user: 'reader', password: 'reader' }));
  t.equal(report.code, 1);
  const texts = report.findings.map(({ status, message }) => `${status}: ${message}`);
  t.ok(texts.includes('note: the role cannot write to any table: the API is read-only'));
  t.ok(texts.some((text) => /^problem: the service opens up to \d+ of 5 connections/.test(text)));
  t.ok(
    texts.some((text) =>
      /^problem: the service's own tables do not exist, and the role may not create them/.test(text),
    ),
  );
});

t.test('a start that lacks a privilege prints the grant that doctor prints, and the grant is enough', async (t) => {
  await createDatabase(server, 'strangers');
  const owner = databaseUrl(server, 'strangers');
  const login = databaseUrl(server, 'strangers', { user: 'stranger', password: 'stranger' });
  const run = (statement: string): Promise<unknown> => withSql(owner, (sql) => sql.unsafe(statement));
  await run("create role stranger login password 'stranger'; revoke create on schema public from public");
  const start = async (options: Record<string, string>): Promise<string> =>
    startTestService({ databaseUrl: login, ...options }).then(
      async (service) => {
        await service.stop();
        return 'started';
      },
      (error: Error) => error.message,
    );
  for (const [options, grant] of [
    [{ SYSTEM_SCHEMA: 'own Place' }, 'create schema "own Place" authorization "stranger";'],
    [{}, 'grant create on schema "public" to "stranger";'],
  ] as const) {
    const report = await findings(login, options);
    const fixes = report.findings.flatMap(({ section, details }) => (section === 'Schemas' ? details : []));
    t.match(fixes, [{ fix: grant }]);
    const message = await start(options);
    t.match(message, /^cannot create the service_\* tables in schema "[\w ]+": permission denied for [^\n]*$/);
    t.ok(message.endsWith(`. A superuser or the owner can run: ${grant}`), message);
    await run(grant);
    t.equal(await start(options), 'started');
    await run('drop schema if exists "own Place" cascade');
  }
  await run(`
    drop table service_tables;
    alter table service_migrations owner to current_user;
    delete from service_migrations where name = '033_tables.sql';
    grant select on service_migrations to stranger`);
  t.match(
    await start({}),
    /permission denied for table service_migrations\. The role must own the tables of the service/,
  );
});

t.test('privileges on some columns are a note that names them', async (t) => {
  const url = await createDatabase(server, 'columns');
  await (await startTestService({ databaseUrl: url })).stop();
  await withSql(url, (sql) =>
    sql.unsafe(`
    create table part (id int primary key, a text, secret text);
    create table whole (id int primary key);
    create role column_user login password 'column_user';
    grant usage, create on schema public to column_user;
    grant all on all tables in schema public to column_user;
    revoke select, insert, update on part from column_user;
    grant select (id, a), insert (id, a), update (a) on part to column_user`),
  );
  const login = databaseUrl(server, 'columns', { user: 'column_user', password: 'column_user' });
  const ofPrivileges = async (): Promise<Report['findings']> =>
    (await findings(login)).findings.filter(({ section }) => section === 'Privileges');
  const note = {
    section: 'Privileges',
    status: 'note',
    message: 'column_user has privileges on some columns of 1 table only: the API leaves out the others',
    details: [{ name: 'public.part', message: 'select: id, a; insert: id, a; update: a' }],
  };
  t.strictSame(await ofPrivileges(), [note]);
  await withSql(url, (sql) => sql.unsafe('revoke update (a), delete on part from column_user'));
  t.match(await ofPrivileges(), [
    {
      status: 'problem',
      details: [
        { message: 'missing: update, delete', fix: 'grant update, delete on "public"."part" to "column_user";' },
      ],
    },
    { status: 'note', details: [{ message: 'select: id, a; insert: id, a' }] },
  ]);
});

t.test('functions that set something for their session are found', async (t) => {
  const url = await createDatabase(server, 'session_setters');
  await withSql(url, (sql) =>
    sql.unsafe(`
      create table notes (id serial primary key, body text);
      create function tenant(t text) returns text language sql as $$ select set_config('app.tenant', lower(t), false) $$;
      create function readonly() returns void language plpgsql as $$ begin
        set default_transaction_read_only = on; end $$;
      create function became() returns void language plpgsql as $$ begin execute 'SET ROLE postgres'; end $$;
      create function audited() returns trigger language plpgsql as
        $$ begin perform set_config('app.note', new.body, false); return new; end $$;
      create function stable_one() returns text language sql stable begin atomic select set_config('a.b', 'c', false); end;
      create function local_one() returns trigger language plpgsql as $$ begin
        -- set role other
        set local app.x = 'y';
        perform set_config('app.y', ';', true);
        update notes set body = 'a set x' where id = new.id;
        insert into notes (id) values (1) on conflict (id) do update
          set body = 'x';
        return new; end $$`),
  );
  const { findings: all } = await findings(url);
  const found = all.filter(({ message }) => message.includes('for the session'));
  t.strictSame(
    found.map(({ section, status, details }) => [section, status, details.map(({ name }) => name)]),
    [
      ['Functions', 'problem', ['public.audited', 'public.stable_one']],
      ['Functions', 'note', ['public.became', 'public.readonly', 'public.tenant']],
    ],
  );
});

t.test('policies that read their own table again are found', async (t) => {
  const url = await createDatabase(server, 'recursive_policies');
  const secured = ['own', 'one', 'other', 'updated', 'shown', 'viewed', 'owned', 'named', 'roled'];
  await withSql(url, (sql) =>
    sql.unsafe(`
      create role bound login password 'bound'; create role some_role; create role other_role;
      ${secured.map((name) => `create table ${name} (id int primary key); alter table ${name} enable row level security;`).join('\n')}
      create policy again on own using (exists (select from own x where x.id = own.id));
      create policy p on one for select using (exists (select from other where other.id = one.id));
      create policy p on other using (id in (select one.id from one));
      create policy r on updated for select using (exists (select from shown where shown.id = updated.id));
      create policy w on updated for update using (exists (select from updated x where x.id = updated.id));
      create policy r on shown for select using (id > 0);
      create policy w on shown for update using (exists (select from shown x where x.id = shown.id));
      create view invoked with (security_invoker = true) as select id from viewed;
      create policy p on viewed using (exists (select from invoked where invoked.id = viewed.id));
      create view of_owner as select id from owned;
      create policy p on owned using (exists (select from of_owner where of_owner.id = owned.id));
      create policy p on named using (':relid 1' <> '');
      create policy p on roled to some_role using (exists (select from roled x, one where x.id = roled.id));
      create policy q on roled for update to other_role using (exists (select from roled x where x.id = roled.id));
      grant select, update on all tables in schema public to bound`),
  );
  const bound = databaseUrl(server, 'recursive_policies', { user: 'bound', password: 'bound' });
  const failing = await withSql(url, async (sql) => {
    const fails = async (statement: string): Promise<boolean> => {
      const run = sql.begin(async (own) => {
        await own`set local role bound`;
        await own.unsafe(statement);
      });
      return run.then(
        () => false,
        (error: { code: string }) => error.code === '42P17',
      );
    };
    const tables: string[] = [];
    for (const name of secured)
      if ((await fails(`select from ${name}`)) || (await fails(`update ${name} set id = id`)))
        tables.push(`public.${name}`);
    return tables;
  });
  for (const options of [{}, { DATABASE_CALLER: 'claims' }]) {
    const { findings: all } = await findings(bound, options);
    const [found] = all.filter(({ message }) => message.includes('infinite recursion'));
    t.match(found, { section: 'Row-level security', status: 'problem' });
    const lines = found?.details.map(({ name, message }) => `${name}: ${message}`);
    t.strictSame(lines, [
      'public.one: policy p reads public.other, whose policies read public.one',
      'public.other: policy p reads public.one, whose policies read public.other',
      'public.own: policy again reads public.own',
      'public.roled: policy p reads public.roled',
      'public.updated: policy w reads public.updated',
      'public.viewed: policy p reads public.viewed',
    ]);
    t.strictSame(
      [...new Set(found?.details.map(({ name }) => name))].filter((name) => name !== 'public.roled'),
      failing.toSorted(),
    );
  }
  const { findings: asOwner } = await findings(url);
  t.notOk(
    asOwner.some(({ message }) => message.includes('infinite recursion')),
    'the policies do not bind the owner',
  );
});

t.test('policies that read settings that nobody sets are found', async (t) => {
  const url = await createDatabase(server, 'unset_settings');
  await withSql(url, (sql) =>
    sql.unsafe(`
      create role reading login password 'reading'; alter role reading set app.role_default = 'x';
      create function uid() returns text language sql stable as $$
        -- current_setting('app.comment')
        select current_setting('app.Uid', true) $$;
      create function supabase_uid() returns text language sql stable as $$ select coalesce(
        nullif(current_setting('request.jwt.claim.sub', true), ''), current_setting('request.jwt.claims', true)::json ->> 'sub') $$;
      create function become() returns void language plpgsql as $$ begin
        perform set_config('app.becoming', 'x', true); set local app.stage = 'y'; end $$;
      ${['needed', 'optional', 'given'].map((name) => `create table ${name} (id int primary key, owner text); alter table ${name} enable row level security;`).join('\n')}
      create policy p on needed using (owner = current_setting('app.user'));
      create policy w on needed for insert with check (owner = current_setting('app.writer'));
      create policy p on optional using (owner = uid() or owner = current_setting('app.tenant', true));
      create policy p on given using (owner in (supabase_uid(), current_setting('app.role_default'), current_setting('TimeZone'),
        current_setting('app.becoming', true), current_setting('app.stage'), current_setting('Lateral.User', true)))`),
  );
  const reader = databaseUrl(server, 'unset_settings', { user: 'reading', password: 'reading' });
  const lines = async (options: Record<string, string>): Promise<unknown> => {
    const { findings: all } = await findings(reader, options);
    const found = all.filter(({ message }) => message.includes('settings that nobody sets'));
    return found.map(({ status, details }) => [status, ...details.map(({ name, message }) => `${name}: ${message}`)]);
  };
  t.strictSame(await lines({ DATABASE_CALLER: 'claims' }), [
    ['problem', 'public.needed: policy p reads app.user', 'public.needed: policy w reads app.writer'],
    ['note', 'public.optional: policy p reads app.tenant', 'public.optional: policy p reads app.Uid in public.uid'],
  ]);
  const settings = 'app.user=user,app.uid=user,app.tenant=claim:tenant';
  t.strictSame(await lines({ DATABASE_CALLER: 'claims', DATABASE_SETTINGS: settings }), [
    ['problem', 'public.needed: policy w reads app.writer'],
  ]);
  const [, [, ...optional] = []] = (await lines({})) as string[][];
  const claims = 'public.given: policy p reads request.jwt.claims in public.supabase_uid';
  t.ok(optional.includes(claims), 'the service sets none without DATABASE_CALLER');
});

t.test('functions that cannot be called as they are declared are found', async (t) => {
  const url = await createDatabase(server, 'functions');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await (await startTestService({ databaseUrl: url })).stop();
  const functionsOf = async (login: string): Promise<Report['findings']> =>
    (await findings(login)).findings.filter(({ section }) => section === 'Functions' || section === 'Fields');
  t.strictSame(await functionsOf(url), [], 'nothing is said where nothing is declared');
  await sql.unsafe(`
    create table authors (id serial primary key, name text);
    create function ready(days integer) returns integer language sql stable as 'select days';
    create function touch(id integer) returns void language sql as 'update authors set name = name where authors.id = touch.id';
    create function counted(day date) returns integer language sql as 'select 1';
    create function find(id integer) returns text language sql stable as 'select $$number$$';
    create function find(id text) returns text language sql stable as 'select $$text$$';
    revoke execute on function counted(date) from public;
    insert into service_functions (name, function, arguments) values ('ready', null, '["days", "hours"]'), ('touch', null, null),
      ('counted', null, null), ('find', null, null), ('find_number', 'find', '["id integer"]'), ('lost', null, null);
    insert into service_fields (collection, field, special) values ('authors', 'title', 'computed');
    create role caller login password 'caller';
    grant usage on schema public to caller;
    grant all on all tables in schema public to caller`);
  const login = databaseUrl(server, 'functions', { user: 'caller', password: 'caller' });
  t.match(await functionsOf(login), [
    { status: 'ok', message: '5 callable: counted (POST), find, find_number, ready, touch (POST)' },
    { status: 'problem', message: '1 row of service_functions cannot be called', details: [{ name: 'lost' }] },
    {
      status: 'problem',
      message: 'caller may not execute 1 function',
      details: [{ name: 'public.counted', fix: 'grant execute on function "public"."counted"(day date) to "caller";' }],
    },
    {
      status: 'problem',
      message: /^1 function has overloads that differ only in the types of their arguments/,
      details: [
        {
          name: 'find',
          fix: `update "public".service_functions set arguments = '["id integer"]' where name = 'find';`,
        },
      ],
    },
    { status: 'note', details: [{ name: 'ready', message: 'has no argument "hours"' }] },
    {
      status: 'note',
      message: /^volatile/,
      details: [{ name: 'public.counted', fix: 'alter function "public"."counted"(day date) stable;' }],
    },
    { section: 'Fields', status: 'problem', details: [{ name: 'authors.title' }] },
  ]);
  for (const { details } of await functionsOf(login)) for (const { fix } of details) if (fix) await sql.unsafe(fix);
  await sql.unsafe(`
    delete from service_functions where name = 'lost';
    create function title(authors) returns text language sql stable as 'select $1.name';
    update service_functions set arguments = null where name = 'ready'`);
  t.strictSame(
    (await functionsOf(login)).map(({ status, message }) => `${status}: ${message}`),
    ['ok: 5 callable: counted, find, find_number, ready, touch (POST)'],
    'what it says solves it',
  );
});

t.test('objects that snapshots leave out are notes that name them', async (t) => {
  const url = await createDatabase(server, 'snapshots');
  const ofSnapshots = async (): Promise<Report['findings']> =>
    (await findings(url)).findings.filter(({ section }) => section === 'Snapshots');
  await withSql(url, (sql) => sql.unsafe('create table guests (id serial primary key, name text)'));
  const ok = {
    section: 'Snapshots',
    status: 'ok',
    message: 'snapshots contain the whole schema',
    details: [],
  };
  await (await startTestService({ databaseUrl: url })).stop();
  t.strictSame(await ofSnapshots(), [ok]);
  await withSql(url, (sql) =>
    sql.unsafe(`
    create extension btree_gist;
    create table rooms (id integer, during daterange, primary key (id, during without overlaps));
    create table stays (id serial primary key, room integer, during daterange, guest text,
      unique (guest, during without overlaps), foreign key (room, period during) references rooms (id, period during));
    alter table guests add loud text generated always as (upper(name)) virtual;
    create table wishes (id serial primary key, guest integer references guests not enforced);
    create view quiet as select id from guests;
    create schema sales; create table sales.guests (id serial primary key)`),
  );
  t.strictSame(await ofSnapshots(), [
    {
      section: 'Snapshots',
      status: 'note',
      message: 'snapshots leave out 4 things: lateral schema apply does not create them in another database',
      details: [
        {
          name: 'rooms',
          message: 'it, or its key, has a name, a type or columns that cannot be created in another database',
        },
        { name: 'guests.loud', message: 'is a virtual generated column' },
        { name: 'schema sales', message: 'is not in DATABASE_SCHEMAS' },
        { name: 'constraint stays.stays_room_during_fkey', message: 'it needs rooms.during' },
      ],
    },
  ]);
});

t.test('an unreachable host is an error, and a wrong option prints one line', async (t) => {
  const nowhere = new URL(server.url);
  nowhere.port = '1';
  t.match(await run(nowhere.href), { code: 1, output: /PROBLEM +cannot use the database: nothing answers/ });
  const report = await findings(server.url, { DATABASE_SCHEMAS: 'public,nowhere' });
  t.match(report, { ok: false, findings: [{ message: 'DATABASE_SCHEMAS: the database has no schema "nowhere"' }] });
  t.match(await run(server.url, 'more'), { code: 2, complaints: /^lateral: unexpected argument "more"/ });
  t.match(await run(server.url, '--jsn'), { code: 2, complaints: /"--jsn"/ });
  t.match(await run(server.url, '--help'), { code: 0, output: /^Usage: lateral doctor/ });
});
