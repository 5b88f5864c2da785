/**
 * Who waits for whom: slow reads, however many, are not in the way of fast ones; a crowd is not in the way of a single
 * request; and whoever has left is not served at all.
 */
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { Connection } from '../../support/protocol-client.js';
import {
  connectSql,
  createLibrary,
  get,
  startDatabase,
  startTestService,
  type TestOptions,
  waitFor,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

/** Seconds: far longer than anything a slow machine does to a fast read. */
const SLOW = 4;
const CROWD = 20;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'patience');
await withSql(databaseUrl, async (sql) => {
  const columns = Array.from({ length: CROWD }, (_, n) => `${n} as c${n}`).join(', ');
  await sql.unsafe(`create view slow as select id, pg_sleep(${SLOW})::text as slept, ${columns} from tags`);
  await sql`create view endless as select id, pg_sleep(60)::text as slept from tags`;
  await sql`insert into service_collections (collection, primary_key) values ('slow', 'id'), ('endless', 'id')`;
});
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

interface Fast {
  readonly name: string;
  ask(connection: Connection): Promise<{ readonly status: number }>;
}

const FAST: readonly Fast[] = [
  { name: 'by key', ask: (connection) => connection.request('GET', '/items/articles/1?fields=id,title') },
  {
    name: 'nested',
    ask: (connection) => connection.request('GET', '/items/articles/2?fields=id,author.name,comments.body'),
  },
  {
    name: 'GraphQL',
    ask: (connection) =>
      connection.request('POST', '/graphql', JSON.stringify({ query: '{ articles_by_id(id: 3) { id title } }' })),
  },
];

/** Milliseconds that each of some requests takes, one after the other. */
async function measure(connection: Connection, { ask }: Fast, times: number): Promise<number[]> {
  const taken: number[] = [];
  for (let turn = 0; turn < times; turn++) {
    const start = performance.now();
    const { status } = await ask(connection);
    if (status !== 200) throw new Error(`answered ${status}`);
    taken.push(performance.now() - start);
  }
  return taken.sort((one, other) => one - other);
}

function median(sorted: readonly number[]): number {
  return sorted[sorted.length >> 1] as number;
}

/** One thread: each learns by itself what a shape costs, and how many connections are left is a matter of each. */
async function startWarm(options: Omit<TestOptions, 'databaseUrl'> = {}): Promise<Service> {
  const service = await startTestService({ databaseUrl, WORKERS: '1', ...options });
  const connection = new Connection(service);
  for (const fast of FAST) await measure(connection, fast, 30);
  connection.close();
  return service;
}

async function countSleepers(): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int from pg_stat_activity where wait_event = 'PgSleep' and pid <> pg_backend_pid()`;
  return row?.count ?? 0;
}

/** Work beside slow reads that are on their way and that wait; they end with it. */
async function beside(service: Service, paths: readonly string[], work: () => Promise<void>): Promise<void> {
  const slow = paths.map(() => new Connection(service));
  const answers = slow.map((connection, position) => connection.request('GET', paths[position] as string));
  const settled = Promise.allSettled(answers);
  try {
    await waitFor(async () => (await countSleepers()) > 0, 10_000);
    // Time for all the others to take what they get.
    await passTime(100, 'the others take what they get');
    await work();
  } finally {
    for (const connection of slow) connection.close();
    await waitFor(async () => {
      await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'`;
      return (await countSleepers()) === 0;
    }, 20_000);
    await settled;
  }
}

const SETUPS: readonly (readonly [name: string, options: Omit<TestOptions, 'databaseUrl'>])[] = [
  ['by default', {}],
  ['with two connections', { DATABASE_POOL_SIZE: '2' }],
  ['without batches', { READ_BATCHING: 'false' }],
];

for (const [name, options] of SETUPS) {
  t.test(`fast reads beside slow ones, ${name}`, async (t) => {
    const service = await startWarm(options);
    const crowds = {
      'shapes that were never seen before': Array.from({ length: CROWD }, (_, n) => `/items/slow/1?fields=slept,c${n}`),
      'one shape that is known to be slow': Array.from({ length: CROWD }, () => '/items/slow/1?fields=slept,c0'),
    };
    for (const [crowd, paths] of Object.entries(crowds)) {
      await beside(service, paths, async () => {
        const connection = new Connection(service);
        for (const fast of FAST) {
          const taken = await measure(connection, fast, 20);
          const most = taken.at(-1) as number;
          const told = `${fast.name} beside ${crowd}: ${median(taken).toFixed(1)} ms, ${most.toFixed(1)} ms at most`;
          t.ok(median(taken) < 100 && most < (SLOW * 1_000) / 2, told);
        }
        t.ok((await countSleepers()) > 0, 'the slow ones are still there');
        connection.close();
      });
    }
  });
}

