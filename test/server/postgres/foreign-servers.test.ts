/**
 * Servers that are not the ones that were meant: a replica URL with the name of another database, a promoted standby, a host of
 * another cluster. The service never reads from them nor writes to them, and health gives the reason.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import { resolveConnection } from '../../../src/server/config/connection-settings.js';
import { watchPrimary } from '../../../src/server/postgres/pools/primary-watch.js';
import { caughtUp, promote, startPrimary, startStandby } from '../../support/cluster.js';
import { Network } from '../../support/network-proxy.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  databaseUrl,
  get,
  makeFolder,
  request,
  runProgram,
  startDatabase,
  startTestService,
  type TestServer,
  waitFor,
  ways,
  withSql,
} from '../../support/service.js';
import { SECRET } from '../../support/users.js';

t.setTimeout(170_000);
const NAME = 'app';
const HEADERS = { 'content-type': 'application/json' };
const eventual = { prefer: 'consistency=eventual' };

const primary = await startPrimary();
const url = await createLibrary(primary, NAME);
const stagingUrl = await createLibrary(primary, 'staging');
await withSql(stagingUrl, (sql) => sql`update articles set title = 'of staging'`);
const [standby, foreign] = await Promise.all([startStandby(primary), startForeign()]);
const foreignUrl = await createLibrary(foreign, NAME);
await withSql(foreignUrl, (sql) => sql`update articles set title = 'foreign'`);
await caughtUp(primary, standby);

/** Another cluster with the same password; a copy of the template would have the identifier of the first. */
async function startForeign(): Promise<TestServer> {
  const directory = await makeFolder();
  await writeFile(join(directory, 'lateral.json'), JSON.stringify({ password: new URL(primary.url).password }));
  return startDatabase({ directory, settings: { max_connections: '200' } });
}

const hostOf = (address: string): string => new URL(address).host;

interface Check {
  readonly status: string;
  readonly output?: string;
}

async function healthOf(
  service: Service,
): Promise<{ status: string; checks: Readonly<Record<string, readonly Check[]>> }> {
  const { json } = await get(service, '/server/health');
  return json as Awaited<ReturnType<typeof healthOf>>;
}

async function replicaOf(service: Service, address: string): Promise<Check | undefined> {
  return (await healthOf(service)).checks[`replica:${hostOf(address)}`]?.[0];
}

async function titleOf(service: Service, headers: Readonly<Record<string, string>> = eventual): Promise<unknown> {
  const { json, text } = await get(service, '/items/articles/1?fields=title', { headers });
  return (json as { readonly data?: { readonly title: string } } | undefined)?.data?.title ?? text;
}

t.test('a replica URL that names another database of the cluster gets no reads', async (t) => {
  const replica = databaseUrl(standby, 'staging');
  const service = await startTestService({ databaseUrl: url, DATABASE_REPLICA_URLS: replica, SECRET });
  const titles = new Set<unknown>();
  for (let read = 0; read < 10; read++) titles.add(await titleOf(service));
  t.notOk(titles.has('of staging'), 'no row of the other database is served');
  t.match(await replicaOf(service, replica), { status: 'degraded', output: /another database/ });
  t.equal((await healthOf(service)).status, 'degraded');
  const doctor = await runProgram(['doctor'], { DATABASE_URL: url, DATABASE_REPLICA_URLS: replica });
  t.match(doctor.output, /PROBLEM.*is another database/s);
  await service.stop();
});

t.test('a replica that is a primary is degraded, unless it is the primary of the service', async (t) => {
  const promoted = await startStandby(primary, { name: 'promoted' });
  const urls = [databaseUrl(promoted, NAME), foreignUrl, url];
  const service = await startTestService({ databaseUrl: url, DATABASE_REPLICA_URLS: urls.join(), SECRET });
  t.match(await replicaOf(service, foreignUrl), { status: 'degraded', output: /another cluster/ });
  t.match(await replicaOf(service, url), { status: 'ok', output: /it is the primary/ });
  await waitFor(async () => (await replicaOf(service, promoted.url))?.output === undefined, 5_000);
  await promote(promoted);
  await waitFor(async () => /promoted/.test((await replicaOf(service, promoted.url))?.output ?? ''), 5_000);
  t.match(await replicaOf(service, promoted.url), { status: 'degraded', output: /promoted/ });
  t.equal((await healthOf(service)).status, 'degraded');
  const doctor = await runProgram(['doctor'], { DATABASE_URL: url, DATABASE_REPLICA_URLS: urls.join() });
  t.match(doctor.output, new RegExp(`${hostOf(foreignUrl)} is another cluster`));
  t.match(doctor.output, new RegExp(`${hostOf(promoted.url)} was promoted`));
  await service.stop();
  await promoted.stop();
});

