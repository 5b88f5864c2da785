/**
 * Small reads while a query of two seconds always runs through the same service: no read may wait behind it. There are two such queries:
 * one waits and only holds its connection, the other computes and occupies a processor.
 */
import postgres from 'postgres';
import { findCase } from './cases.js';
import { type Report, startService } from './environment.js';
import { addressOf, type Measuring } from './measure.js';
import { putUnderLoad, type Question, readAnswer } from './statement.js';
import { MOST_DELAY } from './verdict.js';

const MODES = ['alone', 'waiting', 'computing'] as const;

type Mode = (typeof MODES)[number];

export interface BesideResult {
  readonly requestsPerSecond: number;
  readonly p50: number;
  readonly p99: number;
  /** How often the long query was answered during the load, and its mean time in seconds. */
  readonly queries: number;
  readonly queryTime: number;
}

export interface Beside {
  readonly connections: number;
  readonly results: Readonly<Record<Mode, BesideResult>>;
}

export type BesideOptions = Omit<Measuring, 'url'> & { readonly settings: Readonly<Record<string, string>> };

const QUERY_TIME = 2;

export async function measureBeside(options: BesideOptions, report: Report): Promise<Beside> {
  const { databaseUrl, connections, rounds, signal } = options;
  await createViews(databaseUrl);
  try {
    const service = await startService(options);
    try {
      const best = new Map<Mode, BesideResult>();
      await measureMode('alone', service.url, { ...options, seconds: Math.max(1, options.warmUp) });
      for (let round = 1; round <= rounds; round++) {
        for (const mode of MODES) {
          signal.throwIfAborted();
          const result = await measureMode(mode, service.url, options);
          const former = best.get(mode);
          if (former === undefined || result.p99 < former.p99) best.set(mode, result);
          report(`${TITLES[mode]}: p50 ${result.p50.toFixed(2)} ms, p99 ${result.p99.toFixed(2)} ms`);
        }
      }
      return { connections, results: Object.fromEntries(best) as Record<Mode, BesideResult> };
    } finally {
      await service.stop();
    }
  } finally {
    await dropViews(databaseUrl);
  }
}

export const TITLES: Readonly<Record<Mode, string>> = {
  alone: 'by key, alone',
  waiting: 'during a query that waits for 2 s',
  computing: 'during a query that computes for 2 s',
};

/** Returns whether the target is met. */
export function reportBeside({ results }: Beside, report: Report): boolean {
  const delays = (['waiting', 'computing'] as const).map((mode) => {
    const delay = delayOf({ results }, mode);
    const isMet = delay <= MOST_DELAY;
    report(
      `${TITLES[mode]}: p99 × ${delay.toFixed(2)}, ${isMet ? 'at most' : 'NOT at most'} × ${MOST_DELAY} ` +
        `(${results[mode].queries} of ${results[mode].queryTime.toFixed(1)} s)`,
    );
    return isMet;
  });
  return delays.every(Boolean);
}

export function delayOf({ results }: Pick<Beside, 'results'>, mode: 'waiting' | 'computing'): number {
  return results[mode].p99 / results.alone.p99;
}

async function measureMode(mode: Mode, url: string, options: BesideOptions): Promise<BesideResult> {
  const { connections, seconds, signal } = options;
  const key = findCase('key');
  if (key === undefined) throw new Error('there is no case "key"');
  const address = addressOf(key, url);
  let isOver = false;
  const times: number[] = [];
  const query: Question = { requests: [{ path: `/items/bench_${mode}?fields=id,outcome` }] };
  const runQueries = async (): Promise<void> => {
    while (mode !== 'alone' && !isOver) {
      const begun = performance.now();
      await readAnswer(query, address, signal);
      times.push((performance.now() - begun) / 1000);
    }
  };
  const running = runQueries();
  // Its error is reported when the load has ended: until then nothing awaits it.
  running.catch(() => undefined);
  try {
    const load = await putUnderLoad(key, address, { connections, seconds, signal });
    if (load.errors > 0) throw new Error(`${load.errors} errors under load`);
    isOver = true;
    await running;
    const { requestsPerSecond, p50, p99 } = load;
    const queryTime = times.reduce((sum, time) => sum + time, 0) / (times.length || 1);
    return { requestsPerSecond, p50, p99, queries: times.length, queryTime };
  } finally {
    isOver = true;
    await running.catch(() => undefined);
  }
}

const TRIAL = 100;

/** Work that takes two seconds on this machine when it is idle. */
async function createViews(databaseUrl: string): Promise<void> {
  await dropViews(databaseUrl);
  const sql = postgres(databaseUrl, { max: 1, fetch_types: false, connection: { jit: false } });
  try {
    const begun = performance.now();
    await sql.unsafe(compute(TRIAL));
    const rows = Math.ceil((TRIAL * QUERY_TIME * 1000) / (performance.now() - begun));
    await sql.unsafe(`create view bench_waiting as select 1 as id, pg_sleep(${QUERY_TIME})::text as outcome`);
    await sql.unsafe(`create view bench_computing as select 1 as id, (${compute(rows)}) as outcome`);
    await sql`
      insert into service_collections (collection, primary_key) values ('bench_waiting', 'id'), ('bench_computing', 'id')`;
  } finally {
    await sql.end({ timeout: 5 });
  }
}

function compute(rows: number): string {
  return `select sum(length(md5(one::text || other::text))) from generate_series(1, 2000) as one,
    generate_series(1, ${rows}) as other`;
}

async function dropViews(databaseUrl: string): Promise<void> {
  const sql = postgres(databaseUrl, { max: 1, fetch_types: false, onnotice: () => undefined });
  try {
    await sql`drop view if exists bench_waiting, bench_computing`;
    await sql`delete from service_collections where collection in ('bench_waiting', 'bench_computing')`;
  } finally {
    await sql.end({ timeout: 5 });
  }
}
