/**
 * Replicas and a failover together: a synchronous standby is promoted while one replica still follows the former primary, which
 * comes back and goes on writing. Its log is longer than that of the new primary and lacks what is written there: nobody may be
 * answered from it, nor from the former primary by an instance that could not see the promotion. The same behind one address that
 * leads to the primary of the time.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import { childrenOf } from '../../../src/features/embedded/processes.js';
import { resolveConnection } from '../../../src/server/config/connection-settings.js';
import { watchPrimary } from '../../../src/server/postgres/pools/primary-watch.js';
import { pidOf, promote, startPrimary, startStandby } from '../../support/cluster.js';
import { Network } from '../../support/network-proxy.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  databaseUrl,
  get,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  type TestServer,
  waitFor,
  withSql,
} from '../../support/service.js';
import { SECRET } from '../../support/users.js';

const NAME = 'replicated';
const HEADERS = { 'content-type': 'application/json' };
t.setTimeout(170_000);

const primary = await startPrimary();
const url = await createLibrary(primary, NAME);
const standby = await startStandby(primary, { name: 'second' });
const follower = await startStandby(primary, { name: 'third' });
await withSql(primary.url, async (sql) => {
  await sql`alter system set synchronous_standby_names = 'second'`;
  await sql`select pg_reload_conf()`;
});
const hostOf = (server: TestServer): string => new URL(server.url).host;
const hosts = url.replace(hostOf(primary), `${hostOf(primary)},${hostOf(standby)}`);
const options = {
  databaseUrl: hosts,
  DATABASE_REPLICA_URLS: [primary, standby, follower].map((server) => databaseUrl(server, NAME)).join(),
  DATABASE_CONNECT_TIMEOUT: '5s',
  SECRET,
};
const services = await Promise.all([startTestService(options), startTestService(options)]);
const [one, two] = services as [Service, Service];

/** The standby cannot be reached from the third instance. Without a pooler, which would not try it again at once when it can. */
const network = await new Network(databaseUrl(standby, NAME)).open();
network.weather = 'hangs up';
const unaware = await start(url.replace(hostOf(primary), `${hostOf(primary)},${new URL(network.url).host}`));

/** The fourth knows one address, which leads to whichever server is the primary. */
const address = await new Network(url).open();
const behindAddress = await start(address.url);

async function start(given: string): Promise<Service> {
  const config = readConfig({ ...options, DATABASE_URL: given, PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN });
  const service = await startService(
    config,
    () => {},
    () => {},
  );
  t.teardown(() => service.stop());
  return service;
}

interface Written {
  readonly value: number;
  readonly position: string;
}

let values = 0;

/** Repeats it until it is acknowledged. */
async function write(service = one): Promise<Written> {
  const value = ++values;
  for (;;) {
    const body = JSON.stringify({ views: value });
    const answer = await request(service, 'PATCH', '/items/articles/1', { headers: HEADERS, body });
    if (answer.status === 200) return { value, position: String(answer.headers['lateral-position']) };
    if (answer.status !== 503) throw new Error(answer.text);
  }
}

async function viewsOf(service: Service, headers: Readonly<Record<string, string>> = {}): Promise<unknown> {
  const { json, text } = await get(service, '/items/articles/1?fields=views', { headers });
  return (json as { readonly data?: { readonly views: number } }).data?.views ?? text;
}

/** As many writes, each read on the instance that wrote it and, by its position, on the other. */
async function staleOf(pairs: number): Promise<number> {
  let stale = 0;
  for (let pair = 0; pair < pairs; pair++) {
    const { value, position } = await write();
    const read = await Promise.all([viewsOf(one), viewsOf(two, { 'lateral-position': position })]);
    stale += read.filter((views) => views !== value).length;
  }
  return stale;
}

async function outputOf(service: Service, server: TestServer): Promise<string> {
  const { json } = await get(service, '/server/health');
  const { checks } = json as { readonly checks: Readonly<Record<string, readonly { readonly output?: string }[]>> };
  return checks[`replica:${hostOf(server)}`]?.[0]?.output ?? '';
}

