/**
 * Reads from memory while a synchronous standby becomes the primary, twice: no answer is older than the acknowledged commits
 * (test/support/cache-oracle.ts), and positions of different timelines are not compared.
 *
 *   CACHE_SEED, CACHE_SECONDS before and after each failover
 */
import t from 'tap';
import { CacheOracle } from '../../support/cache-oracle.js';
import { load, summaryOf } from '../../support/cache-writers.js';
import { pidOf, promote, startPrimary, startStandby } from '../../support/cluster.js';
import { Network } from '../../support/network-proxy.js';
import {
  type Answer,
  createLibrary,
  get,
  request,
  startTestService,
  type TestServer,
  waitFor,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const SEED = Number(process.env['CACHE_SEED'] ?? 35);
const SECONDS = Number(process.env['CACHE_SECONDS'] ?? 5);
const MAX_LAG = 1_000;
const TAG = '/items/tags/1?fields=id,name';
const STANDBY = { name: 'second', settings: { wal_level: 'logical' } };

t.setTimeout(600_000);
let primary = await startPrimary({ settings: { wal_level: 'logical' } });
const databaseUrl = await createLibrary(primary, 'failover');
let standby = await startStandby(primary, STANDBY);

const at = ({ url }: TestServer): string => {
  const there = new URL(databaseUrl);
  there.host = new URL(url).host;
  return there.href;
};
// The addresses stay when servers are replaced.
let idle = await new Network(at(standby)).open();
let busy = await new Network(at(primary)).open();
const hostOf = (url: string): string => new URL(url).host;

async function setNames(server: TestServer, names: string): Promise<void> {
  await withSql(server.url, async (sql) => {
    await sql.unsafe(`alter system set synchronous_standby_names = '${names}'`);
    await sql`select pg_reload_conf()`;
  });
}

/** Commits wait for the standby from now on. */
async function synchronize(): Promise<void> {
  await setNames(primary, 'second');
  const isSynchronous = async (): Promise<boolean> =>
    withSql(
      primary.url,
      async (sql) => (await sql`select from pg_stat_replication where sync_state = 'sync'`).length > 0,
    );
  await waitFor(isSynchronous, 20_000);
}

await synchronize();
const service = await startTestService({
  databaseUrl: databaseUrl.replace(hostOf(databaseUrl), `${hostOf(busy.url)},${hostOf(idle.url)}`),
  LIVE: 'logical',
  WORKERS: '1',
  READ_CACHE_SIZE: '16mb',
  READ_CACHE_MAX_LAG: `${MAX_LAG}ms`,
});
const settings = { seed: SEED, users: 12, shapes: 120, maxLag: MAX_LAG, isDurable: true };
const oracle = new CacheOracle(databaseUrl, [service], settings);
t.teardown(() => oracle.sql.end({ timeout: 1 }));
await oracle.open();

/** The primary is killed, and the standby takes its place. */
async function failOver(): Promise<void> {
  await setNames(standby, '');
  process.kill(await pidOf(primary), 'SIGKILL');
  busy.breakAll();
  await promote(standby);
  primary = standby;
  [busy, idle] = [idle, busy];
  await oracle.follow(at(primary));
}

async function repair(): Promise<void> {
  standby = await startStandby(primary, STANDBY);
  idle.leadTo(at(standby));
  await synchronize();
}

const isHit = ({ headers }: Answer): boolean => headers['cache-status'] === 'lateral; hit';
const readHits = (): boolean => oracle.hits > 0;

for (const turn of ['first', 'second'])
  t.test(`the ${turn} failover: no answer is older than promised`, async (t) => {
    let isOver = false;
    const { hits } = oracle;
    const loaded = load(oracle, () => isOver, 40);
    await passTime(SECONDS * 1_000, 'the memory fills');
    await waitFor(async () => oracle.hits > hits, 20_000);
    await failOver();
    await waitFor(async () => (await get(service, TAG)).status === 200, 20_000);
    const before = oracle.hits;
    await waitFor(async () => oracle.hits > before + 20, 20_000);
    await passTime(SECONDS * 1_000, 'writes of the new primary are seen');
    isOver = true;
    await loaded;
    await oracle.compare(60);
    t.comment(summaryOf(oracle));
    t.ok(readHits() && oracle.comparedHits > 5, 'answers from memory were compared');
    t.strictSame(oracle.violations, [], `${oracle.violated} violations`);
    if (turn === 'first') await repair();
  });

t.test('positions of another timeline', async (t) => {
  const headers = { 'content-type': 'application/json' };
  const written = await request(service, 'PATCH', '/items/tags/1', {
    headers,
    body: JSON.stringify({ name: 'later' }),
  });
  const [position = '', timeline] = String(written.headers['lateral-position']).split('-');
  t.equal(timeline, '3');
  const read = (seen: string): Promise<Answer> => get(service, TAG, { headers: { 'lateral-position': seen } });
  await waitFor(async () => isHit(await read(`${position}-3`)), 10_000);
  // A server that has become the primary has all that survived of earlier timelines, wherever they ended.
  await waitFor(async () => isHit(await read('zzzzzzzz-2')), 10_000);
  for (const later of ['1-4', `${position}-z`, 'zzzzzzzz-3'])
    for (let turn = 0; turn < 4; turn++) {
      const answer = await read(later);
      t.match(answer, { status: 200, text: '"later"' });
      t.notOk(isHit(answer), `a position that this server does not have: ${later}`);
    }
});