t.test('a shape that is seen for the first time does not wait for one that is known to be slow', async (t) => {
  const service = await startWarm();
  const slow = Array.from({ length: CROWD }, () => '/items/slow/1?fields=slept,c0');
  await beside(service, slow.slice(0, 1), async () => {});
  await beside(service, slow, async () => {
    const connection = new Connection(service);
    for (const field of ['slug', 'body', 'status', 'views', 'rating']) {
      const ask = (): ReturnType<Fast['ask']> => connection.request('GET', `/items/articles/1?fields=${field}`);
      const [taken = 0] = await measure(connection, { name: field, ask }, 1);
      t.ok(taken < (SLOW * 1_000) / 2, `${taken.toFixed(1)} ms`);
    }
    t.ok((await countSleepers()) > 0, 'the slow ones are still there');
    connection.close();
  });
});

t.test('a crowd of one shape does not hold up a single request of another', async (t) => {
  const service = await startWarm({ DATABASE_POOL_SIZE: '2' });
  const [byKey, nested] = FAST as readonly [Fast, Fast];
  let done = false;
  const crowd = Array.from({ length: 64 }, async () => {
    const connection = new Connection(service);
    const taken: number[] = [];
    while (!done) taken.push(...(await measure(connection, byKey, 1)));
    connection.close();
    return taken;
  });
  const connection = new Connection(service);
  const single = await measure(connection, nested, 200);
  done = true;
  const many = (await Promise.all(crowd)).flat().sort((one, other) => one - other);
  connection.close();
  const told = `${median(single).toFixed(1)} ms beside ${median(many).toFixed(1)} ms of ${many.length}`;
  t.ok(median(single) < median(many) * 2 + 10, told);
});

t.test('nothing is read for a client that leaves before its turn', async (t) => {
  const service = await startWarm({ DATABASE_POOL_SIZE: '1' });
  const carried = async (): Promise<number> => {
    const { text } = await get(service, '/server/metrics');
    return Number(/^lateral_read_batch_size_sum (\d+)$/m.exec(text)?.[1]);
  };
  const waiting = async (): Promise<number> => {
    const { text } = await get(service, '/server/metrics');
    return Number(/^lateral_pool_waiting\{pool="read"\} (\d+)$/m.exec(text)?.[1]);
  };
  const before = await carried();
  const path = '/items/articles/1?fields=id,title';
  let staying: readonly Promise<{ readonly status: number }>[] = [];
  const stayers = Array.from({ length: 5 }, () => new Connection(service));
  await beside(service, ['/items/slow/1?fields=slept'], async () => {
    staying = stayers.map((connection) => connection.request('GET', path));
    await Promise.all(Array.from({ length: 30 }, () => new Connection(service).leave('GET', path)));
    await waitFor(async () => (await waiting()) >= 5, 10_000);
    t.equal(await carried(), before + 1, 'only the slow one is on its way');
  });
  for (const { status } of await Promise.all(staying)) t.equal(status, 200);
  for (const connection of stayers) connection.close();
  await waitFor(async () => (await waiting()) === 0, 10_000);
  t.equal(await carried(), before + 1 + 5);
});

for (const READ_BATCHING of ['true', 'false']) {
  t.test(`a batch whose clients have all left is stopped, READ_BATCHING=${READ_BATCHING}`, async (t) => {
    const service = await startWarm({ READ_BATCHING });
    const endless = {
      item: ['GET', '/items/endless/1', undefined],
      list: ['GET', '/items/endless?fields=slept', undefined],
      GraphQL: ['POST', '/graphql', '{"query":"{ endless_by_id(id: 1) { slept } }"}'],
    } as const;
    for (const [name, [method, path, body]] of Object.entries(endless)) {
      const clients = [new Connection(service), new Connection(service)] as const;
      const answers = Promise.allSettled(clients.map((client) => client.request(method, path, body)));
      await waitFor(async () => (await countSleepers()) > 0, 10_000);
      clients[0].close();
      await passTime(1_500, 'the read of the client that left would have ended');
      t.ok((await countSleepers()) > 0, `${name}: somebody still waits`);
      clients[1].close();
      t.ok((await waitFor(async () => (await countSleepers()) === 0, 10_000)) < 10_000, `${name}: nobody waits`);
      await answers;
    }
    t.equal((await get(service, '/items/articles/1?fields=id')).status, 200);
  });
}

t.test('a single request is sent at once: others are not waited for', async (t) => {
  const batched = new Connection(await startWarm());
  const apart = new Connection(await startWarm({ READ_BATCHING: 'false' }));
  for (const fast of FAST) {
    const taken: [number[], number[]] = [[], []];
    // By turns: whatever else the machine does, it does to both.
    for (let turn = 0; turn < 100; turn++) {
      taken[0].push(...(await measure(batched, fast, 1)));
      taken[1].push(...(await measure(apart, fast, 1)));
    }
    const [one, other] = taken.map((each) => median(each.sort((a, b) => a - b))) as [number, number];
    t.ok(one < other * 1.5 + 1, `${fast.name}: ${one.toFixed(2)} ms, ${other.toFixed(2)} ms with READ_BATCHING=false`);
  }
  batched.close();
  apart.close();
});
