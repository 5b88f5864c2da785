/** DATABASE_CALLER: row-level security, triggers and functions see the caller, on every path, and nothing of one caller reaches another. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import { inForce, type MadeCaller, makeCaller, makePolicy, type Permission } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import { EventStream } from '../../support/event-stream.js';
import { pgBouncerVersion, startPooler } from '../../support/pooler.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

/** CALLER_REQUESTS sets the number of mixed requests. */
const MIXED = Number(process.env['CALLER_REQUESTS'] ?? 120);
t.setTimeout(200_000 + MIXED * 60);

const LOGIN = { user: 'app', password: 'app' };
const COLLECTIONS = ['notes', 'teams', 'plain', 'own_notes', 'posts'] as const;
const PERMISSIONS: readonly Permission[] = [
  ...COLLECTIONS.flatMap((collection) =>
    (['read', 'create', 'update', 'delete'] as const).map((action) => ({ collection, action })),
  ),
  ...['whoami', 'my_notes', 'jot'].map((collection) => ({ collection, action: 'execute' as const })),
];

const server = await startDatabase({ own: true, settings: { wal_level: 'logical' } });
const url = await createDatabase(server, 'callers');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create role app login password 'app' replication;
  create role member; create role reader; create role anon;
  grant member, reader, anon to app;
  grant create on database callers to app;
  grant create, usage on schema public to app;
  set role app;
  create schema auth;
  grant usage on schema auth to public;
  create function auth.uid() returns uuid language sql stable
    as $$ select nullif(nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub', '')::uuid $$;
  create table teams (id integer primary key, name text, members uuid[] not null default '{}');
  create table notes (id serial primary key, owner uuid default auth.uid(), team integer references teams, body text, made_by text);
  create index on notes (owner);
  create table posts (id integer primary key, owner uuid default auth.uid(), body text);
  alter table posts enable row level security;
  alter table posts force row level security;
  create policy readable on posts for select using (true);
  create policy own_new on posts for insert with check (owner = (select auth.uid()));
  create table plain (id serial primary key, body text);
  create view own_notes with (security_invoker = false) as select id, body from notes where owner = auth.uid();
  alter table notes enable row level security;
  alter table notes force row level security;
  alter table teams enable row level security;
  alter table teams force row level security;
  create policy own on notes using (owner = (select auth.uid())) with check (owner = (select auth.uid()));
  create policy of_members on teams using ((select auth.uid()) = any (members));
  create function noted() returns trigger language plpgsql as $$
  begin
    new.made_by := concat_ws(' ', auth.uid(), current_user, current_setting('request.method', true),
      current_setting('request.path', true), current_setting('lateral.user', true));
    return new;
  end $$;
  create trigger noted before insert on notes for each row execute function noted();
  create function whoami() returns json language sql stable as $$
    select json_build_object('sub', auth.uid(), 'user', current_user, 'claims', nullif(current_setting('request.jwt.claims', true), '')::json,
      'method', current_setting('request.method', true), 'path', current_setting('request.path', true),
      'lateral', current_setting('lateral.user', true), 'role', current_setting('lateral.role', true)) $$;
  create function my_notes() returns setof notes language sql stable as $$ select * from notes $$;
  create function jot(text text) returns notes language sql volatile as $$ insert into notes (body) values (text) returning * $$;
  insert into plain (body) select 'plain ' || i from generate_series(1, 50) i;
  grant select, insert, update, delete on notes, teams, plain, own_notes to member;
  grant usage on sequence notes_id_seq, plain_id_seq to member;
  grant select (id, body, owner, team) on notes to reader;
  grant select on plain to anon;
  reset role`);

const callers: MadeCaller[] = [];
const claims = await launch({ DATABASE_CALLER: 'claims' });
await sql`insert into service_functions (name) values ('whoami'), ('my_notes'), ('jot')`;
await sql`
  insert into service_collections (collection, primary_key, accountability)
  values ('own_notes', 'id', null), ('notes', null, 'all'), ('teams', null, 'activity')`;
await sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values ('notes', 'team', 'teams', 'notes')`;
await sql`insert into service_fields (collection, field, special) values ('teams', 'notes', 'o2m')`;
for (const name of ['ann', 'bob', 'cid']) {
  const made = await makeCaller(sql, name, [{ permissions: PERMISSIONS }]);
  await sql`insert into teams (id, name, members) values (${callers.length + 1}, ${`team of ${name}`}, ${[made.user]})`;
  await sql`
    insert into notes (owner, team, body) select ${made.user}, ${callers.length + 1}, ${name} || ' ' || i from generate_series(1, 20) i`;
  callers.push(made);
}
const [ann, bob, cid] = callers as [MadeCaller, MadeCaller, MadeCaller];
await makePolicy(sql, 'public', { permissions: PERMISSIONS });
await waitFor(async () => (await get(claims, '/rpc/whoami', { token: null })).status === 200, 5_000);
for (const caller of callers) await inForce(claims, caller, '/items/notes');

function launch(
  options: Readonly<Record<string, string>>,
  at = databaseUrl(server, 'callers', LOGIN),
): Promise<Service> {
  return startTestService({ databaseUrl: at, WORKERS: '1', ...options });
}

const dataOf = ({ json }: Answer): unknown => (json as { data?: unknown }).data;
const bodiesOf = (answer: Answer): string[] => (dataOf(answer) as { body: string }[]).map(({ body }) => body);
const nameOf = (caller: MadeCaller): string => caller.token.slice('the-token-of-'.length);

function send(to: Service, caller: MadeCaller | null, method: string, path: string, body?: unknown): Promise<Answer> {
  const options: RequestOptions = { token: caller?.token ?? null, headers: { 'content-type': 'application/json' } };
  return request(to, method, path, body === undefined ? options : { ...options, body: JSON.stringify(body) });
}

async function noteOf(caller: MadeCaller): Promise<number> {
  const [row] = await sql`select min(id)::int as id from notes where owner = ${caller.user}`;
  return Number(row?.['id']);
}

t.test('claims: reads show the rows of the caller', async (t) => {
  for (const caller of callers) {
    const name = nameOf(caller);
    const list = await send(claims, caller, 'GET', '/items/notes?fields=body&limit=-1&meta=*');
    t.equal(bodiesOf(list).length, 20);
    t.ok(bodiesOf(list).every((body) => body.startsWith(`${name} `)));
    t.match(list.json, { meta: { total_count: 20, filter_count: 20 } });
    t.match(await send(claims, caller, 'GET', '/items/notes?aggregate[count]=*'), { json: { data: [{ count: 20 }] } });
    const nested = await send(claims, caller, 'GET', '/items/teams?fields=name,notes.body&deep[notes][_limit]=-1');
    t.match(dataOf(nested), [{ name: `team of ${name}` }]);
    t.equal((dataOf(nested) as { notes: unknown[] }[])[0]?.notes.length, 20);
    t.equal(bodiesOf(await send(claims, caller, 'GET', '/items/own_notes?limit=-1')).length, 20);
    t.equal(bodiesOf(await send(claims, caller, 'GET', '/rpc/my_notes?limit=-1')).length, 20);
    const query = '{ notes(limit: -1) { body team { name } } notes_aggregated { countAll } }';
    const answer = await send(claims, caller, 'POST', '/graphql', { query });
    t.match(answer.json, { data: { notes_aggregated: [{ countAll: 20 }] } });
    t.ok((dataOf(answer) as { notes: { body: string }[] }).notes.every(({ body }) => body.startsWith(name)));
    const csv = await send(claims, caller, 'GET', '/items/notes?fields=body&limit=-1&export=csv');
    t.equal(csv.text.trim().split('\n').length, 21);
    t.notMatch(
      csv.text,
      new RegExp(
        callers
          .filter((each) => each !== caller)
          .map(nameOf)
          .join('|'),
      ),
    );
  }
  t.match(await send(claims, null, 'GET', '/items/notes'), { status: 200, json: { data: [] } });
});

t.test('claims: a hidden row does not exist', async (t) => {
  const [own, other] = [await noteOf(ann), await noteOf(bob)];
  t.match(await send(claims, ann, 'GET', `/items/notes/${own}`), { status: 200, json: { data: { id: own } } });
  const missing = await send(claims, ann, 'GET', '/items/notes/999999');
  for (const method of ['GET', 'PATCH', 'DELETE']) {
    const body = method === 'PATCH' ? { body: 'stolen' } : undefined;
    const hidden = await send(claims, ann, method, `/items/notes/${other}`, body);
    const absent = await send(claims, ann, method, '/items/notes/999999', body);
    t.equal(hidden.status, 403, method);
    t.strictSame(hidden.json, absent.json, `${method}: as an item that is not there`);
  }
  t.equal(missing.status, 403);
  const many = { keys: [own, other], data: { body: 'both' } };
  t.equal((await send(claims, ann, 'PATCH', '/items/notes', many)).status, 403);
  const [row] = await sql`select body from notes where id = ${other}`;
  t.match(row, { body: /^bob / });
});

t.test('claims: an upsert that no policy lets change the row is refused', async (t) => {
  t.equal((await send(claims, ann, 'POST', '/items/posts?on_conflict=id', { id: 1, body: 'first' })).status, 200);
  for (const entries of [
    { id: 1, body: 'second' },
    [
      { id: 2, body: 'new' },
      { id: 1, body: 'second' },
    ],
  ]) {
    const refused = await send(claims, ann, 'POST', '/items/posts?on_conflict=id', entries);
    t.match(refused, { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } });
  }
  t.strictSame(
    [...(await sql`select id, body from posts`)].map((row) => ({ ...row })),
    [{ id: 1, body: 'first' }],
  );
});

