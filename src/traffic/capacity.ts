/**
 * Finds the highest rate at which a service keeps its limits: the rate doubles until a limit is missed, then the interval is halved. The
 * load of the last rates says which resource is exhausted first.
 */
import { checkLimits, type ServiceLimit } from './limits.js';
import { type LoadFigures, withLoad } from './load-samples.js';
import { SHARES } from './percentiles.js';
import { type PreparedReplay, type ReplayOptions, replay, type TargetFigures } from './replay.js';
import type { Target } from './target.js';

export interface CapacityOptions extends Pick<ReplayOptions, 'writes' | 'connections' | 'signal'> {
  readonly limits: readonly ServiceLimit[];
  readonly stepMs: number;
  /** Requests per second of the first step. */
  readonly firstRate: number;
  readonly onStep: (step: Step) => void;
}

/** A rate that was tried. */
export interface Step {
  readonly perSecond: number;
  readonly isKept: boolean;
  /** Whether it has too few requests for its percentiles. */
  readonly isScarce: boolean;
  readonly figures: TargetFigures;
  readonly load: LoadFigures;
}

/** `client`: this program could not send faster. `none`: no resource was exhausted, as far as the service reports. */
export type Resource = 'service processor' | 'PostgreSQL processor' | 'connections' | 'locks' | 'client' | 'none';

export interface Capacity {
  /** Requests per second; 0 if even the lowest rate missed a limit. */
  readonly perSecond: number;
  readonly resource: Resource;
  /** The figures that name the resource. */
  readonly reason: string;
  /** At the highest rate. */
  readonly perProcessorSecond: number;
  readonly recommended: readonly Recommendation[];
  /** Whether this client was too slow for a higher rate. */
  readonly isAtLeast: boolean;
  /** Whether it was stopped before its end. */
  readonly isInterrupted: boolean;
  readonly steps: readonly Step[];
}

export interface Recommendation {
  readonly name: string;
  readonly value: number;
  readonly reason: string;
}

/** The search ends when the best and the first bad rate differ by less. */
const PRECISION = 0.04;
const MAX_STEPS = 24;
const LOWEST_RATE = 1;
/** The share of the wanted rate that has to be reached. */
const MIN_REACHED = 0.97;

export async function findCapacity(
  prepared: PreparedReplay,
  target: Target,
  options: CapacityOptions,
): Promise<Capacity> {
  const steps: Step[] = [];
  let kept = 0;
  let missed = Number.POSITIVE_INFINITY;
  let rate = Math.max(LOWEST_RATE, options.firstRate);
  while (steps.length < MAX_STEPS && !options.signal?.aborted) {
    const step = await settledStep(prepared, target, rate, options);
    if (options.signal?.aborted) break;
    steps.push(step);
    if (step.isKept) kept = Math.max(kept, rate);
    else missed = Math.min(missed, rate);
    if (missed / Math.max(kept, Number.MIN_VALUE) <= 1 + PRECISION || (kept === 0 && rate <= LOWEST_RATE)) break;
    rate = nextRate(kept, missed);
  }
  const found = capacityOf(steps, kept);
  return options.signal?.aborted ? { ...found, recommended: [], isInterrupted: true } : found;
}

/** A client may be late by accident: such a step is repeated once. */
async function settledStep(...given: Parameters<typeof run>): Promise<Step> {
  const { onStep, signal } = given[3];
  const step = await run(...given);
  if (signal?.aborted) return step;
  onStep(step);
  if (!isClientLate(step) || (!step.isKept && step.load.busiestThread >= BUSY_THREAD)) return step;
  const again = await run(...given);
  if (!signal?.aborted) onStep(again);
  return again;
}

/** A percentile needs so many requests that at least one of them lies above it. */
function neededRequests(limits: readonly ServiceLimit[]): number {
  const shares = limits.flatMap(({ name }) => (name === 'errors' || name === 'status' ? [] : SHARES[name]));
  return Math.max(0, ...shares.map((share) => Math.round(1 / (1 - share))));
}

/** A slow step is so many times longer at most. */
const LONGEST_STEP = 4;

function nextRate(kept: number, missed: number): number {
  if (missed === Number.POSITIVE_INFINITY) return kept * 2;
  return kept === 0 ? Math.max(LOWEST_RATE, missed / 4) : Math.sqrt(kept * missed);
}

async function run(
  prepared: PreparedReplay,
  target: Target,
  perSecond: number,
  options: CapacityOptions,
): Promise<Step> {
  const needed = neededRequests(options.limits);
  const milliseconds = Math.min(options.stepMs * LONGEST_STEP, Math.max(options.stepMs, (needed * 1_000) / perSecond));
  const settings = { ...options, rate: { kind: 'constant', perSecond } as const, milliseconds };
  const { result, load } = await withLoad(target, () => replay(prepared, settings));
  const [figures] = result.all;
  if (!figures) throw new Error('a replay has a target');
  const isReached = figures.perSecond >= perSecond * MIN_REACHED;
  const isKept = isReached && checkLimits(options.limits, figures).every((limit) => limit.isKept);
  return { perSecond, isKept, isScarce: figures.requests < needed * MIN_REACHED, figures, load };
}

