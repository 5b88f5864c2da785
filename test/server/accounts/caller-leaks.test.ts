/**
 * DATABASE_CALLER: nothing of a caller survives its transaction, on any path. Statements that carry no settings tell it: the row-level security of
 * the tables that they read shows rows only to the login, without claims. CALLER_REQUESTS sets the number of mixed requests.
 */
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { inForce, type MadeCaller, makeCaller, makePolicy, type Permission } from '../../support/callers.js';
import { caughtUp, startPrimary, startStandby } from '../../support/cluster.js';
import { EventStream } from '../../support/event-stream.js';
import { MessageSocket } from '../../support/message-socket.js';
import { pgBouncerVersion, startPooler } from '../../support/pooler.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  type RequestOptions,
  request,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const REQUESTS = Number(process.env['CALLER_REQUESTS'] ?? 150);
t.setTimeout(200_000 + REQUESTS * 60);

const LOGIN = { user: 'app', password: 'app' };
const NAMES = ['ann', 'bob', 'cid'] as const;
const PERMISSIONS: readonly Permission[] = [
  ...['notes', 'plain', 'kept'].flatMap((collection) =>
    (['read', 'create', 'update', 'delete'] as const).map((action) => ({ collection, action })),
  ),
  ...['whoami', 'fail', 'wait'].map((collection) => ({ collection, action: 'execute' as const })),
  ...(['read', 'create', 'update'] as const).map((action) => ({ collection: 'service_versions', action })),
  ...(['read', 'create'] as const).map((action) => ({ collection: 'service_files', action })),
];

const primary = await startPrimary({ settings: { wal_level: 'logical' } });
await createDatabase(primary, 'leaks');
const sql = connectSql(databaseUrl(primary, 'leaks'));
const killer = connectSql(databaseUrl(primary, 'leaks'));
t.teardown(() => Promise.all([sql.end(), killer.end()]));
await sql.unsafe(`
  create role app login password 'app' replication;
  create role member; create role anon;
  grant member, anon to app;
  grant create on database leaks to app;
  grant create, usage on schema public to app;
  set role app;
  create schema auth;
  grant usage on schema auth to public;
  create function auth.uid() returns uuid language sql stable
    as $$ select nullif(nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub', '')::uuid $$;
  create table notes (id serial primary key, owner uuid default auth.uid(), body text);
  create table plain (id serial primary key, body text);
  alter table notes enable row level security;
  alter table notes force row level security;
  create policy own on notes using (owner = (select auth.uid())) with check (owner = (select auth.uid()));
  create function is_clean() returns boolean language sql volatile as $$
    select current_user = 'app' and not exists (
      select from unnest(array['request.jwt.claims', 'request.method', 'request.path', 'lateral.user', 'lateral.role']) name
      where coalesce(current_setting(name, true), '') <> '') $$;
  create function whoami() returns jsonb language sql stable as $$
    select jsonb_build_object('sub', auth.uid(), 'user', current_user, 'path', current_setting('request.path', true),
      'lateral', current_setting('lateral.user', true)) $$;
  create function fail() returns integer language sql volatile as $$ select 1 / (select count(*) from notes where false)::integer $$;
  create function wait() returns integer language plpgsql volatile as $$ begin perform pg_sleep(30); return 1; end $$;
  create function remembered() returns uuid language plpgsql stable as $$
  begin
    if coalesce(current_setting('app.remembered', true), '') = '' then
      perform set_config('app.remembered', auth.uid()::text, true);
    end if;
    return current_setting('app.remembered')::uuid;
  end $$;
  create table kept (id serial primary key, owner uuid, body text, divisor integer not null default 1);
  alter table kept enable row level security;
  alter table kept force row level security;
  create policy own on kept using (owner = (select remembered()) and 1 / divisor = 1);
  insert into plain (body) select 'plain ' || i from generate_series(1, 20) i;
  grant select, insert, update, delete on notes, plain, kept to member;
  grant usage on sequence notes_id_seq, plain_id_seq to member;
  grant select on plain to anon;
  reset role`);

