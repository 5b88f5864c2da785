/**
 * Where the service's own tables are, and what else may be called like them: users' tables whose names begin like ours, names
 * that are taken, a schema that was asked for, starts that fail, and installations that earlier versions made.
 */
import t from 'tap';
import { features } from '../../../src/app/features.js';
import { openTables } from '../../../src/server/feature/tables.js';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  request,
  type Sql,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase({ own: true });

type Service = Awaited<ReturnType<typeof startTestService>>;

async function send(service: Service, method: string, path: string, body: unknown, token?: string): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { headers, body: JSON.stringify(body), ...(token ? { token } : {}) });
}

/** Schema and name of every table that begins as ours do. */
async function tables(sql: Sql): Promise<string[]> {
  const rows = await sql`
    select schemaname || '.' || tablename as name from pg_tables where tablename like 'service%' order by 1`;
  return rows.map(({ name }) => name);
}

t.test('tables whose names begin like ours are served like all others', async (t) => {
  const url = await createDatabase(server, 'alike');
  await withSql(url, (sql) =>
    sql.unsafe(`
    create table service_orders (id serial primary key, title text not null);
    create table service_desks (id serial primary key, "order" integer references service_orders);
    insert into service_orders (title) values ('first')`),
  );
  const service = await startTestService({ databaseUrl: url });
  t.match(await get(service, '/items/service_orders'), { status: 200, json: { data: [{ id: 1, title: 'first' }] } });
  t.match(await send(service, 'POST', '/items/service_desks', { order: { title: 'second' } }), { status: 200 });
  t.match(await get(service, '/items/service_desks?fields=order.title'), {
    json: { data: [{ order: { title: 'second' } }] },
  });
  const document = { query: '{ service_orders(sort: "id") { title } }' };
  t.match(await send(service, 'POST', '/graphql', document), {
    json: { data: { service_orders: [{ title: 'first' }, { title: 'second' }] } },
  });
  t.match(await send(service, 'PATCH', '/collections/service_orders', { meta: { note: 'ordered' } }), { status: 200 });
  t.match(await send(service, 'POST', '/fields/service_orders', { field: 'more', type: 'string' }), { status: 200 });
  t.match(await get(service, '/items/service_users'), { status: 403 });
  t.match(await get(service, '/items/service_schema'), { status: 403 });
  t.match(await get(service, '/users?fields=email'), { json: { data: [{ email: 'admin@example.com' }] } });
  const snapshot = await get(service, '/schema/snapshot');
  t.match(JSON.stringify(snapshot.json), /"collection":"service_orders"/);
  const { data } = snapshot.json as { data: unknown };
  t.match(
    await send(service, 'POST', '/schema/diff', data),
    { status: 204 },
    'a snapshot holds them, and no difference',
  );
});

