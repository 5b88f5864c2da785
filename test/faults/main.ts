/**
 * `npm run test:faults`: what happens to every database, for minutes, under load. Reports per fault what clients saw, and ends
 * with 1 when a request hung, an acknowledged write was lost, or one was done by half.
 *   --minutes N   how long all faults take together (10)
 *   --only NAME   just this one: kills, restarts, stop, silence, resets, disk, read-only, lock
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import t from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { Network } from '../support/network-proxy.js';
import { ADMIN_TOKEN, createLibrary, get, startDatabase, waitFor, withSql } from '../support/service.js';
import { passTime } from '../support/time.js';
import { fillableDisk, type SmallDisk } from './disk.js';
import { Load, prepareLoad, type Report } from './load.js';

t.setTimeout(0);
const { values } = parseArgs({ options: { minutes: { type: 'string', default: '10' }, only: { type: 'string' } } });

/** Longer than anything may take with these limits: 3 s for a statement, 5 s to wait for a connection. */
const PATIENCE = 90_000;
const LIMITS = { DATABASE_STATEMENT_TIMEOUT: '3s', DATABASE_CONNECT_TIMEOUT: '2s', DATABASE_WAIT_TIMEOUT: '5s' };
const CLIENTS = { graphql: 4, patch: 3, import: 2, create: 3, schema: 1, read: 3 };

let server = await startDatabase();
const databaseUrl = await createLibrary(server, 'faults');
await withSql(databaseUrl, prepareLoad);
const network = await new Network(databaseUrl).open();
const service = await launch();

interface Fault {
  readonly name: string;
  /** Does harm for about so many milliseconds, and takes it back. */
  readonly harm: (time: number) => Promise<void>;
}

const disk: SmallDisk | string = await fillableDisk(databaseUrl, server.directory);
const faults: readonly Fault[] = [
  { name: 'kills', harm: (time) => repeat(time, 20, killOne) },
  { name: 'restarts', harm: (time) => repeat(time, 3_000, restart) },
  { name: 'stop', harm: (time) => repeat(time, 3_000, stand) },
  { name: 'silence', harm: (time) => repeat(time, 5_000, fallSilent) },
  { name: 'resets', harm: (time) => repeat(time, 150, async () => network.breakAll()) },
  { name: 'disk', harm: fillDisk },
  { name: 'read-only', harm: refuseWrites },
  { name: 'lock', harm: (time) => repeat(time, 2_000, lockTables) },
];
const chosen = faults.filter(({ name }) => values.only === undefined || name === values.only);
const time = (Number(values.minutes) * 60_000) / chosen.length;

for (const { name, harm } of chosen) {
  if (name === 'disk' && typeof disk === 'string') {
    t.test(name, { skip: disk }, async () => {});
    continue;
  }
  t.test(name, async (t) => {
    const load = new Load(service, { clients: CLIENTS, patience: PATIENCE, pause: 5 });
    await withSql(databaseUrl, (sql) => load.start(sql));
    await passTime(1_000, 'requests go on');
    await harm(Math.max(5_000, time - 10_000));
    const recovered = await waitFor(isWell, 60_000).catch(() => null);
    await passTime(1_000, 'requests go on');
    await load.stop();
    const report = await withSql(databaseUrl, (sql) => load.report(sql));
    t.comment(`${name}: ${describe(report, recovered)}`);
    t.strictSame(report.hung, [], 'no request hung');
    t.strictSame(report.lost, [], 'nothing that was acknowledged is lost');
    t.strictSame(report.halfDone, [], 'nothing is half done');
    t.strictSame(report.wrong, [], 'answers are results or 503');
    t.not(recovered, null, 'the service recovered');
    t.ok(service.child.exitCode === null, 'the service never ends of itself');
    // Transactions whose client went out of reach end when they have waited too long.
    await passTime(name === 'silence' ? 12_000 : 0, 'the fault lasts');
    const later = new Load(service, { clients: CLIENTS, patience: PATIENCE, pause: 5 });
    await withSql(databaseUrl, (sql) => later.start(sql));
    await passTime(3_000, 'requests go on');
    await later.stop();
    const after = await withSql(databaseUrl, (sql) => later.report(sql));
    const { statuses, reasons } = after;
    t.notMatch(JSON.stringify({ statuses, reasons }), /"(503|hung|broken off)"/, 'all is well afterwards');
    // The model may still be read after the last change of the schema.
    const freed = await waitFor(areConnectionsFree, 5_000).catch(() => null);
    t.not(freed, null, 'all connections are free');
  });
}

