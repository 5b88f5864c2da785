/**
 * GET /server/metrics, for Prometheus. The hot path counts in plain numbers, which become metrics when they are requested. `collect` returns
 * the counts of one thread as plain JSON, so that those of several threads can be added.
 */

import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { isMainThread, threadId } from 'node:worker_threads';
import { AggregatorRegistry, collectDefaultMetrics, Registry } from 'prom-client';
import { packageVersion } from '../../../base/package-files.js';
import type { Identities } from '../../access/identities.js';
import { onlyAdministrator } from '../../access/identity.js';
import type { Config } from '../../config/config.js';
import type { Reads } from '../../execute/reads/reads.js';
import type { Writes } from '../../execute/writes/writes.js';
import type { Exchange } from '../../http/exchange.js';
import type { Reply } from '../../http/reply.js';
import { DURATION_BOUNDS_S, type Handler, type Router, type RouteStats } from '../../http/router.js';
import type { Mirror } from '../../postgres/catalog/watch.js';
import type { Database } from '../../postgres/pools/database.js';
import { type ApiRoute, route } from '../action.js';
import { TEXT } from '../openapi/json-schema.js';
import { byLabel, counter, gauge, histogramValues, labelled, type Metric, type Value } from './metric.js';

export interface MetricsServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly database: Database;
  readonly mirror: Mirror;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly events: ReadonlyMap<string, number>;
  /** The metrics of the executors of reads and of the features. */
  readonly more: () => readonly Metric[];
  readonly router: () => Router;
}

/** The metrics of each thread. */
export type Gather = () => Promise<readonly (readonly Metric[])[]>;

/** The metrics of all threads are shown as one. */
export function metricsRoutes(services: MetricsServices, gather: Gather): ApiRoute[] {
  if (services.config.METRICS === 'off') return [];
  observeProcess();
  const description = { summary: 'Metrics for Prometheus', answers: [TEXT] };
  const handle: Handler = (exchange) => show(exchange, services, gather);
  return [route('GET /server/metrics', handle, description)];
}

/** The metrics of this thread. */
export async function collect(services: MetricsServices): Promise<Metric[]> {
  const counted = [
    ...requestMetrics(services.router().stats, services.config.METRICS_BY_ROUTE),
    ...(services.database.readQueue ? batchMetrics('read', services.database.readQueue) : []),
    ...(services.writes.batcher ? batchMetrics('write', services.writes.batcher) : []),
    ...databaseMetrics(services),
    ...sourceMetrics(services),
    ...threadMetrics(),
    ...schemaMetrics(services),
    ...services.more(),
  ];
  return [...counted, ...(await defaultMetrics())];
}

/** The metrics of the main thread, which serves no requests but watches the database for the workers. */
export async function collectSources(
  services: Pick<MetricsServices, 'database' | 'mirror' | 'events'>,
): Promise<Metric[]> {
  const sent = { own: services.database.own.sent, catalog: services.database.catalog.sent };
  return [statementMetric(sent), ...sourceMetrics(services), ...(await defaultMetrics())];
}

/** Sums of other metrics, with names that only counters should have. */
const MISNAMED: ReadonlySet<string> = new Set([
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
]);

async function defaultMetrics(): Promise<Metric[]> {
  const all = (await observeProcess().getMetricsAsJSON()) as unknown as Metric[];
  const defaults = all.filter(({ name }) => !MISNAMED.has(name));
  // Threads share their process: its metrics are reported once.
  return isMainThread ? defaults : defaults.filter(({ name }) => !name.startsWith('process_'));
}

async function show(exchange: Exchange, { config, identities }: MetricsServices, gather: Gather): Promise<Reply> {
  if (config.METRICS !== 'public') onlyAdministrator(await identities.identify(exchange));
  return metricsReply(gather);
}

/** The metrics of all threads, in the format of Prometheus. */
export async function metricsReply(gather: Gather): Promise<Reply> {
  const registry = AggregatorRegistry.aggregate([...(await gather())]);
  return { status: 200, type: registry.contentType, body: await registry.metrics(), secret: true };
}

let processMetrics: Registry | null = null;

/** Memory, CPU, event loop and garbage collection: of the process, so they are observed once. */
export function observeProcess(): Registry {
  if (processMetrics) return processMetrics;
  processMetrics = new Registry();
  collectDefaultMetrics({ register: processMetrics });
  return processMetrics;
}

/** Kinds of answers that are counted one by one; those that come up later are counted together, so that a scrape stays small. */
const MOST_COUNTED = 200;

/** Values with equal labels are summed over the threads. */
function requestMetrics(routes: readonly RouteStats[], byRoute: boolean): Metric[] {
  const name = 'lateral_request_duration_seconds';
  const kinds = routes
    .flatMap(({ method, path, byStatus }) =>
      [...byStatus].map(([status, answer]) => ({ labels: { method, route: path, status }, answer })),
    )
    .sort((one, other) => one.answer.number - other.answer.number);
  const durations = kinds.flatMap(({ labels, answer: { buckets, seconds } }) =>
    histogramValues(
      name,
      { bounds: DURATION_BOUNDS_S, buckets, sum: seconds },
      byRoute ? labels : { method: labels.method },
    ),
  );
  const counts = kinds.map(({ labels, answer: { buckets } }, position) => ({
    labels: position < MOST_COUNTED ? labels : { method: 'other', route: 'other', status: labels.status },
    value: buckets.reduce((sum, count) => sum + count, 0),
  }));
  const help = 'Duration of requests.';
  return [
    { name, help, type: 'histogram', aggregator: 'sum', values: durations },
    labelled(
      'counter',
      'lateral_requests_total',
      'Requests by route and status; 499: the client disconnected.',
      counts,
    ),
  ];
}