t.test('a database with a table of our name is served, with our tables in a schema of their own', async (t) => {
  const url = await createDatabase(server, 'taken');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql.unsafe(`
    create table service_users (id serial primary key, login text not null unique);
    create table service_desks (id serial primary key, agent integer references service_users);
    insert into service_users (login) values ('ada'), ('bob');
    insert into service_desks (agent) values (2)`);
  const before = await tables(sql);
  const service = await startTestService({ databaseUrl: url });
  const made = (await tables(sql)).filter((name) => !before.includes(name));
  t.ok(made.length > 10 && made.every((name) => name.startsWith('lateral.')), 'nothing of ours is beside them');

  t.match(await get(service, '/items/public_service_users?sort=id'), {
    status: 200,
    json: {
      data: [
        { id: 1, login: 'ada' },
        { id: 2, login: 'bob' },
      ],
    },
  });
  t.match(await get(service, '/items/service_desks?fields=agent.login'), {
    json: { data: [{ agent: { login: 'bob' } }] },
  });
  t.match(await get(service, '/items/service_users'), { status: 403 });
  t.match(await get(service, '/collections/public_service_users'), {
    json: { data: { schema: { schema: 'public', name: 'service_users' } } },
  });
  const document = { query: '{ service_desks { agent { login } } public_service_users_aggregated { count { id } } }' };
  t.match(await send(service, 'POST', '/graphql', document), {
    json: { data: { service_desks: [{ agent: { login: 'bob' } }] } },
  });
  t.match(await send(service, 'POST', '/items/public_service_users', { login: 'ada' }), {
    status: 400,
    json: { errors: [{ extensions: { collection: 'public_service_users', field: 'login', type: 'unique' } }] },
  });
  t.match(await send(service, 'PATCH', '/items/public_service_users/2', { login: 'Bob' }), {
    status: 200,
    json: { data: { login: 'Bob' } },
  });
  t.match(await send(service, 'PATCH', '/items/public_service_users/9', { login: 'x' }), { status: 403 });

  t.test('the schema of both can be changed', async (t) => {
    const score = { field: 'score', type: 'integer', schema: { is_indexed: true } };
    t.match(await send(service, 'POST', '/fields/public_service_users', score), { status: 200 });
    t.match(await send(service, 'PATCH', '/fields/public_service_users/score', { schema: { is_indexed: false } }), {
      status: 200,
    });
    t.match(await send(service, 'POST', '/fields/service_users', { field: 'desk', type: 'integer' }), { status: 200 });
    const relation = { collection: 'service_users', field: 'desk', related_collection: 'service_desks' };
    t.match(await send(service, 'POST', '/relations', relation), { status: 200 });
    const index = { schema: { is_indexed: true } };
    t.match(await send(service, 'PATCH', '/fields/service_users/email', index), { status: 200 });
    t.match(await send(service, 'PATCH', '/fields/service_users/email', { schema: { is_indexed: false } }), {
      status: 200,
    });
    const owner = { field: 'owner', type: 'uuid' };
    t.match(await send(service, 'POST', '/fields/service_desks', owner), { status: 200 });
    const owned = { collection: 'service_desks', field: 'owner', related_collection: 'service_users' };
    t.match(await send(service, 'POST', '/relations', { ...owned, meta: { one_field: 'desks' } }), { status: 200 });
    const [admin] = await sql`update "lateral".service_users set desk = 1 returning id`;
    t.match(await send(service, 'PATCH', '/items/service_desks/1', { owner: admin?.['id'] }), { status: 200 });
    t.match(await get(service, '/items/service_desks?fields=owner.email'), {
      json: { data: [{ owner: { email: 'admin@example.com' } }] },
    });
    t.match(await get(service, '/users?fields=email,desk.agent.login,desks.id'), {
      json: { data: [{ email: 'admin@example.com', desk: { agent: { login: 'Bob' } }, desks: [{ id: 1 }] }] },
    });
    const { json } = await get(service, '/schema/snapshot');
    t.match(await send(service, 'POST', '/schema/diff', (json as { data: unknown }).data), { status: 204 });
  });

  t.test('logins, rights and word of changes work as ever', async (t) => {
    await sql`set search_path = "lateral"`;
    const caller = await makeCaller(sql, 'reader', [
      { permissions: [{ collection: 'public_service_users', action: 'read', fields: ['login'] }] },
    ]);
    await sql`set search_path = public`;
    const { token } = caller;
    await waitFor(async () => (await get(service, '/items/public_service_users', { token })).status === 200, 10_000);
    t.match(await get(service, '/items/public_service_users?sort=login', { token }), {
      json: { data: [{ login: 'Bob', id: undefined }, { login: 'ada' }] },
    });
    t.match(await get(service, '/items/service_desks', { token }), { status: 403 });
    await sql`delete from "lateral".service_permissions`;
    await waitFor(async () => (await get(service, '/items/public_service_users', { token })).status === 403, 10_000);
    await sql`update "lateral".service_users set status = 'suspended' where id = ${caller.user}`;
    await waitFor(async () => (await get(service, '/users/me', { token })).status === 401, 10_000);
    await sql`alter table service_users add column seen text default 'yes'`;
    await waitFor(async () => (await get(service, '/items/public_service_users?fields=seen')).status === 200, 10_000);

    const made = { email: 'cy@example.com', password: 'a long password' };
    t.match(await send(service, 'POST', '/users', made), { status: 200 });
    const login = await send(service, 'POST', '/auth/login', made);
    t.match(login, { status: 200, json: { data: { access_token: String, refresh_token: String } } });
    const { refresh_token } = (login.json as { data: { refresh_token: string } }).data;
    t.match(await send(service, 'POST', '/auth/refresh', { refresh_token, mode: 'json' }), { status: 200 });
    t.match(await send(service, 'POST', '/auth/login', { ...made, password: 'a wrong one' }), { status: 401 });
    await sql`update service_desks set owner = null`;
    const [admin] = await sql`select id from "lateral".service_users where email = 'admin@example.com'`;
    t.match(
      await request(service, 'DELETE', `/users/${admin?.['id']}`),
      { status: 422 },
      'the last administrator stays',
    );
    t.match(await get(service, '/server/info'), { status: 200 });
    const again = { 'content-type': 'application/json', 'idempotency-key': 'once' };
    const body = JSON.stringify({ login: 'dan' });
    const first = await request(service, 'POST', '/items/public_service_users', { headers: again, body });
    const second = await request(service, 'POST', '/items/public_service_users', { headers: again, body });
    t.match([first.status, second.text], [200, first.text]);
  });

  t.test('a second start finds them, also in several threads', async (t) => {
    const next = await startTestService({ databaseUrl: url, WORKERS: '2' });
    t.equal(next.administrator, null);
    t.match(await get(next, '/items/public_service_users/1'), { json: { data: { login: 'ada' } } });
    t.match(await send(next, 'PATCH', '/items/public_service_users/1', { login: 'Ada' }), { status: 200 });
    await t.rejects(startTestService({ databaseUrl: url, SYSTEM_SCHEMA: 'elsewhere' }), {
      name: 'StartError',
      message: /for schema "public" are already in schema "lateral"/,
    });
  });

  t.test('a table of another schema finds no room in it, and says so', async (t) => {
    await sql.unsafe('create schema other; create table other.service_roles (id integer primary key)');
    await t.rejects(startTestService({ databaseUrl: url, DATABASE_SCHEMA: 'other' }), {
      name: 'StartError',
      message: /schema "lateral": relation "service_migrations" already exists.* SYSTEM_SCHEMA/,
    });
    const other = await startTestService({ databaseUrl: url, DATABASE_SCHEMA: 'other', SYSTEM_SCHEMA: 'other_system' });
    t.match(await get(other, '/items/other_service_roles'), { status: 200, json: { data: [] } });
    t.match(await get(service, '/items/public_service_users/1'), { status: 200 });
  });
});

