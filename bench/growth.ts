/**
 * How cost grows with the rows of a response, the depth of its nesting, the number of clients, and the number of collections. One size
 * varies at a time, and each point is compared with its ceiling.
 */
import type { Case } from './case.js';
import { FLAT, findCase, page, spread, VARIANTS, vary } from './cases.js';
import { ceiling } from './ceiling.js';
import { type Report, startService } from './environment.js';
import { addressOf, betterOf, type Measuring, makeContender, warm } from './measure.js';
import { readMemory } from './memory.js';
import { makeStructure, measureModel } from './mirror.js';
import { putUnderLoad, type Question, readAnswer, readStatement } from './statement.js';

export interface Point {
  /** Rows, levels or connections. */
  readonly size: number;
  readonly requestsPerSecond: number;
  readonly ceilingPerSecond: number;
  readonly p50: number;
  readonly p99: number;
}

export interface CollectionsPoint {
  /** Collections. */
  readonly size: number;
  /**
   * Milliseconds to read the catalog and build the model, from the start of the process until it is ready, and of the first read after
   * that.
   */
  readonly mirror: number;
  readonly start: number;
  readonly firstRead: number;
  /** By key, from a collection with few rows. */
  readonly requestsPerSecond: number;
  /** MiB after that load. */
  readonly memory: number;
}

export interface Growth {
  readonly rows: readonly Point[];
  readonly depth: readonly Point[];
  readonly connections: readonly Point[];
  readonly collections: readonly CollectionsPoint[];
}

const ROWS = [1, 25, 100, 1_000, 5_000];
const CONNECTIONS = [1, 8, 32, 128, 256];
const COLLECTIONS = [10, 100, 1_000];

/** Each adds one level: the author, three of their articles, the comments of those, the authors of these. */
const LEVELS = [
  'id,title',
  'author.id,author.name',
  'author.articles.id,author.articles.title',
  'author.articles.comments.id,author.articles.comments.body',
  'author.articles.comments.author.id,author.articles.comments.author.name',
];

/** A point needs less certainty than a case, and there are many points. */
const ROUNDS = 2;

type GrowthMeasuring = Omit<Measuring, 'url'> & { readonly settings: Readonly<Record<string, string>> };

export async function measureGrowth(url: string, measuring: GrowthMeasuring, report: Report): Promise<Growth> {
  const run = async (title: string, cases: readonly (readonly [number, Case, number])[]): Promise<readonly Point[]> => {
    const points: Point[] = [];
    for (const [size, each, connections] of cases) {
      const point = await orNothing(`${title}, ${size}`, () =>
        measurePoint(size, each, url, { ...measuring, connections }),
      );
      if (point === null) continue;
      points.push(point);
      report(`${title}, ${size}: ${point.requestsPerSecond.toFixed(1)} requests/s`);
    }
    return points;
  };
  /** A point that cannot be measured must not affect the others. */
  const orNothing = async <T>(title: string, measureOne: () => Promise<T>): Promise<T | null> => {
    try {
      return await measureOne();
    } catch (error) {
      measuring.signal.throwIfAborted();
      report(`${title}: FAILED, ${error instanceof Error ? error.message : error}`);
      process.exitCode = 1;
      return null;
    }
  };
  const { connections } = measuring;
  const key = findCase('key');
  if (key === undefined) throw new Error('there is no case "key"');
  const collections: CollectionsPoint[] = [];
  for (const size of COLLECTIONS) {
    const point = await orNothing(`collections, ${size}`, () => measureCollections(size, measuring, report));
    if (point !== null) collections.push(point);
  }
  return {
    rows: await run(
      'rows',
      ROWS.map((rows) => [rows, pageOf(rows), connections] as const),
    ),
    depth: await run(
      'depth',
      LEVELS.map((_, depth) => [depth, nestOf(depth), connections] as const),
    ),
    connections: await run(
      'connections',
      CONNECTIONS.map((count) => [count, key, count] as const),
    ),
    collections,
  };
}

function pageOf(rows: number): Case {
  const requests = vary((key) => page(FLAT, Math.floor(key * 0.9), rows));
  return { id: 'rows', title: `${rows} rows`, requests };
}

function nestOf(depth: number): Case {
  const fields = LEVELS.slice(0, depth + 1).join(',');
  const limit = depth > 1 ? '&deep[author][articles][_limit]=3' : '';
  return { id: 'depth', title: `${depth} levels`, requests: vary((key) => `${page(fields, key)}${limit}`) };
}

async function measurePoint(
  size: number,
  each: Case,
  url: string,
  { databaseUrl, connections, seconds, warmUp, rounds, signal }: GrowthMeasuring,
): Promise<Point> {
  signal.throwIfAborted();
  const address = addressOf(each, url);
  const statement = await readStatement(each, address, databaseUrl, signal);
  const contender = await makeContender(each, address, { connections, databaseUrl, signal });
  await warm(contender, Math.min(warmUp, 1), signal);
  let best = await contender(seconds);
  let highest = 0;
  for (let round = 1; ; round++) {
    const { statementsPerSecond } = await ceiling({ databaseUrl, ...statement, connections, seconds, signal });
    highest = Math.max(highest, statementsPerSecond);
    if (round >= Math.min(rounds, ROUNDS)) break;
    best = betterOf(best, await contender(seconds));
  }
  if (best.errors > 0) throw new Error(`${each.title}: ${best.errors} errors under load`);
  const { requestsPerSecond, p50, p99 } = best;
  return { size, requestsPerSecond, ceilingPerSecond: highest, p50, p99 };
}

async function measureCollections(size: number, measuring: GrowthMeasuring, report: Report): Promise<CollectionsPoint> {
  const { seconds, connections, poolSize, settings, signal } = measuring;
  signal.throwIfAborted();
  const databaseUrl = await makeStructure(measuring.databaseUrl, size, report);
  const { all: mirror } = await measureModel(databaseUrl, size);
  const service = await startService({ databaseUrl, poolSize, settings });
  try {
    const address = addressOf({}, service.url);
    const begun = performance.now();
    await readAnswer(SMALL_READS, address, signal);
    const firstRead = performance.now() - begun;
    await putUnderLoad(SMALL_READS, address, { connections, seconds: 1, signal });
    const load = await putUnderLoad(SMALL_READS, address, { connections, seconds, signal });
    if (load.errors > 0) throw new Error(`${load.errors} errors under load`);
    const memory = await readMemory(service.pid);
    report(`collections, ${size}: ready after ${service.startTime.toFixed(0)} ms`);
    const { requestsPerSecond } = load;
    return { size, mirror, start: service.startTime, firstRead, requestsPerSecond, memory };
  } finally {
    await service.stop();
  }
}

/** Reads the ten tables that have rows. */
const SMALL_READS: Question = {
  requests: Array.from({ length: VARIANTS }, (_, index) => ({
    path: `/items/bench_${1 + (spread(index) % 10)}/${1 + (index % 100)}?fields=id,name,status,amount,created,parent`,
  })),
};
