/**
 * Reads from memory, compared with uWebSockets alone that sends the same bytes, and with themselves while another table is written, over
 * many keys, and by POST; and reads of which all, half or a tenth are not in memory, compared with a service that keeps nothing. All are
 * measured in turns.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import postgres from 'postgres';
import { packagePath } from '../src/base/package-files.js';
import type { ReaderTask } from './bare-reader.js';
import type { BareTask } from './bare-server.js';
import type { BenchRequest } from './case.js';
import { CASES } from './cases.js';
import { ADMINISTRATOR, type Report, type RunningService, startService } from './environment.js';
import { measure } from './load.js';
import type { Options } from './options.js';
import { spentBy } from './processor.js';

const HEADERS = { authorization: `Bearer ${ADMINISTRATOR.token}` };
const HITS = ['key', 'nested', 'aggregate', 'graphql'];
const TARGET = 0.75;
const MISS_TARGET = 0.97;
const ONE_CONNECTION_TARGET = 0.8;
/** Commits a second on one table, and the part of the rate that reads of others must keep. */
const WRITES_PER_SECOND = 1_000;
const BESIDE_WRITES_TARGET = 0.8;
/** Commits a second that change rows of other items, and the part of nested reads that must still come from memory. */
const OTHERS_PER_SECOND = 100;
const OTHERS_HITS = 0.97;
/** More reads than one round can send, so that none comes twice. */
const MISSES = 100_000;
/** Keys of the case with many URLs, and of the one that it is compared with. */
const WIDE_KEYS = 30_000;
const FEW_KEYS = 300;
const WIDE_TARGET = 0.7;
/** The parts of reads that come from memory, and the rate compared with a service that keeps nothing. */
const HIT_RATIOS = [0.5, 0.9];
const HOT_KEYS = 1_000;
const MIXED_TARGET = 1;
const POST_TARGET = 0.8;
const GRAPHQL_TARGET = 0.85;
/** Seconds of load until an answer must be in memory. */
const WARM_SECONDS = 120;

type CacheOptions = Pick<Options, 'connections' | 'poolSize' | 'seconds' | 'rounds' | 'settings'>;

export async function measureCache(databaseUrl: string, options: CacheOptions, report: Report): Promise<void> {
  const { poolSize, settings } = options;
  const start = (size: string): Promise<RunningService> =>
    startService({ databaseUrl, poolSize, settings: { ...settings, READ_CACHE_SIZE: size } });
  const [cached, plain] = await Promise.all([start('128mb'), start('0')]);
  try {
    for (const id of HITS) report(await compareHit(id, pathOf(id), cached, options));
    report(await compareHit('/server/ping', '/server/ping', cached, options));
    report(await compareBesideWrites(databaseUrl, cached, options));
    report(await compareBesideOthers(databaseUrl, cached, options));
    report(await compareWide(cached, options));
    report(await comparePost(cached, options));
    report(await compareGraphql(cached, options));
    report(await compareMisses(cached, plain, options));
    for (const ratio of HIT_RATIOS) report(await compareMixed(ratio, { cached, plain, options }));
    report(await compareOneConnection(databaseUrl, plain, options));
  } finally {
    await Promise.all([cached.stop(), plain.stop()]);
  }
}

/** The first request of a case. */
function firstOf(id: string): BenchRequest | undefined {
  const found = CASES.find((each) => each.id === id)?.requests;
  return Array.isArray(found) ? found[0] : undefined;
}

/** Its URL. A GraphQL query is sent in it. */
function pathOf(id: string): string {
  const first = firstOf(id);
  if (first?.path !== '/graphql') return first?.path ?? '';
  const { query, variables } = JSON.parse(String(first.body));
  return `/graphql?query=${encodeURIComponent(query)}&variables=${encodeURIComponent(JSON.stringify(variables))}`;
}

async function compareHit(
  title: string,
  path: string,
  service: RunningService,
  options: CacheOptions,
): Promise<string> {
  const { head, body } = await warm(`${service.url}${path}`, title);
  const figures = await besideProgram('bare-server', { head, body } satisfies BareTask, { service, path, options });
  return line(`${title} from memory`, figures, 'uWebSockets alone', TARGET);
}

/** Hits by key while each of many commits changes a row of another table. */
async function compareBesideWrites(
  databaseUrl: string,
  service: RunningService,
  options: CacheOptions,
): Promise<string> {
  const path = pathOf('key');
  await warm(`${service.url}${path}`, 'key');
  const { url, pid } = service;
  const writer = new SteadyWriter(databaseUrl);
  const pathsOf = (): string[] => [path];
  try {
    const figures = await inTurns(
      [
        { url, pid, pathsOf, beside: writer },
        { url, pid, pathsOf },
      ],
      options,
    );
    const title = `next to ${writer.rate.toFixed(0)} writes/s`;
    if (writer.rate < 0.95 * WRITES_PER_SECOND) process.exitCode = 1;
    return line(title, figures, 'without writes', BESIDE_WRITES_TARGET);
  } finally {
    await writer.close();
  }
}

