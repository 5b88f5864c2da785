/**
 * Several threads on one port: nobody may notice that there are more than one. A view shows which thread answers: each has
 * one connection for reads here, and PostgreSQL knows it by its number.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { options, readConfig } from '../../../src/app/options.js';
import { packagePath } from '../../../src/base/package-files.js';
import { workersFor } from '../../../src/server/config/option-kinds.js';
import { centralConfig, shareOf } from '../../../src/speed/threads/worker-pool.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  makeFolder,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { cookieOf, failure, login, makeUser, post } from '../../support/users.js';

// Through a pooler any thread's transaction may run on any backend: which thread has answered could not be seen.
delete process.env['TEST_POOLER'];
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'workers');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql
  .unsafe(`
    create view backend as select 1 as id, pg_backend_pid() as pid;
    create view slow as select 1 as id, pg_backend_pid() as pid, pg_sleep(1)::text as nap;
    insert into service_collections (collection, primary_key) values ('backend', 'id'), ('slow', 'id');`)
  .simple();

const TWO = { databaseUrl, WORKERS: '2', DATABASE_POOL_SIZE: '2', LOGIN_STALL_TIME: '0' };
const service = await startTestService(TWO);
const limited = await startTestService({
  ...TWO,
  IP_TRUST_PROXY: 'loopback',
  RATE_LIMITER_ENABLED: 'true',
  RATE_LIMITER_POINTS: '40',
  RATE_LIMITER_DURATION: '3600',
  RATE_LIMITER_LOGIN_POINTS: '3',
  RATE_LIMITER_LOGIN_DURATION: '3600',
});

/** A connection that stays, and with it the thread that answers on it. */
interface Line {
  readonly thread: number;
  readonly agent: Agent;
}

let strangers = 0;

async function openLine(place: { readonly url: string }): Promise<Line> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const headers = { 'x-forwarded-for': `198.51.100.${++strangers}` };
  const answer = await get(place, '/items/backend', { agent, headers });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
  return { agent, thread: (answer.json as { data: [{ pid: number }] }).data[0].pid };
}

/** One line to each of the two threads; the system chooses, so some are thrown away. */
async function openBoth(place: { readonly url: string }): Promise<readonly [Line, Line]> {
  const first = await openLine(place);
  for (let attempt = 0; attempt < 60; attempt++) {
    const other = await openLine(place);
    if (other.thread !== first.thread) return [first, other];
    other.agent.destroy();
  }
  throw new Error('all connections reach the same thread');
}

type Work = (one: Line, other: Line, round: number) => Promise<void>;

/** By turns one thread changes something and the other has to know it at once. */
async function bothWays(rounds: number, work: Work): Promise<void> {
  const [one, other] = await openBoth(service);
  for (let round = 0; round < rounds; round++) {
    if (round % 2) await work(other, one, round);
    else await work(one, other, round);
  }
}

function send(line: Line, method: string, path: string, body?: unknown, more: RequestOptions = {}): Promise<Answer> {
  const headers = { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...more.headers };
  const json = body === undefined ? {} : { body: JSON.stringify(body) };
  return request(service, method, path, { ...more, ...json, headers, agent: line.agent });
}

t.test('connections are shared out, and PostgreSQL sees no more of ours than before', async (t) => {
  const threads = new Set(
    (await Promise.all(Array.from({ length: 24 }, () => openLine(service)))).map((line) => line.thread),
  );
  t.equal(threads.size, 2);
  const config = readConfig({ WORKERS: '3', DATABASE_POOL_SIZE: '8', DATABASE_WRITE_POOL_SIZE: '2' });
  const shares = [0, 1, 2].map((position) => shareOf(config, position, options.divided));
  t.strictSame(
    shares.map((share) => share.DATABASE_POOL_SIZE),
    [3, 3, 2],
  );
  t.strictSame(
    shares.map((share) => share.DATABASE_WRITE_POOL_SIZE),
    [1, 1, 1],
    'each needs one',
  );
  t.match(centralConfig(config, options.divided), { DATABASE_POOL_SIZE: 2, DATABASE_WRITE_POOL_SIZE: 1 });
  t.strictSame(
    [1, 2, 3, 4, 7, 8, 64].map((processors) => workersFor(processors, 100)),
    [1, 1, 1, 2, 3, 4, 32],
    'half of the processors',
  );
  t.strictSame(
    [1, 3, 4, 8].map((connections) => workersFor(64, connections)),
    [1, 1, 2, 4],
    'two connections for each',
  );
});

