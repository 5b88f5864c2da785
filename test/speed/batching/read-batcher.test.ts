/** Batches of reads: fewer statements than requests, and each request gets what it would get by itself. */
import { connect } from 'node:net';
import t from 'tap';
import { ShapeStats } from '../../../src/server/batching/shape-stats.js';
import type { BoundRead } from '../../../src/server/execute/reads/read-executor.js';
import type { ConnectionSlot } from '../../../src/speed/batching/connection-slots.js';
import { ReadBatcher } from '../../../src/speed/batching/read-batcher.js';
import { PendingRead, ShapeQueue } from '../../../src/speed/batching/shape-queue.js';
import {
  ADMIN_TOKEN,
  type Answer,
  createLibrary,
  get,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'batches');
await withSql(databaseUrl, async (sql) => {
  await sql`insert into articles (id, title, author) select n, 'Article ' || n, n % 5 + 1 from generate_series(101, 400) n`;
});
/** By the position of an article's author, which is its number modulo five. */
const AUTHORS = ['Ada Lovelace', 'Alan Turing', 'grace hopper', 'Ünïcode Näme', 'No Articles'];
const counter = await StatementCounter.of(server, 'batches');
/** One thread with one connection: whoever waits, waits with all the others. */
const narrow = { databaseUrl, DATABASE_POOL_SIZE: '1', WORKERS: '1', ...KNOWS_CALLERS };
const service = await startTestService({ ...narrow, READ_BATCHING: 'true' });
const unbatched = await startTestService({ ...narrow, READ_BATCHING: 'false' });

/** Statements that carry several reads, and statements of one. */
async function countStatements(work: () => Promise<void>): Promise<{ batched: number; single: number }> {
  const { counts } = await counter.count(work);
  const rows = counts.filter(({ query }) => /"%j"/.test(query));
  const sum = (isBatch: boolean): number =>
    rows
      .filter(({ query }) => query.includes('with ordinality') === isBatch)
      .reduce((all, { calls }) => all + calls, 0);
  return { batched: sum(true), single: sum(false) };
}

async function readKeys(keys: readonly (number | string)[], of = service): Promise<Answer[]> {
  return Promise.all(keys.map((key) => get(of, `/items/articles/${key}?fields=id,title,author.name`)));
}

t.test('requests of one shape that wait share a statement; each gets its own item', async (t) => {
  const keys = Array.from({ length: 200 }, (_, position) => 101 + position);
  let counted = { batched: 0, single: 0 };
  // What a read costs is learned first, on a busy machine from more of them.
  for (let turn = 0; turn < 10 && counted.batched === 0; turn++) {
    counted = await countStatements(async () => {
      const answers = await readKeys(keys);
      t.strictSame(
        answers.map(({ status, json }) => [status, json]),
        keys.map((id) => [200, { data: { id, title: `Article ${id}`, author: { name: AUTHORS[id % 5] } } }]),
      );
    });
  }
  const { batched, single } = counted;
  t.ok(batched > 0, `${batched} statements carried several reads`);
  t.ok(batched + single < keys.length, `${batched + single} statements for ${keys.length} requests`);
  await readKeys([101], unbatched);
  const off = await countStatements(async () => {
    await readKeys(keys.slice(0, 50), unbatched);
  });
  t.strictSame(off, { batched: 0, single: 50 }, 'READ_BATCHING=false: each is a statement of its own');
});

t.test('while others are answered from memory, reads wait for one another', async (t) => {
  const sent: BoundRead[] = [];
  const { execute } = ReadBatcher.prototype;
  ReadBatcher.prototype.execute = function (read, listener) {
    sent.push(read);
    execute.call(this, read, listener);
  };
  t.teardown(() => {
    ReadBatcher.prototype.execute = execute;
  });
  await readKeys([101]);
  const [read] = sent;
  if (read === undefined) throw new Error('no read was sent');
  const queue = new ShapeQueue(read.shape, new ShapeStats(), true);
  const slot = {
    load: 0,
    isPipeline: false,
    answeredAt: 0,
    slowdown: 1,
    isLimited: false,
    caller: '',
  } as ConnectionSlot;
  const wait = (): number =>
    queue.waiting.push(new PendingRead(read, { aborted: false, onResult: () => {}, onError: () => {} }, 0));
  wait();
  t.notOk(queue.shouldGather(10, 1), 'the cost of the reads is not known');
  queue.learn(0.05, 1, slot, false);
  t.notOk(queue.shouldGather(10, 1), 'a read that comes alone is sent at once');
  t.ok(queue.shouldGather(10, 5), 'others were answered from memory');
  t.ok(queue.shouldGather(11, 9));
  t.notOk(queue.shouldGather(11.5, 9), 'a turn without them');
  t.notOk(queue.shouldGather(12.5, 20), 'it does not wait for ever');
  for (let count = 1; count < 8; count++) wait();
  t.notOk(queue.shouldGather(10, 30), 'they are enough');
});

t.test('missing and impossible keys change nothing for the others of a batch', async (t) => {
  const keys = [101, 999_999, 102, 'nonsense', 103, '99999999999999', 104, -1, 105];
  const answers = await readKeys([...keys, ...keys, ...keys]);
  const expected = keys.map((key) => (Number(key) > 100 && Number(key) < 106 ? 200 : 403));
  t.strictSame(
    answers.map(({ status }) => status),
    [...expected, ...expected, ...expected],
  );
});