/** Nested hits by key while each of many commits changes rows of other items. */
async function compareBesideOthers(
  databaseUrl: string,
  service: RunningService,
  options: CacheOptions,
): Promise<string> {
  const { url, pid } = service;
  const paths = Array.from({ length: 200 }, (_, index) => `/items/articles/${index + 1}?fields=id,title,comments.body`);
  for (const path of paths) await warm(`${url}${path}`, 'nested');
  const writer = new SteadyWriter(
    databaseUrl,
    (sql, number) => sql`update comments set body = body where article = ${1_001 + (number % 1_000)}`,
    OTHERS_PER_SECOND,
  );
  const pathsOf = (): string[] => paths;
  const before = await hitsOf(service);
  try {
    const [beside, calm] = await inTurns(
      [
        { url, pid, pathsOf, beside: writer },
        { url, pid, pathsOf },
      ],
      options,
    );
    const after = await hitsOf(service);
    const hits = (after.hits - before.hits) / (after.hits - before.hits + after.misses - before.misses);
    const ratio = (calm?.spent ?? 0) / (beside?.spent ?? 1);
    if (!(hits >= OTHERS_HITS && ratio >= BESIDE_WRITES_TARGET)) process.exitCode = 1;
    const title = `nested, next to ${writer.rate.toFixed(0)} changes/s of other items`;
    const figures = `${beside?.spent.toFixed(1)} µs, without changes ${calm?.spent.toFixed(1)} µs: ${ratio.toFixed(2)}`;
    return `${title}: ${figures} (target ${BESIDE_WRITES_TARGET}), ${(100 * hits).toFixed(1)} % hits (target ${100 * OTHERS_HITS} %)`;
  } finally {
    await writer.close();
  }
}

async function hitsOf({ url }: RunningService): Promise<{ readonly hits: number; readonly misses: number }> {
  const text = await (await fetch(`${url}/server/metrics`, { headers: HEADERS })).text();
  const count = (name: string): number =>
    Number(new RegExp(`^lateral_read_cache_${name}_total (\\d+)$`, 'm').exec(text)?.[1]);
  return { hits: count('hits'), misses: count('misses') };
}

/** Commits at a steady rate: those that are late are sent together. */
class SteadyWriter {
  readonly #sql: postgres.Sql;
  #timer: NodeJS.Timeout | null = null;
  #startedAt = 0;
  #sent = 0;
  #writes = 0;
  #seconds = 0;
  readonly #pending = new Set<Promise<unknown>>();

  constructor(
    databaseUrl: string,
    private readonly write = (sql: postgres.Sql, number: number): Promise<unknown> =>
      sql`update comments set body = body where id = ${1 + (number % 1_000)}`,
    private readonly perSecond = WRITES_PER_SECOND,
  ) {
    // The disk is not measured.
    this.#sql = postgres(databaseUrl, { max: 4, connection: { synchronous_commit: 'off' } });
  }

  /** Commits per second, of all rounds. */
  get rate(): number {
    return this.#writes / this.#seconds;
  }

  start(): void {
    this.#startedAt = performance.now();
    this.#sent = 0;
    this.#timer = setInterval(() => this.#send(), 5);
  }

