/** Three instances count requests in Redis as one, and go on without it. */
import { spawn } from 'node:child_process';
import t from 'tap';
import { askAll, startThree } from '../support/counted.js';
import { findProgram, freePort } from '../support/programs.js';
import { createLibrary, makeFolder, startDatabase } from '../support/service.js';
import { passTime } from '../support/time.js';

const POINTS = 300;
const databaseUrl = await createLibrary(await startDatabase(), 'limits');
const port = await freePort();
const services = await startThree({
  databaseUrl,
  WORKERS: '1',
  RATE_LIMITER_ENABLED: 'true',
  RATE_LIMITER_POINTS: String(POINTS),
  RATE_LIMITER_DURATION: '60',
  IP_TRUST_PROXY: 'loopback',
  RATE_LIMITER_STORE: 'redis',
  RATE_LIMITER_REDIS_URL: `redis://127.0.0.1:${port}`,
});
const program = (await findProgram('redis-server', 'valkey-server')) ?? 'redis-server';

t.test('an instance that starts before Redis counts for itself', async (t) => {
  t.match(await askAll(services, 6, '192.0.2.1'), { statuses: { 200: 6 } });
});

const words = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', await makeFolder()];
const redis = spawn(program, words, { stdio: 'ignore' });
t.teardown(() => redis.kill('SIGKILL'));

t.test('three instances count as one', async (t) => {
  for (let round = 0; round < 5; round++) {
    await passTime(1_100, 'the store is asked again');
    await askAll(services, 6, '192.0.2.2');
  }
  const { statuses } = await askAll(services, 3 * POINTS, '198.51.100.1');
  t.strictSame(statuses, { 200: POINTS, 429: 2 * POINTS });
});

t.test('one that stands still stops nobody', async (t) => {
  redis.kill('SIGSTOP');
  const { statuses, slowest } = await askAll(services, 60, '198.51.100.2');
  t.strictSame(statuses, { 200: 60 });
  t.ok(slowest < 2_000, `the slowest took ${Math.round(slowest)} ms`);
});