t.test('claims: an upsert that meets a hidden row is refused like a change of it', async (t) => {
  const other = await noteOf(bob);
  const refused = await send(claims, ann, 'PATCH', `/items/notes/${other}`, { body: 'stolen' });
  for (const resolution of ['merge', 'ignore'])
    for (const entries of [{ id: other, body: 'stolen' }, [{ id: other, body: 'stolen' }]]) {
      const answer = await send(claims, ann, 'POST', `/items/notes?on_conflict=id&resolution=${resolution}`, entries);
      t.equal(answer.status, 403, `${resolution} ${answer.text}`);
      t.strictSame(answer.json, refused.json);
    }
  const [row] = await sql`select body from notes where id = ${other}`;
  t.match(row, { body: /^bob / });
});

t.test('claims: writes, triggers, defaults and functions see the caller', async (t) => {
  const made = await send(claims, ann, 'POST', '/items/notes', { body: 'ann new' });
  t.match(made, {
    status: 200,
    json: { data: { owner: ann.user, made_by: `${ann.user} app POST /items/notes ${ann.user}` } },
  });
  const { id } = dataOf(made) as { id: number };
  const stolen = await send(claims, ann, 'POST', '/items/notes', { body: 'ann for bob', owner: bob.user });
  t.match(stolen, { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } });
  t.notMatch(stolen.text, /policy|notes|row/);
  t.equal((await send(claims, ann, 'PATCH', `/items/notes/${id}`, { owner: bob.user })).status, 403);
  t.match(await send(claims, ann, 'PATCH', `/items/notes/${id}`, { body: 'ann changed' }), {
    json: { data: { body: 'ann changed' } },
  });
  const nested = { id: 11, name: 'two', members: [ann.user], notes: [{ body: 'ann nested' }] };
  t.match(await send(claims, ann, 'POST', '/items/teams?fields=notes.owner', nested), {
    json: { data: { notes: [{ owner: ann.user }] } },
  });
  const mutation = 'mutation { create_notes_item(data: { body: "ann by graphql" }) { owner made_by } }';
  t.match((await send(claims, ann, 'POST', '/graphql', { query: mutation })).json, {
    data: { create_notes_item: { owner: ann.user, made_by: `${ann.user} app POST /graphql ${ann.user}` } },
  });
  t.match(await send(claims, bob, 'POST', '/rpc/jot', { text: 'bob jotted' }), { json: { data: { owner: bob.user } } });
  const key = { 'idempotency-key': randomUUID() };
  for (const attempt of [1, 2]) {
    const headers = { 'content-type': 'application/json', ...key };
    const body = JSON.stringify({ body: 'ann once' });
    const answer = await request(claims, 'POST', '/items/notes', { token: ann.token, headers, body });
    t.match(answer, { status: 200, json: { data: { owner: ann.user } } }, `attempt ${attempt}`);
  }
  const file = JSON.stringify([{ body: 'ann imported' }, { body: 'ann imported too' }]);
  const imported = await request(claims, 'POST', '/utils/import/notes', {
    token: ann.token,
    headers: { 'content-type': 'application/json' },
    body: file,
  });
  t.equal(imported.status, 200, imported.text);
  const [count] =
    await sql`select count(*)::int as notes, count(distinct owner)::int as owners from notes where body like 'ann %'`;
  t.strictSame({ ...count }, { notes: 26, owners: 1 });
  const [logged] =
    await sql`select count(*)::int as lines from service_activity where collection = 'notes' and "user" = ${ann.user}`;
  t.equal(logged?.['lines'], 7, 'each write of the caller is logged once');
  t.equal((await send(claims, ann, 'DELETE', `/items/notes/${id}`)).status, 204);
});

