/** Whole replies from memory: which requests get one without passing the stages, for how long, and what a full memory keeps. */
import { once } from 'node:events';
import { Agent } from 'node:http';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { Identities } from '../../../src/server/access/identities.js';
import { makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  KNOWS_CALLERS,
  type RequestOptions,
  request,
  sendRaw,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(120_000);
const JSON_HEADERS = { 'content-type': 'application/json' };
const TAG = '/items/tags/1?fields=id,name';
const server = await startDatabase({ settings: { wal_level: 'logical' } });
const databaseUrl = await createLibrary(server, 'kept_replies');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end({ timeout: 1 }));
const service = await startTestService({
  databaseUrl,
  LIVE: 'logical',
  WORKERS: '1',
  READ_CACHE_SIZE: '1mb',
  ...KNOWS_CALLERS,
});

// A connection that ends with its response gets no reply from memory.
const agent = new Agent({ keepAlive: true });
t.teardown(() => agent.destroy());

type Send = () => Promise<Answer>;

function send(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
  return request(service, method, path, { agent, ...options });
}

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
  for (let turn = 0; turn < 8; turn++) t.equal((await send()).status, 200);
}

function read(path: string, options: RequestOptions = {}): Send {
  return () => send('GET', path, options);
}

function ask(query: string, variables: object, options: RequestOptions = {}): Send {
  const headers = { ...JSON_HEADERS, ...options.headers };
  return () => send('POST', '/graphql', { ...options, headers, body: JSON.stringify({ query, variables }) });
}

t.test('a reply is used as long as its answer is in memory and its caller is valid', async (t) => {
  await warm(read(TAG));
  await passTime(1_200, 'replies were made again each second');
  t.notOk(await passesStages(read(TAG)));
  await sql`update tags set name = 'another' where id = 1`;
  await waitFor(async () => (await send('GET', TAG)).text.includes('another'), 5_000);
  await warm(read(TAG));
  t.match((await send('GET', TAG)).text, 'another');
});

t.test('a caller is identified once for all replies', async (t) => {
  const rule = { collection: 'tags', action: 'read', fields: ['id', 'name'] } as const;
  const { token, user } = await makeCaller(sql, 'reader', [{ permissions: [rule] }]);
  await sql`insert into service_users (id, email) values (gen_random_uuid(), 'other@example.com')`;
  const reads = [1, 2, 3].map((id) => read(`/items/tags/${id}?fields=id,name`, { token }));
  await waitFor(async () => (await reads[0]?.())?.status === 200, 5_000);
  for (const each of reads) await warm(each);
  // If any user changes, all callers are looked up again.
  await sql`update service_users set status = 'suspended' where email = 'other@example.com'`;
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
  const begun = Date.now();
  for (const [id, ms] of [
    [1, -3_600_000],
    [2, 5_000],
  ])
    await sql`insert into moments values (${id ?? 0}, ${new Date(begun + (ms ?? 0))})`;
  const path = '/items/moments?fields=id&sort=id&filter[at][_lte]=$NOW';
  await waitFor(async () => (await send('GET', path)).status === 200, 10_000);
  await warm(read(TAG));
  const { Date: RealDate } = globalThis;
  let time = begun;
  // All values are bound at the same time: the reads are equal.
  globalThis.Date = class extends RealDate {
    constructor(...given: [] | [number]) {
      super(given.length === 0 ? time : given[0]);
    }
  } as DateConstructor;
  t.teardown(() => {
    globalThis.Date = RealDate;
  });
  await sendOften(t, read(path));
  t.equal((await send('GET', path)).text, '{"data":[{"id":1}]}');
  time += 10_000;
  t.equal((await send('GET', path)).text, '{"data":[{"id":1},{"id":2}]}');
});

t.test('reads that come once evict none that come often', async (t) => {
  const often = Array.from({ length: 40 }, (_, index) => read(`/items/tags?fields=id,name&limit=${index + 1}`));
  for (const each of often) await warm(each);
  for (let turn = 0; turn < 10; turn++) await Promise.all(often.map((each) => each()));
  for (let from = 0; from < 1_500; from += 50)
    for (let turn = 0; turn < 2; turn++)
      await Promise.all(
        Array.from({ length: 50 }, (_, index) => send('GET', `/items/tags?fields=id&offset=${from + index}`)),
      );
  const metrics = (await send('GET', '/server/metrics')).text;
  t.ok(Number(/^lateral_read_cache_bytes (\S+)$/m.exec(metrics)?.[1]) > 0.9 * 2 ** 20, 'the memory is full');
  let passed = 0;
  for (const each of often) passed += Number(await passesStages(each));
  t.ok(passed <= 2, `${passed} of ${often.length} were evicted`);
});

