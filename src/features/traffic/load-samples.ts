/** The load of a service while it is measured, sampled from /server/load. */
import { networkInterfaces } from 'node:os';
import { StartError } from '../../base/errors.js';
import { isRecord, propertiesOf } from '../../base/narrow.js';
import { ask, type Target } from './target.js';

/** One reply of /server/load. Times and periods are totals: compare two of them. */
interface LoadReply {
  /** Milliseconds since 1970. */
  readonly time: number;
  readonly processors: number;
  /** Unknown on some systems. */
  readonly machine: { readonly processors: number; readonly idleSeconds: number } | null;
  readonly service: ProcessorReply;
  readonly database: ProcessorReply;
  /** Seconds of this program. */
  readonly clientSeconds: number;
  /** Seconds that threads were busy, and the processor time of them, by name. */
  readonly threads: ReadonlyMap<string, { readonly busy: number; readonly used: number | null }>;
  readonly pools: ReadonlyMap<string, PoolLoad>;
  /** Statements that run, by what they wait for. */
  readonly running: ReadonlyMap<string, number>;
  readonly activeMs: number;
  readonly connections: number;
  readonly maxConnections: number;
}

interface ProcessorReply {
  /** Unknown for a PostgreSQL on another machine. */
  readonly seconds: number | null;
  /** Null without a limit. */
  readonly limit: number | null;
  readonly periods: number;
  readonly throttledPeriods: number;
}

interface PoolLoad {
  readonly max: number;
  readonly busy: number;
  readonly waiting: number;
}

/** Processor time of a program, in processors on average. */
export interface ProcessorUse {
  /** Unknown for a PostgreSQL on another machine. */
  readonly used: number | null;
  /** The limit of its control group, or null without one. */
  readonly limit: number | null;
  /** The share of the limit's periods in which the program had to wait, because it had used up its share. */
  readonly throttled: number;
}

/** The load between two times. */
export interface LoadFigures {
  /** That the service may use. */
  readonly processors: number;
  readonly service: ProcessorUse;
  readonly database: ProcessorUse;
  /** This program, if it runs on the machine of the service; otherwise 0. */
  readonly clientProcessors: number;
  /** The machine of the service, or null if it is unknown: its processors, and how many of them were idle on average. */
  readonly machine: { readonly processors: number; readonly idle: number } | null;
  readonly threads: number;
  /** The share of time that the event loop of the busiest thread was busy: it was running, or waited for a processor. */
  readonly busiestThread: number;
  /** The share of time that a processor ran the busiest thread; null if it is unknown. */
  readonly threadProcessor: number | null;
  /** Statements that PostgreSQL ran at the same time, on average: by its own account of time. */
  readonly activeStatements: number;
  /** The shares of running statements that waited for locks, for storage, and for nothing. */
  readonly lockShare: number;
  readonly storageShare: number;
  readonly runningShare: number;
  /** How many statements waited for locks at the same time, on average. */
  readonly lockWaits: number;
  /** The pool that was busiest, of reads or of writes. */
  readonly pool: string;
  readonly poolSize: number;
  /** The share of samples in which all of its connections were busy and requests waited. */
  readonly poolFull: number;
  readonly poolBusy: number;
  /** Nine of ten samples had at most so many requests that waited for a connection. */
  readonly waiting: number;
  readonly connections: number;
  readonly maxConnections: number;
}

const SAMPLE_MS = 200;
/** The share of samples at the beginning that is left out, because queues fill only then. */
const RISE = 0.2;
const POOLS = ['read', 'write'];

/** Runs the work, and samples the load meanwhile. */
export async function withLoad<Result>(
  target: Target,
  work: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly load: LoadFigures }> {
  const samples = [await sample(target)];
  let isDone = false;
  const sampling = async (): Promise<void> => {
    while (!isDone) {
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
      if (!isDone) samples.push(await sample(target));
    }
  };
  const sampled = sampling();
  sampled.catch(() => {});
  try {
    const result = await work();
    isDone = true;
    await sampled;
    return { result, load: figuresOf(samples.slice(Math.floor((samples.length - 1) * RISE)), target) };
  } finally {
    isDone = true;
  }
}

async function sample(target: Target): Promise<LoadReply> {
  const response = await ask(target, '/server/load');
  const body: unknown = await response.json().catch(() => null);
  const { data } = propertiesOf(body);
  if (response.status !== 200 || !isRecord(data))
    throw new StartError(`${target.url.origin} does not report its load (${response.status})`);
  const database = propertiesOf(data['database']);
  const machine = propertiesOf(data['machine']);
  const threads: readonly unknown[] = Array.isArray(data['threads']) ? data['threads'] : [];
  const { user, system } = process.cpuUsage();
  return {
    time: Number(data['time']),
    processors: Number(data['processors']),
    machine: isRecord(data['machine'])
      ? { processors: Number(machine['processors']), idleSeconds: Number(machine['idle_seconds']) }
      : null,
    service: processorReply(data['process_cpu_seconds'], data['processor_limit']),
    database: processorReply(database['cpu_seconds'], database['processor_limit']),
    clientSeconds: (user + system) / 1e6,
    threads: new Map(
      threads
        .map(propertiesOf)
        .map((each) => [
          String(each['name']),
          { busy: Number(each['busy_seconds']), used: numberOrNull(each['cpu_seconds']) },
        ]),
    ),
    pools: new Map(
      Object.entries(propertiesOf(data['pools'])).map(([name, pool]) => [name, poolOf(propertiesOf(pool))]),
    ),
    running: new Map(Object.entries(propertiesOf(database['running'])).map(([kind, count]) => [kind, Number(count)])),
    activeMs: Number(database['active_ms']),
    connections: Number(database['connections']),
    maxConnections: Number(database['max_connections']),
  };
}