t.test('the end', async (t) => {
  network.weather = 'silent';
  network.freeze();
  const exited = once(service.child, 'exit');
  service.child.kill('SIGTERM');
  const ended = await Promise.race([exited, sleep(20_000, null, { ref: false })]);
  t.strictSame(ended, [0, null], 'a stop ends also where the database is silent');
});

async function isWell(): Promise<boolean> {
  return (await get(service, '/server/health').catch(() => null))?.status === 200;
}

async function areConnectionsFree(): Promise<boolean> {
  const { text } = await get(service, '/server/metrics');
  return !/^lateral_pool_connections_busy\{pool="(?!read)\w+"\} [1-9]/m.test(text);
}

function describe({ statuses, hung, lost, halfDone, slowest }: Report, recovered: number | null): string {
  const lines = Object.entries(statuses).map(
    ([kind, counts]) =>
      `\n    ${kind.padEnd(8)} ${Object.entries(counts)
        .map(([status, count]) => `${status}: ${count}`)
        .join(', ')}`,
  );
  const totals = `hung ${hung.length}, lost ${lost.length}, half done ${halfDone.length}`;
  const back = recovered === null ? 'not well within 60 s' : `well again after ${Math.round(recovered)} ms`;
  return `${totals}, slowest answer ${slowest} ms, ${back}${lines.join('')}`;
}

async function repeat(time: number, pause: number, act: () => Promise<void>): Promise<void> {
  const end = performance.now() + time;
  while (performance.now() < end) {
    await act();
    await passTime(pause, 'the fault lasts');
  }
}

async function killOne(): Promise<void> {
  await withSql(databaseUrl, async (sql) => {
    for (let count = 0; count < 20; count++) {
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where application_name like 'lateral%' order by state = 'idle', random() limit 1`;
      await sleep(10);
    }
  });
}

async function restart(): Promise<void> {
  await server.stop();
  server = await startDatabase({ directory: server.directory });
}

/** All processes of the server stand still for longer than a statement may take. */
async function stand(): Promise<void> {
  const pid = await postmaster();
  const children = execFileSync('ps', ['-o', 'pid=', '--ppid', String(pid)]).toString();
  const all = [pid, ...children.split(/\s+/).filter(Boolean).map(Number)];
  signal(all, 'SIGSTOP');
  await passTime(12_000, 'the fault lasts');
  signal(all, 'SIGCONT');
}

function signal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // It has ended meanwhile.
    }
  }
}

async function postmaster(): Promise<number> {
  return Number((await readFile(join(server.directory, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
}

async function fallSilent(): Promise<void> {
  network.weather = 'silent';
  network.freeze();
  await passTime(12_000, 'the fault lasts');
  network.weather = 'fair';
  network.breakAll();
}

async function fillDisk(time: number): Promise<void> {
  const { fill, free } = disk as SmallDisk;
  await fill();
  await passTime(time, 'the fault lasts');
  await free();
}

async function refuseWrites(time: number): Promise<void> {
  await setReadOnly('on');
  await passTime(time, 'the fault lasts');
  await setReadOnly('off');
}

async function setReadOnly(value: 'on' | 'off'): Promise<void> {
  await withSql(server.url, async (sql) => {
    await sql`set default_transaction_read_only = off`;
    await sql.unsafe(`alter system set default_transaction_read_only = ${value}`);
    await sql`select pg_reload_conf()`;
  });
}

/** Another session holds what the writes need, for longer than a statement may take. */
async function lockTables(): Promise<void> {
  await withSql(databaseUrl, (sql) =>
    sql.begin(async (transaction) => {
      await transaction`lock table authors, groups, goods`;
      await passTime(8_000, 'the fault lasts');
    }),
  );
}

async function launch(): Promise<{ readonly url: string; readonly child: ChildProcess }> {
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: {
      PATH: process.env['PATH'] ?? '',
      DATABASE_URL: network.url,
      ...LIMITS,
      SHUTDOWN_TIMEOUT: '3s',
      PORT: '0',
      LOG_LEVEL: 'silent',
      ADMIN_TOKEN,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  const url = await new Promise<string>((resolve, reject) => {
    child.once('exit', () => reject(new Error(`not ready: ${output}`)));
    child.stdout.on('data', (piece) => {
      output += String(piece);
      const found = /ready at (\S+)/.exec(output)?.[1];
      if (found) resolve(found);
    });
  });
  return { url, child };
}
