/** Functions that change the session they run in: the next caller gets the session as it was. */
import t from 'tap';
import { inForce, type MadeCaller, makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const url = await createDatabase(server, 'session_state');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create role auth_login login password 'secret' noinherit createrole;
  create role editor; create role member;
  grant editor, member to auth_login;
  create schema own authorization auth_login;
  grant usage on schema public to auth_login;
  grant usage on schema own to editor, member;
  grant usage on schema public to editor, member;
  create table notes (id serial primary key, tenant text, body text);
  grant all on notes to member, auth_login; grant usage on sequence notes_id_seq to member, auth_login;
  create function set_parameter(name text, value text) returns text language plpgsql as
    $$ begin return set_config(name, value, false); end $$;
  create function set_and_fail(name text, value text) returns text language plpgsql as
    $$ begin perform pg_advisory_lock(7), set_config(name, value, false); raise exception 'refused'; end $$;
  create function leave() returns void language plpgsql as
    $$ begin perform pg_advisory_lock(7); create temp table left_over (id int); end $$;
  create function tenant() returns text language sql volatile as $$ select current_setting('app.tenant', true) $$;
  create function state() returns jsonb language sql volatile as $$
    select jsonb_object_agg(name, setting) || jsonb_build_object('user', current_user, 'session', session_user,
      'tenant', nullif(current_setting('app.tenant', true), ''),
      'locks', (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
      'tables', (select count(*) from pg_class where relnamespace = pg_my_temp_schema()))
    from pg_settings where name !~ '^(transaction_|in_hot_standby)|[.]' $$;
  create function note_tenant() returns trigger language plpgsql as
    $$ begin update notes set tenant = current_user || ' ' || current_setting('app.tenant', true) where id = new.id; return null; end $$;
  create constraint trigger note_tenant after insert on notes deferrable initially deferred
    for each row execute function note_tenant();
  create function add_note(tenant text) returns integer language plpgsql as $$
    declare made integer;
    begin
      perform set_config('app.tenant', tenant, false);
      insert into notes (body) values ('x') returning id into made;
      return made;
    end $$;`);

const FUNCTIONS = ['set_parameter', 'set_and_fail', 'leave', 'tenant', 'state', 'add_note'];
const PARAMETERS = [
  ['app.tenant', 'secret'],
  ['default_transaction_read_only', 'on'],
  ['search_path', 'pg_catalog'],
  ['statement_timeout', '1'],
  ['role', 'editor'],
  ['TimeZone', 'Europe/Berlin'],
  ['DateStyle', 'German'],
  ['idle_in_transaction_session_timeout', '60000'],
] as const;

let ann: MadeCaller | null = null;

/** The tables of the service exist from its first start on. */
async function makeAnn(): Promise<MadeCaller> {
  await sql.unsafe('set search_path to own, public');
  for (const name of FUNCTIONS) await sql`insert into service_functions (name) values (${name})`;
  const permissions = [
    ...FUNCTIONS.map((collection) => ({ collection, action: 'execute' as const })),
    ...(['create', 'read'] as const).map((action) => ({ collection: 'notes', action })),
  ];
  const made = await makeCaller(sql, 'ann', [{ permissions, app_access: true }]);
  await sql`update service_roles set database_role = 'member' where id = ${made.role}`;
  return made;
}

for (const [mode, pooler] of [
  ['service', 'none'],
  ['claims', 'session'],
  ['role', 'none'],
  ['role', 'transaction'],
] as const)
  t.test(`DATABASE_CALLER=${mode} with DATABASE_POOLER=${pooler}`, async (t) => {
    const service = await startTestService({
      databaseUrl: databaseUrl(server, 'session_state', { user: 'auth_login', password: 'secret' }),
      DATABASE_CALLER: mode,
      DATABASE_POOLER: pooler,
      DATABASE_WRITE_POOL_SIZE: '1',
      SYSTEM_SCHEMA: 'own',
      WORKERS: '1',
    });
    ann ??= await makeAnn();
    const { token } = ann;
    await inForce(service, ann, '/items/notes');
    const call = (name: string, body: object, headers = {}): Promise<Answer> =>
      request(service, 'POST', `/rpc/${name}`, {
        token,
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      });
    const patch = (): Promise<Answer> =>
      request(service, 'PATCH', '/users/me', {
        token,
        headers: { 'content-type': 'application/json' },
        body: '{"title":"x"}',
      });
    const before = (await call('state', {})).json;
    t.match(before, { data: { tenant: null, locks: 0, tables: 0 } });
    for (const [name, value] of PARAMETERS) {
      const key = { 'idempotency-key': `${mode}-${pooler}-${name}` };
      for (const [how, headers] of [
        ['alone', {}],
        ['with a key', key],
      ] as const) {
        const set = await call('set_parameter', { name, value }, headers);
        t.equal(set.status, 200, `${name} ${how} ${set.text}`);
        t.strictSame((await call('state', {})).json, before, `${name} ${how}`);
        t.equal((await patch()).status, 200, `${name} ${how}`);
      }
      t.equal((await call('set_and_fail', { name, value })).status, 400);
      t.equal((await call('leave', {})).status, 200);
      t.strictSame((await call('state', {})).json, before, `${name} after a failure`);
    }
    const document = `mutation { set_parameter(name: "role", value: "editor") create_notes_item(data: { body: "mine" }) { id } }`;
    const together = await request(service, 'POST', '/graphql', {
      token,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query: document }),
    });
    t.match(together.json, { data: { set_parameter: 'editor' } }, together.text);
    t.notMatch(together.text, /errors/);
    t.strictSame((await call('state', {})).json, before, 'after a transaction');
    const [made] = [(await call('add_note', { tenant: 'late' })).json as { data: number }];
    const [note] = await sql`select tenant from public.notes where id = ${made.data}`;
    t.match(note?.['tenant'], / late$/, 'deferred triggers run with the settings of the call');
    t.match(note?.['tenant'], mode === 'role' ? /^member / : /^auth_login /);
    await service.stop();
  });
