/**
 * The WAL that PostgreSQL keeps for subscribers: slots are replaced while others write, each change is reported once, and nothing is left
 * behind. LIVE_WAL_MINUTES=60 writes for an hour next to an idle subscriber.
 */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { pidOf } from '../../support/cluster.js';
import { EventStream } from '../../support/event-stream.js';
import { MessageSocket } from '../../support/message-socket.js';
import { Network } from '../../support/network-proxy.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  type Sql,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const MINUTES = Number(process.env['LIVE_WAL_MINUTES'] ?? 0.25);
/** Megabytes of WAL a second. */
const RATE = Number(process.env['LIVE_WAL_RATE'] ?? 8);
const MB = 2 ** 20;
/** Rows of one transaction. */
const HUGE = Number(process.env['LIVE_HUGE'] ?? 1_000_000);
/** The least that the option allows: a slot is replaced after a megabyte. */
const LITTLE = { LIVE_MAX_WAL: '16mb', WORKERS: '1' } as const;
t.setTimeout(MINUTES * 60_000 + 280_000);

const server = await startDatabase();
const url = await createLibrary(server, 'live_wal');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`create table entries (id int primary key, body text)`;
await sql`create table others (id serial primary key, body text)`;
const [firstPosition] = await sql`select pg_current_wal_lsn() as position`;

interface Slot {
  readonly slot_name: string;
  readonly kept: number;
}

const slots = async (): Promise<Slot[]> => [
  ...(await sql<Slot[]>`select slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8 as kept
    from pg_replication_slots`),
];

const written = async (): Promise<number> => {
  const [row] =
    await sql`select pg_wal_lsn_diff(pg_current_wal_lsn(), ${firstPosition?.['position']})::float8 as bytes`;
  return Number(row?.['bytes']);
};

const metric = async (service: Service, name: string): Promise<number> => {
  const { text } = await get(service, '/server/metrics');
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]);
};

const replaced = (service: Service): Promise<number> => metric(service, 'lateral_live_slots_replaced_total');

/** What a subscriber to events was sent, in order. */
class Watcher {
  readonly created: number[] = [];
  resyncs = 0;
  readonly #socket: MessageSocket;

  constructor(socket: MessageSocket) {
    this.#socket = socket;
    socket.socket.on('message', () => this.#take());
  }

  #take(): void {
    for (const { event, data, resync } of this.#socket.messages.splice(0)) {
      if (event === 'create') for (const { id } of data as { id: number }[]) this.created.push(id);
      if (resync === true) this.resyncs++;
    }
  }

  close(): void {
    this.#socket.close();
  }
}

async function watch(service: Service): Promise<Watcher> {
  const socket = await new MessageSocket(service).opened();
  t.teardown(() => socket.close());
  await socket.signIn(ADMIN_TOKEN);
  await socket.ask({ type: 'subscribe', collection: 'entries', query: { fields: ['id'], limit: 1 } });
  await waitFor(async () => (await metric(service, 'lateral_live_resyncs_total')) === 1, 10_000);
  // The stream has opened, and `init` comes once more if that was late.
  await passTime(500, 'a late init would arrive');
  socket.messages.splice(0);
  return new Watcher(socket);
}

/** Numbers each row once; writes one row, or several hundred, at a time. */
class Writer {
  count = 0;
  #going = true;
  readonly #running: Promise<void>[];
  readonly #connections: Sql[] = [];

  constructor(sessions: number) {
    this.#running = Array.from({ length: sessions }, (_, position) => this.#write(position));
  }