const SIZES: readonly number[] = [1, 2, 4, 8, 16, 32, 64];

/** Batches of reads or of writes. */
interface Batches {
  readonly sizes: Float64Array;
  readonly splits: number;
}

function batchMetrics(kind: 'read' | 'write', { sizes, splits }: Batches): Metric[] {
  const name = `lateral_${kind}_batch_size`;
  const buckets = new Float64Array(SIZES.length + 1);
  let members = 0;
  for (const [size, statements] of sizes.entries()) {
    const boundIndex = SIZES.findIndex((bound) => size <= bound);
    const bucket = boundIndex < 0 ? SIZES.length : boundIndex;
    buckets[bucket] = (buckets[bucket] ?? 0) + statements;
    members += size * statements;
  }
  const values = histogramValues(name, { bounds: SIZES, buckets, sum: members }, {});
  const [title, help] = kind === 'read' ? ['Reads', 'reads'] : ['Writes of single rows', 'writes'];
  return [
    { name, help: `${title} per statement.`, type: 'histogram', aggregator: 'sum', values },
    counter(`lateral_${kind}_batch_splits_total`, `Batches whose ${help} were sent again individually.`, splits),
  ];
}

function databaseMetrics({ database }: MetricsServices): Metric[] {
  const { pools, readQueue } = database;
  const of = (state: 'most' | 'busy' | 'idle' | 'waiting'): Value[] =>
    Object.entries(pools).map(([pool, states]) => ({ labels: { pool }, value: states[state] }));
  const sent = {
    read: readQueue?.sizes[1] ?? 0,
    batch: readQueue?.sizes.subarray(2).reduce((sum, statements) => sum + statements, 0) ?? 0,
    own: database.own.sent,
    write: database.sessions.sent,
    stream: database.streams.sent,
    import: database.imports.sent,
    catalog: database.catalog.sent,
  };
  return [
    statementMetric(sent),
    labelled('gauge', 'lateral_pool_connections_max', 'Maximum number of connections.', of('most')),
    labelled('gauge', 'lateral_pool_connections_busy', 'Connections in use.', of('busy')),
    labelled('gauge', 'lateral_pool_connections_idle', 'Idle connections.', of('idle')),
    counter('lateral_connections_lost_total', 'Connections that were lost.', database.watchdog.lost),
    counter(
      'lateral_connections_silent_total',
      'Connections closed because PostgreSQL did not answer in time.',
      database.watchdog.timedOut,
    ),
    labelled('gauge', 'lateral_pool_waiting', 'Requests that wait for a connection.', of('waiting')),
  ];
}

function statementMetric(sent: Readonly<Record<string, number>>): Metric {
  return labelled('counter', 'lateral_statements_total', 'Statements sent to PostgreSQL.', byLabel('kind', sent));
}

/** Where the schema is read and the log is written. */
function sourceMetrics({ mirror, events }: Pick<MetricsServices, 'mirror' | 'events'>): Metric[] {
  const byKind = byLabel('kind', Object.fromEntries(events));
  return [
    counter('lateral_shapes_compiled_total', 'Statements compiled.', events.get('shape-compiled') ?? 0),
    counter('lateral_mirror_reads_total', 'Times the schema of the database was read.', mirror.loads),
    labelled('counter', 'lateral_events_total', 'Events by kind, as logged.', byKind),
  ];
}

/** Each thread has a label of its own, because one that is busy all the time limits the others. */
function threadMetrics(): Metric[] {
  const labels = { thread: isMainThread ? 'main' : String(threadId) };
  const busy = { labels, value: performance.eventLoopUtilization().active / 1_000 };
  const used = threadSeconds();
  const help = 'Processor time of the thread that runs an event loop, on Linux.';
  return [
    labelled('counter', 'lateral_thread_busy_seconds_total', 'Seconds that the event loop of a thread was busy.', [
      busy,
    ]),
    ...(used === null
      ? []
      : [labelled('counter', 'lateral_thread_cpu_seconds_total', help, [{ labels, value: used }])]),
  ];
}

function schemaMetrics({ mirror, reads, writes }: MetricsServices): Metric[] {
  const shapes = byLabel('kind', { read: reads.shapes, write: writes.shapes });
  const collections = [...mirror.model.collections.values()].filter(({ system }) => !system).length;
  const version = { labels: { version: packageVersion }, value: 1 };
  return [
    labelled('gauge', 'lateral_shapes_cached', 'Compiled statements in the cache.', shapes),
    { ...gauge('lateral_collections', 'Collections that are served.', collections), aggregator: 'max' },
    { ...labelled('gauge', 'lateral_info', 'Version of the service.', [version]), aggregator: 'first' },
  ];
}

/**
 * The processor time of the calling thread: unlike the time that its event loop was busy, it does not grow while other programs use the
 * processor. Null on systems other than Linux.
 */
function threadSeconds(): number | null {
  try {
    return Number.parseInt(readFileSync('/proc/thread-self/schedstat', 'utf8'), 10) / 1e9;
  } catch {
    return null;
  }
}
