/** Live queries when the log cannot be read, clients do not read, or nobody subscribes any more. */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import { EventStream, type EventStreamOptions } from '../../support/event-stream.js';
import { type Message, MessageSocket } from '../../support/message-socket.js';
import { Network } from '../../support/network-proxy.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(200_000);
const server = await startDatabase();
const url = await createLibrary(server, 'live_faults');
const sql = connectSql(url);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl: url, WORKERS: '1', LIVE_MAX_SUBSCRIPTIONS_PER_USER: '5' });

function open(path: string, options?: EventStreamOptions): EventStream {
  const stream = new EventStream(service, path, options);
  t.teardown(() => stream.close());
  return stream;
}

/** Of the service, in megabytes. */
const residentMemory = async (): Promise<number> => {
  const { text } = await get(service, '/server/metrics');
  return Number(/^process_resident_memory_bytes (\S+)$/m.exec(text)?.[1]) / 1_000_000;
};

const slots = async (): Promise<number> => {
  const [row] = await sql`select count(*)::int as slots from pg_replication_slots`;
  return Number(row?.['slots']);
};

const resyncs = async (): Promise<number> => {
  const { text } = await get(service, '/server/metrics');
  return Number(/^lateral_live_resyncs_total (\S+)$/m.exec(text)?.[1]);
};

const isWell = async (): Promise<boolean> => {
  const { json } = await get(service, '/server/health');
  return JSON.stringify(json).includes('"output":"logical: changes are read from the log"');
};

t.test('a stream that is lost is opened again, and what was missed is made up for', async (t) => {
  const stream = open('/items/authors/4?fields=bio');
  await stream.count(1);
  await waitFor(async () => (await slots()) === 1, 3_000);
  for (let round = 0; round < 3; round++) {
    const count = stream.events.length;
    await sql`select pg_terminate_backend(active_pid) from pg_replication_slots`;
    await sql`update authors set bio = ${`round ${round}`} where id = 4`;
    await stream.count(count + 1, 5_000);
    t.strictSame(stream.last, { data: { bio: `round ${round}` } });
    await waitFor(async () => (await slots()) === 1, 5_000);
  }
  t.ok(await waitFor(isWell, 3_000));
  stream.close();
});

t.test('a transaction that is open when the first one subscribes is seen when it commits', async (t) => {
  const busy = connectSql(url);
  await busy`begin`.simple();
  await busy`insert into tags (name) values ('late')`;
  await sql`select pg_terminate_backend(active_pid) from pg_replication_slots`;
  const path = '/items/tags?filter[name][_eq]=late&fields=name';
  const stream = open(path);
  await stream.count(1);
  t.strictSame(stream.last, { data: [] });
  await busy`commit`.simple();
  await busy.end();
  await stream.count(2, 5_000);
  t.strictSame(stream.last, { data: [{ name: 'late' }] });
  stream.close();
});

t.test('a publication that others change is repaired, and what was missed is made up for', async (t) => {
  const stream = open('/items/tags/1?fields=name');
  await stream.count(1);
  await waitFor(isWell, 5_000);
  for (const [round, change] of [
    'alter publication lateral_live drop table tags',
    'alter publication lateral_live set table tags where (id > 1000)',
    'alter publication lateral_live set table tags (id)',
    "alter publication lateral_live set (publish = 'insert')",
    'alter publication lateral_live set (publish_via_partition_root = false)',
    'drop publication lateral_live',
  ].entries()) {
    const before = await resyncs();
    await sql.unsafe(change).simple();
    await sql`update tags set name = ${`unseen ${round}`} where id = 1`;
    await waitFor(async () => stream.events.at(-1)?.data.includes(`"unseen ${round}"`) === true, 6_000).catch(() =>
      t.fail(`not seen after: ${change}`),
    );
    await waitFor(async () => (await resyncs()) > before, 6_000);
    await sql`update tags set name = ${`seen ${round}`} where id = 1`;
    await waitFor(async () => stream.events.at(-1)?.data.includes(`"seen ${round}"`) === true, 3_000).catch(() =>
      t.fail(`not repaired after: ${change}`),
    );
  }
  const [table] = await sql`select rowfilter, attnames::text[] @> '{id,name}' as whole from pg_publication_tables
    where pubname = 'lateral_live' and tablename = 'tags'`;
  t.strictSame({ ...table }, { rowfilter: null, whole: true });
  stream.close();
});