  async stop(): Promise<void> {
    this.#going = false;
    await Promise.all(this.#running);
    await Promise.all(this.#connections.map((each) => each.end()));
  }

  async #write(position: number): Promise<void> {
    const connection = connectSql(url);
    this.#connections.push(connection);
    for (let round = 0; this.#going; round++) {
      // At most 1,000 rows: with more of them subscribers begin again.
      const rows = round % 40 === position ? 900 : 1;
      const first = this.count + 1;
      this.count += rows;
      await connection.begin(async (transaction) => {
        await transaction`insert into entries select n, repeat('x', 500) from generate_series(${first}::int, ${first + rows - 1}::int) n`;
        // Some are open for a while: a new slot waits for them, and others commit meanwhile.
        if (round % 50 === 0) await passTime(300, 'the transaction is open for a while');
      });
      await sleep(5);
    }
  }
}

t.test('slots are replaced under load, and each change is reported once', async (t) => {
  const service = await startTestService({ databaseUrl: url, ...LITTLE });
  const watcher = await watch(service);
  const resyncs = await metric(service, 'lateral_live_resyncs_total');
  const writer = new Writer(4);
  let most = 0;
  let mostSlots = 0;
  const until = performance.now() + 25_000;
  while (performance.now() < until || (await replaced(service)) < 8) {
    const found = await slots();
    most = Math.max(most, ...found.map(({ kept }) => kept));
    mostSlots = Math.max(mostSlots, found.length);
    await sleep(50);
  }
  await writer.stop();
  await waitFor(async () => watcher.created.length >= writer.count, 20_000).catch(() => {});
  const count = await replaced(service);
  const wal = await written();
  t.comment(
    `${writer.count} rows, ${(wal / MB).toFixed(0)} MB of WAL, ${count} slots replaced, at most ${mostSlots} slots and ${(most / MB).toFixed(1)} MB kept`,
  );
  t.equal(watcher.created.length, writer.count, 'as many events as rows');
  t.equal(new Set(watcher.created).size, writer.count, 'each of another row');
  t.equal(watcher.resyncs, 0, 'no subscriber had to begin again');
  t.equal(await metric(service, 'lateral_live_resyncs_total'), resyncs);
  t.ok(count >= 8, `${count} slots were replaced`);
  t.ok(mostSlots <= 2);
  t.ok(most < wal / 2 && most < 16 * MB, `${(most / MB).toFixed(1)} MB kept`);
  watcher.close();
  await service.stop();
  t.strictSame(await slots(), [], 'no slot is left');
  t.equal((await sql`select from pg_publication`).length, 0, 'no publication is left');
});

t.test('while a new slot waits for a transaction, changes are reported; an end then leaves nothing', async (t) => {
  await sql`truncate entries`;
  const service = await startTestService({ databaseUrl: url, ...LITTLE });
  const watcher = await watch(service);
  const busy = connectSql(url);
  await busy`begin`.simple();
  await busy`insert into others (body) values ('open')`;
  await sql`insert into others (body) select repeat('x', 500) from generate_series(1, 4000)`;
  const isWaiting = async (): Promise<boolean> =>
    (await sql`select from pg_stat_activity where backend_type = 'walsender' and wait_event = 'transactionid'`).length >
    0;
  await waitFor(isWaiting, 10_000);
  await sql`insert into entries values (1, 'meanwhile')`;
  await waitFor(async () => watcher.created.includes(1), 5_000);
  t.equal(await replaced(service), 0);
  await busy`commit`.simple();
  await waitFor(async () => (await replaced(service)) === 1, 10_000);
  await sql`insert into entries values (2, 'after')`;
  await waitFor(async () => watcher.created.includes(2), 5_000);
  t.strictSame(watcher.created, [1, 2]);
  t.equal(watcher.resyncs, 0);
  await busy`begin`.simple();
  await busy`insert into others (body) values ('open again')`;
  await sql`insert into others (body) select repeat('x', 500) from generate_series(1, 4000)`;
  await waitFor(isWaiting, 10_000);
  const start = performance.now();
  await service.stop();
  t.ok(performance.now() - start < 5_000, 'the end does not wait for the transaction');
  t.strictSame(await slots(), [], 'no slot is left');
  await busy`rollback`.simple();
  await busy.end();
});

/** The answer to START_REPLICATION. */
const COPY_BOTH_RESPONSE = Buffer.from([0x57, 0, 0, 0, 7, 0, 0, 0]);

t.test('if a stream is lost while its slot is replaced, the next stream takes over', async (t) => {
  await sql`truncate entries`;
  const network = await new Network(url).open();
  const service = await startTestService({ databaseUrl: url, DATABASE_DIRECT_URL: network.url, ...LITTLE });
  const watcher = await watch(service);
  const resyncs = await metric(service, 'lateral_live_resyncs_total');
  const [former] = await slots();
  // The next stream has started, and the network holds back what it receives.
  const held: Socket[] = [];
  network.onClientData = (bytes, client) => {
    if (!bytes.includes('START_REPLICATION')) return;
    client.write(COPY_BOTH_RESPONSE);
    client.cork();
    held.push(client);
  };
  await sql`insert into others (body) select repeat('x', 500) from generate_series(1, 4000)`;
  await waitFor(async () => held.length > 0, 10_000);
  await sql`insert into entries values (1, 'received by both')`;
  await waitFor(async () => watcher.created.includes(1), 5_000);
  const isLost = async (): Promise<boolean> =>
    (await slots()).every(({ slot_name }) => slot_name !== former?.slot_name);
  await sql`select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = ${former?.slot_name ?? ''}`;
  await waitFor(isLost, 5_000);
  await sql`insert into entries values (2, 'received by the next one only')`;
  await waitFor(async () => (await replaced(service)) === 1, 5_000).catch(() => t.fail('the slot was not replaced'));
  for (const client of held) client.uncork();
  await waitFor(async () => watcher.created.includes(2), 5_000).catch(() => t.fail('no event'));
  await sql`insert into entries values (3, 'afterwards')`;
  await waitFor(async () => watcher.created.includes(3), 5_000).catch(() => t.fail('no event afterwards'));
  t.strictSame(watcher.created, [1, 2, 3]);
  t.equal(watcher.resyncs, 0, 'no subscriber had to begin again');
  t.equal(await metric(service, 'lateral_live_resyncs_total'), resyncs);
  t.equal(held.length, 1, 'one stream was opened');
  watcher.close();
  await service.stop();
  t.strictSame(await slots(), [], 'no slot is left');
});

t.test('without a free slot the stream goes on, and begins again at the limit', async (t) => {
  const small = await startDatabase({ settings: { max_replication_slots: '1' } });
  const smallUrl = await createLibrary(small, 'live_wal_small');
  const other = connectSql(smallUrl);
  t.teardown(() => other.end());
  const service = await startTestService({ databaseUrl: smallUrl, ...LITTLE });
  const stream = new EventStream(service, '/items/tags?fields=name&limit=-1');
  t.teardown(() => stream.close());
  await stream.count(1);
  await waitFor(async () => (await other`select from pg_replication_slots where active`).length === 1, 10_000);
  const fill = (megabytes: number): Promise<unknown> =>
    other`select count(pg_logical_emit_message(false, 'fill', repeat('x', 100000))) from generate_series(1, ${megabytes * 10})`;
  const health = async (): Promise<string> => JSON.stringify((await get(service, '/server/health')).json);
  await fill(10);
  await waitFor(async () => /all replication slots are in use/.test(await health()), 10_000);
  await other`insert into tags (name) values ('goes on')`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('goes on') === true, 5_000);
  const resyncs = await metric(service, 'lateral_live_resyncs_total');
  await fill(10);
  await waitFor(async () => (await metric(service, 'lateral_live_resyncs_total')) > resyncs, 15_000);
  await waitFor(async () => (await metric(service, 'lateral_live_wal_kept_bytes')) < 8 * MB, 10_000);
  await other`insert into tags (name) values ('again')`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('again') === true, 5_000);
  stream.close();
  const second = new EventStream(service, '/items/tags?fields=name&limit=1');
  t.teardown(() => second.close());
  await second.count(1);
  const start = performance.now();
  process.kill(await pidOf(small), 'SIGINT');
  await waitFor(
    async () =>
      pidOf(small)
        .then(() => false)
        .catch(() => true),
    20_000,
  );
  t.ok(performance.now() - start < 10_000, 'a fast shutdown does not wait for the stream');
});

