/** Where a cache of reads goes wrong: answers that overtake each other, threads, other instances, and changes that no row reports. */
import { Agent } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t, { type Test } from 'tap';
import { ReadCache } from '../../../src/speed/cache/read-cache.js';
import { inForce, makeCaller } from '../../support/callers.js';
import { startPrimary } from '../../support/cluster.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  type RequestOptions,
  request,
  type Sql,
  startTestService,
  type TestOptions,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(230_000);
const JSON_HEADERS = { 'content-type': 'application/json' };
const STRONG = { headers: { prefer: 'consistency=strong' } };
/** CACHE_TURNS makes the random orders of reads and writes more. */
const TURNS = Number(process.env['CACHE_TURNS'] ?? 5);
/** CACHE_ENTRIES is the number of answers whose memory is measured. */
const ENTRIES = Number(process.env['CACHE_ENTRIES'] ?? 1_000);
/** How much slower the clock of a test runs that moves it itself. */
const SLOWNESS = 50;
const TAG = '/items/tags/1?fields=id,name';
const TAGS = '/items/tags?fields=id,name&sort=id';

// The service of each test stays until the end, with a slot of its own.
const server = await startPrimary({
  settings: { wal_level: 'logical', max_replication_slots: '30', max_wal_senders: '30' },
});
const isHit = ({ headers }: Answer): boolean => headers['cache-status'] === 'lateral; hit';

type Place = Awaited<ReturnType<typeof startTestService>>;

async function open(
  name: string,
  options: Partial<TestOptions> = {},
): Promise<{ readonly service: Place; readonly sql: Sql; readonly databaseUrl: string }> {
  const databaseUrl = await createLibrary(server, name);
  const sql = connectSql(databaseUrl);
  t.teardown(() => sql.end({ timeout: 1 }));
  return { service: await start(databaseUrl, options), sql, databaseUrl };
}

function start(databaseUrl: string, options: Partial<TestOptions> = {}): Promise<Place> {
  return startTestService({ databaseUrl, LIVE: 'logical', WORKERS: '1', READ_CACHE_SIZE: '16mb', ...options });
}

/** Asks until the answer comes from memory. */
async function warm(service: Place, path: string, options: RequestOptions = {}): Promise<Answer> {
  let answer = await get(service, path, options);
  await waitFor(async () => {
    answer = await get(service, path, options);
    return isHit(answer);
  }, 10_000);
  return answer;
}

/** Changes what the caches of this process learn, until the test ends. */
function intercept(t: Test, wrap: (committed: ReadCache['committed']) => ReadCache['committed']): void {
  const { committed } = ReadCache.prototype;
  ReadCache.prototype.committed = wrap(committed);
  t.teardown(() => {
    ReadCache.prototype.committed = committed;
  });
}

async function metric(service: Place, name: string): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  return Number(new RegExp(`^lateral_read_cache_${name} (\\S+)$`, 'm').exec(text)?.[1]);
}

