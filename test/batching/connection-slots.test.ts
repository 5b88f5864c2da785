/**
 * Batches on connections of their own: reads that fail or take long, reads that others must not hold up, connections that
 * cannot be opened or are ended.
 */
import t from 'tap';
import type { ConnectionSlot } from '../../src/batching/connection-slots.js';
import { ReadBatcher } from '../../src/batching/read-batcher.js';
import { type Shape, ShapeQueue } from '../../src/batching/shape-queue.js';
import { Database } from '../../src/postgres/database.js';
import {
  createLibrary,
  databaseUrl,
  get,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../support/service.js';

const server = await startDatabase();
const libraryUrl = await createLibrary(server, 'slots');
await withSql(libraryUrl, (sql) =>
  sql
    .unsafe(`create function handle(value text) returns text language plpgsql as $$
      begin
        if value = 'slow' then perform pg_sleep(60); end if;
        if value = 'wrong' then raise division_by_zero; end if;
        if value = 'large' then raise configuration_limit_exceeded; end if;
        return value;
      end $$`)
    .simple(),
);

async function openBatcher(connections: number, url = libraryUrl): Promise<ReadBatcher> {
  const database = await Database.open({
    url,
    schema: 'public',
    connections,
    sessions: 1,
    streams: 1,
    imports: 1,
    waitTimeout: 5_000,
    statementTimeout: 20_000,
    connectTimeout: 5_000,
  });
  t.teardown(() => database.close());
  return new ReadBatcher(database.readConnections, true, 30_000);
}

/** The answer, or the code of the failure; each listener is called once. */
function ask(batcher: ReadBatcher, shape: Shape, value: string): Promise<string> {
  return new Promise((resolve) => {
    let calls = 0;
    const answered = (answer: string): void => resolve(++calls === 1 ? answer : 'answered twice');
    batcher.read(shape, [value], true, {
      aborted: false,
      onResult: (cell) => answered(String(cell)),
      onError: (error) => answered(String((error as { code?: string }).code ?? error)),
    });
  });
}

function askAll(batcher: ReadBatcher, shape: Shape, values: readonly string[]): Promise<string[]> {
  return Promise.all(values.map((value) => ask(batcher, shape, value)));
}

function shapeOf(single: string, batched: string): Shape {
  return {
    statement: { text: `select ${single}` },
    batchText: () =>
      `select number, ${batched} from unnest($1::text[]) with ordinality as given (value, number) order by value <> 'slow'`,
  };
}

t.test('the reads of a batch that took too long are sent once more, and it is stopped', async (t) => {
  const batcher = await openBatcher(8);
  const shape = shapeOf('$1::text', 'handle(value)');
  for (let turn = 0; turn < 50; turn++) await ask(batcher, shape, 'warm');
  let values: string[] = [];
  while (batcher.splits === 0 && values.length < 4_096) {
    values = Array.from({ length: values.length * 2 || 64 }, (_, n) => (n % 64 === 40 ? 'slow' : `fast ${n}`));
    t.strictSame(await askAll(batcher, shape, values), values);
  }
  t.ok(batcher.splits > 0, `${batcher.splits} batches split`);
  const splits = batcher.splits;
  await waitFor(async () => batcher.busy === 0, 10_000);
  t.equal(batcher.splits, splits, 'none is split twice');
  t.equal(batcher.waiting, 0);
  t.strictSame(await askAll(batcher, shape, ['a', 'b', 'c']), ['a', 'b', 'c'], 'its connection is of use again');
});

t.test('a shape without a batched statement is read one by one', async (t) => {
  const batcher = await openBatcher(2);
  const shape: Shape = {
    statement: { text: 'select $1::text' },
    batchText: () => {
      throw new Error('too deep');
    },
  };
  const values = Array.from({ length: 200 }, (_, n) => `value ${n}`);
  for (let turn = 0; turn < 3; turn++) t.strictSame(await askAll(batcher, shape, values), values);
});

t.test('reads that PostgreSQL refuses are sent once more, the others of their batch are answered', async (t) => {
  const batcher = await openBatcher(8);
  const shape = shapeOf('handle($1)', 'handle(value)');
  for (let turn = 0; turn < 50; turn++) await ask(batcher, shape, 'warm');
  const expected = new Map([
    ['wrong', '22012'],
    ['large', '53400'],
  ]);
  let refused = 0;
  let answered = 0;
  const until = performance.now() + 2_000;
  const run = async (value: string): Promise<void> => {
    while (performance.now() < until) {
      const answer = await ask(batcher, shape, value);
      if (answer !== (expected.get(value) ?? value)) t.fail(`${value}: ${answer}`);
      if (expected.has(value)) refused++;
      else answered++;
    }
  };
  const good = Array.from({ length: 48 }, (_, n) => `good ${n}`);
  await Promise.all([...good, 'wrong', 'wrong', 'large', 'large'].map(run));
  t.ok(refused > 20 && answered > 200, `${refused} refused, ${answered} answered`);
  t.ok(batcher.splits > 0 && batcher.splits <= refused, `${batcher.splits} batches split`);
});

t.test('reads that are always there do not hold up one that is seen for the first time, or is slow', async (t) => {
  for (const connections of [2, 8]) {
    const batcher = await openBatcher(connections);
    const fast = [1, 2, 3, 4].map((n) => shapeOf(`$1::text || pg_sleep(0.02 + 0.000${n})`, 'value'));
    const slow = shapeOf('$1::text || pg_sleep(0.08)', 'value');
    for (const shape of [...fast, slow, slow]) await ask(batcher, shape, 'warm');
    let isOver = false;
    const crowd = fast.flatMap((shape) =>
      Array.from({ length: 4 }, async () => {
        while (!isOver) await ask(batcher, shape, 'crowd');
      }),
    );
    let longest = 0;
    for (let turn = 0; turn < 8; turn++) {
      const begun = performance.now();
      await ask(batcher, turn % 2 === 0 ? slow : shapeOf(`$1::text || '${turn}'`, 'value'), 'one');
      longest = Math.max(longest, performance.now() - begun);
    }
    isOver = true;
    await Promise.all(crowd);
    t.ok(longest < 1_000, `with ${connections} connections the longest took ${longest.toFixed()} ms`);
  }
});

/** What a queue knows of a connection: it never uses it. */
function makeSlot(): ConnectionSlot {
  return { connection: undefined as never, load: 0, answeredAt: 0, slowdown: 1, isLimited: false, caller: '' };
}

t.test('none goes behind a statement on a connection that lags', async (t) => {
  const queue = new ShapeQueue(shapeOf('$1', 'value'));
  const [prompt, lagging] = [makeSlot(), makeSlot()];
  for (let turn = 0; turn < 5; turn++) queue.learn(0.2, 1, prompt, false);
  queue.learn(3, 1, lagging, false);
  for (const slot of [prompt, lagging]) queue.onSent(1, slot, 0);
  t.equal(queue.busySlot, prompt);
  queue.onSent(1, prompt, 0);
  t.equal(queue.busySlot, null);
  t.equal(queue.shouldWait(1), true);
});

t.test('a connection that cannot be opened is done without', async (t) => {
  await withSql(libraryUrl, (sql) =>
    sql.unsafe(`create role narrow login password 'narrow' connection limit 3`).simple(),
  );
  // One is for statements of our own.
  const batcher = await openBatcher(4, databaseUrl(server, 'slots', { user: 'narrow', password: 'narrow' }));
  const shape = shapeOf('$1::text || pg_sleep(0.01)', 'value');
  const times: number[] = [];
  for (let turn = 0; turn < 40; turn++) {
    const begun = performance.now();
    const values = ['a', 'b', 'c', 'd', 'e', 'f'].map((letter) => letter + turn);
    t.strictSame(await askAll(batcher, shape, values), values, `turn ${turn}`);
    times.push(performance.now() - begun);
  }
  const waited = times.filter((time) => time > 150).length;
  t.ok(waited < 10, `${waited} of 40 turns waited for it`);
});

t.test('a connection that an administrator has ended costs no answer', async (t) => {
  await withSql(libraryUrl, async (sql) => {
    await sql`create view pauses as select id, (select id from pg_sleep(0.05)) as paused from articles`;
    await sql`insert into service_collections (collection, primary_key) values ('pauses', 'id')`;
  });
  const service = await startTestService({ databaseUrl: libraryUrl });
  const read = () => get(service, '/items/pauses/1?fields=id');
  await waitFor(async () => (await read()).status === 200, 10_000);
  const statuses = new Map<number, number>();
  let isOver = false;
  const readers = Array.from({ length: 6 }, async () => {
    while (!isOver) {
      const { status } = await read();
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  });
  const ended = await withSql(libraryUrl, async (sql) => {
    let count = 0;
    for (let turn = 0; turn < 5; turn++) {
      const rows =
        await sql`select pg_terminate_backend(pid) from pg_stat_activity where query ~ 'pauses' and state = 'active' and pid <> pg_backend_pid()`;
      count += rows.length;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    return count;
  });
  isOver = true;
  await Promise.all(readers);
  t.ok(ended > 0, `${ended} connections ended`);
  t.strictSame([...statuses.keys()], [200]);
});