/** Milliseconds: a client that sends so much too late measures itself. */
const MAX_LATENESS_MS = 20;

function isClientLate({ figures }: Step): boolean {
  return figures.lateness.p99 > MAX_LATENESS_MS;
}

function capacityOf(steps: readonly Step[], kept: number): Capacity {
  const best = steps.find((step) => step.isKept && step.perSecond === kept);
  const worse = steps.filter((step) => !step.isKept);
  const over = worse.reduce<Step | undefined>(
    (one, other) => (one && one.perSecond <= other.perSecond ? one : other),
    undefined,
  );
  const last = over ?? best;
  const { resource, reason } = last
    ? exhausted(last, steps)
    : { resource: 'none' as const, reason: 'nothing was measured' };
  const cpu = best ? best.load.serviceProcessors : 0;
  return {
    perSecond: kept,
    resource,
    reason,
    perProcessorSecond: best && cpu > 0 ? best.figures.perSecond / cpu : 0,
    recommended: best ? recommend(resource, best) : [],
    isAtLeast: kept > 0 && last !== undefined && isClientLate(last) && (last.isKept || resource === 'client'),
    isInterrupted: false,
    steps,
  };
}

/** On average over a step, which begins and ends with less load. */
const BUSY_THREAD = 0.7;
const LOCK_SHARE = 0.3;
const FULL_POOL = 0.5;
/** PostgreSQL needs so many times longer for a request than at a low rate. */
const SLOWER = 1.5;

/** By the load of the first rate that was too high, compared with a low one. */
function exhausted(over: Step, steps: readonly Step[]): { readonly resource: Resource; readonly reason: string } {
  const { load } = over;
  const slowdown = activePerRequest(over) / lowest(steps);
  const figures = `busiest thread ${percent(load.busiestThread)}, ${load.pool} pool full ${percent(load.poolFull)} of the time, ${percent(load.lockShare)} of statements wait for locks, PostgreSQL works ${slowdown.toFixed(1)} times as long per request`;
  const name = (resource: Resource): { readonly resource: Resource; readonly reason: string } => ({
    resource,
    reason: figures,
  });
  if (load.lockWaits >= 1 && load.lockShare >= LOCK_SHARE) return name('locks');
  if (load.busiestThread >= BUSY_THREAD) return name('service processor');
  if (isClientLate(over) && load.poolFull < FULL_POOL) return name('client');
  if (slowdown >= SLOWER) return name('PostgreSQL processor');
  if (load.poolFull >= FULL_POOL) return name('connections');
  return name(isClientLate(over) ? 'client' : 'none');
}

/** Milliseconds of PostgreSQL per request. */
function activePerRequest({ load, figures }: Step): number {
  return (load.activeStatements * 1_000) / Math.max(figures.perSecond, 1);
}

/** At rates that the service kept easily. */
function lowest(steps: readonly Step[]): number {
  const kept = steps.filter((step) => step.isKept).map(activePerRequest);
  return Math.max(0.001, Math.min(...(kept.length > 0 ? kept : steps.map(activePerRequest))));
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

const POOL_OPTIONS: Readonly<Record<string, string>> = {
  read: 'DATABASE_POOL_SIZE',
  write: 'DATABASE_WRITE_POOL_SIZE',
};

function recommend(resource: Resource, { load }: Step): Recommendation[] {
  const free = Math.max(0, load.maxConnections - load.connections);
  const needed = Math.max(1, Math.min(load.poolSize, Math.ceil(load.poolBusy * 1.5)));
  const pool =
    resource === 'connections'
      ? load.poolSize + Math.min(load.poolSize, free)
      : Math.max(needed, Math.min(load.poolSize, 2));
  const threads = resource === 'service processor' ? Math.min(load.processors, load.threads + 1) : load.threads;
  const isMore = threads > load.threads;
  return [
    {
      name: POOL_OPTIONS[load.pool] ?? 'DATABASE_POOL_SIZE',
      value: pool,
      reason:
        resource === 'connections'
          ? `all ${load.poolSize} were busy; PostgreSQL has room for ${free} more`
          : `${load.poolBusy.toFixed(1)} of ${load.poolSize} were busy on average`,
    },
    {
      name: 'WORKERS',
      value: threads,
      reason: isMore
        ? 'the busiest thread has no reserve'
        : resource === 'service processor'
          ? 'all processors have a thread: add instances'
          : 'the threads have reserves',
    },
    {
      name: 'lateral_pool_waiting',
      value: Math.max(1, load.waiting),
      reason: 'at the highest rate no more requests waited in nine of ten samples: add an instance above this value',
    },
  ];
}
