/**
 * Every statement of every change of the schema fails in turn: by a constraint, by a right that is missing, by the death
 * of its backend, and at last in the commit. The catalogs and the metadata are then what they were before.
 */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  databaseUrl as urlOf,
} from '../../support/service.js';

t.setTimeout(110_000);

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'faults_of_structure');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

/** Counts the statements of a transaction of the service, and ends the one whose turn it is. */
await sql.unsafe(`
  create schema fault;
  create table fault.control (step integer, manner text);
  insert into fault.control values (0, 'off');
  create function fault.strike() returns void language plpgsql as $$
  declare
    due fault.control;
    count integer := coalesce(nullif(current_setting('fault.count', true), ''), '0')::integer + 1;
  begin
    if not starts_with(current_setting('application_name'), 'lateral') then return; end if;
    perform set_config('fault.count', count::text, true);
    select * into due from fault.control;
    if due.manner = 'off' or due.step <> count then return; end if;
    case due.manner
      when 'constraint' then raise exception using errcode = '23505', message = 'struck', table = 'articles', column = 'title';
      when 'right' then raise exception using errcode = '42501', message = 'struck';
      when 'death' then
        perform pg_terminate_backend(pg_backend_pid());
        perform pg_sleep(10);
    end case;
  end $$;
  create function fault.on_definition() returns event_trigger language plpgsql as $$ begin perform fault.strike(); end $$;
  create function fault.on_row() returns trigger language plpgsql as $$
  begin
    -- What our own triggers do belongs to the statement that fired them.
    if pg_trigger_depth() = 1 then perform fault.strike(); end if;
    return null;
  end $$;
  create function fault.in_commit() returns trigger language plpgsql as $$
  begin
    if coalesce(current_setting('fault.committing', true), '') = '' then
      perform set_config('fault.committing', 'yes', true);
      perform fault.strike();
    end if;
    return null;
  end $$;
  create event trigger fault_definition on ddl_command_start
    when tag in ('CREATE TABLE', 'ALTER TABLE', 'DROP TABLE', 'CREATE INDEX', 'DROP INDEX', 'COMMENT', 'ALTER SEQUENCE', 'DROP SEQUENCE')
    execute function fault.on_definition();
  create trigger fault before insert or update or delete on service_collections for each statement execute function fault.on_row();
  create trigger fault before insert or update or delete on service_fields for each statement execute function fault.on_row();
  create trigger fault before insert or update or delete on service_relations for each statement execute function fault.on_row();
  create trigger fault before insert or update or delete on service_permissions for each statement execute function fault.on_row();
  create trigger fault before update on service_schema for each statement execute function fault.on_row();
  create constraint trigger fault_in_commit after update on service_schema deferrable initially deferred
    for each row execute function fault.in_commit();`);

const service = await startTestService({ databaseUrl });

async function send(method: string, path: string, body?: unknown, to = service): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(to, method, path, body === undefined ? {} : { headers, body: JSON.stringify(body) });
}

/** Everything that a change could touch, in an order of its own: tables, columns, defaults, constraints, indexes, sequences, comments, rows. */
async function everything(): Promise<string[]> {
  const rows = await sql<{ fact: string }[]>`
    with tables as (select * from pg_class where relnamespace = 'public'::regnamespace)
    select fact from (
      select concat_ws(' ', 'class', oid, relname, relkind, relowner, relacl, relnatts) as fact from tables
      union all select concat_ws(' ', 'column', attrelid, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, attacl)
        from pg_attribute join tables on tables.oid = attrelid where attnum > 0
      union all select concat_ws(' ', 'default', adrelid, adnum, pg_get_expr(adbin, adrelid)) from pg_attrdef join tables on tables.oid = adrelid
      union all select concat_ws(' ', 'constraint', oid, conrelid, conname, pg_get_constraintdef(oid))
        from pg_constraint where connamespace = 'public'::regnamespace
      union all select concat_ws(' ', 'index', indexrelid, pg_get_indexdef(indexrelid)) from pg_index join tables on tables.oid = indrelid
      union all select concat_ws(' ', 'sequence', seqrelid, seqtypid, seqstart, seqincrement, seqmax, seqmin) from pg_sequence
      union all select concat_ws(' ', 'comment', objoid, objsubid, description) from pg_description join tables on tables.oid = objoid
      union all select concat_ws(' ', 'trigger', pg_trigger.oid, tgrelid, tgname) from pg_trigger join tables on tables.oid = tgrelid
      union all select concat_ws(' ', 'collection', to_json(r)) from service_collections r
      union all select concat_ws(' ', 'field', to_json(r)) from service_fields r
      union all select concat_ws(' ', 'relation', to_json(r)) from service_relations r
      union all select concat_ws(' ', 'permission', to_json(r)) from service_permissions r
      union all select concat_ws(' ', 'version', to_json(r)) from service_schema r
    ) facts order by fact`;
  return rows.map(({ fact }) => fact);
}

interface Operation {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  /** Fewer would mean that the strikes missed. */
  readonly steps: number;
}