t.test('claims: what the database learns', async (t) => {
  const { email } = (await sql`select email from service_users where id = ${ann.user}`)[0] as { email: string };
  t.match(dataOf(await send(claims, ann, 'GET', '/rpc/whoami')), {
    sub: ann.user,
    user: 'app',
    claims: { sub: ann.user, email },
    method: 'GET',
    path: '/rpc/whoami',
    lateral: ann.user,
    role: ann.role,
  });
  t.match(dataOf(await send(claims, null, 'GET', '/rpc/whoami')), { sub: null, claims: {}, lateral: '', role: '' });
  const viewed = await get(claims, '/items/notes?fields=body&limit=-1', {
    headers: { 'lateral-view-as': `user:${bob.user}` },
  });
  t.ok(bodiesOf(viewed).every((body) => body.startsWith('bob ')));
  const explained = await get(claims, '/items/notes', { headers: { prefer: 'explain' } });
  t.equal(explained.status, 200);
});

t.test('claims: a cost limit is checked with the settings of the caller', async (t) => {
  const limited = await launch({ DATABASE_CALLER: 'claims', MAX_QUERY_COST: '100000' });
  for (const caller of [ann, bob, ann])
    t.ok(
      bodiesOf(await send(limited, caller, 'GET', '/items/notes?fields=body&limit=-1')).every((body) =>
        body.startsWith(nameOf(caller)),
      ),
    );
});

