/** GET /server/load: how busy the threads, the connections and PostgreSQL are, in one reply. `lateral capacity` compares two of them. */
import { readdir, readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join, posix } from 'node:path';
import { parseOwnJson } from '../../base/narrow.js';
import type { Identities } from '../../server/access/identities.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import { INTEGER, list, object, orNull, RECORD, STRING } from '../../server/api/openapi/json-schema.js';
import type { Metric } from '../../server/api/server/metric.js';
import type { Gather } from '../../server/api/server/metrics.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { readSql } from '../../server/postgres/read-sql.js';

interface LoadServices {
  readonly identities: Identities;
  readonly database: Database;
  readonly gather: Gather;
}

const NUMBER = { type: 'number' };

/** The limit of a control group in processors, and the periods in which the group ran and in which Linux throttled it. */
const LIMIT = orNull(object({ limit: NUMBER, periods: INTEGER, throttled_periods: INTEGER }));

/**
 * `time` in milliseconds since 1970. Seconds, milliseconds and periods are totals since the start: compare two replies. Null is unknown,
 * such as the processor time of a PostgreSQL on another machine, or no limit.
 */
const LOAD = object({
  time: INTEGER,
  processors: INTEGER,
  machine: orNull(object({ processors: INTEGER, idle_seconds: NUMBER })),
  process_cpu_seconds: NUMBER,
  processor_limit: LIMIT,
  threads: list(object({ name: STRING, busy_seconds: NUMBER, cpu_seconds: orNull(NUMBER) })),
  pools: { type: 'object', additionalProperties: object({ max: INTEGER, busy: INTEGER, waiting: INTEGER }) },
  database: object({
    running: RECORD,
    active_ms: orNull(NUMBER),
    connections: INTEGER,
    max_connections: INTEGER,
    cpu_seconds: orNull(NUMBER),
    processor_limit: LIMIT,
  }),
});

export function loadRoutes(services: LoadServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('GET /server/load', show, {
      summary: 'How busy the threads, the connections and PostgreSQL are',
      allow: 'administrators',
      data: LOAD,
      graphql: { name: 'server_load' },
    }),
  ];
}

const DATABASE_LOAD = readSql('features', 'traffic', 'load.sql');

async function show(_: ActionRequest, { database, gather }: LoadServices): Promise<ActionResult> {
  const [gathered, activity, machine, limit] = await Promise.all([
    gather(),
    database.cell(DATABASE_LOAD, []),
    machineTimes(),
    processorLimit('self'),
  ]);
  const metrics = gathered.flat();
  const cpu = new Map(
    valuesOf(metrics, 'lateral_thread_cpu_seconds_total').map(({ labels, value }) => [labels['thread'], value]),
  );
  const data = {
    time: Date.now(),
    processors: availableParallelism(),
    machine,
    process_cpu_seconds: sumOf(metrics, 'process_cpu_seconds_total'),
    processor_limit: limit,
    threads: valuesOf(metrics, 'lateral_thread_busy_seconds_total').map(({ labels, value }) => ({
      name: String(labels['thread']),
      busy_seconds: value,
      cpu_seconds: cpu.get(labels['thread']) ?? null,
    })),
    pools: poolsOf(metrics),
    database: await withProcessorTimes(parseOwnJson<DatabaseLoad>(String(activity))),
  };
  return { data, secret: true };
}

interface DatabaseLoad {
  /** The process that serves this statement, and its database. */
  readonly pid: number;
  readonly name: string;
}

async function withProcessorTimes({ pid, name, ...load }: DatabaseLoad): Promise<Record<string, unknown>> {
  const postmaster = await findPostmaster(pid, name);
  if (postmaster === null) return { ...load, cpu_seconds: null, processor_limit: null };
  const [seconds, limit] = await Promise.all([postgresSeconds(postmaster), processorLimit(pid)]);
  return { ...load, cpu_seconds: seconds, processor_limit: limit };
}

function valuesOf(metrics: readonly Metric[], name: string): Metric['values'] {
  return metrics.filter((metric) => metric.name === name).flatMap(({ values }) => values);
}

function sumOf(metrics: readonly Metric[], name: string, pool?: string): number {
  const values = valuesOf(metrics, name).filter(({ labels }) => pool === undefined || labels['pool'] === pool);
  return values.reduce((sum, { value }) => sum + value, 0);
}

/** The connections of all threads together. */
function poolsOf(metrics: readonly Metric[]): Record<string, unknown> {
  const names = new Set(valuesOf(metrics, 'lateral_pool_connections_max').map(({ labels }) => String(labels['pool'])));
  return Object.fromEntries(
    [...names].map((pool) => [
      pool,
      {
        max: sumOf(metrics, 'lateral_pool_connections_max', pool),
        busy: sumOf(metrics, 'lateral_pool_connections_busy', pool),
        waiting: sumOf(metrics, 'lateral_pool_waiting', pool),
      },
    ]),
  );
}

/** All processors together, since the machine was started. Time of the hypervisor's other guests is not idle. */
interface MachineTimes {
  readonly processors: number;
  readonly idle_seconds: number;
}

