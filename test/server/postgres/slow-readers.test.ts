/** Streams that are read slowly, or not at all: they may last as long as nobody else needs their connection. */
import { type IncomingMessage, request as openRequest } from 'node:http';
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  createLibrary,
  get,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(90_000);
const STREAMS = 4;
const ROWS = 60_000;
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'slow_readers');
const other = await withSql(databaseUrl, async (sql) => {
  await sql`create table wide (id int primary key, filler text not null)`;
  await sql`insert into wide select n, repeat('x', 1000) from generate_series(1, ${ROWS}) n`;
  return makeCaller(sql, 'other', [{ permissions: [{ collection: 'wide', action: 'read' }] }]);
});
const service = await startTestService({ databaseUrl, WORKERS: '1', DATABASE_STREAM_POOL_SIZE: String(STREAMS) });

interface Reader {
  readonly incoming: IncomingMessage;
  readonly ended: Promise<'whole' | 'broken off'>;
}

function open(token: string): Promise<Reader> {
  const { hostname, port } = new URL(service.url);
  return new Promise((resolve, reject) => {
    const outgoing = openRequest({
      hostname,
      port,
      path: '/items/wide?limit=-1',
      headers: { authorization: `Bearer ${token}` },
      agent: false,
    });
    t.teardown(() => outgoing.destroy());
    outgoing.on('response', (incoming) => {
      incoming.pause();
      const ended = new Promise<'whole' | 'broken off'>((settle) => {
        incoming.on('end', () => settle('whole'));
        incoming.on('error', () => settle('broken off'));
        incoming.on('close', () => settle('broken off'));
      });
      resolve({ incoming, ended });
    });
    outgoing.on('error', reject);
    outgoing.end();
  });
}

/** Some bytes, again and again: just so many that the connection does not count as dead. */
async function drip({ incoming }: Reader): Promise<void> {
  while (!incoming.destroyed && !incoming.readableEnded) {
    incoming.read(Math.min(25_000, incoming.readableLength) || undefined);
    await passTime(100, 'the client is slow');
  }
}

async function busy(): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  return Number(/^lateral_pool_connections_busy\{pool="stream"\} (\d+)$/m.exec(text)?.[1]);
}

t.test('one caller who reads slowly from all streams does not lock out others', async (t) => {
  const slow = await Promise.all(Array.from({ length: STREAMS }, () => open(ADMIN_TOKEN)));
  for (const reader of slow) void drip(reader);
  // More of the same wait in front of the other caller.
  const queue = Array.from({ length: 3 }, async () => {
    const reader = await open(ADMIN_TOKEN).catch(() => null);
    if (reader) void drip(reader);
    return reader;
  });
  await waitFor(async () => (await busy()) === STREAMS, 10_000);
  const start = performance.now();
  for (let turn = 0; turn < 2; turn++) {
    const { status, json } = await get(service, '/items/wide?limit=-1&fields=id', { token: other.token });
    t.equal(status, 200);
    t.equal((json as { data: unknown[] }).data.length, ROWS);
  }
  t.ok(performance.now() - start < 25_000, `two reads took ${Math.round(performance.now() - start)} ms`);
  for (const { incoming } of slow) incoming.destroy();
  for (const reader of await Promise.all(queue)) reader?.incoming.destroy();
  await waitFor(async () => (await busy()) === 0, 20_000);
});

t.test('as long as nobody waits everybody may take their time', async (t) => {
  const slow = await Promise.all(Array.from({ length: STREAMS }, () => open(ADMIN_TOKEN)));
  await passTime(5_000, 'the clients take their time');
  for (const { incoming } of slow) incoming.resume();
  t.strictSame(
    await Promise.all(slow.map(({ ended }) => ended)),
    slow.map(() => 'whole'),
  );
});