t.test('claims: live queries and change events', async (t) => {
  const streams = callers.map(
    (caller) => new EventStream(claims, '/items/notes?fields=body&sort=-id&limit=1', { token: caller.token }),
  );
  t.teardown(() => {
    for (const stream of streams) stream.close();
  });
  for (const stream of streams) await stream.count(1);
  await send(claims, bob, 'POST', '/items/notes', { body: 'bob live' });
  await waitFor(async () => JSON.stringify(streams[1]?.last).includes('bob live'), 10_000);
  await send(claims, cid, 'POST', '/items/notes', { body: 'cid live' });
  await waitFor(async () => JSON.stringify(streams[2]?.last).includes('cid live'), 10_000);
  for (const [index, caller] of callers.entries())
    t.ok(
      streams[index]?.events.every(({ data }) =>
        JSON.parse(data).data.every(({ body }: { body: string }) => body.startsWith(nameOf(caller))),
      ),
    );
});

/** Reads and writes of all callers at the same time, on the same shapes: none sees another's row. */
async function mix(t: Tap, service: Service, count: number): Promise<void> {
  const keys = new Map<MadeCaller, number[]>();
  for (const caller of callers) {
    const rows = await sql<{ id: number }[]>`select id from notes where owner = ${caller.user} order by id limit 10`;
    keys.set(
      caller,
      rows.map(({ id }) => id),
    );
  }
  let [wrong, failed] = [0, 0];
  const check = (answer: Answer, expected: number, isRight: (text: string) => boolean): void => {
    if (answer.status !== expected) failed++;
    else if (!isRight(answer.text)) wrong++;
  };
  const one = async (index: number): Promise<void> => {
    const caller = callers[index % callers.length] as MadeCaller;
    const other = callers[(index + 1) % callers.length] as MadeCaller;
    const others = new RegExp(
      callers
        .filter((each) => each !== caller)
        .map((each) => `${nameOf(each)} `)
        .join('|'),
    );
    const isOwn = (text: string): boolean => !others.test(text) && text.includes(nameOf(caller));
    const own = keys.get(caller)?.[index % 10];
    switch (index % 7) {
      case 0:
        return check(await send(service, caller, 'GET', `/items/notes/${own}`), 200, isOwn);
      case 1:
        return check(
          await send(service, caller, 'GET', `/items/notes/${keys.get(other)?.[index % 10]}`),
          403,
          () => true,
        );
      case 2:
        return check(await send(service, caller, 'GET', '/items/notes?fields=body,team.name&limit=5'), 200, isOwn);
      case 3:
        return check(
          await send(service, caller, 'POST', '/graphql', { query: '{ notes(limit: 3) { body } }' }),
          200,
          isOwn,
        );
      case 4:
        return check(await send(service, caller, 'GET', '/rpc/whoami'), 200, (text) => text.includes(caller.user));
      case 5:
        return check(
          await send(service, caller, 'PATCH', `/items/notes/${own}`, { body: `${nameOf(caller)} ${index}` }),
          200,
          isOwn,
        );
      default:
        return check(await send(service, null, 'GET', '/items/plain?limit=2'), 200, (text) => text.includes('plain '));
    }
  };
  const next = Array.from({ length: count }, (_, index) => index).values();
  await Promise.all(
    Array.from({ length: 24 }, async () => {
      for (const index of next) await one(index);
    }),
  );
  t.strictSame({ wrong, failed }, { wrong: 0, failed: 0 });
  const [stolen] = await sql`
    select count(*)::int as rows from notes join service_users on service_users.id = owner where body not like first_name || ' %'`;
  t.equal(stolen?.['rows'], 0);
}