t.test('a change of the schema is seen at once on the other thread', async (t) => {
  await bothWays(4, async (one, other, round) => {
    const collection = `made_${round}`;
    const fields = [{ field: 'id', type: 'integer', schema: { is_primary_key: true, has_auto_increment: true } }];
    t.match(await send(one, 'POST', '/collections', { collection, schema: {}, fields }), { status: 200 });
    t.match(await send(other, 'GET', `/items/${collection}`), { status: 200, json: { data: [] } });
    t.match(await send(other, 'POST', `/fields/${collection}`, { field: 'title', type: 'string' }), { status: 200 });
    t.match(await send(one, 'POST', `/items/${collection}`, { title: 'x' }), { status: 200 });
    t.match(await send(other, 'POST', '/graphql', { query: `{ ${collection} { title } }` }), {
      json: { data: { [collection]: [{ title: 'x' }] } },
    });
    t.match(await send(one, 'DELETE', `/fields/${collection}/title`), { status: 204 });
    t.match(await send(other, 'GET', `/items/${collection}?fields=title`), { status: 403 });
    t.match(await send(one, 'DELETE', `/collections/${collection}`), { status: 204 });
    t.match(await send(other, 'GET', `/items/${collection}`), { status: 403 });
  });
});

t.test('metadata of any depth reaches both', async (t) => {
  const options = `${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}`;
  await bothWays(2, async ({ agent }, other, round) => {
    const body = `{"field":"deep_${round}","type":"string","meta":{"options":${options}}}`;
    const headers = { 'content-type': 'application/json' };
    t.match(await request(service, 'POST', '/fields/tags', { agent, headers, body }), { status: 200 });
    t.match(await send(other, 'GET', `/fields/tags/deep_${round}`), { status: 200 });
  });
});

t.test('a change by plain SQL reaches both', async (t) => {
  const lines = await openBoth(service);
  await sql`create table plain (id serial primary key, word text)`;
  for (const line of lines)
    await waitFor(async () => (await send(line, 'GET', '/items/plain?fields=word')).status === 200, 10_000);
  t.pass('a new table');
  await sql`alter table plain rename column word to said`;
  for (const line of lines)
    await waitFor(async () => (await send(line, 'GET', '/items/plain?fields=said')).status === 200, 10_000);
  t.pass('a new name');
  await sql`drop table plain`;
});

t.test('the rights of a user change at once on the other thread', async (t) => {
  const { id, token } = await makeUser(sql, 'restricted');
  const first = await openLine(service);
  const policy = await send(first, 'POST', '/policies', { name: 'Tags' });
  const { id: policyId } = (policy.json as { data: { id: string } }).data;
  t.match(await send(first, 'PATCH', `/users/${id}`, { role: null, policies: [{ policy: policyId }] }), {
    status: 200,
  });
  await bothWays(8, async (one, other) => {
    t.match(await send(other, 'GET', '/items/tags', undefined, { token }), { status: 403 });
    const rule = { policy: policyId, collection: 'tags', action: 'read', fields: ['*'] };
    const made = await send(one, 'POST', '/permissions', rule);
    t.match(await send(other, 'GET', '/items/tags', undefined, { token }), { status: 200 });
    const { id: permission } = (made.json as { data: { id: number } }).data;
    t.match(await send(one, 'DELETE', `/permissions/${permission}`), { status: 204 });
  });
  let known = token;
  await bothWays(8, async (one, other, round) => {
    const next = `another-token-of-the-restricted-${round}`;
    t.match(await send(other, 'GET', '/users/me', undefined, { token: known }), { status: 200 });
    t.match(await send(one, 'PATCH', `/users/${id}`, { token: next }), { status: 200 });
    t.match(await send(other, 'GET', '/users/me', undefined, { token: known }), failure(401, 'INVALID_CREDENTIALS'));
    known = next;
  });
});

t.test('a user who logs out is logged out on the other thread too', async (t) => {
  const { email } = await makeUser(sql, 'leaving');
  await bothWays(8, async (one, other) => {
    const cookie = cookieOf(await login(service, email, { mode: 'session' }, { agent: one.agent }));
    const mine = { token: null, headers: { cookie } };
    for (const line of [one, other]) t.match(await send(line, 'GET', '/users/me', undefined, mine), { status: 200 });
    t.match(await send(one, 'POST', '/auth/logout', { mode: 'session' }, mine), { status: 204 });
    t.match(await send(other, 'GET', '/users/me', undefined, mine), { status: 401 });
  });
});