/** In an order in which each finds what it needs. */
const OPERATIONS: readonly Operation[] = [
  {
    name: 'create a collection',
    method: 'POST',
    path: '/collections',
    body: {
      collection: 'struck',
      schema: { comment: 'A table' },
      meta: { icon: 'bolt', sort_field: 'rank' },
      fields: [
        { field: 'code', type: 'string', schema: { is_unique: true, comment: 'A code' }, meta: {} },
        { field: 'rank', type: 'integer', schema: { is_indexed: true, default_value: 1 } },
        { field: 'shadow', type: 'alias', meta: { special: 'no-data' } },
      ],
    },
    steps: 9,
  },
  { name: 'create a folder', method: 'POST', path: '/collections', body: { collection: 'struck_folder' }, steps: 3 },
  {
    name: 'change a collection',
    method: 'PATCH',
    path: '/collections/struck',
    body: { meta: { group: 'struck_folder' } },
    steps: 3,
  },
  {
    name: 'create a field',
    method: 'POST',
    path: '/fields/struck',
    body: {
      field: 'amount',
      type: 'integer',
      schema: { is_unique: true, is_indexed: true, comment: 'How much', default_value: 5 },
      meta: { note: 'amount' },
    },
    steps: 7,
  },
  {
    name: 'change a field',
    method: 'PATCH',
    path: '/fields/struck/amount',
    body: {
      type: 'string',
      schema: { default_value: 'x', is_nullable: false, is_unique: false, is_indexed: false, comment: null },
      meta: { note: 'changed' },
    },
    steps: 10,
  },
  {
    name: 'change two fields',
    method: 'PATCH',
    path: '/fields/struck',
    body: [
      { field: 'amount', type: 'text', meta: { sort: 9 } },
      { field: 'rank', schema: { has_auto_increment: true }, meta: { sort: 8 } },
    ],
    steps: 9,
  },
  {
    name: 'create a field for a relation',
    method: 'POST',
    path: '/fields/struck',
    body: { field: 'article', type: 'integer', meta: { special: ['m2o'] } },
    steps: 4,
  },
  {
    name: 'create a relation',
    method: 'POST',
    path: '/relations',
    body: { collection: 'struck', field: 'article', related_collection: 'articles', meta: { one_field: 'strikes' } },
    steps: 4,
  },
  {
    name: 'change a relation',
    method: 'PATCH',
    path: '/relations/struck/article',
    body: { schema: { on_delete: 'CASCADE' }, meta: { sort_field: 'rank' } },
    steps: 5,
  },
  { name: 'delete a field', method: 'DELETE', path: '/fields/struck/rank', steps: 12 },
  { name: 'delete a relation', method: 'DELETE', path: '/relations/struck/article', steps: 4 },
  { name: 'delete a folder', method: 'DELETE', path: '/collections/struck_folder', steps: 7 },
  { name: 'delete a collection', method: 'DELETE', path: '/collections/authors', steps: 20 },
];

const STATUSES = { constraint: 400, right: 403, death: 503 } as const;

for (const { name, method, path, body, steps } of OPERATIONS) {
  t.test(`${name}, struck at every step`, async (t) => {
    const before = await everything();
    for (let step = 1; ; step++) {
      for (const manner of ['constraint', 'right', 'death'] as const) {
        await sql`update fault.control set step = ${step}, manner = ${manner}`;
        const answer = await send(method, path, body);
        if (answer.status < 300) {
          t.equal(manner, 'constraint', 'a step fails in every manner');
          t.ok(step > steps, `${step - 1} steps`);
          t.notSame(await everything(), before, 'at last it is done');
          return;
        }
        t.equal(answer.status, STATUSES[manner], `step ${step}, ${manner}: ${answer.text.slice(0, 200)}`);
        t.strictSame(await everything(), before, `nothing is left of step ${step}`);
      }
    }
  });
}

t.test('rights that are really missing', async (t) => {
  await sql`update fault.control set manner = 'off'`;
  await sql.unsafe(`
    create role clerk login password 'clerk';
    grant create on schema public to clerk;
    grant all on all tables in schema public to clerk;
    grant all on all sequences in schema public to clerk;
    grant usage on schema fault to clerk;
    grant select on fault.control to clerk;
    create table owned (id serial primary key, name text);
    alter table owned owner to clerk;`);
  const clerk = await startTestService({
    databaseUrl: urlOf(server, 'faults_of_structure', { user: 'clerk', password: 'clerk' }),
  });
  t.equal((await send('POST', '/fields/owned', { field: 'mine', type: 'string', meta: {} }, clerk)).status, 200);
  await sql`revoke insert on service_fields from clerk`;
  const before = await everything();
  const refused = [
    await send('POST', '/fields/articles', { field: 'theirs', type: 'string' }, clerk),
    await send('DELETE', '/fields/articles/title', undefined, clerk),
    await send('POST', '/fields/owned', { field: 'other', type: 'string', meta: {} }, clerk),
    await send('PATCH', '/fields/owned/name', { type: 'string', meta: { note: 'x' } }, clerk),
    await send('POST', '/collections', { collection: 'new_one', schema: {} }, clerk),
  ];
  t.strictSame(
    refused.map(({ status }) => status),
    [403, 403, 403, 403, 403],
  );
  t.strictSame(await everything(), before);
});