type Tap = Pick<typeof t, 'strictSame' | 'equal'>;

t.test(`claims: ${MIXED} requests of several callers over few connections`, async (t) => {
  const few = await launch({ DATABASE_CALLER: 'claims', DATABASE_POOL_SIZE: '2', DATABASE_WRITE_POOL_SIZE: '2' });
  await mix(t, few, MIXED);
});

t.test('claims: with settings that each transaction begins with, as for a pooler', async (t) => {
  await mix(t, await launch({ DATABASE_CALLER: 'claims', DATABASE_POOLER: 'transaction' }), MIXED / 2);
});

const hasPooler = ((await pgBouncerVersion()) ?? 0) >= 1.21;
t.test(
  'claims: through PgBouncer in transaction mode',
  { skip: !hasPooler && 'PgBouncer 1.21 is missing' },
  async (t) => {
    const settings = ['max_prepared_statements = 200'];
    const pooled = await startPooler(databaseUrl(server, 'callers', LOGIN), { mode: 'transaction', size: 4, settings });
    await mix(t, await launch({ DATABASE_CALLER: 'claims', DATABASE_POOLER: 'transaction' }, pooled), MIXED / 2);
  },
);

const roles = { DATABASE_CALLER: 'role', DATABASE_ANON_ROLE: 'anon' };

interface Logged {
  readonly action: string;
  readonly collection: string;
  readonly user: string;
  readonly body: string | null;
}

/** The newest lines of the activity log, with the body of the revision. */
function newestLog(count: number): Promise<Logged[]> {
  return sql<Logged[]>`
    select action, activity.collection, "user", data ->> 'body' as body
    from (select * from service_activity order by id desc limit ${count}) activity
    left join service_revisions on activity = activity.id order by activity.id`;
}

