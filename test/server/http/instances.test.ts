/** Several instances: what they count together, how one leaves without an error for anybody, and how another takes over its port. */
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { askAll, startThree } from '../../support/counted.js';
import { freePort } from '../../support/programs.js';
import {
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase();
const database = `${server.prefix}instances`;
const databaseUrl = await createLibrary(server, 'instances');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const POINTS = 60;
const counted = {
  databaseUrl,
  WORKERS: '1',
  RATE_LIMITER_ENABLED: 'true',
  RATE_LIMITER_POINTS: String(POINTS),
  RATE_LIMITER_DURATION: '60',
  IP_TRUST_PROXY: 'loopback',
};

t.test('three instances count in PostgreSQL as one', async (t) => {
  const services = await startThree({ ...counted, RATE_LIMITER_STORE: 'postgres' });
  const { statuses } = await askAll(services, 3 * POINTS, '192.0.2.1');
  t.strictSame(statuses, { 200: POINTS, 429: 2 * POINTS });
  t.match(await askAll(services, 3, '192.0.2.2'), { statuses: { 200: 3 } }, 'another address is another matter');

  await t.test('a store that does not answer stops nobody', async (t) => {
    const locked = await sql.reserve();
    await locked`begin`;
    await locked`lock table service_rate_limits in access exclusive mode`;
    const { statuses, slowest } = await askAll(services, 60, '192.0.2.3');
    t.strictSame(statuses, { 200: 60 });
    t.ok(slowest < 2_000, `the slowest took ${Math.round(slowest)} ms`);
    t.match(await askAll(services, 3, '192.0.2.3'), { statuses: { 200: 3 } });
    const alone = await askAll(services.slice(0, 1), POINTS + 10, '192.0.2.4');
    t.ok((alone.statuses[429] ?? 0) >= 5, 'each instance counts for itself meanwhile');
    await locked`commit`;
    locked.release();
    await passTime(1_100, 'the store is asked again');
    await askAll(services, 3, '192.0.2.5');
    const { statuses: together } = await askAll(services, 3 * POINTS, '192.0.2.6');
    t.ok(Math.abs((together[200] ?? 0) - POINTS) <= POINTS * 0.05, `${together[200]} of ${POINTS} once it is back`);
  });
  await sql`update service_rate_limits set expire = 1`;
  t.match(await askAll(services.slice(1), 1, '192.0.2.7'), { statuses: { 200: 1 } });
});

t.test('a store needs its address', async (t) => {
  await t.rejects(startTestService({ ...counted, RATE_LIMITER_STORE: 'redis' }), {
    message: 'RATE_LIMITER_STORE=redis needs RATE_LIMITER_REDIS_URL',
  });
});

t.test('a Redis that is not there stops nobody: the instance counts for itself', async (t) => {
  const RATE_LIMITER_REDIS_URL = `redis://127.0.0.1:${await freePort()}`;
  const alone = await startTestService({ ...counted, RATE_LIMITER_STORE: 'redis', RATE_LIMITER_REDIS_URL });
  const { statuses } = await askAll([alone], POINTS + 10, '192.0.2.8');
  t.strictSame(statuses, { 200: POINTS, 429: 10 });
});

for (const WORKERS of ['1', '2'])
  t.test(
    `draining with ${WORKERS} threads: not ready, still answering, and each answer ends its connection`,
    async (t) => {
      const service = await startTestService({ databaseUrl, WORKERS, DRAIN_DELAY: '600ms' });
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      t.teardown(() => agent.destroy());
      t.match(await get(service, '/server/ready', { token: null }), { status: 200, text: 'ready' });
      const kept = await get(service, '/items/tags?limit=1', { agent });
      t.match(kept.headers, { connection: undefined, 'keep-alive': 'timeout=8' });
      const start = performance.now();
      const stopped = service.stop();
      await sleep(50);
      const held = await get(service, '/items/tags?limit=1', { agent });
      t.match(held, { status: 200, headers: { connection: 'close' } }, 'on a connection that was open');
      t.match(await get(service, '/server/ready', { token: null, agent }), {
        status: 503,
        headers: { connection: 'close' },
      });
      t.match(await get(service, '/server/ping', { token: null }), { status: 200 }, 'it is alive');
      const written = { body: '{"name":"drained"}', headers: { 'content-type': 'application/json' } };
      t.match(await request(service, 'POST', '/items/tags', written), { status: 200 }, 'on a new connection');
      await stopped;
      t.ok(performance.now() - start >= 590, `${Math.round(performance.now() - start)} ms`);
      await t.rejects(get(service, '/server/ping'), { code: 'ECONNREFUSED' });
    },
  );

t.test('a new process takes over the port', async (t) => {
  const PORT = String(await freePort());
  const options = { databaseUrl, PORT, REUSE_PORT: 'true', DRAIN_DELAY: '300ms' };
  const first = await startTestService(options);
  const statuses: Record<string, number> = {};
  let going = true;
  const load = Array.from({ length: 4 }, async () => {
    while (going) {
      const outcome = await get(first, '/items/tags?limit=1').then(
        ({ status }) => String(status),
        (error: { code?: unknown }) => String(error.code),
      );
      statuses[outcome] = (statuses[outcome] ?? 0) + 1;
    }
  });
  const second = await startTestService(options);
  t.equal(second.url, first.url);
  const served = async (): Promise<number> => {
    const before = statuses['200'] ?? 0;
    return waitFor(async () => (statuses['200'] ?? 0) > before + 20, 10_000);
  };
  await served();
  await first.stop();
  await served();
  going = false;
  await Promise.all(load);
  // The system resets connections that nobody has accepted when a listener closes, unless net.ipv4.tcp_migrate_req is set.
  const { 200: answered = 0, ECONNRESET: reset = 0, ...others } = statuses;
  t.strictSame(others, {}, JSON.stringify(statuses));
  t.ok(answered > 20 && reset <= load.length, JSON.stringify(statuses));
  await t.rejects(startTestService({ ...options, REUSE_PORT: 'false' }), { message: /^cannot listen on/ });
});

t.test('ready says that the database is lost', async (t) => {
  const service = await startTestService({ databaseUrl });
  t.match(await get(service, '/server/ready', { token: null }), { status: 200 });
  await withSql(server.url, (admin) => admin`alter database ${admin(database)} with allow_connections false`);
  try {
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${database} and pid <> pg_backend_pid()`;
    await waitFor(async () => (await get(service, '/server/ready', { token: null })).status === 503, 8_000);
    t.match(await get(service, '/server/ping', { token: null }), { status: 200 });
  } finally {
    await withSql(server.url, (admin) => admin`alter database ${admin(database)} with allow_connections true`);
  }
  await waitFor(async () => (await get(service, '/server/ready', { token: null })).status === 200, 8_000);
});