t.test('a transaction that wrote outside the publication is seen when it commits after the repair', async (t) => {
  const stream = open('/items/tags/1?fields=name');
  await stream.count(1);
  const socket = await new MessageSocket(service).opened();
  t.teardown(() => socket.close());
  await socket.signIn(ADMIN_TOKEN);
  await socket.ask({ type: 'subscribe', collection: 'tags', item: 1, query: { fields: ['name'] }, uid: 'e' });
  await waitFor(isWell, 5_000);
  const [busy, longer] = [connectSql(url), connectSql(url)];
  const isMember = async (): Promise<boolean> =>
    (await sql`select from pg_publication_tables where tablename = 'tags'`).length > 0;
  const before = await resyncs();
  await sql`alter publication lateral_live drop table tags`;
  for (const [connection, id] of [
    [busy, 1],
    [longer, 2],
  ] as const) {
    await connection`begin`.simple();
    await connection`update tags set name = 'written outside' where id = ${id}`;
  }
  await waitFor(isMember, 8_000);
  await waitFor(async () => (await resyncs()) > before, 6_000);
  await socket.next(({ resync }) => resync === true);
  await busy`commit`.simple();
  await waitFor(async () => stream.events.at(-1)?.data.includes('written outside') === true, 6_000).catch(() =>
    t.fail('not seen by the live query'),
  );
  const isSent = ({ resync, data }: Message): boolean =>
    resync === true && JSON.stringify(data).includes('written outside');
  t.match(await socket.next(isSent, 6_000), { event: 'init', uid: 'e' });
  await longer`rollback`.simple();
  // The wait for older transactions ends with the last one of them.
  const last = await resyncs();
  await waitFor(async () => (await resyncs()) > last, 6_000);
  await passTime(7_000, 'no further resync follows');
  t.equal(await resyncs(), last + 1, 'no resync follows');
  await Promise.all([busy.end(), longer.end()]);
  stream.close();
  socket.close();
});

t.test('a stream that is lost while it is opened leaves nothing that checks the publications', async (t) => {
  await waitFor(async () => (await slots()) === 0, 8_000);
  const [busy, blocker] = [connectSql(url), connectSql(url)];
  await busy`begin`.simple();
  await busy`update tags set name = 'open' where id = 3`;
  const stream = open('/items/tags/1?fields=name');
  // The slot waits for the transaction, and then the publications for the lock.
  await waitFor(async () => (await slots()) === 1, 10_000);
  await blocker`select pg_advisory_lock(hashtext('lateral_live'), hashtext(current_database()))`;
  await busy`commit`.simple();
  const isBlocked = async (): Promise<boolean> =>
    (await sql`select from pg_locks where locktype = 'advisory' and not granted`).length > 0;
  await waitFor(isBlocked, 5_000);
  await sql`select pg_terminate_backend(active_pid) from pg_replication_slots`;
  await waitFor(async () => (await slots()) === 0, 1_500);
  await blocker`select pg_advisory_unlock_all()`;
  await stream.count(1);
  await waitFor(async () => (await isWell()) && (await slots()) === 1, 10_000);
  const before = await resyncs();
  await sql`alter publication lateral_live drop table tags`;
  await waitFor(async () => (await resyncs()) > before, 8_000);
  await passTime(7_000, 'no further resync follows');
  t.equal(await resyncs(), before + 1, 'one repair, one resync');
  await Promise.all([busy.end(), blocker.end()]);
  stream.close();
});

/** The answer to START_REPLICATION, and a sign of life from the beginning of the log. */
const COPY_BOTH_RESPONSE = Buffer.from([0x57, 0, 0, 0, 7, 0, 0, 0]);
const KEEP_ALIVE = Buffer.concat([Buffer.from([0x64, 0, 0, 0, 22, 0x6b]), Buffer.alloc(17)]);

