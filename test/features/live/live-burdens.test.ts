/** Live queries and events where much changes at once, reads are slow for a while, or the log cannot be opened in time. */
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import { EventStream } from '../../support/event-stream.js';
import { MessageSocket } from '../../support/message-socket.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createDatabase,
  createLibrary,
  get,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase();
const url = await createLibrary(server, 'live_burdens');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`create table pace (id int primary key, seconds float8 not null)`;
await sql`insert into pace values (1, 0)`;
await sql`create view paced as select t.id, t.name from tags t, (select pg_sleep(seconds) from pace) waited`;
await sql`insert into service_collections (collection, primary_key) values ('paced', 'id')`;
const service = await startTestService({ databaseUrl: url, WORKERS: '1', DATABASE_STATEMENT_TIMEOUT: '1s' });

async function signedIn(token = ADMIN_TOKEN): Promise<MessageSocket> {
  const socket = await new MessageSocket(service).opened();
  t.teardown(() => socket.close());
  t.match(await socket.signIn(token), { type: 'auth', status: 'ok' });
  return socket;
}

/** Reads that wait for a connection. */
async function waiting(): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  const counts = [...text.matchAll(/^lateral_pool_waiting(?:\{.*\})? (\d+)$/gm)].map(([, count]) => Number(count));
  if (counts.length === 0) throw new Error(`lateral_pool_waiting is not among the metrics: ${text.slice(0, 200)}`);
  return Math.max(...counts);
}

t.test(
  'many changed items are told to many subscriptions, all of them and in order, without a crowd of reads',
  async (t) => {
    await sql`insert into tags (id, name) select id, 'first' from generate_series(1001, 1900) id`;
    const socket = await signedIn();
    const subscriptions = 10;
    for (let uid = 0; uid < subscriptions; uid++) {
      const query = { fields: ['id', 'name'], filter: { id: { _gt: uid } } };
      const asked = { type: 'subscribe', collection: 'tags', event: 'update', query, uid: `u${uid}` };
      t.match(await socket.ask(asked), { event: 'init' });
    }
    await sql`update tags set name = 'second' where id > 1000`;
    let most = 0;
    const updates = (): (readonly unknown[])[] =>
      socket.messages.flatMap(({ event, data }) => (event === 'update' && Array.isArray(data) ? [data] : []));
    await waitFor(async () => {
      most = Math.max(most, await waiting());
      return updates().length === subscriptions;
    }, 30_000);
    const all = Array.from({ length: 900 }, (_, position) => ({ id: 1001 + position, name: 'second' }));
    for (const update of updates()) t.strictSame(update, all);
    // 256 run at a time, and some of requests; all that the subscriptions begin by themselves would be 640.
    t.ok(most > 0 && most <= 400, `${most} reads waited at a time`);
    socket.close();
  },
);

t.test('after changes that were missed deletions are told to who could see the item, and to nobody else', async (t) => {
  const rule = { collection: 'tags', action: 'read', permissions: { name: { _starts_with: 'open' } } } as const;
  const caller = await makeCaller(sql, 'watcher', [{ permissions: [rule] }]);
  await inForce(service, caller, '/items/tags');
  await sql`insert into tags (id, name) values (501, 'open'), (502, 'closed')`;
  const socket = await signedIn(caller.token);
  const asked = { type: 'subscribe', collection: 'tags', event: 'delete', uid: 'd' };
  t.match(await socket.ask(asked), { event: 'init' });
  await sql.begin(async (missed) => {
    await missed`update tags set name = case id when 501 then 'closed' else 'open' end where id in (501, 502)`;
    await missed`select pg_terminate_backend(active_pid) from pg_replication_slots`;
  });
  t.match(await socket.next(({ uid }) => uid === 'd', 10_000), { event: 'init', resync: true });
  await sql`delete from tags where id in (501, 502)`;
  t.strictSame((await socket.next(({ event }) => event === 'delete'))['data'], ['502']);
  socket.close();
});

t.test('a live query that takes too long for a while goes on when it does not', async (t) => {
  const stream = new EventStream(service, '/items/paced?fields=name&filter[id][_eq]=1001');
  t.teardown(() => stream.close());
  await stream.count(1);
  t.strictSame(stream.last, { data: [{ name: 'second' }] });
  await sql`update pace set seconds = 5`;
  const slow = await get(service, '/items/paced');
  t.match(slow.json, { errors: [{ extensions: { option: 'DATABASE_STATEMENT_TIMEOUT' } }] });
  await sql`update tags set name = 'third' where id = 1001`;
  await sql`update pace set seconds = 0`;
  await waitFor(async () => stream.isEnded || stream.events.length > 1, 15_000);
  t.strictSame(stream.last, { data: [{ name: 'third' }] });
  t.notOk(stream.isEnded);
  stream.close();
});

t.test('a subscriber who joins during a read gets no result that is older', async (t) => {
  const path = '/items/paced?fields=name&filter[id][_eq]=1002';
  const first = new EventStream(service, path);
  await first.count(1);
  await sql.begin(async (slow) => {
    await slow`update tags set name = 'older' where id = 1002`;
    await slow`update pace set seconds = 0.8`;
  });
  const sleeping = async (): Promise<boolean> =>
    (await sql`select from pg_stat_activity where wait_event = 'PgSleep'`).length > 0;
  await waitFor(sleeping, 5_000);
  await sql`update tags set name = 'newer' where id = 1002`;
  const second = new EventStream(service, path);
  await second.count(1);
  t.strictSame(JSON.parse(second.events[0]?.data ?? ''), { data: [{ name: 'newer' }] });
  first.close();
  second.close();
  await sql`update pace set seconds = 0`;
});