/** Bytes that this process uses for its objects and buffers. */
async function usedMemory(): Promise<number> {
  await passTime(300, 'what ended lately is let go');
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Why answers to it are not kept. */
async function reasonOf(service: Place, path: string): Promise<string> {
  const { text } = await get(service, path, { headers: { prefer: 'explain' } });
  return JSON.parse(text).data.cache.reason ?? '';
}

t.test('an answer of PostgreSQL is not followed by an older one from memory', async (t) => {
  const { service, sql } = await open('order');
  const held: (() => void)[] = [];
  await warm(service, TAG);
  t.notOk(isHit(await get(service, TAG, STRONG)));
  t.ok(isHit(await get(service, TAG)), 'an equal answer does not drop the one in memory');
  intercept(
    t,
    (committed) =>
      function (this: ReadCache, commit) {
        held.push(() => committed.call(this, commit));
      },
  );
  await sql`update tags set name = 'later' where id = 1`;
  t.match((await get(service, TAG, STRONG)).text, /later/);
  t.match((await get(service, TAG)).text, /later/, 'the change has not been reported yet');
  for (const report of held) report();
});

t.test('a read is kept if it has come within the last minute', async (t) => {
  const { service, sql } = await open('minute');
  const path = '/items/tags/2?fields=id,name';
  const { performance } = globalThis;
  const now = performance.now.bind(performance);
  const begun = now();
  let later = 0;
  // What a busy machine takes for a step hardly counts: the minute passes by the steps of this test.
  performance.now = () => begun + (now() - begun) / SLOWNESS + later;
  t.teardown(() => {
    performance.now = now;
  });
  /** The stream was compared with the database since then. */
  const pass = async (ms: number): Promise<void> => {
    later += ms;
    await warm(service, TAG);
  };
  const change = async (name: string): Promise<void> => {
    await sql`update tags set name = ${name} where id in (1, 2)`;
    await waitFor(async () => (await get(service, TAG)).text.includes(name), 4_000);
    await warm(service, TAG);
  };
  const turns = async (): Promise<boolean[]> => {
    const first = isHit(await get(service, path));
    return [first, isHit(await get(service, path))];
  };
  await warm(service, path);
  await pass(40_000);
  t.ok(isHit(await get(service, path)));
  await change('used');
  await pass(40_000);
  t.strictSame(await turns(), [false, true], 'it was used 40 s ago, and seen first 80 s ago');
  await change('kept');
  await pass(70_000);
  t.strictSame(await turns(), [false, false], 'it was used 70 s ago');
});

t.test('a read that was used is kept from its first request after the stream of changes was lost', async (t) => {
  const { service, sql } = await open('lost');
  const path = '/items/tags/3?fields=id,name';
  await warm(service, path);
  await sql`select pg_terminate_backend(active_pid) from pg_replication_slots where active and database = current_database()`;
  await waitFor(async () => !isHit(await get(service, TAG)), 10_000);
  await warm(service, TAG);
  t.strictSame([isHit(await get(service, path)), isHit(await get(service, path))], [false, true]);
});

t.test('reads at the same time share an answer, and each is answered', async (t) => {
  const { service, sql } = await open('together');
  for (let turn = 0; turn < TURNS; turn++) {
    await sql`update tags set name = ${`turn ${turn}`} where id = 1`;
    const answers = await Promise.all(Array.from({ length: 20 }, () => get(service, TAG)));
    if (!answers.every(({ status }) => status === 200)) t.fail('a read was not answered');
    await waitFor(async () => (await get(service, TAG)).text.includes(`turn ${turn}`), 5_000);
    const missing = await Promise.all(Array.from({ length: 5 }, () => get(service, '/items/tags/999?fields=id')));
    if (!missing.every(({ status }) => status === 403)) t.fail('a read of nothing was not refused');
  }
  await warm(service, TAG);
});

for (const LIVE of ['logical', 'triggers'] as const)
  t.test(`changes of the schema that keep the model, with ${LIVE}`, async (t) => {
    const { service, sql } = await open(`schema_${LIVE}`, { LIVE });
    const path = TAGS;
    const changes: Readonly<Record<string, readonly string[]>> = {
      'a column is rewritten': ["alter table tags alter name type varchar(255) using name || '!'"],
      'tables change their names': [
        'create table others (like tags including all)',
        "insert into others values (7, 'from the other table')",
        'alter table tags rename to former',
        'alter table others rename to tags',
        'alter table former rename to others',
      ],
      'a table is made again': [
        'alter sequence tags_id_seq owned by none',
        'drop table tags cascade',
        "create table tags (id int primary key default nextval('tags_id_seq'), name varchar(255))",
        "insert into tags values (8, 'made again')",
      ],
    };
    // Answers of PostgreSQL itself would drop what is in memory.
    const stored = async (): Promise<string> =>
      JSON.stringify({ data: await sql`select id, name from tags order by id` });
    const isSeen = async (): Promise<boolean> => (await get(service, path)).text === (await stored());
    for (const [name, statements] of Object.entries(changes)) {
      const before = (await warm(service, path)).text;
      await sql.begin(async (tx) => {
        for (const statement of statements) await tx.unsafe(statement);
      });
      t.not(await stored(), before, name);
      await waitFor(isSeen, 4_000).catch(() => t.fail(`${name}: it is not seen`));
      t.equal((await warm(service, path)).text, await stored(), `${name}: the answer that is kept then`);
      await sql`update tags set name = name || '?'`;
      await waitFor(isSeen, 4_000).catch(() => t.fail(`${name}: a later change is not seen`));
    }
  });

t.test('compiled statements count as memory of the answers that keep them', async (t) => {
  const { service } = await open('shapes', { READ_CACHE_SIZE: '1mb' });
  const { begin } = ReadCache.prototype;
  const caches = new Set<ReadCache>();
  ReadCache.prototype.begin = function (...given) {
    caches.add(this);
    return begin.apply(this, given);
  };
  t.teardown(() => {
    ReadCache.prototype.begin = begin;
  });
  const filterOf = (number: number): string => `${'0'.repeat(number % 16)}${'1'.repeat(Math.floor(number / 16) + 1)}`;
  for (let number = 0; number < 200; number++) {
    const parts = [...filterOf(number)].map((bit) => ({ id: { [bit === '0' ? '_gte' : '_lte']: 1 } }));
    const path = `/items/tags?fields=id&limit=1&filter=${JSON.stringify({ _and: parts })}`;
    for (let turn = 0; turn < 3; turn++) await get(service, path);
  }
  const [cache] = caches;
  if (!cache) throw new Error('no read was kept');
  t.ok(cache.entries > 10 && cache.entries < 200, `${cache.entries} of 200 shapes`);
  t.ok(cache.used <= 2 ** 20 && cache.used > cache.entries * 8_192, `${cache.used} bytes`);
});

t.test('a table that is rewritten is read again', async (t) => {
  const { service, sql } = await open('rewritten');
  const before = (await warm(service, TAG)).text;
  await sql`alter table tags alter name type varchar(255) using 'rewritten'`;
  await waitFor(async () => (await get(service, TAG)).text !== before, 2_000);
  t.match((await get(service, TAG)).text, /rewritten/);
});

t.test('rows in several tables are never kept', async (t) => {
  const { service, sql } = await open('partitions');
  await sql
    .unsafe(`create table parts (id int primary key, name text) partition by range (id);
    create table early partition of parts for values from (0) to (10); insert into parts values (1, 'early');
    create table parents (id int primary key, name text); create table children () inherits (parents);
    insert into children values (1, 'child')`)
    .simple();
  for (const table of ['parts', 'parents']) {
    const path = `/items/${table}?fields=id,name`;
    await waitFor(async () => (await get(service, path)).status === 200, 5_000);
    for (let turn = 0; turn < 5; turn++) t.notOk((await get(service, path)).headers['cache-status'], table);
  }
  await warm(service, TAGS);
  await sql.unsafe('create schema hidden; create table hidden.tags () inherits (public.tags)').simple();
  await waitFor(async () => (await reasonOf(service, TAGS)).includes('inherit'), 4_000);
  await sql`insert into hidden.tags values (77, 'of a table that is not served')`;
  t.match((await get(service, TAGS)).text, '77');
  // The log does not report this.
  await sql`truncate early`;
  t.equal((await get(service, '/items/parts?fields=id,name')).text, '{"data":[]}');
});

t.test('a transaction that wrote a table before its changes are reported', async (t) => {
  const { service, sql, databaseUrl } = await open('older');
  const [locker, writer] = [connectSql(databaseUrl), connectSql(databaseUrl)];
  t.teardown(() => Promise.all([locker.end({ timeout: 1 }), writer.end({ timeout: 1 })]));
  await warm(service, TAG);
  // The service adds "keyed" to its first publication, then waits for the second one: its transaction has a number and is open.
  await locker`begin`;
  await locker`comment on publication lateral_live_keyless is 'locked'`;
  await sql.unsafe('create table keyed (id int primary key, name text); create table keyless (name text)').simple();
  const isWaiting = async (): Promise<boolean> =>
    (await sql`select from pg_stat_activity where query like 'alter publication%' and wait_event_type = 'Lock'`)
      .length > 0;
  await waitFor(isWaiting, 4_000);
  await writer`begin`;
  await writer`insert into keyed values (1, 'early')`;
  await locker`rollback`;
  const path = '/items/keyed?fields=id,name';
  await waitFor(async () => (await get(service, path)).status === 200, 4_000);
  for (let turn = 0; turn < 30; turn++) {
    t.equal((await get(service, path)).text, '{"data":[]}');
    await passTime(20, 'the answer could be kept now');
  }
  await writer`commit`;
  await waitFor(async () => (await get(service, path)).text.includes('early'), 2_000);
  t.match((await warm(service, path)).text, 'early');
});

t.test('one caller and the memory of others', async (t) => {
  const { service, sql, databaseUrl } = await open('callers', { READ_CACHE_SIZE: '1mb', SERVER_TIMING: 'true' });
  const permission = { collection: 'tags', action: 'read', fields: ['id', 'name'] } as const;
  // Their groups differ.
  const userOf = (digit: number): { user: string } => ({ user: `00000000-0000-4000-8000-00000000000${digit}` });
  const first = await makeCaller(sql, 'first', [{ permissions: [permission] }], userOf(1));
  const second = await makeCaller(sql, 'second', [], userOf(2));
  await sql`update service_users set role = ${first.role} where id = ${second.user}`;
  const rule = { ...permission, permissions: { id: { _gte: 0 } } };
  const third = await makeCaller(sql, 'third', [{ permissions: [rule] }], userOf(3));
  await inForce(service, first, TAG);
  await inForce(service, second, TAG);
  await inForce(service, third, TAG);
  const paths = Array.from({ length: 20 }, (_, index) => `/items/tags?fields=id&limit=${index + 1}`);
  for (const path of paths) await warm(service, path, first);
  await t.test('replies to one caller evict no answers of others', async (t) => {
    for (let number = 0; number < 300; number++) {
      const headers = { 'x-number': `${number} `.padEnd(3_500, '.') };
      await get(service, paths[number % 3] ?? '', { ...second, headers });
    }
    const answers = await Promise.all(paths.map((path) => get(service, path, first)));
    t.equal(answers.filter(isHit).length, paths.length);
  });
  await t.test('answers to one caller evict none of others', async (t) => {
    for (let from = 0; from < 1_200; from += 20)
      for (let turn = 0; turn < 3; turn++) {
        const offsets = Array.from({ length: 20 }, (_, index) => from + index);
        await Promise.all(offsets.map((offset) => get(service, `/items/tags?fields=id&offset=${offset}`, second)));
        await get(service, paths[turn] ?? '', first);
      }
    t.ok((await metric(service, 'bytes')) > 0.9 * 2 ** 20, 'the memory is full');
    const answers = await Promise.all(paths.map((path) => get(service, path, first)));
    t.equal(answers.filter(isHit).length, paths.length);
  });
  await t.test('a caller with other permissions does not learn what others read', async (t) => {
    const turnsOf = async (path: string): Promise<boolean[]> => {
      const answers: Answer[] = [];
      for (let turn = 0; turn < 3; turn++) answers.push(await get(service, path, third));
      return answers.map(isHit);
    };
    const path = paths[0] ?? '';
    t.ok(isHit(await get(service, path, first)), 'another caller reads it from memory');
    t.strictSame(await turnsOf(path), [false, false, true]);
    t.strictSame(await turnsOf('/items/tags?fields=id&limit=77'), [false, false, true], 'as what nobody has read');
    const document = `/graphql?query=${encodeURIComponent('{ tags(limit: 3) { id } }')}`;
    await warm(service, document, first);
    t.strictSame(await turnsOf(document), [false, false, true], 'a query of GraphQL');
    await warm(service, '/items/tags?fields=id&limit=78');
    t.strictSame(await turnsOf('/items/tags?fields=id&limit=78'), [false, false, true], 'of an administrator');
  });
  await t.test('a caller with other permissions shares no read that is under way', async (t) => {
    const path = '/items/tags?fields=id&limit=79';
    const locker = connectSql(databaseUrl);
    await Promise.all([first, third].map((caller) => get(service, path, caller)));
    await locker`begin`;
    await locker`lock table tags`;
    const reads = [first, second, third].map((caller) => get(service, path, caller));
    const waiting = async (): Promise<number> =>
      (await sql`select from pg_stat_activity where wait_event_type = 'Lock' and query like '%tags%'`).length;
    await waitFor(async () => (await waiting()) === 2, 4_000).catch(() => {});
    t.equal(await waiting(), 2, 'the first two share a statement, the third has one of its own');
    await locker`rollback`;
    await Promise.all(reads);
    await locker.end({ timeout: 1 });
  });
  await t.test('a caller with other permissions evicts no answers of others', async (t) => {
    for (let from = 0; from < 1_200; from += 20)
      for (let turn = 0; turn < 3; turn++) {
        const offsets = Array.from({ length: 20 }, (_, index) => from + index);
        await Promise.all(offsets.map((offset) => get(service, `/items/tags?fields=id&offset=${offset}`, third)));
      }
    t.ok((await metric(service, 'bytes')) > 0.9 * 2 ** 20, 'the memory is full');
    const answers = await Promise.all(paths.map((path) => get(service, path, first)));
    t.equal(answers.filter(isHit).length, paths.length);
  });
  await t.test('an answer that is too large does not keep small ones out', async (t) => {
    await sql`insert into tags (name) select repeat('x', 200) from generate_series(1, 1000)`;
    const large = '/items/tags?fields=id,name&sort=id&limit=1000';
    const small = '/items/tags?fields=id,name&sort=id&limit=2';
    for (let turn = 0; turn < 4; turn++) t.notOk(isHit(await get(service, large)));
    await warm(service, small);
    t.notOk(isHit(await get(service, large)));
  });
});

t.test(`the memory of ${ENTRIES} answers and their replies is what is counted`, async (t) => {
  const { service } = await open('memory', { READ_CACHE_SIZE: '512mb' });
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  t.teardown(() => agent.destroy());
  const ask = async (from: number, to: number): Promise<void> => {
    for (let turn = 0; turn < 6; turn++)
      for (let at = from; at < to; at += 20) {
        const offsets = Array.from({ length: 20 }, (_, index) => at + index);
        await Promise.all(
          offsets.map((offset) => get(service, `/items/tags?fields=id,name&offset=${offset}`, { agent })),
        );
      }
  };
  await ask(1_000_000, 1_000_400);
  await warm(service, TAG);
  const [memory, counted] = [await usedMemory(), await metric(service, 'bytes')];
  await ask(0, ENTRIES);
  const [used, kept] = [(await usedMemory()) - memory, (await metric(service, 'bytes')) - counted];
  t.ok((await metric(service, 'entries')) > 0.8 * ENTRIES, 'they are kept');
  t.comment(`${Math.round(used / ENTRIES)} bytes used for each, ${Math.round(kept / ENTRIES)} counted`);
  t.ok(used < 1.1 * kept + 20 * 2 ** 20, `${used} bytes used, ${kept} counted`);
});

t.test('text search configurations and casts change answers too', async (t) => {
  const { service, sql } = await open('conversions');
  await sql
    .unsafe(`create text search configuration own (copy = simple); create type mood as enum ('sad');
    create table notes (id int primary key, body text, mood mood);
    insert into notes values (1, 'joined', 'sad');
    create function mood_json(mood) returns json language sql immutable as $$ select '"cast"'::json $$`)
    .simple();
  const found = `/items/notes?fields=id&filter=${JSON.stringify({ body: { _fts: { query: 'join', config: 'own' } } })}`;
  const shown = '/items/notes/1?fields=mood';
  await waitFor(async () => (await get(service, found)).status === 200, 5_000);
  t.equal((await warm(service, found)).text, '{"data":[]}');
  t.match((await warm(service, shown)).text, 'sad');
  await sql`alter text search configuration own alter mapping replace simple with english_stem`;
  await waitFor(async () => (await get(service, found)).text.includes('1'), 2_000);
  await warm(service, shown);
  await sql`create cast (mood as json) with function mood_json(mood)`;
  await waitFor(async () => (await get(service, shown)).text.includes('cast'), 2_000);
  await warm(service, shown);
  await sql`create or replace function mood_json(mood) returns json language sql immutable as $$ select '"other"'::json $$`;
  await waitFor(async () => (await get(service, shown)).text.includes('other'), 2_000);
});

t.test('with two threads, a caller sees their own writes over every connection', async (t) => {
  const { service } = await open('threads', { WORKERS: '2' });
  const agents = Array.from({ length: 6 }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  t.teardown(() => {
    for (const agent of agents) agent.destroy();
  });
  for (let turn = 0; turn < TURNS; turn++) {
    for (const agent of agents) await warm(service, TAG, { agent });
    const name = `turn ${turn}`;
    const body = JSON.stringify({ name });
    const [agent = new Agent()] = agents.splice(0, 1);
    agents.push(agent);
    t.equal((await request(service, 'PATCH', '/items/tags/1', { headers: JSON_HEADERS, body, agent })).status, 200);
    const texts = await Promise.all(agents.map(async (each) => (await get(service, TAG, { agent: each })).text));
    t.ok(
      texts.every((text) => text.includes(`"${name}"`)),
      name,
    );
  }
});

t.test('another instance sees a write by its position', async (t) => {
  const { service, databaseUrl } = await open('positions');
  const second = await start(databaseUrl);
  for (let turn = 0; turn < TURNS; turn++) {
    await warm(second, TAG);
    const body = JSON.stringify({ name: `turn ${turn}` });
    const written = await request(service, 'PATCH', '/items/tags/1', { headers: JSON_HEADERS, body });
    const position = String(written.headers['lateral-position']);
    const { text } = await get(second, TAG, { headers: { 'lateral-position': position } });
    t.match(text, `turn ${turn}"`);
  }
  await warm(second, TAG);
});