const first = await launch({ DATABASE_CALLER: 'claims' });
await sql`insert into service_functions (name) values ('whoami'), ('fail'), ('wait')`;
await sql`insert into service_collections (collection, versioning) values ('notes', true)`;
await sql`insert into service_folders (name) values ('probe')`;
const callers: MadeCaller[] = [];
for (const name of NAMES) {
  const made = await makeCaller(sql, name, [{ permissions: PERMISSIONS }]);
  await sql`update service_roles set database_role = 'member' where id = ${made.role}`;
  await sql`insert into notes (owner, body) select ${made.user}, ${name} || ' ' || i from generate_series(1, 300) i`;
  await sql`insert into kept (owner, body) select ${made.user}, ${name} || ' ' || i from generate_series(1, 20) i`;
  await sql`insert into kept (owner, body, divisor) values (${made.user}, ${name} || ' fails', 0)`;
  callers.push(made);
}
const [ann, bob] = callers as [MadeCaller, MadeCaller, MadeCaller];
await makePolicy(sql, 'public', { permissions: PERMISSIONS });
for (const caller of callers) await inForce(first, caller, '/items/notes');
await first.stop();
const [folder] = await sql`select id from service_folders`;
await sql`grant select on service_versions to member`;
// The service does not know that these tables have row-level security now, so it sends no settings.
await sql.unsafe(`
  alter table service_folders enable row level security;
  alter table service_folders force row level security;
  create policy clean on service_folders using (is_clean()) with check (is_clean())`);

async function launch(options: Readonly<Record<string, string>>, at?: string): Promise<Service> {
  const roles = options['DATABASE_CALLER'] === 'role' ? { DATABASE_ANON_ROLE: 'anon' } : {};
  return startTestService({
    databaseUrl: at ?? databaseUrl(primary, 'leaks', LOGIN),
    WORKERS: '1',
    SCHEMA_POLL_INTERVAL: '10m',
    DATABASE_POOL_SIZE: '2',
    DATABASE_WRITE_POOL_SIZE: '2',
    ...roles,
    ...options,
  });
}

/** Makes reads of `plain` tell whether the connection is clean, until the service loads its model again. */
async function watchPlain<Result>(work: () => Promise<Result>): Promise<Result> {
  await sql.unsafe(`
    alter table plain enable row level security;
    alter table plain force row level security;
    drop policy if exists clean on plain;
    create policy clean on plain using (is_clean())`);
  try {
    return await work();
  } finally {
    await sql`alter table plain disable row level security`;
  }
}

function send(to: Service, caller: MadeCaller | null, method: string, path: string, body?: unknown): Promise<Answer> {
  const options: RequestOptions = { token: caller?.token ?? null, headers: { 'content-type': 'application/json' } };
  return request(to, method, path, body === undefined ? options : { ...options, body: JSON.stringify(body) });
}

const dataOf = ({ json }: Answer): unknown => (json as { data?: unknown }).data;
const nameOf = (caller: MadeCaller): string => caller.token.slice('the-token-of-'.length);
const othersOf = (caller: MadeCaller): RegExp =>
  new RegExp(
    NAMES.filter((name) => name !== nameOf(caller))
      .join(' |')
      .concat(' '),
  );

/** Requests whose statements have no caller. Each answers whether its connection was clean, or null if it was lost. */
const PROBES = {
  read: async (to: Service): Promise<Answer> => get(to, '/folders?fields=name'),
  write: (to: Service): Promise<Answer> =>
    request(to, 'PATCH', `/folders/${folder?.['id']}?fields=name`, {
      headers: { 'content-type': 'application/json' },
      body: '{"name":"probe"}',
    }),
  /** An administrator has no database role: that of the login must be in force. */
  role: (to: Service): Promise<Answer> => get(to, '/rpc/whoami'),
} as const;

function isClean(probe: keyof typeof PROBES, { text }: Answer): boolean {
  return probe === 'role' ? text.includes('"user": "app"') : text.includes('probe');
}