t.test('a persisted query is known to both', async (t) => {
  await bothWays(4, async (one, other, round) => {
    const query = `{ tags(limit: ${round + 1}) { id } }`;
    const sha256Hash = createHash('sha256').update(query).digest('hex');
    const extensions = { persistedQuery: { version: 1, sha256Hash } };
    t.match(await send(other, 'POST', '/graphql', { extensions }), {
      json: { errors: [{ message: 'PersistedQueryNotFound' }] },
    });
    t.match(await send(one, 'POST', '/graphql', { query, extensions }), { json: { data: { tags: Array } } });
    t.match(await send(other, 'POST', '/graphql', { extensions }), { json: { data: { tags: Array } } });
  });
});

t.test('a connection stays with its thread, and no two requests have one id', async (t) => {
  const ids = new Set<unknown>();
  for (const line of await openBoth(service)) {
    const answer = await send(line, 'GET', '/items/backend');
    t.match(answer, { json: { data: [{ pid: line.thread }] } });
    for (let count = 0; count < 20; count++) ids.add((await send(line, 'GET', '/server/ping')).headers['x-request-id']);
  }
  t.equal(ids.size, 40);
});

const from = (address: string): RequestOptions => ({ headers: { 'x-forwarded-for': address } });

t.test('metrics are those of all threads, whichever is asked', async (t) => {
  const lines = await openBoth(service);
  const count = async (line: Line): Promise<number> => {
    const { text } = await send(line, 'GET', '/server/metrics');
    return Number(/^lateral_requests_total\{.*"\/server\/ping".*\} (\d+)$/m.exec(text)?.[1] ?? 0);
  };
  const before = await count(lines[0]);
  for (const line of [...lines, ...lines]) await send(line, 'GET', '/server/ping');
  t.strictSame([await count(lines[0]), await count(lines[1])], [before + 4, before + 4]);
  const { text } = await send(lines[0], 'GET', '/server/metrics');
  for (const name of ['lateral_mirror_reads_total', 'lateral_collections', 'process_cpu_seconds_total'])
    t.match(text, new RegExp(`^${name} [\\d.]*[1-9]`, 'm'), name);
  t.match(text, /^lateral_pool_connections_max\{pool="read"\} 2$/m, 'both have one');
  t.match(text, /^lateral_events_total\{kind="listening"\} 1$/m);
});

t.test('limits count once for all threads', async (t) => {
  const lines = await openBoth(limited);
  const { email } = await makeUser(sql, 'guessed');
  const statuses: number[] = [];
  for (let count = 0; count < 44; count++) {
    const { agent } = lines[count % 2] as Line;
    statuses.push((await get(limited, '/server/ping', { agent, ...from('192.0.2.1') })).status);
  }
  t.strictSame(statuses, [...Array(40).fill(200), ...Array(4).fill(429)]);
  const { agent } = lines[0];
  const refused = await get(limited, '/server/ping', { agent, ...from('192.0.2.1') });
  t.match(refused, { ...failure(429, 'REQUESTS_EXCEEDED'), headers: { 'retry-after': /^\d+$/ } });
  const guesses: number[] = [];
  for (const line of [...lines, ...lines]) {
    const options = { agent: line.agent, ...from('192.0.2.2') };
    guesses.push((await post(limited, '/auth/login', { email, password: 'wrong' }, options)).status);
  }
  t.strictSame(guesses, [401, 401, 401, 429]);
});

t.test('the service stops when the requests of all threads are answered', async (t) => {
  const lines = await openBoth(limited);
  const asked = lines.map(({ agent }) => get(limited, '/items/slow', { agent, ...from('192.0.2.3') }));
  await waitFor(async () => (await countSleepers()) === 2, 10_000);
  const stopped = limited.stop();
  const answers = await Promise.all(asked);
  t.strictSame(
    answers.map(({ status, json }) => [status, (json as { data: [{ pid: number }] }).data[0].pid]),
    lines.map((line) => [200, line.thread]),
  );
  await stopped;
  await t.rejects(get(limited, '/server/ping'), { code: 'ECONNREFUSED' });
  const pids = lines.map((line) => line.thread);
  await waitFor(async () => {
    const [row] = await sql`select count(*)::int as count from pg_stat_activity where pid = any(${pids})`;
    return row?.['count'] === 0;
  }, 10_000);
});

