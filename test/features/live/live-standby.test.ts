/**
 * A subscriber next to synchronous replication: the service's stream must never count as a standby. While the real standby is down, writes
 * wait, whichever way `synchronous_standby_names` could include the stream, and a failover loses no acknowledged write.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { packageVersion } from '../../../src/base/package-files.js';
import { pidOf, promote, restartStandby, startPrimary, startStandby } from '../../support/cluster.js';
import { EventStream } from '../../support/event-stream.js';
import { connectSql, createLibrary, request, startTestService, waitFor, withSql } from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(170_000);
const OURS = `lateral ${packageVersion}`;
/** Milliseconds in which a stream that counted as a standby would confirm a commit: it reports its position every second. */
const SEVERAL_REPORTS_MS = 3_500;

const NAMES = ['*', 'ANY 1 (*)', `FIRST 1 ("${OURS}", second)`, `ANY 1 ("${OURS}", second)`];

const primary = await startPrimary();
const url = await createLibrary(primary, 'synchronous');
let standby = await startStandby(primary, { name: 'second' });
const sql = connectSql(primary.url);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl: url, WORKERS: '1', DATABASE_STATEMENT_TIMEOUT: '20s' });

interface Sender {
  readonly application_name: string;
  readonly state: string;
  readonly sync_state: string;
}

const senders = async (): Promise<Sender[]> => [
  ...(await sql<Sender[]>`select application_name, state, sync_state from pg_stat_replication`),
];

const ours = async (): Promise<Sender | undefined> =>
  (await senders()).find(({ application_name }) => application_name === OURS);

async function setNames(names: string): Promise<void> {
  await sql.unsafe(`alter system set synchronous_standby_names = '${names}'`);
  await sql`select pg_reload_conf()`;
  await waitFor(async () => {
    const [row] = await withSql(primary.url, (fresh) => fresh`show synchronous_standby_names`);
    return row?.['synchronous_standby_names'] === names;
  }, 5_000);
}

const standbyStreams = async (): Promise<boolean> =>
  (await senders()).some(
    ({ application_name, state, sync_state }) =>
      application_name === 'second' && state === 'streaming' && sync_state !== 'async',
  );

/** A write over HTTP, and whether it was acknowledged so far. */
function write(name: string): { readonly done: Promise<number>; isAcknowledged: boolean } {
  const headers = { 'content-type': 'application/json' };
  const sent = {
    isAcknowledged: false,
    done: request(service, 'POST', '/items/tags', { headers, body: JSON.stringify({ name }) }).then(
      ({ status }) => {
        sent.isAcknowledged = status === 200;
        return status;
      },
      () => 0,
    ),
  };
  return sent;
}

const waiting = async (): Promise<boolean> =>
  (await sql`select from pg_stat_activity where wait_event = 'SyncRep'`).length > 0;

const stream = new EventStream(service, '/items/tags?fields=name&limit=-1');
t.teardown(() => stream.close());
await stream.count(1);
await waitFor(async () => (await ours())?.state === 'streaming', 10_000);

for (const [round, names] of NAMES.entries())
  t.test(`${names}, set while a stream is open: a write waits for the standby`, async (t) => {
    await setNames(names);
    await waitFor(standbyStreams, 20_000);
    t.equal(await write(`before ${round}`).done, 200);
    const states = new Set<string>([(await ours())?.sync_state ?? 'none']);
    await standby.stop();
    const late = write(`late ${round}`);
    await waitFor(async () => late.isAcknowledged || (await waiting()), 5_000);
    const until = performance.now() + SEVERAL_REPORTS_MS;
    while (performance.now() < until) {
      states.add((await ours())?.sync_state ?? 'none');
      await sleep(50);
    }
    t.notOk(late.isAcknowledged, 'not acknowledged while the standby is down');
    t.strictSame([...states], ['async'], 'the stream never counts');
    standby = await restartStandby(primary, standby.directory, { name: 'second' });
    t.equal(await late.done, 200, 'acknowledged when the standby has it');
    await waitFor(async () => stream.events.at(-1)?.data.includes(`late ${round}`) === true, 15_000);
  });

t.test('a failover loses no acknowledged write', async (t) => {
  await setNames('*');
  await waitFor(standbyStreams, 20_000);
  const writes = [write('failover 0')];
  await writes[0]?.done;
  await standby.stop();
  for (let number = 1; number <= 5; number++) writes.push(write(`failover ${number}`));
  await passTime(SEVERAL_REPORTS_MS, 'several reports are due');
  const acknowledged = writes.flatMap(({ isAcknowledged }, number) => (isAcknowledged ? [`failover ${number}`] : []));
  process.kill(await pidOf(primary), 'SIGKILL');
  standby = await restartStandby(primary, standby.directory, { name: 'second' });
  await promote(standby);
  const standbyUrl = new URL(url);
  standbyUrl.host = new URL(standby.url).host;
  const rows = await withSql(
    standbyUrl.href,
    (fresh) => fresh<{ name: string }[]>`select name from tags where name like 'failover %'`,
  );
  const kept = new Set(rows.map(({ name }) => name));
  t.strictSame(
    acknowledged.filter((name) => !kept.has(name)),
    [],
    `${acknowledged.length} of ${writes.length} were acknowledged`,
  );
  t.ok(kept.has('failover 0'));
});