/** More probes at the same time than there are connections. */
async function checkClean(t: Pick<Tap, 'strictSame'>, to: Service, what: string): Promise<void> {
  const names = Object.keys(PROBES) as (keyof typeof PROBES)[];
  const dirty = await Promise.all(
    Array.from({ length: 24 }, async (_, index) => {
      const probe = names[index % names.length] as keyof typeof PROBES;
      const answer = await PROBES[probe](to);
      return answer.status === 200 && isClean(probe, answer) ? [] : [`${probe}: ${answer.status} ${answer.text}`];
    }),
  );
  t.strictSame(dirty.flat(), [], `clean after ${what}`);
}

type Tap = typeof t;

/** The paths of a request, each of which begins a transaction for a caller in its own way. */
async function walkPaths(t: Pick<Tap, 'strictSame' | 'equal' | 'match' | 'notMatch'>, to: Service): Promise<void> {
  const after = (what: string): Promise<void> => checkClean(t, to, what);
  const list = await send(to, ann, 'GET', '/items/notes?limit=-1&fields=body&export=csv');
  t.equal(list.status, 200);
  t.notMatch(list.text, othersOf(ann));
  await after('a stream');
  t.equal((await send(to, ann, 'POST', '/items/notes', { body: 'ann new', owner: bob.user })).status, 403);
  await after('a row that the policy refuses');
  t.equal((await send(to, ann, 'POST', '/rpc/fail', {})).status, 400);
  await after('an error');
  const operations = [
    { method: 'POST', path: '/items/notes', body: { body: 'ann step' } },
    { method: 'PATCH', path: '/items/notes/0', body: { body: 'nobody' } },
  ];
  t.equal((await send(to, ann, 'POST', '/transactions', { operations })).status, 403);
  await after('a transaction that is undone');
  const rows = [{ body: 'ann imported' }, { id: 'x' }];
  t.equal((await send(to, ann, 'POST', '/utils/import/notes', rows)).status, 400);
  t.equal((await send(to, ann, 'POST', '/utils/import/notes', rows.slice(0, 1))).status, 200);
  await after('imports');
  const [own] = await sql`select min(id)::int as id from notes where owner = ${ann.user}`;
  const version = { collection: 'notes', item: String(own?.['id']), key: `draft${Date.now()}`, name: 'Draft' };
  const drafted = await send(to, ann, 'POST', '/versions', version);
  t.equal(drafted.status, 200, drafted.text);
  const { id: draft } = dataOf(drafted) as { id: string };
  t.equal((await send(to, ann, 'POST', `/versions/${draft}/save`, { body: 'ann drafted' })).status, 200);
  t.match((await send(to, ann, 'GET', `/items/notes/${own?.['id']}?version=${version.key}`)).text, /ann drafted/);
  t.equal((await send(to, ann, 'GET', `/versions/${draft}/compare`)).status, 200);
  const hash = (dataOf(await send(to, ann, 'GET', `/versions/${draft}/compare`)) as { mainHash: string }).mainHash;
  t.equal((await send(to, ann, 'POST', `/versions/${draft}/promote`, { mainHash: hash })).status, 200);
  await after('versions');
  const upload = await request(to, 'POST', '/files', {
    token: ann.token,
    headers: { 'content-type': 'multipart/form-data; boundary=x' },
    body: '--x\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\ncontent-type: text/plain\r\n\r\nhello\r\n--x--\r\n',
  });
  t.equal(upload.status, 200, upload.text);
  const asset = await send(to, ann, 'GET', `/assets/${(dataOf(upload) as { id: string }).id}`);
  t.equal(asset.text, 'hello');
  await after('files');
}

/** A connection that is killed, a statement that is cancelled, and a client that leaves a stream. */
async function interrupt(t: Pick<Tap, 'strictSame' | 'equal' | 'ok'>, to: Service): Promise<void> {
  for (const end of ['pg_cancel_backend', 'pg_terminate_backend']) {
    const waiting = send(to, ann, 'POST', '/rpc/wait', {});
    const isEnded = async (): Promise<boolean> => {
      const rows = await killer.unsafe(`
        select ${end}(pid) from pg_stat_activity where query like '%wait%' and state = 'active' and usename = 'app'`);
      return rows.length > 0;
    };
    await waitFor(isEnded, 10_000);
    const { status } = await waiting;
    t.ok([400, 503].includes(status), `${end}: ${status}`);
    await checkClean(t, to, end);
  }
  const controller = new AbortController();
  const left = fetch(`${to.url}/items/notes?limit=-1`, {
    headers: { authorization: `Bearer ${ann.token}` },
    signal: controller.signal,
  });
  await left.then(
    () => controller.abort(),
    () => {},
  );
  await checkClean(t, to, 'a client that leaves');
}