t.test('a publication that the role may not repair: live queries are polled, and health says why', async (t) => {
  const password = 'of-the-role-that-owns-tables';
  await sql.unsafe(`create role keeper login replication password '${password}'`);
  const own = 'live_faults_kept';
  await sql.unsafe(`create database ${own} owner keeper`);
  const { href } = Object.assign(new URL(url), { username: 'keeper', password, pathname: `/${own}` });
  const network = await new Network(href).open();
  const place = await startTestService({
    databaseUrl: href,
    DATABASE_DIRECT_URL: network.url,
    LIVE_MAX_WAL: '16mb',
    WORKERS: '1',
  });
  const admin = connectSql(Object.assign(new URL(url), { pathname: `/${own}` }).href);
  await admin`create table things (id int primary key, name text)`;
  await admin`insert into things values (1, 'first')`;
  await admin`alter table things owner to keeper`;
  await waitFor(async () => (await get(place, '/items/things')).status === 200, 10_000);
  const stream = new EventStream(place, '/items/things/1?fields=name');
  await stream.count(1);
  const health = async (): Promise<string> => JSON.stringify((await get(place, '/server/health')).json);
  await waitFor(async () => /logical: changes are read/.test(await health()), 5_000);
  // The slot is about to be replaced: the next stream has started, and makes no progress.
  let next: Socket | null = null;
  network.muted = /START_REPLICATION/;
  network.onClientData = (bytes, client) => {
    if (bytes.includes('START_REPLICATION')) {
      next = client;
      client.write(COPY_BOTH_RESPONSE);
    } else if (client === next) client.write(KEEP_ALIVE);
  };
  await admin`select count(pg_logical_emit_message(false, 'fill', repeat('x', 100000))) from generate_series(1, 20)`;
  await waitFor(async () => next !== null, 20_000);
  network.muted = null;
  await admin`alter publication lateral_live owner to current_user`;
  await admin`alter publication lateral_live set (publish = 'insert')`;
  await admin`update things set name = 'polled'`;
  await stream.count(2, 6_000);
  await waitFor(async () => /publication lateral_live leaves out changes/.test(await health()), 10_000);
  t.match(await health(), /"status":"degraded"/);
  await admin`update things set name = 'polled again'`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('polled again') === true, 5_000);
  await admin`alter publication lateral_live owner to keeper`;
  await waitFor(async () => /logical: changes are read/.test(await health()), 10_000);
  stream.close();
  await place.stop();
  await admin`drop publication if exists lateral_live`;
  await admin.end();
  t.pass('read from the log again');
});

const TAGS = { collection: 'tags', action: 'read' } as const;

t.test('an answer that is larger than what the system buffers arrives as soon as it is read', async (t) => {
  const length = 20_000_000;
  await sql`insert into articles (id, title, body) values (501, 'larger', repeat('x', ${length}))`;
  const slow = open('/items/articles/501?fields=body');
  await waitFor(async () => slow.response !== null, 10_000);
  slow.response?.pause();
  await passTime(1_000, 'the client takes nothing');
  slow.response?.resume();
  const took = await waitFor(async () => slow.events.length > 0, 20_000);
  // In instalments, one with each sign of life, it would take minutes.
  t.ok(took < 15_000, `${Math.round(took)} ms`);
  t.equal(Object(slow.last).data.body.length, length);
  slow.close();
  await sql`delete from articles where id = 501`;
});

t.test('a client that does not read gets the newest state when it does', async (t) => {
  const large = 2_000_000;
  await sql`insert into articles (id, title, body) values (500, 'large', repeat('x', ${large}))`;
  const slow = open('/items/articles/500?fields=title,body');
  await slow.count(1);
  slow.response?.pause();
  for (let round = 0; round < 12; round++) {
    await sql`update articles set title = ${`round ${round}`}, body = repeat(${String(round)}, ${large}) where id = 500`;
    await sleep(60);
  }
  // What waits was read before it: it is read anew.
  await inForce(service, await makeCaller(sql, 'unconcerned', [{ permissions: [TAGS] }]), '/items/tags');
  slow.response?.resume();
  const isNewest = async (): Promise<boolean> => slow.events.at(-1)?.data.includes('round 11') === true;
  await waitFor(isNewest, 20_000).catch(() =>
    t.fail(
      `${slow.events.length} states, the last of them ${slow.events.at(-1)?.data.slice(0, 40)}, ended: ${slow.isEnded}`,
    ),
  );
  t.ok(slow.events.length < 13, `${slow.events.length} of 13 states were sent`);
  // The server would end a response that takes nothing for ten seconds: this one takes all that there is.
  await passTime(12_000, 'the client takes nothing for longer than the server allows');
  await sql`update articles set title = 'behind the pause' where id = 500`;
  await waitFor(async () => slow.isEnded || slow.events.at(-1)?.data.includes('behind the pause') === true, 10_000);
  t.notOk(slow.isEnded);
  slow.close();
});

t.test('clients that do not read have the newest state waiting, and no more', async (t) => {
  // Each reads something else: equal answers would be the same bytes.
  const slow = ['id', 'title', 'status', 'slug'].map((field) => open(`/items/articles/500?fields=${field},body`));
  for (const each of slow) await each.count(1);
  for (const each of slow) each.response?.pause();
  let before = 0;
  let grown = 0;
  for (let round = 0; round < 50; round++) {
    await sql`update articles set title = ${`state ${round}`}, body = repeat(${String(round % 10)}, 2000000) where id = 500`;
    await sleep(60);
    if (round % 10 !== 9) continue;
    const now = await residentMemory();
    before ||= now;
    grown = Math.max(grown, now - before);
  }
  // 40 states of 2 MB for each of four would be 320 MB.
  t.ok(grown < 120, `${grown.toFixed(0)} MB more`);
  t.notOk(slow.some(({ isEnded }) => isEnded));
  for (const each of slow) each.close();
});

