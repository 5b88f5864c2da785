/** The load of a service while it is measured, sampled from /server/load. */
import { StartError } from '../base/errors.js';
import { isRecord, propertiesOf } from '../base/narrow.js';
import { ask, type Target } from './target.js';

/** One reply of /server/load. Times are totals: compare two of them. */
interface LoadReply {
  /** Milliseconds since 1970. */
  readonly time: number;
  readonly processors: number;
  readonly cpuSeconds: number;
  /** Seconds that threads were busy, by name. */
  readonly threads: ReadonlyMap<string, number>;
  readonly pools: ReadonlyMap<string, PoolLoad>;
  /** Statements that run, by what they wait for. */
  readonly running: ReadonlyMap<string, number>;
  readonly activeMs: number;
  readonly connections: number;
  readonly maxConnections: number;
}

interface PoolLoad {
  readonly max: number;
  readonly busy: number;
  readonly waiting: number;
}

/** The load between two times. */
export interface LoadFigures {
  readonly processors: number;
  /** Processors that the service used, on average. */
  readonly serviceProcessors: number;
  readonly threads: number;
  /** The share of time that the busiest thread was busy. */
  readonly busiestThread: number;
  /** Statements that PostgreSQL ran at the same time, on average: by its own account of time. */
  readonly activeStatements: number;
  /** The share of running statements that waited for locks, and their number. */
  readonly lockShare: number;
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
    return { result, load: figuresOf(samples) };
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
  const threads: readonly unknown[] = Array.isArray(data['threads']) ? data['threads'] : [];
  return {
    time: Number(data['time']),
    processors: Number(data['processors']),
    cpuSeconds: Number(data['process_cpu_seconds']),
    threads: new Map(threads.map(propertiesOf).map((each) => [String(each['name']), Number(each['busy_seconds'])])),
    pools: new Map(
      Object.entries(propertiesOf(data['pools'])).map(([name, pool]) => [name, poolOf(propertiesOf(pool))]),
    ),
    running: new Map(Object.entries(propertiesOf(database['running'])).map(([kind, count]) => [kind, Number(count)])),
    activeMs: Number(database['active_ms']),
    connections: Number(database['connections']),
    maxConnections: Number(database['max_connections']),
  };
}

function poolOf({ max, busy, waiting }: Readonly<Record<string, unknown>>): PoolLoad {
  return { max: Number(max), busy: Number(busy), waiting: Number(waiting) };
}

function figuresOf(samples: readonly LoadReply[]): LoadFigures {
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last) throw new Error('the load was not sampled');
  const seconds = Math.max(0.001, (last.time - first.time) / 1_000);
  const threads = [...last.threads].map(([name, busy]) => (busy - (first.threads.get(name) ?? 0)) / seconds);
  const running = samples.map((each) => sum([...each.running.values()]));
  const locks = samples.map((each) => each.running.get('Lock') ?? 0);
  const pools = POOLS.map((name) => poolFigures(name, samples));
  const pool = pools.reduce((one, other) =>
    other.poolFull * 1_000 + other.poolBusy > one.poolFull * 1_000 + one.poolBusy ? other : one,
  );
  return {
    processors: last.processors,
    serviceProcessors: (last.cpuSeconds - first.cpuSeconds) / seconds,
    threads: threads.length,
    busiestThread: Math.max(0, ...threads),
    activeStatements: Math.max(0, (last.activeMs - first.activeMs) / (seconds * 1_000)),
    lockShare: sum(locks) / Math.max(1, sum(running)),
    lockWaits: sum(locks) / samples.length,
    ...pool,
    connections: Math.max(...samples.map(({ connections }) => connections)),
    maxConnections: last.maxConnections,
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

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