/** Live queries by SSE, subscriptions over WebSockets: each subscriber gets their own rows. */
async function subscribe(t: Pick<Tap, 'strictSame' | 'ok' | 'notMatch'>, to: Service): Promise<void> {
  const stream = new EventStream(to, '/items/notes?fields=body&sort=-id&limit=1', { token: bob.token });
  await stream.count(1);
  const sockets = await Promise.all(callers.slice(0, 2).map((caller) => openSocket(to, caller)));
  const graphql = await openGraphql(to, bob);
  try {
    for (const caller of [ann, bob]) {
      const body = `${nameOf(caller)} live ${Date.now()}`;
      const made = await send(to, caller, 'POST', '/items/notes', { body });
      t.ok(made.status === 200, made.text);
      await sockets[callers.indexOf(caller)]?.next((message) => JSON.stringify(message).includes(body), 10_000);
    }
    await waitFor(async () => JSON.stringify(stream.last).includes('bob live'), 10_000);
    t.notMatch(JSON.stringify(stream.events), /ann live/);
    await graphql.next((message) => JSON.stringify(message).includes('bob live'), 10_000);
    t.notMatch(JSON.stringify(graphql.messages), othersOf(bob));
    for (const [index, socket] of sockets.entries())
      t.notMatch(JSON.stringify(socket.messages), othersOf(callers[index] as MadeCaller));
  } finally {
    stream.close();
    for (const socket of [...sockets, graphql]) socket.close();
  }
  await checkClean(t, to, 'live queries');
}

async function openSocket(to: Service, caller: MadeCaller): Promise<MessageSocket> {
  const socket = await new MessageSocket(to).opened();
  await socket.signIn(caller.token);
  socket.send({ type: 'subscribe', collection: 'notes', uid: 'all', query: { fields: ['body'], limit: 1 } });
  await socket.next(({ event }) => event === 'init');
  return socket;
}

/** A live query over GraphQL's own protocol for WebSockets. */
async function openGraphql(to: Service, caller: MadeCaller): Promise<MessageSocket> {
  const socket = await new MessageSocket(to, { path: '/graphql', protocols: 'graphql-transport-ws' }).opened();
  socket.send({ type: 'connection_init', payload: { access_token: caller.token } });
  await socket.next(({ type }) => type === 'connection_ack');
  const query = 'subscription { notes(sort: ["-id"], limit: 1) { body } }';
  socket.send({ type: 'subscribe', id: '1', payload: { query } });
  await socket.next(({ type }) => type === 'next');
  return socket;
}

interface Outcomes {
  /** Answers with another status than the one that is right, or with data of another caller. */
  readonly wrong: string[];
  /** Requests that a lost connection or a cancelled statement ended. */
  interrupted: number;
  answered: number;
}

type Attempt = readonly [answer: Promise<Answer>, status: number, isRight: (text: string) => boolean];

