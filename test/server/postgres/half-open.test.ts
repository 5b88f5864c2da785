/**
 * Connections that are half open: what is sent is not heard, and nobody says so. Every request is answered all the same, health
 * tells the truth, the service is well again once the network is, and a stop takes its time and no more.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { Database } from '../../../src/server/postgres/pools/database.js';
import { Load, prepareLoad } from '../../faults/load.js';
import { Network } from '../../support/network-proxy.js';
import { ADMIN_TOKEN, createLibrary, get, startDatabase, waitFor, withSql } from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'half_open');
await withSql(databaseUrl, prepareLoad);

async function launch(url: string): Promise<{ readonly url: string; readonly child: ChildProcess }> {
  const options = {
    DATABASE_URL: url,
    DATABASE_STATEMENT_TIMEOUT: '1s',
    DATABASE_CONNECT_TIMEOUT: '1s',
    DATABASE_WAIT_TIMEOUT: '3s',
    SHUTDOWN_TIMEOUT: '1s',
    PORT: '0',
    LOG_LEVEL: 'silent',
    ADMIN_TOKEN,
  };
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: { PATH: process.env['PATH'] ?? '', ...options },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  for await (const piece of child.stdout) {
    output += String(piece);
    const found = /ready at (\S+)/.exec(output)?.[1];
    if (found) return { url: found, child };
  }
  throw new Error(`not ready: ${output}`);
}

t.test('a network that falls silent', async (t) => {
  const network = await new Network(databaseUrl).open();
  const service = await launch(network.url);
  const options = { clients: { graphql: 4, patch: 3, import: 2, create: 4, schema: 1, read: 6 }, patience: 40_000 };
  await withSql(databaseUrl, async (sql) => {
    const load = new Load(service, { ...options, pause: 10 });
    await load.start(sql);
    await passTime(1_000, 'requests go on');
    network.weather = 'silent';
    network.freeze();
    const start = performance.now();
    const health = await get(service, '/server/health');
    t.match([health.status, health.json], [503, { status: 'error' }], 'health tells the truth');
    t.ok(performance.now() - start < 11_000, `health took ${Math.round(performance.now() - start)} ms`);
    await passTime(4_000, 'the network is silent');
    network.weather = 'fair';
    await waitFor(async () => (await get(service, '/server/health')).status === 200, 30_000);
    await passTime(1_000, 'requests go on');
    await load.stop();
    const report = await load.report(sql);
    t.comment(JSON.stringify(report));
    t.strictSame(report.hung, [], 'every request was answered');
    t.strictSame(report.wrong, [], 'with what was asked for, or with 503');
    t.strictSame(report.lost, [], 'what was acknowledged is there');
    t.strictSame(report.halfDone, [], 'nothing is there in part');

    // Nobody told the server that its clients were gone.
    const open = async (): Promise<number> =>
      (
        await sql`select from pg_stat_activity where application_name like 'lateral%' and state ^@ 'idle in transaction'`
      ).length;
    await waitFor(async () => (await open()) === 0, 30_000);

    const later = new Load(service, { ...options, pause: 10 });
    await later.start(sql);
    await passTime(2_000, 'requests go on');
    await later.stop();
    const { statuses, ...afterwards } = await later.report(sql);
    t.match(afterwards, { hung: [], wrong: [], lost: [], halfDone: [] });
    t.notOk(JSON.stringify(statuses).includes('503'), `all is well afterwards: ${JSON.stringify(statuses)}`);
  });
  network.weather = 'silent';
  network.freeze();
  const exited = once(service.child, 'exit');
  const start = performance.now();
  service.child.kill('SIGTERM');
  const [code] = (await exited) as [number | null];
  t.equal(code, 0);
  t.ok(performance.now() - start < 8_000, `the stop took ${Math.round(performance.now() - start)} ms`);
});

t.test('work that waits for a connection while the service stops fails at once, and none is opened', async (t) => {
  const network = await new Network(databaseUrl).open();
  const database = await Database.open({
    url: network.url,
    schema: 'public',
    connections: 1,
    sessions: 1,
    streams: 1,
    imports: 1,
    waitTimeout: 60_000,
    statementTimeout: 60_000,
    connectTimeout: 5_000,
  });
  t.teardown(() => database.close());
  const write = (text: string): Promise<unknown> => database.sessions.use((session) => session.cell(text, []));
  const settled = Promise.allSettled([write('select pg_sleep(60)'), write('select 1'), write('select 2')]);
  await waitFor(async () => database.pools.write.idle === 0 && database.pools.write.opening === 0, 10_000);
  const { visits } = network;
  await database.close();
  for (const result of await settled) t.equal(result.status, 'rejected');
  await t.rejects(write('select 3'), { code: 'SERVICE_UNAVAILABLE' });
  t.equal(network.visits, visits);
});

t.test('a connection in doubt is asked for a sign of life before it is used', async (t) => {
  const network = await new Network(databaseUrl).open();
  const database = await Database.open({
    url: network.url,
    schema: 'public',
    connections: 1,
    sessions: 1,
    streams: 1,
    imports: 1,
    waitTimeout: 10_000,
    statementTimeout: 60_000,
    connectTimeout: 5_000,
  });
  t.teardown(() => database.close());
  const read = (): Promise<string> =>
    new Promise((resolve, reject) => {
      database.readConnections[0]?.run({
        text: 'select pg_backend_pid()',
        parameters: [],
        prepare: true,
        columns: 1,
        row: (_, cell) => resolve(String(cell)),
        end: (error) => error && reject(error),
      });
    });
  const write = async (): Promise<string> =>
    String(await database.transaction((session) => session.cell('select pg_backend_pid()', [])));
  const before = await Promise.all([read(), write()]);
  database.watchdog.doubtAll();
  t.strictSame(await Promise.all([read(), write()]), before, 'one that is alive is used');
  network.freeze();
  database.watchdog.doubtAll();
  const start = performance.now();
  const after = await Promise.all([read(), write()]);
  t.ok(performance.now() - start < 30_000, 'long before the statement would have been given up');
  t.not(after[0], before[0]);
  t.not(after[1], before[1]);
  t.match(database.watchdog, { lost: 2, timedOut: 2 });
});