t.test('the lag behind a huge transaction is shown', async (t) => {
  await sql`truncate entries`;
  const service = await startTestService({ databaseUrl: url, WORKERS: '1' });
  const stream = new EventStream(service, '/items/entries?aggregate[max]=id');
  t.teardown(() => stream.close());
  await stream.count(1);
  await waitFor(async () => (await metric(service, 'lateral_live_resyncs_total')) === 1, 10_000);
  await sql`insert into entries select n, 'x' from generate_series(1, ${HUGE}::int) n`;
  const committed = performance.now();
  await sql`insert into entries values (${HUGE + 1}, 'behind it')`;
  let shown = 0;
  let reported = 0;
  let isDegraded = false;
  while (stream.events.at(-1)?.data.includes(String(HUGE + 1)) !== true) {
    shown = Math.max(shown, await metric(service, 'lateral_live_stream_lag_seconds'));
    const { checks } = Object((await get(service, '/server/health')).json);
    const [lag] = checks['live:lag'] ?? [];
    reported = Math.max(reported, lag?.observedValue ?? 0);
    isDegraded ||= lag?.status === 'degraded';
    await sleep(20);
  }
  const late = (performance.now() - committed) / 1_000;
  t.comment(
    `the answer came after ${late.toFixed(1)} s; shown were ${shown.toFixed(1)} s and ${reported.toFixed(1)} s`,
  );
  // The beginning of the lag is known within 3 s.
  t.ok(shown > late - 4 && reported > late - 4, 'metrics and health show it');
  t.ok(shown < late + 4);
  if (late > 15) t.ok(isDegraded, 'health is degraded beyond 10 s');
  await waitFor(async () => (await metric(service, 'lateral_live_stream_lag_seconds')) < 1, 10_000);
  stream.close();
  await service.stop();
  t.strictSame(await slots(), []);
});

