/** A commit that waits for a synchronous standby is in the log, but not visible: no answer from before it may stay in memory. */
import t, { type Test } from 'tap';
import { ReadCache } from '../../../src/speed/cache/read-cache.js';
import { restartStandby, startPrimary, startStandby } from '../../support/cluster.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  type Sql,
  startTestService,
  type TestServer,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(170_000);
const TAG = '/items/tags/1?fields=id,name';
const server = await startPrimary({ settings: { wal_level: 'logical' } });
const databaseUrl = await createLibrary(server, 'waiting');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end({ timeout: 1 }));
let standby: TestServer = await startStandby(server, { name: 'second' });
const service = await startTestService({ databaseUrl, LIVE: 'logical', WORKERS: '1', READ_CACHE_SIZE: '16mb' });
const isHit = ({ headers }: Answer): boolean => headers['cache-status'] === 'lateral; hit';

/** Changes what the caches of this process learn, until the test ends. */
function intercept(t: Test, wrap: (committed: ReadCache['committed']) => ReadCache['committed']): void {
  const { committed } = ReadCache.prototype;
  ReadCache.prototype.committed = wrap(committed);
  t.teardown(() => {
    ReadCache.prototype.committed = committed;
  });
}

async function setNames(sql: Sql, names: string): Promise<void> {
  await sql.unsafe(`alter system set synchronous_standby_names = '${names}'`);
  await sql`select pg_reload_conf()`;
}

/** A commit waits for a standby that is stopped: in the log, but not visible. Returns the first answer after it was acknowledged. */
async function readAfterWaiting(name: string): Promise<{ readonly text: string; readonly hits: number }> {
  await setNames(sql, 'second');
  const state = async (): Promise<boolean> =>
    (await sql`select from pg_stat_replication where application_name = 'second' and sync_state = 'sync'`).length > 0;
  await waitFor(state, 20_000);
  await waitFor(async () => isHit(await get(service, TAG)), 10_000);
  await standby.stop();
  const writer = connectSql(databaseUrl);
  t.teardown(() => writer.end({ timeout: 1 }));
  const written = writer`update tags set name = ${name} where id = 1`.execute();
  const waiting = async (): Promise<boolean> =>
    (await sql`select from pg_stat_activity where wait_event = 'SyncRep' and query like 'update tags%'`).length > 0;
  await waitFor(waiting, 10_000);
  let hits = 0;
  const until = performance.now() + 1_500;
  while (performance.now() < until) {
    const answer = await get(service, TAG);
    if (answer.text.includes(name)) throw new Error('it is visible before it is acknowledged');
    if (isHit(answer)) hits++;
    await passTime(10, 'some reads come while the commit waits');
  }
  standby = await restartStandby(server, standby.directory, { name: 'second' });
  await written;
  const { text } = await get(service, TAG);
  await setNames(sql, '');
  return { text, hits };
}

t.test('a commit that waits for a stopped standby leaves no older answer behind', async (t) => {
  const { text } = await readAfterWaiting('waiting');
  t.match(text, 'waiting');
});

t.test('the test of the stopped standby can fail', async (t) => {
  intercept(
    t,
    (committed) =>
      function (this: ReadCache, commit) {
        committed.call(this, { ...commit, isVisible: true });
      },
  );
  const { text, hits } = await readAfterWaiting('mistaken');
  t.ok(hits > 0, `${hits} answers from memory`);
  t.notMatch(text, 'mistaken');
});
