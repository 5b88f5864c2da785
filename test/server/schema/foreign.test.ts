/**
 * A database the service has never seen: every table in it is served, what is not is refused with a
 * reason, and nothing of it is touched. Once as a superuser, once as the plain owner of the database.
 */
import t, { type Test } from 'tap';
import { alias, identifier, join, sql as kernel, statement } from '../../../src/compiler/sql/fragment.js';
import {
  type Answer,
  createDatabase,
  databaseUrl,
  get,
  loadSchemas,
  type Sql,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const login = { user: 'plain owner', password: 'secret' };
await withSql(server.url, async (sql) => {
  await sql`create role "plain owner" login password 'secret'`;
});

/** Reasons beyond the number of key columns, as the file itself knows them. */
const SPECIAL: ReadonlyMap<string, RegExp> = new Map([
  ['reserved_column', /a column whose name starts with %/],
  ['spatial_ref_sys', /or it does not exist/],
  ['no_columns', /it has no columns/],
]);

interface Role {
  readonly name: string;
  readonly url: () => Promise<string>;
  readonly poll: string;
  /** Milliseconds after which a new table has to be there. */
  readonly appearsWithin: number;
  readonly eventTriggers: readonly string[];
}

const roles: readonly Role[] = [
  {
    name: 'a superuser',
    url: () => createDatabase(server, 'foreign_super', ['foreign.sql']),
    poll: '1h',
    appearsWithin: 500,
    eventTriggers: ['service_drops_public', 'service_watch_public'],
  },
  {
    name: 'the plain owner of the database',
    url: async () => {
      await createDatabase(server, 'foreign_owner');
      await withSql(server.url, (sql) => sql`alter database foreign_owner owner to "plain owner"`);
      const url = databaseUrl(server, 'foreign_owner', login);
      await loadSchemas(url, ['foreign.sql']);
      return url;
    },
    poll: '300ms',
    appearsWithin: 300 + 500,
    eventTriggers: [],
  },
];

for (const role of roles) {
  t.test(`a foreign database, as ${role.name}`, async (t) => {
    const url = await role.url();
    const before = await withSql(url, takeFingerprint);
    t.ok(before.length > 100, `${before.length} facts about the database`);
    const service = await startTestService({ databaseUrl: url, SCHEMA_POLL_INTERVAL: role.poll });

    const tables = await withSql(url, listTables);
    t.ok(tables.filter((table) => table.keys.length === 1).length > 20, 'many tables can be served');
    for (const table of tables) {
      const path = `/items/${encodeURIComponent(table.name)}`;
      const list = await get(service, `${path}?limit=-1`);
      const reason = SPECIAL.get(table.name);
      if (reason) {
        t.match(list, refusal(reason), `${table.name} is refused`);
        t.match(await get(service, `${path}/1`), refusal(reason));
        continue;
      }
      t.equal(list.status, 200, `${table.name}: ${list.text.slice(0, 200)}`);
      if (table.keys.length === 0) {
        t.match(await get(service, `${path}/1`), { status: 403, text: /has no key/ }, `${table.name} has no key`);
        continue;
      }
      t.strictSame(keysOf(list, table.keys), [...table.values].sort(), `${table.name} shows all its rows`);
      for (const value of table.values.filter((each) => each !== '')) {
        const item = await get(service, `${path}/${encodeURIComponent(value)}`);
        t.match(item, { status: 200 }, `${table.name}/${value}`);
        t.equal(keyOf((item.json as { data: Record<string, unknown> }).data, table.keys), value);
      }
    }
    t.strictSame(await withSql(url, takeFingerprint), before, 'nothing has changed but what is ours');
    t.strictSame(await withSql(url, listEventTriggers), role.eventTriggers);

    await t.test('values arrive as clients expect them', async (t) => showsValues(t, service));
    await t.test('relations work without metadata', async (t) => followsReferences(t, service));
    await t.test('a table made later by plain SQL appears, changes and goes', async (t) => {
      const answers = async (path: string, status: number): Promise<boolean> =>
        (await get(service, path)).status === status;
      // What a question takes on a machine that is busy with other things is not what this is about.
      const asked = performance.now();
      for (let turn = 0; turn < 3; turn++) await answers('/items/latecomer', 403);
      const limit = role.appearsWithin + 3 * (performance.now() - asked);
      await withSql(url, (sql) => sql`create table latecomer (id integer primary key, note text)`);
      const milliseconds = await waitFor(() => answers('/items/latecomer', 200), limit);
      t.ok(milliseconds <= limit, `after ${Math.round(milliseconds)} ms`);
      await withSql(url, (sql) => sql`alter table latecomer add column more text default 'm'`);
      await waitFor(() => answers('/items/latecomer?fields=more', 200), limit);
      await withSql(url, (sql) => sql`drop table latecomer`);
      await waitFor(() => answers('/items/latecomer', 403), limit);
    });
    await t.test('a view has items once its key is declared', async (t) => {
      await withSql(
        url,
        (sql) => sql`insert into service_collections (collection, primary_key) values ('declared_view', 'item')`,
      );
      await waitFor(async () => (await get(service, '/items/declared_view/2')).status === 200, role.appearsWithin);
      t.match((await get(service, '/items/declared_view/2')).json, { data: { item: 2, label: 'two', double_id: 4 } });
    });
    await service.stop();
    t.strictSame(await withSql(url, takeFingerprint), before, 'nor after all of this');
    await withSql(url, (sql) => sql`update key_none set amount = 2 where amount = 1`);
    t.notSame(await withSql(url, takeFingerprint), before, 'a single value would have been noticed');
  });
}

async function showsValues(t: Test, service: { url: string }): Promise<void> {
  const { json } = await get(service, '/items/everything/1');
  t.match(json, {
    data: {
      id: 1,
      small_number: 7,
      big_number: '9007199254740993',
      exact: '1.50',
      flag: true,
      limited: "it's",
      prose: 'back\\slash',
      day: '2020-02-29',
      document: { a: [1, null] },
      binary_document: [],
      feeling: 'ok',
      country: 'NO',
      tagged: ['a', null, 'b c'],
      grid: [
        [1, 2],
        [3, null],
      ],
      joined: 'back\\slash!',
    },
  });
  const names = await get(service, '/items/Mixed%20Case/1');
  t.strictSame(names.json, {
    data: {
      Id: 1,
      camelCase: 'a',
      'with space': 'b',
      'dot.ted': 'c',
      'sla/sh': 'd',
      'quo"te': 'e',
      'per%cent': 'f',
      'ünïcode 漢字': 'g',
      'comma,colon:': 'h',
      $dollar: 'i',
      _under: 'j',
      '1digit': 'k',
    },
  });
  const slash = await get(service, `/items/key_text/${encodeURIComponent('a/b')}`);
  t.strictSame(slash.json, { data: { code: 'a/b', label: 'slash' } });
}

async function followsReferences(t: Test, service: { url: string }): Promise<void> {
  const messages = await get(service, '/items/messages?fields=id,sender.name,receiver.manager.name&sort=id');
  t.strictSame(messages.json, {
    data: [
      { id: 1, sender: { name: 'Root' }, receiver: { manager: { name: 'Root' } } },
      { id: 2, sender: { name: 'Root' }, receiver: { manager: null } },
      { id: 3, sender: { name: 'Child' }, receiver: null },
    ],
  });
  const reserved = await get(service, '/items/select?fields=user,group.order&sort=-user');
  t.match(reserved.json, {
    data: [
      { user: 2, group: { order: 'desc' } },
      { user: 1, group: null },
    ],
  });
  const part = await get(service, '/items/measurement_notes/1?fields=measurement.amount');
  t.match(part, { status: 200 }, 'into a partitioned table');
}

interface Table {
  readonly name: string;
  readonly kind: string;
  readonly keys: readonly string[];
  /** The keys of its rows as text. */
  readonly values: readonly string[];
}

/** What a client could ask for, by the catalogs: tables and views of the schema that are no parts of other tables. */
async function listTables(sql: Sql): Promise<Table[]> {
  const rows = await sql<Omit<Table, 'values'>[]>`
    select class.relname::text as name, class.relkind::text as kind,
      array(
        select attribute.attname::text
        from pg_index index
        join pg_attribute attribute on attribute.attrelid = index.indrelid and attribute.attnum = any (index.indkey)
        where index.indrelid = class.oid and index.indisprimary
        order by array_position(index.indkey::int2[], attribute.attnum)
      ) as keys
    from pg_class class
    where class.relnamespace = 'public'::regnamespace and class.relkind in ('r', 'p', 'v', 'm')
      and not class.relispartition and not starts_with(class.relname, 'service_')
    order by 1`;
  const tables: Table[] = [];
  for (const row of rows) {
    if (row.keys.length === 0) tables.push({ ...row, values: [] });
    else {
      const parts = row.keys.map((key) => kernel`${identifier(key)}::text`);
      const keys = kernel`select concat_ws('~', ${join(parts, kernel`, `)}) as value from ${identifier('public', row.name)}`;
      const found = await sql.unsafe<{ value: string }[]>(statement(keys).text);
      tables.push({ ...row, values: found.map(({ value }) => value) });
    }
  }
  return tables;
}

function refusal(reason: RegExp): { status: number; json: unknown } {
  return { status: 403, json: { errors: [{ message: reason, extensions: { code: 'FORBIDDEN', reason } }] } };
}

function keysOf(list: Answer, names: readonly string[]): string[] {
  const { data } = list.json as { data: Record<string, unknown>[] };
  return data.map((row) => keyOf(row, names)).sort();
}

function keyOf(row: Readonly<Record<string, unknown>>, names: readonly string[]): string {
  return names.map((name) => String(row[name])).join('~');
}

async function listEventTriggers(sql: Sql): Promise<string[]> {
  return (await sql`select evtname from pg_event_trigger order by 1`).map((row) => String(row['evtname']));
}

/** Every fact about the database that is not about a service_* object, one per line, rows included. */
async function takeFingerprint(sql: Sql): Promise<string[]> {
  const facts = await sql<{ fact: string }[]>`
    with spaces as (
      select oid, nspname from pg_namespace where nspname !~ '^(pg_|information_schema)'
    ), relations as (
      select class.*, nspname || '.' || relname as name
      from pg_class class join spaces on spaces.oid = class.relnamespace
      where relname !~ '^service_' and relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'c')
    )
    select concat_ws('|', 'schema', nspname, namespace.nspacl, namespace.nspowner::regrole) as fact
    from spaces join pg_namespace namespace using (oid, nspname)
    union all
    select concat_ws('|', 'relation', name, relkind, relpersistence, relowner::regrole, relacl, reloptions, relrowsecurity,
      relforcerowsecurity, relreplident, relispartition, obj_description(oid, 'pg_class'))
    from relations
    union all
    select concat_ws('|', 'column', name, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
      attgenerated, attcollation, attstorage, attacl, attoptions, attisdropped, pg_get_expr(adbin, adrelid),
      col_description(relations.oid, attnum))
    from relations
    join pg_attribute on attrelid = relations.oid and attnum > 0
    left join pg_attrdef on adrelid = attrelid and adnum = attnum
    union all
    select concat_ws('|', 'constraint', name, conname, convalidated, pg_get_constraintdef(pg_constraint.oid))
    from relations join pg_constraint on conrelid = relations.oid
    union all
    select concat_ws('|', 'index', name, pg_get_indexdef(indexrelid), indisvalid, indisclustered)
    from relations join pg_index on indrelid = relations.oid
    union all
    select concat_ws('|', 'trigger', name, tgname, tgenabled, case when not tgisinternal then pg_get_triggerdef(pg_trigger.oid) end)
    from relations join pg_trigger on tgrelid = relations.oid
    union all
    select concat_ws('|', 'rule', name, pg_get_ruledef(pg_rewrite.oid))
    from relations join pg_rewrite on ev_class = relations.oid
    union all
    select concat_ws('|', 'policy', name, polname, pg_get_expr(polqual, polrelid))
    from relations join pg_policy on polrelid = relations.oid
    union all
    select concat_ws('|', 'parent', name, inhparent::regclass)
    from relations join pg_inherits on inhrelid = relations.oid
    union all
    select concat_ws('|', 'function', nspname, proname, proowner::regrole, proacl, pg_get_functiondef(pg_proc.oid))
    from spaces join pg_proc on pronamespace = spaces.oid
    where proname !~ '^service_' and prokind in ('f', 'p')
    union all
    select concat_ws('|', 'type', nspname, typname, typtype, format_type(typbasetype, typtypmod), typnotnull, typdefault,
      (select array_agg(enumlabel order by enumsortorder) from pg_enum where enumtypid = pg_type.oid),
      (select array_agg(pg_get_constraintdef(oid) order by oid) from pg_constraint where contypid = pg_type.oid))
    from spaces join pg_type on typnamespace = spaces.oid
    where typtype in ('e', 'd', 'r') and typname !~ '^service_'
    union all
    select concat_ws('|', 'sequence', schemaname, sequencename, data_type, start_value, min_value, max_value, increment_by,
      cycle, cache_size, last_value)
    from pg_sequences where sequencename !~ '^service_'
    union all
    select concat_ws('|', 'extension', extname, extversion) from pg_extension
    union all
    select concat_ws('|', 'event trigger', evtname, evtenabled) from pg_event_trigger where evtname !~ '^service_'
    union all
    select concat_ws('|', 'publication', pubname) from pg_publication
    union all
    select concat_ws('|', 'setting', setrole, setconfig) from pg_db_role_setting
    union all
    select concat_ws('|', 'default privileges', defaclrole, defaclobjtype, defaclacl) from pg_default_acl
    order by 1`;
  const tables = await sql<{ space: string; name: string }[]>`
    select schemaname as space, tablename as name from pg_tables
    where schemaname !~ '^(pg_|information_schema)' and tablename !~ '^service_' order by 1, 2`;
  const lines = facts.map(({ fact }) => fact);
  for (const { space, name } of tables) {
    const rows = kernel`select ${alias('t')}::text as row from ${identifier(space, name)} ${alias('t')} order by 1`;
    const content = await sql.unsafe<{ row: string }[]>(statement(rows).text);
    lines.push(...content.map(({ row }) => `row|${space}.${name}|${row}`));
  }
  return lines;
}