const lengthOf = (server: TestServer, call: string): Promise<number> =>
  withSql(server.url, async (sql) => Number((await sql.unsafe(`select ${call} - '0/0' as bytes`))[0]?.['bytes']));

t.test('before the failover', async (t) => {
  t.equal(await staleOf(20), 0);
  t.equal(await outputOf(one, follower), '', 'the follower takes reads');
});

t.test('a standby is promoted, and a replica stays with the former primary', async (t) => {
  const former = await write();
  const pid = await pidOf(primary);
  const processes = [...childrenOf(pid), pid];
  for (const each of processes) process.kill(each, 'SIGSTOP');
  try {
    await promote(standby);
    const next = await write();
    t.equal(await viewsOf(one), next.value);
    // It promises what was written up to then: a replica may not have the next write yet.
    const views = Number(await viewsOf(two, { 'lateral-position': former.position }));
    t.ok(views === former.value || views === next.value, `a position of before serves: ${views}`);
  } finally {
    for (const each of processes) process.kill(each, 'SIGCONT');
  }
  // The former primary does not know that it is one no more, and the replica goes on to follow it.
  await withSql(databaseUrl(primary, NAME), async (sql) => {
    await sql`set synchronous_commit = local`;
    await sql`insert into tags (name) select repeat('split brain', 20) from generate_series(1, 20000)`;
  });
  const beyond = await lengthOf(standby, 'pg_current_wal_insert_lsn()');
  await waitFor(async () => (await lengthOf(follower, 'pg_last_wal_replay_lsn()')) > beyond + 1e6, 20_000);
  t.equal(await staleOf(50), 0, 'nobody is answered from its longer log');
  for (const service of services)
    await waitFor(async () => /before a promotion/.test(await outputOf(service, follower)), 5_000);
  network.weather = 'fair';
  const seen = await write();
  t.equal(await viewsOf(unaware, { 'lateral-position': seen.position }), seen.value, 'a position tells of a promotion');
  const ahead = (await lengthOf(follower, 'pg_last_wal_replay_lsn()')).toString(36);
  const { value } = await write();
  t.equal(await viewsOf(two, { 'lateral-position': ahead }), value, 'a position of the longer log serves too');
});

t.test('one address leads to the new primary', async (t) => {
  // It follows the server that was the primary, and takes reads.
  await waitFor(async () => (await outputOf(behindAddress, follower)) === '', 5_000);
  // Nobody is told that another server answers: what compares the replicas with it is not answered.
  address.muted = /pg_control_system/;
  address.leadTo(databaseUrl(standby, NAME));
  let stale = 0;
  for (let pair = 0; pair < 20; pair++) {
    const { value } = await write(behindAddress);
    if ((await viewsOf(behindAddress)) !== value) stale++;
  }
  t.equal(stale, 0, 'nobody is answered from the log of the former primary');
  address.muted = null;
  await waitFor(async () => /before a promotion/.test(await outputOf(behindAddress, follower)), 20_000);
});

t.test('which server is accepted behind one address', async (t) => {
  const door = await new Network(standby.url).open();
  const watch = watchPrimary(
    resolveConnection(`${door.url}?target_session_attrs=primary`),
    {},
    () => {},
    () => {},
  );
  const accept = async (): Promise<unknown> => {
    const sql = connectSql(door.url);
    try {
      return await watch?.accept(sql);
    } finally {
      await sql.end();
    }
  };
  const find = (): Promise<boolean> | undefined =>
    watch?.find().then(
      () => true,
      () => false,
    );
  await waitFor(async () => (await find()) === true, 10_000);
  t.equal(watch?.timeline, 2);
  await accept();
  door.leadTo(primary.url);
  await t.rejects(accept(), /another server was promoted/, 'not the former primary, which still takes writes');
  const directory = await makeFolder();
  await writeFile(join(directory, 'lateral.json'), JSON.stringify({ password: new URL(primary.url).password }));
  const rebuilt = await startDatabase({ directory });
  door.leadTo(rebuilt.url);
  await accept();
  t.equal(watch?.timeline, 1, 'a new cluster begins with the first timeline');
});