function attempt(to: Service, index: number, keys: ReadonlyMap<MadeCaller, readonly number[]>): Attempt {
  const caller = callers[index % callers.length] as MadeCaller;
  const other = callers[(index + 1) % callers.length] as MadeCaller;
  const others = othersOf(caller);
  const isOwn = (text: string): boolean => !others.test(text) && text.includes(`${nameOf(caller)} `);
  const own = keys.get(caller)?.[index % 10];
  switch (Math.floor(index / callers.length) % 11) {
    case 0:
      return [send(to, caller, 'GET', `/items/notes/${own}`), 200, isOwn];
    case 1:
      return [send(to, caller, 'GET', `/items/notes/${keys.get(other)?.[index % 10]}`), 403, () => true];
    case 2:
      return [send(to, caller, 'GET', '/items/notes?fields=body&limit=5'), 200, isOwn];
    case 3:
      return [send(to, caller, 'POST', '/graphql', { query: '{ notes(limit: 3) { body } }' }), 200, isOwn];
    case 4:
      return [send(to, caller, 'GET', '/rpc/whoami'), 200, (text) => text.includes(`"sub": "${caller.user}"`)];
    case 5:
      return [send(to, caller, 'PATCH', `/items/notes/${own}`, { body: `${nameOf(caller)} ${index}` }), 200, isOwn];
    case 6:
      return [send(to, caller, 'POST', '/rpc/fail', {}), 400, () => true];
    case 7:
      return [send(to, caller, 'GET', '/items/notes?fields=body&limit=50&export=csv'), 200, isOwn];
    case 8:
      return [PROBES.read(to), 200, (text) => text.includes('probe')];
    case 9:
      return [PROBES.write(to), 200, (text) => text.includes('probe')];
    default:
      return [PROBES.role(to), 200, (text) => text.includes('"user": "app"')];
  }
}

/** Requests of all callers at the same time. While `isKilling`, backends of the service are ended and statements cancelled. */
async function mix(to: Service, count: number, isKilling: boolean): Promise<Outcomes> {
  const keys = new Map<MadeCaller, readonly number[]>();
  for (const caller of callers) {
    const rows = await sql<{ id: number }[]>`select id from notes where owner = ${caller.user} order by id limit 10`;
    keys.set(
      caller,
      rows.map(({ id }) => id),
    );
  }
  const outcomes: Outcomes = { wrong: [], interrupted: 0, answered: 0 };
  const next = Array.from({ length: count }, (_, index) => index).values();
  let isDone = false;
  const killing = isKilling ? kill(() => isDone) : Promise.resolve();
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      for (const index of next) {
        const [answer, status, isRight] = attempt(to, index, keys);
        // A stream that has begun is broken off.
        const given = await answer.catch((error: Error) => ({ status: 0, text: error.message }));
        const isCut = given.status % 503 === 0 || /The query took too long/.test(given.text);
        if (given.status === status && isRight(given.text)) outcomes.answered++;
        else if (isKilling && isCut) outcomes.interrupted++;
        else outcomes.wrong.push(`${index}: ${given.status} ${given.text}`);
      }
    }),
  );
  isDone = true;
  await killing;
  return outcomes;
}

async function kill(isDone: () => boolean): Promise<void> {
  for (let round = 0; !isDone(); round++) {
    const end = round % 3 === 0 ? 'pg_terminate_backend' : 'pg_cancel_backend';
    await killer.unsafe(`
      select ${end}(pid) from pg_stat_activity
      where usename = 'app' and backend_type = 'client backend' and random() < 0.2 and query not like '%listen%'`);
    await passTime(150, 'backends are killed now and then');
  }
}

async function checkMix(t: Pick<Tap, 'strictSame' | 'ok' | 'comment'>, to: Service, count: number, isKilling = false) {
  const { wrong, interrupted, answered } = await mix(to, count, isKilling);
  t.strictSame(wrong.slice(0, 3), []);
  t.ok(answered > count / 2, `${answered} answered, ${interrupted} interrupted, ${wrong.length} wrong`);
  const [stolen] = await sql`
    select count(*)::int as rows from notes join service_users on service_users.id = owner where body not like first_name || ' %'`;
  t.strictSame({ ...stolen }, { rows: 0 });
  await checkClean(t, to, 'mixed requests');
}