/** Requests for the slow view that are under way. */
async function countSleepers(): Promise<number> {
  const [row] = await sql`
    select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`;
  return Number(row?.['count']);
}

t.test('a port belongs to one service, however many threads each has', async (t) => {
  const taken = { message: /^cannot listen on 127\.0\.0\.1:\d+: the port is in use/ };
  const { port: PORT } = new URL(service.url);
  for (const WORKERS of ['1', '2'])
    await t.rejects(startTestService({ ...TWO, WORKERS, PORT }), taken, `${WORKERS} beside two`);
  const stranger = createServer().listen(0, '127.0.0.1');
  await once(stranger, 'listening');
  t.teardown(() => stranger.close());
  const { port } = stranger.address() as { port: number };
  await t.rejects(startTestService({ ...TWO, PORT: String(port) }), taken, 'beside a stranger');
  await new Promise((resolve) => stranger.close(resolve));
  const rivals = await Promise.allSettled([1, 2].map(() => startTestService({ ...TWO, PORT: String(port) })));
  t.strictSame(rivals.map(({ status }) => status).sort(), ['fulfilled', 'rejected'], 'of two at once one has it');
  t.match(await get({ url: `http://127.0.0.1:${port}` }, '/server/ping'), { text: 'pong' });
});

interface Run {
  readonly child: ChildProcess;
  readonly ended: Promise<number | string>;
  complaints(): string;
  url(): Promise<string>;
}

function launch(options: Readonly<Record<string, string>>): Run {
  const environment = { PATH: process.env['PATH'] ?? '', PORT: '0', LOG_LEVEL: 'error', ADMIN_TOKEN, WORKERS: '2' };
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: { ...environment, LOGIN_STALL_TIME: '0', DATABASE_URL: databaseUrl, ...options },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string);
  t.teardown(() => {
    child.kill('SIGKILL');
    return ended;
  });
  let output = '';
  let complaints = '';
  child.stdout.on('data', (chunk) => {
    output += String(chunk);
  });
  child.stderr.on('data', (chunk) => {
    complaints += String(chunk);
  });
  const url = async (): Promise<string> => {
    await waitFor(async () => /ready at \S+/.test(output) || child.exitCode !== null, 60_000);
    return /ready at (\S+)/.exec(output)?.[1] ?? '';
  };
  return { child, ended, complaints: () => complaints, url };
}

async function transport(text: string): Promise<string> {
  const file = join(await makeFolder(), 'transport.mjs');
  await writeFile(file, text);
  return file;
}

t.test('a thread that dies ends the service, with what it died of', async (t) => {
  const { email } = await makeUser(sql, 'forgetful');
  const EMAIL_TRANSPORT = await transport(
    `export const send = () => { setTimeout(() => { throw new Error('the post has burnt down'); }); };`,
  );
  const run = launch({ EMAIL_TRANSPORT });
  const place = { url: await run.url() };
  // The answer may be lost with its thread.
  await post(place, '/auth/password/request', { email }).catch(() => {});
  t.equal(await run.ended, 1);
  t.match(
    run.complaints(),
    /^lateral: a worker thread exited unexpectedly, stopping: Error: the post has burnt down\n/,
  );
});

t.test('an error that keeps a thread from starting keeps the service from starting', async (t) => {
  const EMAIL_TRANSPORT = await transport('export const sent = 1;');
  await t.rejects(startTestService({ ...TWO, EMAIL_TRANSPORT }), {
    name: 'StartError',
    message: /^EMAIL_TRANSPORT: "[^\n]+" must export a function "send"$/,
  });
});

t.test('a second signal ends the wait, in good order', async (t) => {
  const run = launch({});
  const place = { url: await run.url() };
  const lost = get(place, '/items/slow').catch((error: Error) => error);
  await waitFor(async () => (await countSleepers()) > 0, 10_000);
  run.child.kill('SIGTERM');
  run.child.kill('SIGINT');
  t.equal(await run.ended, 1);
  t.equal(run.complaints(), '');
  t.ok((await lost) instanceof Error);
});
