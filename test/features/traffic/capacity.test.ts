/**
 * `lateral capacity` names the resource that was made scarce, and finds the rate that a search with wrk finds too. Half a processor is a
 * limit of a control group, which needs root. A comparison that other programs have disturbed is repeated, or skipped if they go on.
 */
import { execFile, spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { endLine, headerLine, requestLine } from '../../../src/features/traffic/traffic-file.js';
import { pidOf } from '../../support/cluster.js';
import { familyOf, limitProcessors, watchIdle } from '../../support/processor-limit.js';
import { findProgram } from '../../support/programs.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  makeFolder,
  runProgram,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase({ own: true });
const databaseUrl = await createLibrary(server, 'capacity');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create function nap() returns integer stable language sql as 'select 1 from pg_sleep(0.02)';
  create function burn() returns bigint stable language sql as 'select sum(n) from generate_series(1, 20000) n';
  create table counters (id integer primary key, value integer);
  insert into counters values (1, 0);
  create function count_up() returns integer volatile language sql as $$
    update counters set value = value + 1 where id = 1;
    select 1 from pg_sleep(0.02);
  $$;
  insert into service_functions (name) values ('nap'), ('burn'), ('count_up');
`);
const folder = await makeFolder();
const [administrator] = await sql`select id from service_users where token is not null limit 1`;
const wrk = await findProgram('wrk');

interface Found {
  readonly rate: number;
  readonly exhausted: string;
  readonly reason: string;
  readonly requests_per_processor_second: number;
  readonly recommended: readonly { readonly name: string; readonly value: number }[];
}

interface Running {
  readonly url: string;
  readonly pid: number;
  stop(): Promise<void>;
}

interface Traffic {
  readonly method: string;
  readonly path: string;
  readonly write?: boolean;
}

/**
 * A process of its own, with one thread. The comparisons run without batching: equal reads would share a statement, so each further
 * connection would raise the rate, and there would be no highest one.
 */
async function launch(options: Readonly<Record<string, string>>): Promise<Running> {
  const given = { PORT: '0', LOG_LEVEL: 'silent', WORKERS: '1', RATE_LIMITER_ENABLED: 'false', ADMIN_TOKEN };
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: { PATH: process.env['PATH'] ?? '', DATABASE_URL: databaseUrl, ...given, ...options },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = new Promise<void>((resolve) => void child.once('exit', () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await ended;
  };
  let output = '';
  for await (const piece of child.stdout) {
    output += String(piece);
    const url = /ready at (\S+)/.exec(output)?.[1];
    if (url && child.pid) {
      child.stdout.on('data', () => {});
      return { url: url.replace(/\/$/, ''), pid: child.pid, stop };
    }
  }
  throw new Error(`not ready: ${output}`);
}

async function capacityOf(
  t: Test,
  { url }: { readonly url: string },
  traffic: Traffic,
  words: readonly string[],
): Promise<Found> {
  const file = join(folder, 'one.lateral');
  const user = administrator?.['id'] ?? null;
  const recorded = { t: 0, ...traffic, user, role: null, status: 200, bytes: 1, ms: 1 };
  const end = endLine({ milliseconds: 100, requests: 1, dropped: 0 });
  const header = headerLine({ started: new Date(), sample: 1, service: '1' });
  await writeFile(file, gzipSync([header, requestLine(recorded), end].join('\n')));
  const target = ['--url', url, '--token', ADMIN_TOKEN];
  const { code, output, complaints } = await runProgram(['capacity', file, ...target, ...words, '--json']);
  t.equal(code, 0, complaints);
  t.comment(complaints);
  const found: Found = JSON.parse(output);
  t.comment(`${found.rate}/s: ${found.exhausted} (${found.reason})`);
  return found;
}

/** On a busy machine half a processor may be more than other programs leave: then a smaller share shows the same. */
const PROCESSORS = Number(process.env['CAPACITY_PROCESSORS'] ?? 0.5);
const LIMIT_MS = 250;
const LIMITS = ['--slo', `p90=${LIMIT_MS}ms,errors=0%`];
const CONNECTIONS = 64;
const WRK_SECONDS = 4;

interface WrkRun {
  readonly perSecond: number;
  readonly p90: number;
}

async function runWrk({ url }: Running, { path }: Traffic, connections: number): Promise<WrkRun> {
  const header = (name: string, value: string): string[] => ['-H', `${name}: ${value}`];
  const { stdout: output } = await promisify(execFile)(String(wrk), [
    '-t1',
    `-c${connections}`,
    `-d${WRK_SECONDS}s`,
    '--latency',
    ...header('Authorization', `Bearer ${ADMIN_TOKEN}`),
    ...header('Lateral-View-As', `user:${administrator?.['id']}`),
    url + path,
  ]);
  const [, number = '', unit = ''] = /90%\s+([\d.]+)(us|ms|s)/.exec(output) ?? [];
  const p90 = Number(number) * ({ us: 0.001, ms: 1, s: 1_000 }[unit] ?? Number.NaN);
  const perSecond = Number(/Requests\/sec:\s+([\d.]+)/.exec(output)?.[1]);
  if (!Number.isFinite(p90 + perSecond) || /Non-2xx/.test(output)) throw new Error(`wrk: ${output}`);
  return { perSecond, p90 };
}

/** The highest rate of wrk within the limit: it has no constant rate, so the number of its connections is searched. */
async function bisectWithWrk(t: Test, service: Running, traffic: Traffic): Promise<number> {
  let [kept, missed, best] = [0, CONNECTIONS * 2, 0];
  for (let connections = 8; missed - kept > Math.max(1, kept / 8); ) {
    const run = await runWrk(service, traffic, connections);
    t.comment(`wrk with ${connections} connections: ${run.perSecond}/s, p90 ${run.p90} ms`);
    if (run.p90 <= LIMIT_MS) {
      kept = connections;
      best = Math.max(best, run.perSecond);
      if (connections === CONNECTIONS) break;
    } else missed = connections;
    connections = Math.min(CONNECTIONS, missed > CONNECTIONS ? connections * 2 : Math.round((kept + missed) / 2));
  }
  return best;
}

const TRIES = 3;
/** A machine with less idle time was busy with other programs: the limits leave at least half of it idle. */
const QUIET = 0.15;
/** The idle share before a try, when nothing of this test runs. */
const QUIET_BEFORE = 0.7;
/** Both searches take a minute each: a machine whose speed changes by more meanwhile does not allow a comparison. */
const STEADY = 0.1;

async function isQuiet(): Promise<boolean> {
  for (let looks = 0; looks < 6; looks++) {
    const idle = await watchIdle();
    await passTime(5_000, 'other programs');
    if ((await idle()) >= QUIET_BEFORE) return true;
  }
  return false;
}

interface Comparison {
  readonly traffic: Traffic;
  readonly from: string;
  readonly resource: string;
}

async function compare(t: Test, service: Running, { traffic, from, resource }: Comparison): Promise<void> {
  for (let tries = 1; tries <= TRIES && (await isQuiet()); tries++) {
    const idle = await watchIdle();
    const before = await runWrk(service, traffic, CONNECTIONS);
    const found = await capacityOf(t, service, traffic, [...LIMITS, '--from', from, '--step', '5s']);
    const rate = await bisectWithWrk(t, service, traffic);
    const share = await idle();
    const difference = Math.abs(found.rate / rate - 1);
    const isSteady = share >= QUIET && Math.abs(before.perSecond / rate - 1) <= STEADY;
    t.comment(`try ${tries}: capacity ${found.rate}/s, wrk ${before.perSecond}/s before it and ${rate}/s after it`);
    t.comment(`the machine was idle for ${share}`);
    if (!isSteady && (found.exhausted !== resource || difference > 0.1)) continue;
    t.equal(found.exhausted, resource, found.reason);
    t.ok(difference <= 0.1, `${found.rate}/s, ${rate}/s with wrk`);
    return;
  }
  t.comment('skipped: other programs used the machine');
}

const MAY_COMPARE = { skip: wrk ? false : 'needs wrk', timeout: 1_200_000 };

t.test('half a processor for PostgreSQL', { ...MAY_COMPARE }, async (t) => {
  const limited = await limitProcessors(await familyOf(await pidOf(server)), PROCESSORS);
  if (!limited) return t.comment('skipped: control groups cannot be made here (root is needed)');
  t.comment(limited.how);
  const service = await launch({ DATABASE_POOL_SIZE: '8', READ_BATCHING: 'false' });
  await compare(t, service, {
    traffic: { method: 'GET', path: '/rpc/burn' },
    from: '40/s',
    resource: 'PostgreSQL processor',
  });
  await service.stop();
  await limited.release();
});

t.test('two connections', { ...MAY_COMPARE }, async (t) => {
  const service = await launch({ DATABASE_POOL_SIZE: '2', READ_BATCHING: 'false' });
  const traffic = { method: 'GET', path: '/rpc/nap' };
  await compare(t, service, { traffic, from: '40/s', resource: 'connections' });
  await service.stop();
});

t.test('half a processor for the service', { ...MAY_COMPARE }, async (t) => {
  const service = await launch({ READ_BATCHING: 'false' });
  const limited = await limitProcessors([service.pid], PROCESSORS);
  if (!limited) return t.comment('skipped: control groups cannot be made here (root is needed)');
  t.comment(limited.how);
  const traffic = { method: 'GET', path: '/items/tags/1' };
  await compare(t, service, { traffic, from: '400/s', resource: 'service processor' });
  await service.stop();
  await limited.release();
});

t.test('a pool of two is recommended to be larger', async (t) => {
  const service = await startTestService({
    databaseUrl,
    WORKERS: '1',
    DATABASE_POOL_SIZE: '2',
    READ_BATCHING: 'false',
  });
  const words = [...LIMITS, '--from', '50/s', '--step', '3s'];
  const found = await capacityOf(t, service, { method: 'GET', path: '/rpc/nap' }, words);
  t.ok(found.rate > 75 && found.rate < 110, `${found.rate}/s`);
  t.match(found.recommended[0], { name: 'DATABASE_POOL_SIZE', value: 4 });
  t.ok(found.requests_per_processor_second > 0);
});

t.test('writes of one row wait for its lock', async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '1' });
  const traffic = { method: 'POST', path: '/rpc/count_up', write: true };
  const found = await capacityOf(t, service, traffic, [...LIMITS, '--from', '10/s', '--step', '3s', '--writes']);
  t.equal(found.exhausted, 'locks', found.reason);
  t.ok(found.rate > 30 && found.rate < 52, `${found.rate}/s`);
});

t.test('the load of the service is for administrators', async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '2' });
  t.match(await get(service, '/server/load', { token: null }), { status: 403 });
  t.match(await get(service, '/server/load'), {
    status: 200,
    json: {
      data: {
        machine: { processors: Number, idle_seconds: Number },
        process_cpu_seconds: Number,
        threads: [
          { busy_seconds: Number, cpu_seconds: Number },
          { busy_seconds: Number, cpu_seconds: Number },
        ],
        pools: { read: { max: Number, busy: Number, waiting: Number } },
        database: { active_ms: Number, connections: Number, max_connections: Number, cpu_seconds: Number },
      },
    },
  });
});
