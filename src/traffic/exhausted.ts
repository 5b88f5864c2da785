/**
 * Names the resource that limits a service, from the load of a rate that was too high. The resource is the one that reached its limit: a
 * full pool or a slow statement is often only the consequence of a processor without reserves.
 */
import type { LoadFigures, ProcessorUse } from './load-samples.js';

/**
 * `client`: this program could not send faster. `other programs`: they took the processors, so nothing is known about the service. `none`:
 * no resource was exhausted, as far as the service reports.
 */
export type Resource =
  | 'service processor'
  | 'PostgreSQL processor'
  | 'PostgreSQL storage'
  | 'connections'
  | 'locks'
  | 'client'
  | 'other programs'
  | 'none';

export interface Exhausted {
  readonly resource: Resource;
  /** The figures that name it. */
  readonly reason: string;
}

/** A rate that was too high. */
export interface Overload {
  readonly load: LoadFigures;
  /** PostgreSQL works so many times as long for a request as at a low rate. */
  readonly slowdown: number;
  readonly isClientLate: boolean;
}

/** The share of a processor, a limit or a thread that counts as used up: on average, since requests do not arrive evenly. */
const USED_UP = 0.7;
/** A thread that other programs delay would have used more: then it must be nearly always on a processor. */
const USED_UP_IN_SPITE = 0.85;
const LOCK_SHARE = 0.3;
const STORAGE_SHARE = 0.3;
const FULL_POOL = 0.5;
const SLOWER = 1.5;
/** A machine with fewer idle processors has no reserves. */
const IDLE_SHARE = 0.1;
/** Other programs that use less of the machine do not explain a missed limit. */
const OTHERS_SHARE = 0.15;

export function exhaustedBy(overload: Overload): Exhausted {
  return { resource: resourceOf(overload), reason: describe(overload) };
}

function resourceOf(overload: Overload): Resource {
  const { load, slowdown, isClientLate } = overload;
  const isPoolFull = load.poolFull >= FULL_POOL;
  if (load.lockWaits >= 1 && load.lockShare >= LOCK_SHARE) return 'locks';
  const processor = usedUp(overload);
  if (processor !== null) return processor;
  if (isPoolFull && slowdown < SLOWER) return 'connections';
  if (isStarved(overload)) return 'other programs';
  const largest = isMachineFull(load) ? largestProgram(overload) : null;
  if (largest !== null) return largest;
  if (isClientLate && !isPoolFull) return 'client';
  if (slowdown >= SLOWER && load.storageShare >= STORAGE_SHARE) return 'PostgreSQL storage';
  if (slowdown >= SLOWER && load.database.used === null) return 'PostgreSQL processor';
  if (isPoolFull) return 'connections';
  return isClientLate ? 'client' : 'none';
}

/** The program whose processors are used up: of the limit of its control group, of the machine, or of the thread that serves requests. */
function usedUp(overload: Overload): Resource | null {
  const { load } = overload;
  const [service, database] = [ofLimit(load.service), ofLimit(load.database)];
  if (Math.max(service, database) >= USED_UP) return service > database ? 'service processor' : 'PostgreSQL processor';
  const enough = isStarved(overload) ? USED_UP_IN_SPITE : USED_UP;
  const thread = load.threadProcessor ?? load.busiestThread;
  const machine = (load.database.used ?? 0) / Math.max(1, load.machine?.processors ?? 1);
  if (Math.max(thread, machine) < enough) return null;
  return thread > machine ? 'service processor' : 'PostgreSQL processor';
}

/** 0 without a limit. */
function ofLimit({ used, limit, throttled }: ProcessorUse): number {
  return limit === null ? 0 : Math.max(throttled, (used ?? 0) / limit);
}

function isMachineFull({ machine }: LoadFigures): boolean {
  return machine !== null && machine.idle < machine.processors * IDLE_SHARE;
}

/** Whether other programs took processors that the service or PostgreSQL could have used. */
export function isStarved(overload: Overload): boolean {
  const { machine } = overload.load;
  return machine !== null && isMachineFull(overload.load) && others(overload) >= machine.processors * OTHERS_SHARE;
}

/** Processors that programs other than the service, PostgreSQL and this one use. */
function others(overload: Overload): number {
  const { load } = overload;
  return Math.max(0, unexplained(load) - (load.database.used === null ? hiddenDatabase(overload) : 0));
}

/** Processors of the machine that neither the service nor this program nor a visible PostgreSQL uses. */
function unexplained({ machine, service, database, clientProcessors }: LoadFigures): number {
  if (machine === null) return 0;
  return machine.processors - machine.idle - (service.used ?? 0) - (database.used ?? 0) - clientProcessors;
}

/** PostgreSQL in another container cannot be seen: its statements that wait for nothing and became slower may use the processors. */
function hiddenDatabase({ load, slowdown }: Overload): number {
  return slowdown < SLOWER ? 0 : Math.min(unexplained(load), load.activeStatements * load.runningShare);
}

/** The largest of the programs that share a machine without reserves. */
function largestProgram(overload: Overload): Resource | null {
  const { load } = overload;
  const programs: (readonly [Resource, number])[] = [
    ['service processor', load.service.used ?? 0],
    ['PostgreSQL processor', load.database.used ?? hiddenDatabase(overload)],
    ['client', load.clientProcessors],
  ];
  const [name, used] = programs.reduce((one, other) => (other[1] > one[1] ? other : one));
  return used > 0 ? name : null;
}

function describe(overload: Overload): string {
  const { load, slowdown } = overload;
  const { machine } = load;
  const starved = machine !== null && isStarved(overload);
  return [
    ...(starved
      ? [`the machine is busy with other programs: ${percent(others(overload) / machine.processors)} of its processors`]
      : []),
    `busiest thread ${percent(load.busiestThread)}`,
    `service ${describeUse(load.service)}`,
    ...(load.database.used === null ? [] : [`PostgreSQL ${describeUse(load.database)}`]),
    ...(machine === null ? [] : [`machine ${percent(1 - machine.idle / machine.processors)} busy`]),
    `${load.pool} pool full ${percent(load.poolFull)} of the time`,
    `${percent(load.lockShare)} of statements wait for locks`,
    `PostgreSQL works ${slowdown.toFixed(1)} times as long per request`,
  ].join(', ');
}

function describeUse({ used, limit, throttled }: ProcessorUse): string {
  const processors = `${(used ?? 0).toFixed(2)} processors`;
  return limit === null ? processors : `${processors} of ${limit} (throttled ${percent(throttled)} of the time)`;
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
