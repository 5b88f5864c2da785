/** Whole replies from memory: which requests get one without passing the stages, for how long, and what a full memory keeps. */
import t, { type Test } from 'tap';
import { Identities } from '../../../src/server/access/identities.js';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  type RequestOptions,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(120_000);
const TAG = '/items/tags/1?fields=id,name';
const server = await startDatabase({ settings: { wal_level: 'logical' } });
const databaseUrl = await createLibrary(server, 'kept_replies');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end({ timeout: 1 }));
const service = await startTestService({ databaseUrl, LIVE: 'logical', WORKERS: '1', READ_CACHE_SIZE: '2mb' });

type Send = () => Promise<Answer>;

/** How often callers were identified: a request that gets a reply from memory identifies none. */
let identified = 0;
const { identify } = Identities.prototype;
Identities.prototype.identify = function (credentials) {
  identified++;
  return identify.call(this, credentials);
};
t.teardown(() => {
  Identities.prototype.identify = identify;
});

async function passesStages(send: Send): Promise<boolean> {
  const before = identified;
  await send();
  return identified > before;
}

/** Sends until the reply comes from memory. */
async function warm(send: Send): Promise<void> {
  await waitFor(async () => !(await passesStages(send)), 20_000);
}

/** Sends as often as it takes for a reply to be kept. */
async function sendOften(t: Test, send: Send): Promise<void> {
  await warm(() => get(service, TAG));
  for (let turn = 0; turn < 8; turn++) t.equal((await send()).status, 200);
}

const read = (path: string, options: RequestOptions = {}): Send => {
  return () => get(service, path, options);
};

t.test('a reply is used as long as its answer is in memory and its caller is valid', async (t) => {
  await warm(read(TAG));
  await passTime(1_200, 'replies were made again each second');
  t.notOk(await passesStages(read(TAG)));
  await sql`update tags set name = 'another' where id = 1`;
  await waitFor(async () => (await get(service, TAG)).text.includes('another'), 5_000);
  await warm(read(TAG));
  t.match((await get(service, TAG)).text, 'another');
});

t.test('a caller is identified once for all replies', async (t) => {
  const rule = { collection: 'tags', action: 'read', fields: ['id', 'name'] } as const;
  const { token, user } = await makeCaller(sql, 'reader', [{ permissions: [rule] }]);
  const reads = [1, 2, 3].map((id) => read(`/items/tags/${id}?fields=id,name`, { token }));
  await waitFor(async () => (await reads[0]?.())?.status === 200, 5_000);
  for (const each of reads) await warm(each);
  // Whatever is written about users, callers are looked up again.
  await sql`update service_users set first_name = 'changed' where id = ${user}`;
  const [first = read(TAG), ...others] = reads;
  await waitFor(() => passesStages(first), 5_000);
  await first();
  for (const each of others) t.notOk(await passesStages(each), 'the first request has renewed all replies');
  await sql`update service_users set status = 'suspended' where id = ${user}`;
  await waitFor(async () => (await first()).status === 401, 5_000);
  for (const each of others) t.equal((await each()).status, 401);
});

t.test('an answer that depends on the time is read each time', async (t) => {
  await sql.unsafe(`create table moments (id int primary key, at timestamptz)`).simple();
  await sql`insert into moments values (1, '2030-01-01T00:00:00Z'), (2, '2030-01-01T01:00:00Z')`;
  const path = '/items/moments?fields=id&sort=id&filter[at][_lte]=$NOW';
  await waitFor(async () => (await get(service, path)).status === 200, 10_000);
  const { now } = Date;
  let time = Date.parse('2030-01-01T00:30:00Z');
  // Only values are bound at that time: tokens and identities have no end here.
  Date.now = () => time;
  t.teardown(() => {
    Date.now = now;
  });
  await sendOften(t, read(path));
  t.equal((await get(service, path)).text, '{"data":[{"id":1}]}');
  time += 3_600_000;
  t.equal((await get(service, path)).text, '{"data":[{"id":1},{"id":2}]}');
  Date.now = now;
});

t.test('reads that come once evict none that come often', async (t) => {
  const often = Array.from({ length: 40 }, (_, index) => read(`/items/tags?fields=id,name&limit=${index + 1}`));
  for (const each of often) await warm(each);
  for (let turn = 0; turn < 10; turn++) await Promise.all(often.map((each) => each()));
  for (let from = 0; from < 3_000; from += 50)
    for (let turn = 0; turn < 2; turn++)
      await Promise.all(
        Array.from({ length: 50 }, (_, index) => get(service, `/items/tags?fields=id&offset=${from + index}`)),
      );
  const metrics = (await get(service, '/server/metrics')).text;
  t.ok(Number(/^lateral_read_cache_bytes (\S+)$/m.exec(metrics)?.[1]) > 0.9 * 2 ** 21, 'the memory is full');
  let passed = 0;
  for (const each of often) passed += Number(await passesStages(each));
  t.ok(passed <= 2, `${passed} of ${often.length} were evicted`);
});