t.test('a schema that was asked for is made', async (t) => {
  const url = await createDatabase(server, 'asked');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql`create table things (id serial primary key, name text)`;
  const service = await startTestService({ databaseUrl: url, SYSTEM_SCHEMA: 'Own "place"' });
  t.ok((await tables(sql)).every((name) => name.startsWith('Own "place".')));
  t.match(await send(service, 'POST', '/items/things', { name: 'one' }), { status: 200 });
  await service.stop();
  const next = await startTestService({ databaseUrl: url });
  t.equal(next.administrator, null, 'found again without being asked for');
  t.match(await get(next, '/items/things'), { json: { data: [{ name: 'one' }] } });
});

t.test('tables of a role that the service does not trust are neither read nor adopted', async (t) => {
  const url = await createDatabase(server, 'tenants');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  const list = 'create table service_migrations (name text primary key, applied_at timestamptz not null default now())';
  await sql.unsafe(`
    create role tenant;
    create table things (id serial primary key);
    create schema trap authorization tenant;
    create schema claim authorization tenant;
    create table public.calls (role text);
    grant insert on calls to public;
    set role tenant;
    set search_path = trap;
    ${list};
    insert into service_migrations (name) values ('001_metadata.sql');
    create function called() returns text language sql volatile set search_path = public
      as 'insert into calls values (current_user) returning ''public''';
    create view service_schema as select called() as mirrors;
    set search_path = claim;
    ${list};
    insert into service_migrations (name) values ('001_metadata.sql'), ('003_watch.sql');
    create table service_schema (mirrors text);
    insert into service_schema values ('public');
    reset role;
    reset search_path`);
  const before = await tables(sql);
  const service = await startTestService({ databaseUrl: url });
  t.strictSame([...(await sql`select role from calls`)], [], 'no function of the tenant ran');
  t.match(await get(service, '/items/things'), { status: 200, json: { data: [] } });
  const made = (await tables(sql)).filter((name) => !before.includes(name));
  t.ok(made.includes('public.service_users') && made.every((name) => name.startsWith('public.')));
  t.strictSame([...(await sql`select name from claim.service_migrations`)].length, 2, 'the claim is left as it was');
  await service.stop();

  await t.rejects(startTestService({ databaseUrl: url, SYSTEM_SCHEMA: 'trap' }), { name: 'StartError' });
  t.strictSame([...(await sql`select role from calls`)], [], 'no view is read either where it was asked for');
});