/** The limit of a control group, as containers have it. */
interface ProcessorLimit {
  /** In processors, such as 0.5. */
  readonly limit: number;
  /** Periods of the limit in which the group ran, and those in which it used up its share and had to wait. */
  readonly periods: number;
  readonly throttled_periods: number;
}

/**
 * The processor time of the machine, of this process and of PostgreSQL, and how much of it they may use, comes from /proc and the control
 * groups of Linux. On other systems, and for a PostgreSQL on another machine or in another container, the values are null.
 */
async function machineTimes(): Promise<MachineTimes | null> {
  const lines = (await read('/proc/stat'))?.split('\n') ?? [];
  const [, ...ticks] = lines[0]?.split(/\s+/) ?? [];
  const [idle, waiting] = [Number(ticks[3]), Number(ticks[4])];
  const processors = lines.filter((line) => /^cpu\d/.test(line)).length;
  return processors > 0 && Number.isFinite(idle + waiting)
    ? { processors, idle_seconds: (idle + waiting) / TICKS_PER_SECOND }
    : null;
}

/** `USER_HZ`, which is 100 on all platforms that Node supports. */
const TICKS_PER_SECOND = 100;

interface ProcessTimes {
  readonly parent: number;
  readonly own: number;
  /** The processor time of its children that have ended. */
  readonly ended: number;
}

async function processTimes(pid: number): Promise<ProcessTimes | null> {
  const text = await read(`/proc/${pid}/stat`);
  if (text === null) return null;
  // The name is in parentheses and may have spaces. The state follows it.
  const fields = text
    .slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  const [parent = 0, user = 0, system = 0, endedUser = 0, endedSystem = 0] = [1, 11, 12, 13, 14].map(
    (at) => fields[at],
  );
  return { parent, own: (user + system) / TICKS_PER_SECOND, ended: (endedUser + endedSystem) / TICKS_PER_SECOND };
}

/** The main process of PostgreSQL, if the server process with this id runs on this machine and serves this database. */
async function findPostmaster(backend: number, database: string): Promise<number | null> {
  const title = await read(`/proc/${backend}/cmdline`);
  if (!title?.startsWith('postgres:') || !title.includes(` ${database} `)) return null;
  return (await processTimes(backend))?.parent ?? null;
}

/** The processor time of PostgreSQL with all of its processes, also of those that have ended. */
async function postgresSeconds(postmaster: number): Promise<number | null> {
  const main = await processTimes(postmaster);
  if (main === null) return null;
  const children = await Promise.all((await childrenOf(postmaster)).map(processTimes));
  return children.reduce((sum, child) => sum + (child?.own ?? 0), main.own + main.ended);
}

async function childrenOf(pid: number): Promise<number[]> {
  const listed = await read(`/proc/${pid}/task/${pid}/children`);
  if (listed !== null)
    return listed
      .split(' ')
      .filter((text) => text !== '')
      .map(Number);
  const all = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const times = await Promise.all(all.map(processTimes));
  return all.filter((_, index) => times[index]?.parent === pid);
}

/** The lowest limit of the control groups of a process, or null if none limits it. */
async function processorLimit(pid: number | 'self'): Promise<ProcessorLimit | null> {
  const groups = (await read(`/proc/${pid}/cgroup`))?.trim().split('\n') ?? [];
  const found = await Promise.all(groups.flatMap(foldersOf).map(limitOfFolder));
  return found.reduce((one, other) => (one && (!other || one.limit <= other.limit) ? one : other), null);
}

const GROUPS = '/sys/fs/cgroup';

/** The folders of a control group and of those that contain it; a line is `number:controllers:path`. */
function foldersOf(line: string): string[] {
  const [, number = '', controllers = '', path = ''] = /^(\d+):([^:]*):(.*)$/.exec(line) ?? [];
  const isSecondVersion = number === '0' && controllers === '';
  if (!isSecondVersion && !controllers.split(',').includes('cpu')) return [];
  const roots = isSecondVersion ? [GROUPS, join(GROUPS, 'unified')] : [join(GROUPS, controllers), join(GROUPS, 'cpu')];
  const paths = [path];
  for (let at = path; at !== '/' && at !== '.'; at = posix.dirname(at)) paths.push(posix.dirname(at));
  return [...new Set(roots.flatMap((root) => paths.map((each) => join(root, each))))];
}

async function limitOfFolder(folder: string): Promise<ProcessorLimit | null> {
  const [both, quota, period, counts] = await Promise.all(
    ['cpu.max', 'cpu.cfs_quota_us', 'cpu.cfs_period_us', 'cpu.stat'].map((name) => read(join(folder, name))),
  );
  const [allowed, of] = (both ?? `${quota} ${period}`).split(/\s+/).map(Number);
  // A group without a limit has "max" or -1.
  if (!allowed || !of || !(allowed > 0)) return null;
  const count = (name: string): number => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(counts ?? '')?.[1] ?? 0);
  return { limit: allowed / of, periods: count('nr_periods'), throttled_periods: count('nr_throttled') };
}

/** The text of a file, or null if it cannot be read. */
async function read(path: string): Promise<string | null> {
  return readFile(path, 'utf8').catch(() => null);
}