t.test('requests with a body get replies by all of their bytes', async (t) => {
  const byId = 'query ($id: GraphQLStringOrFloat) { tags(filter: { id: { _eq: $id } }) { id name } }';
  const first = ask(byId, { id: 1 });
  await warm(first);
  const expected = (await first()).text;
  t.match(expected, '"id":"1"');
  await warm(ask(byId, { id: 2 }));
  t.match((await ask(byId, { id: 2 })()).text, '"id":"2"');
  t.notOk(await passesStages(first));
  t.equal((await first()).text, expected);
  const mutation = ask('mutation { create_tags_item(data: { name: "made" }) { name } }', {});
  for (let turn = 0; turn < 5; turn++) t.ok(await passesStages(mutation));
  const [{ count } = { count: 0 }] = await sql<{ count: number }[]>`select count(*)::int from tags where name = 'made'`;
  t.equal(count, 5, 'each mutation was executed');
  for (const method of ['SEARCH', 'QUERY']) {
    const body = JSON.stringify({ query: { fields: ['id'], filter: { id: { _eq: 2 } } } });
    const search = (): Promise<Answer> => send(method, '/items/tags', { headers: JSON_HEADERS, body });
    await warm(search);
    t.equal((await search()).text, '{"data":[{"id":2}]}');
  }
});

t.test('other headers, callers and framings are no hits of another request', async (t) => {
  const query = '{ tags(filter: { id: { _eq: 1 } }) { id name } }';
  await warm(ask(query, {}));
  for (const options of [{ token: 'wrong' }, { token: null }, { headers: { 'content-type': 'text/plain' } }]) {
    const other = ask(query, {}, options);
    const { status } = await other();
    t.ok(status >= 400, `${status} for ${JSON.stringify(options)}`);
    for (let turn = 0; turn < 3; turn++) t.equal((await other()).status, status);
  }
  const foreign = ask(
    query,
    {},
    { token: null, headers: { cookie: 'service_session_token=x', origin: 'http://evil' } },
  );
  t.ok((await foreign()).status >= 400);
  const body = JSON.stringify({ query, variables: {} });
  const head = `POST /graphql HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\nContent-Type: application/json\r\n`;
  const isWhole = (text: string): boolean => /"name":"[^"]*"\}\]\}\}/.test(text);
  const inParts = [`${head}Content-Length: ${body.length}\r\n\r\n`, body.slice(0, 20), body.slice(20)];
  t.match(await sendRaw(service, inParts, isWhole), '200 OK', 'a body in several packets');
  const chunked = [`${head}Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`];
  t.match(await sendRaw(service, chunked, isWhole), '200 OK', 'a body in chunks');
  const two = [`${head}Host: b\r\nContent-Length: ${body.length}\r\n\r\n${body}`];
  t.match(await sendRaw(service, two), '400 Bad Request', 'two hosts');
  const left = connect(Number(new URL(service.url).port), '127.0.0.1');
  left.end(`${head}Content-Length: 9\r\n\r\n`);
  await once(left, 'close');
  t.equal((await ask(query, {})()).status, 200, 'after a client that left before its body');
});

t.test('a request whose body does not come ends after BODY_TIMEOUT', async (t) => {
  const node = await startTestService({
    databaseUrl,
    LIVE: 'logical',
    WORKERS: '1',
    SERVER: 'node',
    READ_CACHE_SIZE: '1mb',
    BODY_TIMEOUT: '1s',
  });
  t.teardown(() => node.stop());
  const body = JSON.stringify({ query: { fields: ['id'], filter: { id: { _eq: 2 } } } });
  const search = (): Promise<Answer> => request(node, 'SEARCH', '/items/tags', { agent, headers: JSON_HEADERS, body });
  await warm(search);
  const head = `SEARCH /items/tags HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\nContent-Type: application/json\r\n`;
  const answer = await sendRaw(node, [`${head}Content-Length: 9\r\n\r\n`], (text) => text.includes('BODY_TIMEOUT'));
  t.match(answer, '400 Bad Request');
});