t.test('tables of another owner are found where the configuration names their schema', async (t) => {
  const url = await createDatabase(server, 'owned');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql`create table things (id serial primary key)`;
  await (await startTestService({ databaseUrl: url, SYSTEM_SCHEMA: 'kept' })).stop();
  const give = (role: string): Promise<unknown> =>
    sql.unsafe(`do $$ declare name text; begin
      for name in select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'kept' loop
        execute format('alter table %s owner to ${role}', name);
      end loop;
    end $$`);
  await sql`create role keeper`;
  await give('keeper');
  const named = await startTestService({ databaseUrl: url, SYSTEM_SCHEMA: 'kept' });
  t.equal(named.administrator, null);
  await named.stop();
  await sql`grant keeper to current_user`;
  const member = await startTestService({ databaseUrl: url });
  t.equal(member.administrator, null, 'and everywhere, if the role is a member of the owner');
  t.notOk((await tables(sql)).some((name) => name.startsWith('public.')));
});

t.test('a start that fails leaves nothing behind', async (t) => {
  const url = await createDatabase(server, 'failing');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql.unsafe(`
    create table service_users (id integer primary key);
    create schema "lateral";
    create table "lateral".service_revisions (id integer primary key)`);
  const before = await tables(sql);
  await t.rejects(startTestService({ databaseUrl: url }), { name: 'StartError', message: /"service_revisions"/ });
  await t.rejects(startTestService({ databaseUrl: url, SYSTEM_SCHEMA: 'public' }), { name: 'StartError' });
  t.strictSame(await tables(sql), before);
  const [row] = await sql`
    select (select count(*) from pg_event_trigger)::int as triggers,
      (select count(*) from pg_proc where proname like 'service%')::int as functions`;
  t.strictSame(row, { triggers: 0, functions: 0 });
});

t.test('objects of earlier versions are used as they are', async (t) => {
  const url = await createDatabase(server, 'earlier');
  await withSql(url, async (sql) => {
    await asEarlier(sql, 8);
    await sql`create table service_orders (id serial primary key)`;
    await sql`insert into service_users (email, first_name) values ('old@example.com', 'Old')`;
  });
  const service = await startTestService({ databaseUrl: url, ADMIN_EMAIL: 'new@example.com' });
  t.equal(service.administrator, null);
  const names = await withSql(url, tables);
  t.ok(names.includes('public.service_users') && names.every((name) => name.startsWith('public.')));
  t.match(await get(service, '/items/service_orders', { token: null }), { status: 403 });
});

t.test('the remains of a failed start of an earlier version are removed', async (t) => {
  const url = databaseUrl(server, 'leftover');
  await createDatabase(server, 'leftover');
  await withSql(url, async (sql) => {
    await sql`create table service_users (id serial primary key, login text)`;
    await asEarlier(sql, 1);
  });
  const service = await startTestService({ databaseUrl: url });
  t.match(await get(service, '/items/public_service_users'), { status: 200, json: { data: [] } });
  const names = await withSql(url, tables);
  t.strictSame(
    names.filter((name) => name.startsWith('public.')),
    ['public.service_users'],
  );
});

/** The first migrations, one by one, as versions did that knew no other schema than the one they mirrored. */
async function asEarlier(sql: Sql, count: number): Promise<void> {
  await sql`create table service_migrations (name text primary key, applied_at timestamptz not null default now())`;
  for (const { name, text } of openTables(features).migrations.slice(0, count)) {
    await sql.unsafe(text).simple();
    await sql`insert into service_migrations (name) values (${name})`;
  }
}
