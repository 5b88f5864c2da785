/**
 * Whether the service can do its work. Each thread says what it has checked, in one function for every listener and command that
 * asks; what the threads say is put together here.
 */
import { messageOf } from '../../base/narrow.js';
import { within } from '../../base/time-limit.js';
import type { Mirror } from './catalog/watch.js';
import type { Database } from './pools/database.js';
import type { PoolState } from './pools/pool.js';

/** `degraded`: it serves, but something is not as it should be. */
type Status = 'ok' | 'degraded' | 'error';

export interface Check {
  readonly status: Status;
  readonly componentType: string;
  /** The thread, if there are several. */
  readonly componentId?: string;
  readonly observedValue: number;
  readonly observedUnit: string;
  readonly output?: string;
}

/** Results by the subject of the check. */
export type Checks = Readonly<Record<string, readonly Check[]>>;

export interface Health {
  /** The worst of its checks. */
  readonly status: Status;
  readonly checks: Checks;
}

interface Checked {
  readonly database: Database;
  readonly mirror: Mirror;
}

/** Milliseconds after which a thread or server that does not answer counts as lost. */
export const HEALTH_TIMEOUT_MS = 5_000;

/** Checks this thread. */
export async function checkHealth(checked: Checked): Promise<Checks> {
  return {
    'database:responseTime': [await checkDatabase(checked)],
    'mirror:collections': [checkMirror(checked)],
    ...checkPools(checked),
    ...checkHosts(checked),
    // One thread listens for all.
    ...(checked.database.listener.channels > 0 ? { 'listener:lost': [checkListener(checked)] } : {}),
  };
}

/** Why PostgreSQL refuses writes, or null if it does not. */
const REFUSAL = `select case when pg_catalog.pg_is_in_recovery() then 'it is a standby'
  when pg_catalog.current_setting('transaction_read_only')::boolean then 'default_transaction_read_only is on' end as refusal`;

/** Reads are served while writes are refused. */
async function checkDatabase({ database }: Checked): Promise<Check> {
  const start = performance.now();
  const outcome = await within(database.rows<{ refusal: string | null }>(REFUSAL), HEALTH_TIMEOUT_MS).then(
    ([row]) =>
      row?.refusal
        ? { status: 'degraded' as const, output: `PostgreSQL refuses writes: ${row.refusal}` }
        : { status: 'ok' as const },
    (error: unknown) => ({ status: 'error' as const, output: messageOf(error) }),
  );
  return { ...outcome, componentType: 'datastore', observedValue: performance.now() - start, observedUnit: 'ms' };
}

/** How many connections of each kind can be had. */
function checkPools({ database }: Checked): Checks {
  const checks = Object.entries(database.pools).map(([name, pool]): [string, Checks[string]] => [
    `database:${name}Connections`,
    [checkPool(pool)],
  ]);
  return Object.fromEntries(checks);
}

/** If all connections are taken, requests wait. If some of them wait in vain, the service does not do its work. */
function checkPool({ most, busy, waiting, isStarved }: PoolState): Check {
  const observation = { componentType: 'datastore', observedValue: most - busy, observedUnit: 'connections' };
  if (busy < most || !(isStarved || waiting > 0)) return { status: 'ok', ...observation };
  const status = isStarved ? 'error' : 'degraded';
  return { status, ...observation, output: `all ${most} connections are taken, and ${waiting} requests wait` };
}

/** Hosts of DATABASE_URL that a failover must not move to. */
function checkHosts({ database }: Checked): Checks {
  const foreign = database.primary?.foreign ?? [];
  if (foreign.length === 0) return {};
  const output = `not used: ${foreign.join('; ')}. Restart the service if the database was replaced on purpose`;
  const observation = { componentType: 'datastore', observedValue: foreign.length, observedUnit: 'foreign hosts' };
  return { 'database:hosts': [{ status: 'degraded', ...observation, output }] };
}

function checkMirror({ database: { obstacle }, mirror }: Checked): Check {
  return {
    status: obstacle === null ? 'ok' : 'error',
    componentType: 'component',
    observedValue: mirror.model.collections.size,
    observedUnit: 'collections',
    ...(obstacle !== null && { output: obstacle }),
  };
}

/** While notifications are missing, changes by others apply here only after a while. */
function checkListener({ database }: Checked): Check {
  const { loss } = database.listener;
  const observation = { componentType: 'component', observedUnit: 's' };
  if (loss === null) return { status: 'ok', ...observation, observedValue: 0 };
  return {
    status: 'degraded',
    ...observation,
    observedValue: (performance.now() - loss.since) / 1_000,
    output: `no notifications of changes of the schema, policies and users: ${messageOf(loss.error)}`,
  };
}

/** The checks of several threads, each under its name. */
export function joinHealth(threads: ReadonlyMap<string, Checks>): Health {
  const joined: Record<string, Check[]> = {};
  for (const [name, checks] of threads)
    for (const [subject, results] of Object.entries(checks)) {
      const named = threads.size === 1 ? results : results.map((check) => ({ ...check, componentId: name }));
      joined[subject] = [...(joined[subject] ?? []), ...named];
    }
  return { status: worst(Object.values(joined).flat()), checks: joined };
}

/** Describes a thread that does not answer, or a service that does not serve. */
export function unhealthy(subject: string, output: string): Checks {
  return {
    [subject]: [{ status: 'error', componentType: 'system', observedValue: 0, observedUnit: 'threads', output }],
  };
}

function worst(checks: readonly Check[]): Status {
  const statuses = new Set(checks.map(({ status }) => status));
  return statuses.has('error') ? 'error' : statuses.has('degraded') ? 'degraded' : 'ok';
}

/** Milliseconds that an answer about readiness is good: anybody may ask, and each answer takes a statement. */
const READINESS_LIFETIME_MS = 1_000;

/** Whether the service is ready for requests. Questions at the same time, or soon after one another, are answered once. */
export class Readiness {
  pendingCheck: Promise<boolean> | null = null;
  #stopping = false;

  constructor(private readonly health: () => Promise<Health>) {}

  /** From now on none should. */
  stop(): void {
    this.#stopping = true;
  }

  async isReady(): Promise<boolean> {
    if (this.#stopping) return false;
    this.pendingCheck ??= this.#ask();
    return (await this.pendingCheck) && !this.#stopping;
  }

  async #ask(): Promise<boolean> {
    try {
      return (await this.health()).status !== 'error';
    } catch {
      return false;
    } finally {
      setTimeout(() => {
        this.pendingCheck = null;
      }, READINESS_LIFETIME_MS).unref();
    }
  }
}