t.test('role: statements run as the role of the caller', async (t) => {
  const dan = await makeCaller(sql, 'dan', [{ permissions: PERMISSIONS }]);
  const eve = await makeCaller(sql, 'eve', [{ permissions: PERMISSIONS }]);
  await sql`update service_roles set database_role = 'member' where name in ('ann', 'bob', 'cid')`;
  await sql`update service_roles set database_role = 'reader' where name = 'dan'`;
  await sql`insert into notes (owner, body) values (${dan.user}, 'dan 1')`;
  const service = await launch(roles);
  const userOf = async (caller: MadeCaller | null): Promise<unknown> =>
    (dataOf(await send(service, caller, 'GET', '/rpc/whoami')) as { user: string }).user;
  t.strictSame(await Promise.all([ann, dan, null, bob].map(userOf)), ['member', 'reader', 'anon', 'member']);
  t.match(dataOf(await get(service, '/rpc/whoami')), { user: 'app' }, 'an administrator without a database role');
  t.match(dataOf(await send(service, ann, 'GET', '/rpc/whoami')), { claims: { sub: ann.user, role: 'member' } });
  t.match(await send(service, eve, 'GET', '/items/notes'), { status: 403 }, 'a role without a database role');
  t.match(await send(service, eve, 'POST', '/items/notes', { body: 'eve' }), { status: 403 });
  t.match(await send(service, null, 'GET', '/items/plain'), { status: 200 });
  const denied = await send(service, null, 'GET', '/items/notes');
  t.match(denied, { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } });
  const unknown = await send(service, null, 'GET', '/items/nothing');
  t.equal(denied.text.replace('notes', 'nothing').replace('notes', 'nothing'), unknown.text, 'as if it did not exist');
  t.match(await send(service, dan, 'GET', '/items/notes?fields=id,body'), {
    status: 200,
    json: { data: [{ body: 'dan 1' }] },
  });
  t.match(
    await send(service, dan, 'GET', '/items/notes?fields=made_by'),
    { status: 403 },
    'a column that is not granted',
  );
  t.match(await send(service, dan, 'POST', '/items/notes', { body: 'dan 2' }), { status: 403 });
  t.strictSame(Object.keys((dataOf(await send(service, dan, 'GET', '/items/notes')) as object[])[0] ?? {}), [
    'id',
    'owner',
    'team',
    'body',
  ]);
  const [danNote] = await sql`select id from notes where body = 'dan 1'`;
  t.match(await send(service, dan, 'GET', `/items/notes/${danNote?.['id']}`), {
    status: 200,
    json: { data: { body: 'dan 1' } },
  });
  const typeOf = async (caller: MadeCaller | null): Promise<string> =>
    (await send(service, caller, 'GET', '/server/specs/graphql/items')).text;
  t.match(await typeOf(ann), /made_by/);
  t.notMatch(await typeOf(dan), /made_by|create_notes|type teams/, 'the schema has only what the role may use');
  t.notMatch(await typeOf(null), /type notes/);
  const document = await send(service, dan, 'GET', '/server/specs/oas');
  t.match(document.text, /\/items\/notes/);
  t.notMatch(document.text, /made_by|\/items\/teams/);
  await sql`grant select on teams to reader`;
  await waitFor(async () => (await send(service, dan, 'GET', '/items/teams')).status === 200, 10_000);
  const csv = await send(service, ann, 'GET', '/items/notes?fields=body&limit=-1&export=csv');
  t.ok(
    csv.text
      .trim()
      .split('\n')
      .slice(1)
      .every((line) => line.startsWith('ann ')),
  );
  t.match(await send(service, ann, 'GET', '/items/teams?fields=name,notes.body&limit=1'), {
    status: 200,
    json: { data: [{ name: 'team of ann' }] },
  });
  t.match((await send(service, dan, 'POST', '/graphql', { query: '{ notes { body } }' })).json, {
    data: { notes: [{ body: 'dan 1' }] },
  });
});

