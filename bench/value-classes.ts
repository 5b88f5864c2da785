/**
 * A column with skewed values: of a million rows, half have one value and ten have another. Nine of ten connections request pages of the
 * first value, the others pages of the second. The latency of each is compared with pgbench with as many clients, which plans every
 * statement for its value (`plan_cache_mode=force_custom_plan`): the right plan, plus the time to plan it.
 */
import postgres from 'postgres';
import { ceiling } from './ceiling.js';
import { type Report, type ServiceOptions, startService } from './environment.js';
import { addressOf, type Measuring } from './measure.js';
import { putUnderLoad, readStatement, type Statement } from './statement.js';

export interface ValueClass {
  readonly title: string;
  readonly connections: number;
  readonly requestsPerSecond: number;
  readonly p50: number;
  readonly p99: number;
  /** Mean milliseconds of all responses, of the service and of pgbench. */
  readonly latency: number;
  readonly planned: number;
}

/** The longest time of a read, as a multiple of its statement planned for its value. */
export const MOST_CLASS_LATENCY = 2;

const ROWS = 1_000_000;

/** Together they have the connections of a usual case. */
const CLASSES = [
  { title: 'a value that half of the rows have', kind: 'a', connections: 29 },
  { title: 'a value that ten rows have', kind: 'rare', connections: 3 },
] as const;

/** Enough reads of both values that their plans are chosen. */
const LEARNING_SECONDS = 4;

export async function measureValueClasses(
  run: Omit<Measuring, 'url'> & ServiceOptions,
  report: Report,
): Promise<readonly ValueClass[]> {
  await makeTable(run.databaseUrl);
  const service = await startService(run);
  try {
    return await measureAt(service.url, run, report);
  } finally {
    await service.stop();
    await dropTable(run.databaseUrl);
  }
}

async function measureAt(
  url: string,
  { databaseUrl, seconds, rounds, signal }: Omit<Measuring, 'url'>,
  report: Report,
): Promise<readonly ValueClass[]> {
  const address = addressOf({}, url);
  const statement = await readStatement({ id: 'classes', title: '', ...pageOf('a') }, address, databaseUrl, signal);
  const serve = (length: number) =>
    Promise.all(
      CLASSES.map(({ kind, connections }) =>
        putUnderLoad(pageOf(kind), address, { connections, seconds: length, signal }),
      ),
    );
  await serve(LEARNING_SECONDS);
  let best: readonly ValueClass[] = [];
  for (let round = 1; round <= rounds; round++) {
    const served = await serve(seconds);
    const planned = await Promise.all(
      CLASSES.map(({ kind, connections }) =>
        ceiling({ databaseUrl, ...withValue(statement, kind), connections, seconds, signal, plansEachTime: true }),
      ),
    );
    const measured = CLASSES.map(({ title, connections }, index): ValueClass => {
      const { requestsPerSecond = 0, p50 = 0, p99 = 0 } = served[index] ?? {};
      return {
        title,
        connections,
        requestsPerSecond,
        p50,
        p99,
        latency: (connections * 1000) / requestsPerSecond,
        planned: (connections * 1000) / (planned[index]?.statementsPerSecond ?? 0),
      };
    });
    if (best.length === 0 || worstOf(measured) < worstOf(best)) best = measured;
  }
  for (const each of best) {
    report(
      `${each.title}: ${each.requestsPerSecond.toFixed(0)} requests/s, ${each.latency.toFixed(2)} ms, planned for the value ${each.planned.toFixed(2)} ms`,
    );
  }
  return best;
}

export function shareOf({ latency, planned }: ValueClass): number {
  return latency / planned;
}

function worstOf(classes: readonly ValueClass[]): number {
  return Math.max(...classes.map(shareOf));
}

function pageOf(kind: string) {
  return { requests: [{ path: `/items/bench_events?filter[kind][_eq]=${kind}&sort=-at&limit=10` }] };
}

function withValue({ text, parameters, exclusive }: Statement, kind: string): Statement {
  return { text, exclusive, parameters: parameters.map((list) => list.map((value) => (value === 'a' ? kind : value))) };
}

/** Dropped afterwards: a million rows are more than all others together. */
async function makeTable(url: string): Promise<void> {
  await runAll(
    url,
    'drop table if exists bench_events',
    'create table bench_events (id integer primary key, kind text not null, at timestamptz not null, note text)',
    `insert into bench_events
      select n, case when n % ${ROWS / 10} = 1 then 'rare' when n % 2 = 0 then 'a' else 'b' end,
        timestamptz '2020-01-01' + n * interval '1 minute', 'Event ' || n
      from generate_series(1, ${ROWS}) as n`,
    'create index on bench_events (kind)',
    'create index on bench_events (at)',
    'vacuum (analyze) bench_events',
    'checkpoint',
  );
}

function dropTable(url: string): Promise<void> {
  return runAll(url, 'drop table if exists bench_events');
}

async function runAll(url: string, ...statements: readonly string[]): Promise<void> {
  const sql = postgres(url, { max: 1, fetch_types: false, onnotice: () => undefined });
  try {
    for (const statement of statements) await sql.unsafe(statement);
  } finally {
    await sql.end({ timeout: 5 });
  }
}