t.test('an address that leads to a standby: reads are served, and health tells of the writes', async (t) => {
  const network = await new Network(url).open();
  const service = await start(network.url);
  network.leadTo(databaseUrl(standby, NAME));
  await waitFor(async () => (await get(service, '/items/articles/1')).status === 200, 10_000);
  t.match(await request(service, 'POST', '/items/tags', { headers: HEADERS, body: '{"name":"x"}' }), { status: 503 });
  t.match(await healthOf(service), {
    status: 'degraded',
    checks: { 'database:responseTime': [{ status: 'degraded', output: /refuses writes: it is a standby/ }] },
  });
  await service.stop();
});

async function start(given: string, options: Readonly<Record<string, string>> = {}): Promise<Service> {
  const common = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, SECRET, DATABASE_CONNECT_TIMEOUT: '2s', ...ways() };
  const service = await startService(
    readConfig({ ...common, ...options, DATABASE_URL: given }),
    () => {},
    () => {},
  );
  t.teardown(() => service.stop());
  return service;
}

for (const WORKERS of ['1', '2'])
  t.test(`a host of another cluster is never used: WORKERS=${WORKERS}`, async (t) => {
    const network = await new Network(url).open();
    const hosts = url.replace(hostOf(url), `${hostOf(network.url)},${hostOf(foreignUrl)}`);
    const service = await start(hosts, { WORKERS, ADMIN_PORT: '0' });
    t.not(await titleOf(service), 'foreign');
    const output = async (): Promise<string> => JSON.stringify(await healthOf(service));
    t.match(await healthOf(service), { status: 'degraded' }, 'health tells of it while the primary is there');
    t.match(await output(), new RegExp(`${hostOf(foreignUrl)}[^"]*another cluster`));
    network.weather = 'hangs up';
    network.breakAll();
    const statuses = new Set<number>();
    const begun = performance.now();
    // Long enough for several rounds of the watch.
    while (performance.now() - begun < 3_000) {
      const body = '{"name":"to the wrong cluster"}';
      statuses.add((await request(service, 'POST', '/items/tags', { headers: HEADERS, body })).status);
      statuses.add((await get(service, '/items/articles/1')).status);
    }
    t.strictSame([...statuses], [503]);
    t.equal((await get(service, '/server/ready')).status, 503);
    // On its own port, since a thread that does not know the caller cannot look them up now.
    const health = await get({ url: service.adminUrl ?? '' }, '/health');
    t.equal(health.status, 503);
    t.match(health.text, new RegExp(`${hostOf(foreignUrl)}[^"]*another cluster`));
    network.weather = 'fair';
    await waitFor(async () => (await get(service, '/items/articles/1')).status === 200, 10_000);
    network.leadTo(foreignUrl);
    await waitFor(async () => (await get(service, '/server/ready')).status === 503, 10_000);
    t.match(await get(service, '/items/articles/1'), { status: 503 }, 'the address now leads to the other cluster');
    network.leadTo(url);
    await waitFor(async () => (await get(service, '/items/articles/1')).status === 200, 10_000);
    t.not(await titleOf(service), 'foreign');
    const [row] = await withSql(
      foreignUrl,
      (sql) => sql`select count(*)::int as count from tags where name = 'to the wrong cluster'`,
    );
    t.equal(row?.['count'], 0);
    await service.stop();
  });

t.test('DATABASE_DIRECT_URL must name the same database', async (t) => {
  const refused = start(url, { DATABASE_DIRECT_URL: stagingUrl });
  await t.rejects(refused, /DATABASE_DIRECT_URL: it is another database than that of DATABASE_URL/);
  const hosts = url.replace(hostOf(url), `${hostOf(url)},${hostOf(standby.url)}`);
  await (await start(hosts, { DATABASE_DIRECT_URL: hosts })).stop();
});

t.test('lateral doctor names a host of another cluster', async (t) => {
  const hosts = url.replace(hostOf(url), `${hostOf(url)},${hostOf(foreignUrl)}`);
  const { output } = await runProgram(['doctor'], { DATABASE_URL: hosts });
  t.match(output.replaceAll(/\s+/g, ' '), new RegExp(`PROBLEM host ${hostOf(foreignUrl)}: it is another cluster`));
});

t.test('another database of the same server is refused', async (t) => {
  const hosts = url.replace(hostOf(url), `${hostOf(url)},${hostOf(standby.url)}`);
  const watch = watchPrimary(
    resolveConnection(hosts),
    {},
    () => {},
    () => {},
  );
  await watch?.find();
  for (const [address, refusal] of [
    [url, null],
    [stagingUrl, /another database/],
    [foreignUrl, /another cluster/],
  ] as const) {
    const sql = connectSql(address);
    const accepted = watch?.accept(sql) ?? Promise.resolve();
    if (refusal) await t.rejects(accepted, refusal);
    else await accepted;
    await sql.end();
  }
  watch?.close();
});