/** Reads that are sent together: a policy keeps the caller in a setting of its transaction, and some reads fail. */
async function readKept(t: Pick<Tap, 'strictSame' | 'ok'>, to: Service): Promise<void> {
  const rows = await sql<{ id: number; owner: string; body: string; divisor: number }[]>`select * from kept`;
  const reads = rows.flatMap((row) => callers.map((caller) => ({ row, caller })));
  const splits = async (): Promise<number> =>
    Number(/^lateral_read_batch_splits_total (\d+)$/m.exec((await get(to, '/server/metrics')).text)?.[1]);
  for (const fails of [false, true]) {
    const sent = reads.filter(({ row }) => fails || row.divisor > 0);
    const before = await splits();
    for (let round = 0; round < 4; round++) {
      const wrong = await Promise.all(
        sent.map(async ({ row: { id, owner, body, divisor }, caller }) => {
          const { status, text } = await send(to, caller, 'GET', `/items/kept/${id}?fields=body`);
          const isRight =
            owner === caller.user ? (divisor > 0 ? text.includes(`"${body}"`) : status === 400) : status === 403;
          return isRight ? [] : [`${body} for ${nameOf(caller)}: ${status} ${text}`];
        }),
      );
      t.strictSame(wrong.flat().slice(0, 3), [], fails ? 'some reads fail' : 'no read fails');
    }
    // On a busy machine, reads that take too long are split off as well.
    if (fails) t.ok((await splits()) > before, 'reads of several callers were sent together');
    await checkClean(t, to, 'reads of several callers');
  }
}

for (const mode of ['claims', 'role'] as const) {
  t.test(`${mode}: transactions that are sent together`, async (t) => {
    const to = await launch({ DATABASE_CALLER: mode });
    await readKept(t, to);
    await to.stop();
  });

  t.test(`${mode}: every path`, async (t) => {
    const to = await launch({ DATABASE_CALLER: mode, STORAGE_LOCATIONS: 'local' });
    await walkPaths(t, to);
    await interrupt(t, to);
    await subscribe(t, to);
    await to.stop();
  });

  t.test(`${mode}: mixed requests while backends are killed and statements cancelled`, async (t) => {
    const to = await launch({ DATABASE_CALLER: mode });
    await checkMix(t, to, Math.ceil(REQUESTS / 5), true);
    await to.stop();
  });

  t.test(`${mode}: mixed requests with two threads`, async (t) => {
    const to = await launch({ DATABASE_CALLER: mode, WORKERS: '2' });
    await checkMix(t, to, Math.ceil(REQUESTS / 5));
    await to.stop();
  });
}

const version = (await pgBouncerVersion()) ?? 0;
for (const pooling of ['session', 'transaction'] as const) {
  const needed = pooling === 'session' ? 1 : 1.21;
  t.test(
    `mixed requests through PgBouncer in ${pooling} mode`,
    { skip: version < needed && `PgBouncer ${needed} is missing` },
    async (t) => {
      for (const mode of ['claims', 'role'] as const) {
        const settings = version >= 1.21 ? ['max_prepared_statements = 200'] : [];
        const at = await startPooler(databaseUrl(primary, 'leaks', LOGIN), {
          mode: pooling,
          size: pooling === 'transaction' ? 4 : 30,
          settings,
        });
        const to = await launch({ DATABASE_CALLER: mode, DATABASE_POOLER: pooling }, at);
        await checkMix(t, to, Math.ceil(REQUESTS / 10));
        await to.stop();
      }
    },
  );
}

t.test('mixed requests with settings in each transaction, as for a pooler', async (t) => {
  const to = await launch({ DATABASE_CALLER: 'role', DATABASE_POOLER: 'transaction' });
  await checkMix(t, to, Math.ceil(REQUESTS / 10));
  await to.stop();
});

t.test('a replica', async (t) => {
  const standby = await startStandby(primary, { name: 'follower' });
  await caughtUp(primary, standby);
  for (const mode of ['claims', 'role'] as const) {
    const to = await launch({
      DATABASE_CALLER: mode,
      DATABASE_REPLICA_URLS: databaseUrl(standby, 'leaks', LOGIN),
      REPLICA_MAX_LAG: '1h',
    });
    await checkMix(t, to, Math.ceil(REQUESTS / 10));
    if (mode === 'claims')
      await watchPlain(async () => {
        await caughtUp(primary, standby);
        const plain = await Promise.all(
          Array.from({ length: 20 }, () => send(to, bob, 'GET', '/items/plain?fields=body&limit=3')),
        );
        t.ok(
          plain.every(({ text }) => text.includes('plain ')),
          'connections to the replica are clean',
        );
      });
    await to.stop();
  }
});