  async stop(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await Promise.all(this.#pending);
    this.#writes += this.#sent;
    this.#seconds += (performance.now() - this.#startedAt) / 1_000;
  }

  async close(): Promise<void> {
    await this.#sql.end({ timeout: 5 });
  }

  #send(): void {
    const due = ((performance.now() - this.#startedAt) * this.perSecond) / 1_000;
    while (this.#sent < due) {
      const sent = this.write(this.#sql, this.#sent++).finally(() => this.#pending.delete(sent));
      this.#pending.add(sent);
    }
  }
}

/** By key from PostgreSQL, one request after the other, compared with a program that does nothing else. */
async function compareOneConnection(
  databaseUrl: string,
  service: RunningService,
  options: CacheOptions,
): Promise<string> {
  const path = pathOf('key');
  const response = await fetch(`${service.url}${path}`, { headers: HEADERS });
  await response.text();
  const explained = await fetch(`${service.url}${path}`, { headers: { ...HEADERS, prefer: 'explain' } });
  const { data } = (await explained.json()) as { data: { sql: string; parameters: (string | null)[] } };
  const task = { databaseUrl, text: data.sql, parameters: data.parameters, head: headOf(response.headers) };
  const alone = { service, path, options: { ...options, connections: 1 } };
  const figures = await besideProgram('bare-reader', task satisfies ReaderTask, alone);
  return line('by key, one connection', figures, 'a program for this read alone', ONE_CONNECTION_TARGET);
}

interface Compared {
  readonly service: RunningService;
  readonly path: string;
  readonly options: CacheOptions;
}

/** The figures of the service and of a plain server that is started for the comparison. */
async function besideProgram(
  program: string,
  task: BareTask | ReaderTask,
  { service, path, options }: Compared,
): Promise<Figures[]> {
  const bare = fork(packagePath('dist', 'bench', `${program}.js`), { serialization: 'advanced' });
  try {
    bare.send(task);
    const [port] = await once(bare, 'message');
    return await inTurns(
      [
        { url: service.url, pid: service.pid, pathsOf: () => [path] },
        { url: `http://127.0.0.1:${port}`, pid: bare.pid ?? 0, pathsOf: () => [path] },
      ],
      options,
    );
  } finally {
    bare.disconnect();
  }
}

/** By key over many URLs, compared with a few. */
async function compareWide(service: RunningService, options: CacheOptions): Promise<string> {
  const keys = (count: number): string[] =>
    Array.from({ length: count }, (_, index) => `/items/articles/${1 + ((index * 7_919) % count)}?fields=id,title`);
  const [wide, few] = [keys(WIDE_KEYS), keys(FEW_KEYS)];
  const { url, pid } = service;
  for (const paths of [few, wide]) await warmAll(service, paths, options);
  const contenders = [wide, few].map((paths) => ({ url, pid, pathsOf: () => paths }));
  const title = `by key over ${WIDE_KEYS.toLocaleString('en')} URLs`;
  return line(title, await inTurns(contenders, options), `over ${FEW_KEYS}`, WIDE_TARGET);
}

/** The nested query of GraphQL by POST, compared with GET. */
async function comparePost({ url, pid }: RunningService, options: CacheOptions): Promise<string> {
  const { path = '', body = '' } = firstOf('graphql') ?? {};
  const byGet = pathOf('graphql');
  await warm(`${url}${byGet}`, 'graphql');
  const figures = await inTurns(
    [
      { url, pid, pathsOf: () => [path], body: String(body) },
      { url, pid, pathsOf: () => [byGet] },
    ],
    options,
  );
  return line('graphql by POST', figures, 'by GET', POST_TARGET);
}

/** The nested query of GraphQL by GET, compared with REST. */
async function compareGraphql({ url, pid }: RunningService, options: CacheOptions): Promise<string> {
  const paths = ['graphql', 'nested'].map(pathOf);
  for (const path of paths) await warm(`${url}${path}`, path);
  const figures = await inTurns(
    paths.map((path) => ({ url, pid, pathsOf: () => [path] })),
    options,
  );
  return line('graphql by GET', figures, 'REST', GRAPHQL_TARGET);
}

/** Sends load until answers to some of these paths, evenly spread, are all in memory, and then for replies to be made of them. */
async function warmAll(
  { url }: RunningService,
  paths: readonly string[],
  { connections }: CacheOptions,
): Promise<void> {
  const step = Math.max(1, Math.floor(paths.length / 50));
  let found = 0;
  for (let seconds = 0; seconds < WARM_SECONDS; seconds += 4) {
    await measure({ url, paths, headers: HEADERS, connections, seconds: 4 });
    let hits = 0;
    for (let index = 0; index < paths.length; index += step) {
      const response = await fetch(`${url}${paths[index]}`, { headers: HEADERS });
      await response.text();
      if (response.headers.get('cache-status') !== null) hits++;
    }
    if (hits >= Math.floor(paths.length / step) && ++found === 3) return;
  }
  throw new Error(`${paths[0]}: not all answers are kept`);
}

interface Mixed {
  readonly cached: RunningService;
  readonly plain: RunningService;
  readonly options: CacheOptions;
}

/** Some reads come again and again, and the others once. */
async function compareMixed(ratio: number, { cached, plain, options }: Mixed): Promise<string> {
  const pathFor = (id: number, views: number): string =>
    `/items/articles?fields=id,title&filter[id][_eq]=${id}&filter[views][_gte]=${views}`;
  const hot = Array.from({ length: HOT_KEYS }, (_, index) => pathFor(1 + index, 0));
  await warmAll(cached, hot, options);
  const pathsOf = (round: number): string[] =>
    Array.from({ length: 2 * MISSES }, (_, index) => {
      // Evenly mixed: the fraction that a multiple of the golden ratio has.
      const isHot = (index * 0.618_033_988_749_895) % 1 < ratio;
      const key = (index * 7_919) % HOT_KEYS;
      return isHot ? (hot[key] ?? '') : pathFor(1 + key, -(1 + (round * 2 * MISSES + index) + ratio * 1e9));
    });
  const contenders = [cached, plain].map(({ url, pid }) => ({ url, pid, pathsOf }));
  const figures = await inTurns(contenders, options);
  return line(`${100 * ratio} % from memory`, figures, 'READ_CACHE_SIZE=0', MIXED_TARGET);
}

async function compareMisses(cached: RunningService, plain: RunningService, options: CacheOptions): Promise<string> {
  const pathsOf = (round: number): string[] =>
    Array.from({ length: MISSES }, (_, index) => {
      const views = -(round * MISSES + index);
      return `/items/articles?fields=id,title&filter[id][_eq]=${1 + (index % 9_000)}&filter[views][_gte]=${views}`;
    });
  const contenders = [cached, plain].map(({ url, pid }) => ({ url, pid, pathsOf }));
  return line('not in memory', await inTurns(contenders, options), 'READ_CACHE_SIZE=0', MISS_TARGET);
}

/** Asks until the answer comes from memory. Returns its headers and its body. */
async function warm(url: string, title: string): Promise<BareTask> {
  for (let turn = 0; turn < 100; turn++) {
    const response = await fetch(url, { headers: HEADERS });
    const body = await response.text();
    if (response.status !== 200) throw new Error(`${title}: ${response.status} ${body}`);
    const isKept = response.headers.get('cache-status') !== null || title.startsWith('/');
    if (isKept) return { head: headOf(response.headers), body };
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${title}: the answer is not kept`);
}

/** The headers that uWebSockets does not write itself. */
function headOf(headers: Headers): string {
  const own = [...headers].filter(
    ([name]) => !/^(x-request-id|date|uwebsockets|content-length|connection)$/.test(name),
  );
  return `bench-00000${own.map(([name, value]) => `\r\n${name}: ${value}`).join('')}`;
}

interface Contender {
  readonly url: string;
  readonly pid: number;
  /** The paths that a round requests. */
  readonly pathsOf: (round: number) => readonly string[];
  /** The body that is sent with each, by POST; without one, GET is sent. */
  readonly body?: string;
  /** Runs during each of its rounds. */
  readonly beside?: SteadyWriter;
}

/** The best figures of each: requests per second, and CPU time per request in microseconds, which depends less on other processes. */
interface Figures {
  perSecond: number;
  spent: number;
  /** Milliseconds. */
  p99: number;
}

async function inTurns(contenders: readonly Contender[], options: CacheOptions): Promise<Figures[]> {
  const best = contenders.map(
    (): Figures => ({ perSecond: 0, spent: Number.POSITIVE_INFINITY, p99: Number.POSITIVE_INFINITY }),
  );
  const { connections, seconds, rounds } = options;
  for (let round = 0; round <= rounds; round++)
    for (const [index, { url, pid, pathsOf, body, beside }] of contenders.entries()) {
      const paths = pathsOf(round);
      const sent = body === undefined ? {} : { method: 'POST', bodies: paths.map(() => body) };
      const headers = body === undefined ? HEADERS : { ...HEADERS, 'content-type': 'application/json' };
      beside?.start();
      const before = spentBy(pid) ?? 0;
      const result = await measure({ url, paths, headers, connections, seconds: round === 0 ? 1 : seconds, ...sent });
      await beside?.stop();
      const requests = result.requestsPerSecond * result.seconds;
      if (result.errors > 0) throw new Error(`${url}: ${result.errors} errors`);
      const former = best[index];
      if (round === 0 || former === undefined) continue;
      former.perSecond = Math.max(former.perSecond, result.requestsPerSecond);
      former.p99 = Math.min(former.p99, result.p99);
      former.spent = Math.min(former.spent, (((spentBy(pid) ?? 0) - before) * 1_000) / requests);
    }
  return best;
}

function line(title: string, [ours, theirs]: readonly Figures[], other: string, target: number): string {
  const ratio = (ours?.perSecond ?? 0) / (theirs?.perSecond ?? 0);
  if (!(ratio >= target)) process.exitCode = 1;
  const show = (figures?: Figures): string =>
    `${Math.round(figures?.perSecond ?? 0).toLocaleString('en')} requests/s (${figures?.spent.toFixed(1)} µs, p99 ${figures?.p99.toFixed(1)} ms)`;
  const figures = `${show(ours)}, ${other} ${show(theirs)}`;
  return `${title.padEnd(26)} ${figures}: ${ratio.toFixed(2)} (target ${target})`;
}