t.test('role: writes run as the role, and the service keeps the log', async (t) => {
  const service = await launch(roles);
  const made = await send(service, ann, 'POST', '/items/notes', { body: 'ann by role' });
  t.match(made, { status: 200, json: { data: { made_by: `${ann.user} member POST /items/notes ${ann.user}` } } });
  const { id } = dataOf(made) as { id: number };
  t.match(await newestLog(1), [{ action: 'create', collection: 'notes', user: ann.user, body: 'ann by role' }]);
  t.match(await send(service, ann, 'PATCH', `/items/notes/${id}`, { body: 'ann again' }), { status: 200 });
  t.match(await newestLog(1), [{ action: 'update', collection: 'notes', user: ann.user, body: 'ann again' }]);
  const nested = { id: 12, name: 'three', members: [ann.user], notes: [{ body: 'ann nested by role' }] };
  t.match(await send(service, ann, 'POST', '/items/teams?fields=notes.owner', nested), { status: 200 });
  t.strictSame((await newestLog(2)).map(({ collection }) => collection).sort(), ['notes', 'teams']);
  const mutation =
    'mutation { a: create_notes_item(data: { body: "ann one" }) { id } b: create_notes_item(data: { body: "ann two" }) { made_by } }';
  t.match((await send(service, ann, 'POST', '/graphql', { query: mutation })).json, {
    data: { b: { made_by: /member POST \/graphql/ } },
  });
  t.match(await newestLog(2), [{ body: 'ann one' }, { body: 'ann two' }]);
  const headers = { 'content-type': 'application/json', 'idempotency-key': randomUUID() };
  for (const attempt of [1, 2]) {
    const answer = await request(service, 'POST', '/items/notes', {
      token: ann.token,
      headers,
      body: '{"body":"ann key"}',
    });
    t.match(answer, { status: 200, json: { data: { owner: ann.user } } }, `attempt ${attempt}: ${answer.text}`);
  }
  t.strictSame([...(await sql`select count(*)::int as notes from notes where body = 'ann key'`)], [{ notes: 1 }]);
  const file = JSON.stringify([{ body: 'ann imported by role' }]);
  const imported = await request(service, 'POST', '/utils/import/notes', {
    token: ann.token,
    headers: { 'content-type': 'application/json' },
    body: file,
  });
  t.equal(imported.status, 200, imported.text);
  t.match(await newestLog(1), [{ action: 'create', body: 'ann imported by role' }]);
  t.match(await send(service, bob, 'POST', '/rpc/jot', { text: 'bob by role' }), {
    json: { data: { made_by: /member/ } },
  });
  const query = { query: { filter: { body: { _eq: 'ann one' } } }, data: { body: 'ann uno' } };
  t.match(await send(service, ann, 'PATCH', '/items/notes', query), {
    status: 200,
    json: { data: [{ body: 'ann uno' }] },
  });
  t.equal((await send(service, bob, 'DELETE', `/items/notes/${id}`)).status, 403);
  t.equal((await send(service, ann, 'DELETE', `/items/notes/${id}`)).status, 204);
  t.match(await newestLog(1), [{ action: 'delete', collection: 'notes', user: ann.user }]);
  t.match(await send(service, ann, 'POST', '/items/notes', { id: 5_000, body: 'ann with a key' }), { status: 200 });
  const own = await get(service, '/users/me?fields=id,role.name', { token: ADMIN_TOKEN });
  t.match(own, { status: 200, json: { data: { role: { name: 'Administrator' } } } }, 'tables of the service');
  const patched = await request(service, 'PATCH', '/users/me', {
    headers: { 'content-type': 'application/json' },
    body: '{"title":"Dr"}',
  });
  t.equal(patched.status, 200, patched.text);
});

t.test('a transaction of several operations has the settings of its caller', async (t) => {
  const operations = [
    { method: 'POST', path: '/items/notes', body: { body: 'ann first step' } },
    { method: 'POST', path: '/items/notes', body: { body: 'ann second step' } },
  ];
  for (const [service, user] of [
    [claims, 'app'],
    [await launch(roles), 'member'],
  ] as const) {
    const answer = await send(service, ann, 'POST', '/transactions', { operations });
    t.equal(answer.status, 200, answer.text);
    t.equal(answer.text.split(`${ann.user} ${user} POST /transactions`).length, 3, answer.text);
    t.match(await newestLog(2), [{ body: 'ann first step' }, { body: 'ann second step' }]);
    const stolen = { method: 'PATCH', path: `/items/notes/${await noteOf(bob)}`, body: { body: 'stolen' } };
    const refused = await send(service, ann, 'POST', '/transactions', { operations: [...operations, stolen] });
    t.equal(refused.status, 403, refused.text);
  }
  t.strictSame(
    [...(await sql`select count(*)::int as notes from notes where body = 'ann first step'`)],
    [{ notes: 2 }],
  );
});