t.test(
  'a slot that waits for a transaction goes with the last subscription, and the publication with it',
  async (t) => {
    await service.stop();
    const other = connectSql(await createDatabase(server, 'live_elsewhere'));
    await other`select pg_create_logical_replication_slot('lateral_live_elsewhere', 'pgoutput')`;
    const busy = connectSql(url);
    t.teardown(async () => {
      await other`select pg_drop_replication_slot('lateral_live_elsewhere')`;
      await Promise.all([other.end(), busy.end()]);
    });
    const slots = async (): Promise<number> =>
      (await sql`select from pg_replication_slots where database = current_database()`).length;
    const again = await startTestService({ databaseUrl: url, WORKERS: '1' });
    await busy`begin`.simple();
    await busy`insert into tags (name) values ('long')`;
    const stream = new EventStream(again, '/items/tags');
    await stream.count(1);
    await waitFor(async () => (await slots()) === 1, 5_000);
    stream.close();
    await waitFor(async () => (await slots()) === 0, 8_000);
    await waitFor(async () => (await sql`select from pg_publication`).length === 0, 3_000);
    t.equal((await sql`select from pg_stat_activity where backend_type = 'walsender'`).length, 0);
    await busy`rollback`.simple();
  },
);

t.test('related items that change all the time leave events as fast and complete as they were', async (t) => {
  await sql`create table squads (id int primary key, open boolean not null, visits int not null default 0)`;
  await sql`create table sheets (id int primary key, squad int references squads)`;
  await sql`create index on sheets (squad)`;
  await sql`insert into squads select n, n < 10 from generate_series(1, 10) n`;
  await sql`insert into sheets select n, 1 + n % 9 from generate_series(1, 30000) n`;
  const place = await startTestService({ databaseUrl: url, WORKERS: '1', LIVE_MAX_REMEMBERED_KEYS: '2000000' });
  const { token } = await makeCaller(sql, 'member', [
    {
      permissions: [
        { collection: 'sheets', action: 'read', permissions: { squad: { open: { _eq: true } } } },
        { collection: 'squads', action: 'read' },
      ],
    },
  ]);
  await waitFor(async () => (await get(place, '/items/sheets?limit=1', { token })).status === 200, 10_000);
  const arrived = new Map<number, number[]>();
  const deleted: number[] = [];
  const sockets = await Promise.all(
    Array.from({ length: 25 }, async () => {
      const socket = await new MessageSocket(place).opened();
      t.teardown(() => socket.close());
      await socket.signIn(token);
      const query = { fields: ['id'], limit: 1 };
      t.match(await socket.ask({ type: 'subscribe', collection: 'sheets', query, uid: 's' }), { event: 'init' });
      return socket;
    }),
  );
  for (const { socket } of sockets)
    socket.on('message', (text) => {
      const { event, data } = JSON.parse(String(text));
      if (event === 'delete') deleted.push(...data.map(Number));
      for (const { id } of event === 'create' ? data : [])
        arrived.set(id, [...(arrived.get(id) ?? []), performance.now()]);
    });
  let isGoing = true;
  const writer = (async () => {
    for (; isGoing; await passTime(100, 'ten writes a second'))
      await sql`update squads set visits = visits + 1 where id = 1`;
  })();
  await passTime(2_000, 'writes go on');
  const rounds = 16;
  const created: number[] = [];
  const reads: number[] = [];
  for (let round = 0; round < rounds; round++) {
    created.push(performance.now());
    await sql`insert into sheets values (${40_000 + round}, 1)`;
    await passTime(500, 'two rounds a second');
    const start = performance.now();
    await get(place, '/items/tags?limit=1');
    reads.push(performance.now() - start);
  }
  await waitFor(async () => [...arrived.values()].flat().length >= rounds * sockets.length, 10_000).catch(() => {});
  t.equal([...arrived.values()].flat().length, rounds * sockets.length, 'each subscriber got each creation once');
  const latest = Math.max(...[...arrived].map(([id, times]) => Math.max(...times) - (created[id - 40_000] ?? 0)));
  t.ok(latest < 1_500, `an event took up to ${Math.round(latest)} ms`);
  t.ok(Math.max(...reads) < 1_000, `another read took up to ${Math.round(Math.max(...reads))} ms`);
  for (const { messages } of sockets) messages.length = 0;
  await sql.begin(async (tx) => {
    await tx`update squads set open = false where id = 2`;
    await tx`delete from sheets where id = 1`;
  });
  const resynced = await Promise.all(sockets.map((socket) => socket.next(({ resync }) => resync === true, 10_000)));
  t.equal(resynced.length, sockets.length, 'visibility is in doubt, so subscribers begin again');
  t.strictSame(deleted, [], 'no key of an item that was hidden is sent');
  isGoing = false;
  await writer;
  for (const socket of sockets) socket.close();
  await place.stop();
});
