/** GET /server/load: how busy the threads, the connections and PostgreSQL are, in one reply. `lateral capacity` compares two of them. */
import { availableParallelism } from 'node:os';
import type { Identities } from '../../access/identities.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Database } from '../../postgres/pools/database.js';
import { readSql } from '../../sql/read-sql.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../action.js';
import { INTEGER, list, object, orNull, RECORD, STRING } from '../openapi/json-schema.js';
import type { Gather, Metric } from './metrics.js';
import { findPostmaster, machineTimes, postgresSeconds, processorLimit } from './processor-times.js';

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

const DATABASE_LOAD = readSql('load.sql');

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
