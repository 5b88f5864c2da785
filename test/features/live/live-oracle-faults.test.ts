/**
 * Faults under the load of `LiveOracle`, with two instances: PostgreSQL is restarted, its backends are killed, the slot is lost, an instance
 * is killed, a standby takes over. After each of them everybody has what a fresh read answers, and no slot is left behind.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { pidOf, promote, startPrimary, startStandby } from '../../support/cluster.js';
import { LiveOracle } from '../../support/live-oracle.js';
import type { Place } from '../../support/live-witness.js';
import { freePort } from '../../support/programs.js';
import {
  ADMIN_TOKEN,
  createLibrary,
  get,
  startDatabase,
  type TestServer,
  waitFor,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const SUBSCRIPTIONS = Number(process.env['LIVE_SUBSCRIPTIONS'] ?? 200);
/** For each fault. */
const WRITES = Number(process.env['LIVE_FAULT_WRITES'] ?? 1_000);
t.setTimeout(1_800_000);

/** What was committed survives the end of the processes; little of the log is kept, so that a slot can fall behind. */
const SETTINGS = { synchronous_commit: 'on', wal_keep_size: '32MB', max_connections: '200' };
let primary = await startPrimary({ settings: SETTINGS });
const url = await createLibrary(primary, 'live_oracle_faults');
const standby = await startStandby(primary, { name: 'second' });
const standbyUrl = new URL(url);
standbyUrl.host = new URL(standby.url).host;
const hosts = url.replace(new URL(url).host, `${new URL(url).host},${standbyUrl.host}`);

interface Instance extends Place {
  readonly child: ChildProcess;
}

/** The program as users start it: it can be killed. */
async function launch(): Promise<Instance> {
  const port = await freePort();
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: {
      PATH: process.env['PATH'] ?? '',
      DATABASE_URL: hosts,
      PORT: String(port),
      WORKERS: '1',
      LOG_LEVEL: 'silent',
      SECRET: 'shared-by-both-instances',
      LIVE_MAX_WAL: '16mb',
      ADMIN_TOKEN,
    },
    stdio: 'ignore',
  });
  t.teardown(() => void child.kill('SIGKILL'));
  const instance = { url: `http://127.0.0.1:${port}`, child };
  const answers = (): Promise<boolean> =>
    get(instance, '/server/ping', { token: null }).then(
      ({ status }) => status === 200,
      () => false,
    );
  await waitFor(answers, 120_000);
  return instance;
}

const [one, two] = [await launch(), await launch()];
const oracle = new LiveOracle(url, [one, two], { cutsStreams: false });
await oracle.open(SUBSCRIPTIONS);

interface Slot {
  readonly slot_name: string;
  readonly active_pid: number;
}

async function slots(): Promise<readonly Slot[]> {
  return [...(await oracle.sql<Slot[]>`select slot_name, active_pid from pg_replication_slots`)];
}

/** Writes before, while and after it happens. */
async function during(t: Test, fault: () => Promise<unknown>): Promise<void> {
  const begun = oracle.written;
  const load = oracle.write(WRITES);
  await waitFor(async () => oracle.written - begun >= WRITES / 3, 600_000);
  await fault();
  await load;
  await oracle.ready();
  await oracle.settle(t);
  const instances = oracle.places.length;
  await waitFor(async () => (await slots()).length === instances, 10_000).catch(async () =>
    t.strictSame(await slots(), [], `a slot for each of ${instances} instances and no more`),
  );
}

async function restart(signal: NodeJS.Signals): Promise<TestServer> {
  process.kill(await pidOf(primary), signal);
  await primary.stop();
  await passTime(300, 'the server is away for a while');
  return startDatabase({ directory: primary.directory, settings: SETTINGS });
}

for (const [way, signal] of [
  ['fast', 'SIGINT'],
  ['immediate', 'SIGQUIT'],
] as const)
  await t.test(`PostgreSQL is restarted, ${way}`, (t) =>
    during(t, async () => {
      primary = await restart(signal);
    }),
  );

await t.test('all backends are killed, the readers of the log too', (t) =>
  during(t, async () => {
    for (let round = 0; round < 3; round++) {
      await withSql(
        primary.url,
        (sql) => sql`select pg_terminate_backend(pid) from pg_stat_activity
          where pid <> pg_backend_pid() and (datname = 'live_oracle_faults' or backend_type = 'walsender')`,
      );
      await passTime(1_000, 'they connect again');
    }
  }),
);

await t.test('the slot is invalidated', (t) =>
  during(t, async () => {
    const [slot] = await slots();
    if (!slot) throw new Error('there is no slot');
    await withSql(primary.url, async (sql) => {
      await sql`alter system set max_slot_wal_keep_size = '1MB'`;
      await sql`select pg_reload_conf()`;
      process.kill(slot.active_pid, 'SIGSTOP');
      try {
        for (let segment = 0; segment < 8; segment++) {
          await sql`select pg_logical_emit_message(false, 'filler', repeat('x', 1000))`;
          await sql`select pg_switch_wal()`;
        }
        const checked = sql`checkpoint`.execute();
        await passTime(500, 'writes go on');
        process.kill(slot.active_pid, 'SIGCONT');
        await checked;
      } finally {
        await sql`alter system reset max_slot_wal_keep_size`;
        await sql`select pg_reload_conf()`;
      }
    });
    await waitFor(async () => !(await slots()).some(({ slot_name }) => slot_name === slot.slot_name), 10_000);
  }),
);

await t.test('an instance is killed: its clients come back to the other one, and its slot is gone', (t) =>
  during(t, async () => {
    oracle.places = [one];
    two.child.kill('SIGKILL');
    await once(two.child, 'exit');
  }),
);

await t.test('the primary is lost, and a standby takes over', (t) =>
  during(t, async () => {
    await withSql(primary.url, async (sql) => {
      await sql`alter system set synchronous_standby_names = 'second'`;
      await sql`select pg_reload_conf()`;
      await waitFor(async () => {
        const [row] = await sql`select count(*)::int as count from pg_stat_replication where sync_state = 'sync'`;
        return row?.['count'] === 1;
      }, 20_000);
    });
    await passTime(500, 'writes go on');
    process.kill(await pidOf(primary), 'SIGKILL');
    await passTime(300, 'the server is away for a while');
    await promote(standby);
    await oracle.move(standbyUrl.href);
  }),
);

await t.test('after an end in order neither a slot nor a publication is left', async (t) => {
  one.child.kill('SIGTERM');
  await once(one.child, 'exit');
  t.strictSame(await slots(), []);
  t.strictSame([...(await oracle.sql`select pubname from pg_publication`)], []);
});