t.test(`role: ${MIXED} requests of several callers over few connections`, async (t) => {
  await mix(t, await launch({ ...roles, DATABASE_POOL_SIZE: '2', DATABASE_WRITE_POOL_SIZE: '2' }), MIXED);
});

t.test('doctor checks roles and policies', async (t) => {
  await sql.unsafe(`
    create role stranger;
    create table ungranted (id integer primary key);
    create table bare (id integer primary key, owner uuid);
    alter table bare owner to app;
    alter table bare enable row level security;
    alter table bare force row level security;
    create policy slow on plain using (body = auth.uid()::text);
    create function auth.own_id() returns uuid language sql immutable return auth.uid();
    create function auth.one() returns integer language sql immutable return 1;
    create policy remembered on plain using (body = (select auth.own_id())::text and auth.one() = 1)`);
  await sql`alter table plain enable row level security`;
  await sql`alter table plain force row level security`;
  const run = async (options: Readonly<Record<string, string>>): Promise<string> => {
    const environment = { DATABASE_URL: databaseUrl(server, 'callers', LOGIN), ...options };
    return (await runCommand(['doctor'], environment)).output;
  };
  const report = await run({ ...roles, DATABASE_ROLES: 'stranger,nobody_at_all' });
  t.match(report, /Row-level security\n {2}ok +DATABASE_CALLER is role, and row-level security binds app/);
  t.match(report, /grant "stranger" to "app";/);
  t.match(report, /create role "nobody_at_all" nologin;/);
  t.match(report, /grant select on public\.notes to "anon";/);
  t.match(report, /no policy shows any row of public\.bare/);
  t.match(report, /create index concurrently "plain_body_index" on "public"\."plain" \("body"\);/);
  t.notMatch(report, /policy own_new reads/, 'a check of new rows needs no index');
  t.match(report, /policy slow: write \(select auth\.uid\(\)\) instead of auth\.uid\(\)/);
  t.match(report, /policy remembered calls auth\.own_id\(\)/);
  t.match(report, /alter function auth\.own_id\(\) stable;/);
  t.notMatch(report, /policy \w+ calls auth\.(?:uid|one)\(\)/);
  t.notMatch(report, /policy own: write/, 'a select of its own is evaluated once');
  t.notMatch(report, /lacks? privileges of app/, 'the login needs none');
  const service = await run({});
  t.match(service, /Row-level security\n +note +policies read settings that nobody sets/);
  t.notMatch(
    service,
    /needs? no index|no policy shows any row|: write \(select/,
    'what only callers of the database need',
  );
  t.match(service, /1 table lacks privileges of app\n +public\.ungranted/);
  await sql.unsafe(
    'drop policy slow on plain; drop policy remembered on plain; alter table plain disable row level security; drop table bare',
  );
});

t.test('service: the database learns nothing', async (t) => {
  const service = await launch({});
  t.match(await send(service, ann, 'GET', '/items/notes'), { status: 200, json: { data: [] } });
  t.match(dataOf(await send(service, ann, 'GET', '/rpc/whoami')), { sub: null, claims: null, lateral: null });
});

// Last: services that run no longer serve a table whose security does not bind the login.
t.test('the start is refused if row-level security does not bind the login', async (t) => {
  const start = (databaseUrl: string, mode: string): Promise<Service> =>
    startService(
      readConfig({ DATABASE_URL: databaseUrl, PORT: '0', ADMIN_TOKEN, DATABASE_CALLER: mode }),
      () => {},
      () => {},
    );
  await t.rejects(start(url, 'claims'), /DATABASE_CALLER=claims: .*superuser/);
  await sql`alter role app bypassrls`;
  await t.rejects(start(databaseUrl(server, 'callers', LOGIN), 'role'), /DATABASE_CALLER=role: .*nobypassrls/);
  await sql`alter role app nobypassrls`;
  await sql`alter table notes no force row level security`;
  await t.rejects(
    start(databaseUrl(server, 'callers', LOGIN), 'claims'),
    /owns public\.notes: .*force row level security/,
  );
  await sql`alter table notes force row level security`;
});