t.test('the waiting state is not sent to a client that may no longer read it', async (t) => {
  const read = { collection: 'articles', action: 'read' } as const;
  const caller = await makeCaller(sql, 'former', [{ permissions: [TAGS, read] }]);
  const { token } = caller;
  const path = '/items/articles/500?fields=title,body';
  await inForce(service, caller, path);
  const [reader, slow] = [open(path, { token }), open(path, { token })];
  await Promise.all([reader.count(1), slow.count(1)]);
  slow.response?.pause();
  for (let round = 0; round < 10; round++) {
    const title = round < 9 ? `round ${round}` : 'confidential';
    await sql`update articles set title = ${title}, body = repeat(${title}, 200000) where id = 500`;
    await reader.count(round + 2);
  }
  await sql`delete from service_permissions where collection = 'articles' and policy = ${caller.policies[0] ?? ''}`;
  await reader.ended();
  slow.response?.resume();
  await slow.ended();
  t.match(reader.events.at(-2)?.data, /confidential/);
  t.match(slow.events.at(-1), { name: 'failed', data: /FORBIDDEN/ });
  t.notOk(slow.events.some(({ data }) => data.includes('confidential')));
});

t.test('subscriptions of one user have a limit', async (t) => {
  const streams = Array.from({ length: 5 }, () => open('/items/tags'));
  for (const stream of streams) await stream.count(1);
  const more = open('/items/tags');
  await more.ended();
  t.equal(more.status, 429);
  t.match(JSON.parse(more.text), {
    errors: [{ extensions: { code: 'REQUESTS_EXCEEDED', option: 'LIVE_MAX_SUBSCRIPTIONS_PER_USER', limit: 5 } }],
  });
  for (const stream of streams) stream.close();
  await waitFor(async () => {
    const again = open('/items/tags');
    await again.count(1);
    again.close();
    return again.status === 200;
  }, 3_000);
});

t.test('with the last subscription the slot goes, the publication too', async (t) => {
  await waitFor(async () => (await slots()) === 0, 8_000);
  await waitFor(async () => (await sql`select from pg_publication`).length === 0, 3_000);
  t.pass('nothing is left behind');
});

t.test('streams end when the service stops', async (t) => {
  const stream = open('/items/authors');
  await stream.count(1);
  const started = performance.now();
  await service.stop();
  await stream.ended();
  t.ok(performance.now() - started < 5_000);
  t.equal(await slots(), 0);
  t.equal((await sql`select from pg_publication`).length, 0);
});

t.test(
  'a service of several threads takes all of its slots with it, and leaves the publications to another one',
  async (t) => {
    const [first, second] = [
      await startTestService({ databaseUrl: url, WORKERS: '2' }),
      await startTestService({ databaseUrl: url, WORKERS: '1' }),
    ];
    const streams = Array.from({ length: 12 }, () => new EventStream(first, '/items/authors'));
    const other = new EventStream(second, '/items/authors?fields=bio&filter[id][_eq]=1');
    await Promise.all([...streams, other].map((stream) => stream.count(1)));
    await waitFor(async () => (await slots()) >= 2, 5_000);
    await first.stop();
    t.equal(await slots(), 1);
    t.equal((await sql`select from pg_publication`).length, 2);
    await sql`update authors set bio = 'still told' where id = 1`;
    await other.count(2);
    t.strictSame(other.last, { data: [{ bio: 'still told' }] });
    await second.stop();
    t.equal(await slots(), 0);
    t.equal((await sql`select from pg_publication`).length, 0);
  },
);

t.test('where the log cannot be read a live query is refused, and it is said why', async (t) => {
  const password = 'of-the-role-without-replication';
  await sql.unsafe(`create role plain login password '${password}'; grant all on database live_faults to plain;
    grant all on schema public to plain; grant all on all tables in schema public to plain;
    grant all on all sequences in schema public to plain`);
  const { href } = Object.assign(new URL(url), { username: 'plain', password });
  const plain = await startTestService({ databaseUrl: href, WORKERS: '1' });
  const off = await startTestService({ databaseUrl: url, WORKERS: '1', LIVE: 'off' });
  for (const [place, reason] of [
    [plain, /the role of the service may not read the log: alter role .+ replication/],
    [off, /LIVE is off/],
  ] as const) {
    const stream = new EventStream(place, '/items/authors');
    await stream.ended();
    t.equal(stream.status, 503);
    t.match(stream.text, reason);
    const health = JSON.stringify((await get(place, '/server/health')).json);
    t.match(health, reason);
    t.equal((await get(place, '/items/authors')).status, 200);
  }
});