t.test('a read that PostgreSQL refuses fails by itself', async (t) => {
  await withSql(databaseUrl, async (sql) => {
    await sql`create table readings (id int primary key, low int, high int)`;
    await sql`insert into readings select n, n % 10, 1 from generate_series(1, 100) n`;
    await sql`create view ratios as select id, high / low as ratio from readings`;
    await sql`insert into service_collections (collection, primary_key) values ('ratios', 'id')`;
  });
  const read = (key: number): Promise<Answer> => get(service, `/items/ratios/${key}`);
  const isServed = async (): Promise<boolean> => (await read(1)).status === 200;
  if (!(await isServed())) await waitFor(isServed, 10_000);
  const keys = Array.from({ length: 60 }, (_, position) => position + 1);
  const answers = await Promise.all(keys.map(read));
  for (const [position, answer] of answers.entries()) {
    const key = keys[position] as number;
    if (key % 10 === 0) t.not(answer.status, 200, `${key}: a division by zero`);
    else t.strictSame(answer.json, { data: { id: key, ratio: key % 10 === 1 ? 1 : 0 } });
  }
});

t.test('a read that takes long does not hold up the others of its batch', async (t) => {
  await withSql(databaseUrl, async (sql) => {
    await sql`create function lasting(n int) returns int language plpgsql volatile as $$
      begin if n = 50 then perform pg_sleep(5); end if; return n; end $$`;
    await sql`create view durations as select id, lasting(id) as lasted from readings`;
    await sql`insert into service_collections (collection, primary_key) values ('durations', 'id')`;
  });
  const read = (key: number): Promise<Answer> => get(service, `/items/durations/${key}`);
  const isServed = async (): Promise<boolean> => (await read(1)).status === 200;
  if (!(await isServed())) await waitFor(isServed, 10_000);
  for (let turn = 0; turn < 20; turn++) await read(2);
  const wide = await startTestService({ ...narrow, DATABASE_POOL_SIZE: '4' });
  for (let turn = 0; turn < 20; turn++) await get(wide, '/items/durations/2');
  const begun = performance.now();
  let slow = 0;
  const keys = Array.from({ length: 80 }, (_, position) => position + 1);
  const answers = keys.map(async (key) => {
    const { status } = await get(wide, `/items/durations/${key}`);
    if (key === 50) slow = performance.now() - begun;
    return { key, status, took: performance.now() - begun };
  });
  for (const { key, status, took } of await Promise.all(answers)) {
    if (status !== 200 || (key !== 50 && took > 4_000)) t.fail(`${key}: ${status} after ${took} ms`);
  }
  t.ok(slow >= 5_000, 'one of them did take long');
});

t.test('lists without parameters are read once for all who wait', async (t) => {
  const path = '/items/authors?fields=id,name&sort=id';
  for (let turn = 0; turn < 5; turn++) await get(service, path);
  const { single } = await countStatements(async () => {
    const answers = await Promise.all(Array.from({ length: 60 }, () => get(service, path)));
    t.equal(new Set(answers.map(({ text }) => text)).size, 1);
    t.equal(answers[0]?.status, 200);
  });
  t.ok(single < 60, `${single} statements for 60 requests`);
});

t.test('clients that leave do not hold up those who stay', async (t) => {
  const { hostname, port } = new URL(service.url);
  const leave = (): Promise<void> =>
    new Promise((resolve) => {
      const socket = connect(Number(port), hostname, () => {
        socket.write(
          `GET /items/articles/101?fields=id HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n\r\n`,
        );
        socket.destroy();
        resolve();
      });
    });
  const stay = Array.from({ length: 40 }, () => get(service, '/items/articles/102?fields=id'));
  await Promise.all(Array.from({ length: 40 }, leave));
  for (const { json } of await Promise.all(stay)) t.strictSame(json, { data: { id: 102 } });
});

t.test('no reader sees a value older than one acknowledged before it asked', async (t) => {
  const acknowledged = new Map<number, number>();
  const until = performance.now() + 15_000;
  const enough = (): boolean => reads >= 800 || performance.now() > until;
  const headers = { 'content-type': 'application/json' };
  let reads = 0;
  const writer = async (key: number): Promise<void> => {
    for (let value = 1; !enough(); value++) {
      const body = JSON.stringify({ views: value });
      const { status } = await request(service, 'PATCH', `/items/articles/${key}?fields=id`, { headers, body });
      if (status !== 200) t.fail(`a write was answered ${status}`);
      acknowledged.set(key, value);
    }
  };
  const reader = async (key: number): Promise<void> => {
    while (!enough()) {
      const least = acknowledged.get(key) ?? 0;
      const { json } = await get(service, `/items/articles/${key}?fields=views`);
      const seen = (json as { data: { views: number | null } }).data.views ?? 0;
      if (seen < least) t.fail(`item ${key} showed ${seen} after ${least} was acknowledged`);
      reads++;
    }
  };
  const keys = [101, 102, 103, 104];
  await Promise.all([...keys.map(writer), ...keys.flatMap((key) => Array.from({ length: 8 }, () => reader(key)))]);
  t.ok(reads > 50, `${reads} reads beside ${[...acknowledged.values()].join(', ')} writes`);
});