function processorReply(seconds: unknown, group: unknown): ProcessorReply {
  const { limit, periods, throttled_periods: throttledPeriods } = propertiesOf(group);
  return {
    seconds: numberOrNull(seconds),
    limit: numberOrNull(limit),
    periods: Number(periods ?? 0),
    throttledPeriods: Number(throttledPeriods ?? 0),
  };
}

function numberOrNull(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

function poolOf({ max, busy, waiting }: Readonly<Record<string, unknown>>): PoolLoad {
  return { max: Number(max), busy: Number(busy), waiting: Number(waiting) };
}

function figuresOf(samples: readonly LoadReply[], target: Target): LoadFigures {
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last) throw new Error('the load was not sampled');
  const seconds = Math.max(0.001, (last.time - first.time) / 1_000);
  const pools = POOLS.map((name) => poolFigures(name, samples));
  const pool = pools.reduce((one, other) =>
    other.poolFull * 1_000 + other.poolBusy > one.poolFull * 1_000 + one.poolBusy ? other : one,
  );
  return {
    processors: last.processors,
    service: useBetween(first.service, last.service, seconds),
    database: useBetween(first.database, last.database, seconds),
    clientProcessors: isHere(target) ? (last.clientSeconds - first.clientSeconds) / seconds : 0,
    machine:
      first.machine && last.machine
        ? {
            processors: last.machine.processors,
            idle: (last.machine.idleSeconds - first.machine.idleSeconds) / seconds,
          }
        : null,
    ...threadFigures(first, last, seconds),
    activeStatements: Math.max(0, (last.activeMs - first.activeMs) / (seconds * 1_000)),
    ...waitFigures(samples),
    ...pool,
    connections: Math.max(...samples.map(({ connections }) => connections)),
    maxConnections: last.maxConnections,
  };
}

function useBetween(first: ProcessorReply, last: ProcessorReply, seconds: number): ProcessorUse {
  const periods = last.periods - first.periods;
  return {
    used: first.seconds === null || last.seconds === null ? null : (last.seconds - first.seconds) / seconds,
    limit: last.limit,
    throttled: periods > 0 ? (last.throttledPeriods - first.throttledPeriods) / periods : 0,
  };
}

function threadFigures(first: LoadReply, last: LoadReply, seconds: number) {
  const threads = [...last.threads].map(([name, { busy, used }]) => {
    const before = first.threads.get(name);
    return {
      busy: (busy - (before?.busy ?? 0)) / seconds,
      used: used === null ? null : (used - (before?.used ?? 0)) / seconds,
    };
  });
  const used = threads.flatMap((thread) => thread.used ?? []);
  return {
    threads: threads.length,
    busiestThread: Math.max(0, ...threads.map(({ busy }) => busy)),
    threadProcessor: used.length === 0 ? null : Math.max(...used),
  };
}

function waitFigures(samples: readonly LoadReply[]) {
  const countOf = (kind: string): number => sum(samples.map(({ running }) => running.get(kind) ?? 0));
  const all = Math.max(1, sum(samples.map(({ running }) => sum([...running.values()]))));
  const locks = countOf('Lock');
  return {
    lockShare: locks / all,
    storageShare: countOf('IO') / all,
    runningShare: countOf('CPU') / all,
    lockWaits: locks / samples.length,
  };
}

function poolFigures(name: string, samples: readonly LoadReply[]) {
  const states = samples.flatMap((each) => each.pools.get(name) ?? []);
  const isFull = ({ max, busy, waiting }: PoolLoad): boolean => busy >= max && waiting > 0;
  const waiting = states.map((each) => each.waiting).sort((one, other) => one - other);
  return {
    pool: name,
    poolSize: states.at(-1)?.max ?? 0,
    poolFull: states.filter(isFull).length / Math.max(1, states.length),
    poolBusy: sum(states.map(({ busy }) => busy)) / Math.max(1, states.length),
    waiting: waiting[Math.floor(waiting.length * 0.9)] ?? 0,
  };
}

/** Whether the service runs on the machine of this program. */
function isHere({ url: { hostname } }: Target): boolean {
  const host = hostname.replace(/^\[|\]$/g, '');
  const own = Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address));
  return host === 'localhost' || host.startsWith('127.') || own.includes(host);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