t.test(`${MINUTES} minutes of writes next to an idle subscriber keep little WAL`, async (t) => {
  const service = await startTestService({ databaseUrl: url, WORKERS: '1' });
  const idle = new EventStream(service, '/items/tags?fields=name&limit=1');
  t.teardown(() => idle.close());
  await idle.count(1);
  await waitFor(async () => (await metric(service, 'lateral_live_resyncs_total')) === 1, 10_000);
  const resyncs = 1;
  const before = await written();
  const begun = performance.now();
  const until = begun + MINUTES * 60_000;
  let most = 0;
  let mostFiles = 0;
  let reportAt = begun + 60_000;
  const report = async (): Promise<string> => {
    const wal = ((await written()) - before) / MB;
    const minutes = ((performance.now() - begun) / 60_000).toFixed(1);
    return `${minutes} min: ${wal.toFixed(0)} MB of WAL, ${await replaced(service)} slots replaced, at most ${(most / MB).toFixed(1)} MB kept, pg_wal at most ${mostFiles.toFixed(0)} MB`;
  };
  while (performance.now() < until) {
    const due = ((performance.now() - begun) / 1_000) * RATE * MB;
    if ((await written()) - before < due) {
      await sql`insert into others (body) select repeat('x', 900) from generate_series(1, 1000)`;
      await sql`delete from others where id % 1000 < 990`;
    }
    const found = await slots();
    most = Math.max(most, ...found.map(({ kept }) => kept));
    const [files] = await sql`select sum(size)::float8 / ${MB} as size from pg_ls_waldir()`;
    mostFiles = Math.max(mostFiles, Number(files?.['size']));
    if (performance.now() > reportAt) {
      reportAt += 60_000;
      t.comment(await report());
    }
    await sleep(20);
  }
  t.comment(await report());
  // A slot is replaced at 64 MB; then the new one waits for open transactions, and the old one is closed.
  t.ok(most < 64 * MB + 8 * RATE * MB, `${(most / MB).toFixed(1)} MB kept`);
  t.equal(await metric(service, 'lateral_live_resyncs_total'), resyncs, 'no resync');
  t.equal(idle.events.length, 1, 'the subscriber was sent nothing');
  await sql`insert into tags (name) values ('the first change')`;
  await sql`update tags set name = 'changed' where id = (select min(id) from tags)`;
  await idle.count(2);
  idle.close();
  await service.stop();
  t.strictSame(await slots(), [], 'no slot is left');
});
