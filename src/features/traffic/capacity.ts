/**
 * Finds the highest rate at which a service keeps its limits: the rate doubles until a limit is missed, then the interval is halved. At
 * the end the lowest missed rate is tried again. The load of the last rates says which resource is exhausted first.
 */
import { checkLimits, type ServiceLimit } from './limits.js';
import { type LoadFigures, type ProcessorUse, withLoad } from './load-samples.js';
import { SHARES } from './percentiles.js';
import { type PreparedReplay, type ReplayOptions, replay, type TargetFigures } from './replay.js';
import type { Target } from './target.js';

interface CapacityOptions extends Pick<ReplayOptions, 'writes' | 'connections' | 'signal'> {
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
  /** Whether other programs used the machine: the service may be faster without them. */
  readonly isDisturbed: boolean;
  /** Whether it was stopped before its end. */
  readonly isInterrupted: boolean;
  readonly steps: readonly Step[];
}

interface Recommendation {
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
  const steps = await searchRate((rate) => run(prepared, target, rate, options), options);
  const found = capacityOf(steps, highestKept(steps));
  return options.signal?.aborted ? { ...found, recommended: [], isInterrupted: true } : found;
}

type Search = Pick<CapacityOptions, 'firstRate' | 'onStep' | 'signal'>;

/** The steps of the search, in their order. */
export async function searchRate(attempt: (rate: number) => Promise<Step>, search: Search): Promise<Step[]> {
  const steps: Step[] = [];
  let missed = Number.POSITIVE_INFINITY;
  let rate = Math.max(LOWEST_RATE, search.firstRate);
  while (steps.length < MAX_STEPS && !search.signal?.aborted) {
    const step = await settledStep(() => attempt(rate), steps, search);
    if (search.signal?.aborted) break;
    steps.push(step);
    const isConfirmed = !step.isKept && rate === missed;
    const kept = highestKept(steps);
    missed = lowestMissed(steps, kept);
    // The machine stays busy: lower rates would be missed for the same reason.
    if (!step.isKept && exhaustedBy(overloadOf(step, steps)).resource === 'other programs') break;
    const isFound = missed / Math.max(kept, Number.MIN_VALUE) <= 1 + PRECISION || (kept === 0 && rate <= LOWEST_RATE);
    if (isFound && isConfirmed) break;
    rate = isFound ? missed : nextRate(kept, missed);
  }
  return steps;
}

function highestKept(steps: readonly Step[]): number {
  return Math.max(0, ...steps.filter(({ isKept }) => isKept).map(({ perSecond }) => perSecond));
}

/** Rates below the highest kept one were missed by chance. */
function lowestMissed(steps: readonly Step[], kept: number): number {
  const rates = steps.filter(({ isKept, perSecond }) => !isKept && perSecond > kept).map(({ perSecond }) => perSecond);
  return Math.min(Number.POSITIVE_INFINITY, ...rates);
}

/** A doubtful step is tried so often. */
const MAX_TRIES = 3;

/** The first try without doubt, or the last one. */
async function settledStep(
  attempt: () => Promise<Step>,
  steps: readonly Step[],
  { onStep, signal }: Search,
): Promise<Step> {
  for (let tries = 1; ; tries++) {
    const step = await attempt();
    if (signal?.aborted) return step;
    onStep(step);
    if (tries === MAX_TRIES || !isDoubtful(step, steps)) return step;
  }
}

/** A limit that was missed because the client was late, or because other programs took the processors, says nothing about the service. */
function isDoubtful(step: Step, steps: readonly Step[]): boolean {
  return !step.isKept && ['client', 'other programs'].includes(exhaustedBy(overloadOf(step, steps)).resource);
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
  const worse = steps.filter((step) => !step.isKept && step.perSecond > kept);
  const over = worse.reduce<Step | undefined>(
    (one, other) => (one && one.perSecond <= other.perSecond ? one : other),
    undefined,
  );
  const last = over ?? best;
  const { resource, reason }: Exhausted = last
    ? exhaustedBy(overloadOf(last, steps))
    : { resource: 'none', reason: 'nothing was measured' };
  const cpu = best?.load.service.used ?? 0;
  return {
    perSecond: kept,
    resource,
    reason,
    perProcessorSecond: best && cpu > 0 ? best.figures.perSecond / cpu : 0,
    recommended: best && resource !== 'other programs' ? recommend(resource, best) : [],
    isAtLeast: kept > 0 && last !== undefined && isClientLate(last) && (last.isKept || resource === 'client'),
    isDisturbed: last !== undefined && isStarved(overloadOf(last, steps)),
    isInterrupted: false,
    steps,
  };
}

/** Compared with the rates that the service kept easily. */
export function overloadOf(step: Step, steps: readonly Step[]): Overload {
  const low = activePerRequest(easySteps(step, steps));
  return {
    load: step.load,
    slowdown: activePerRequest([step]) / Math.max(0.001, low),
    isClientLate: isClientLate(step),
  };
}

/** The share of the highest rate below which the service has reserves. */
const EASY_SHARE = 0.5;

function easySteps(step: Step, steps: readonly Step[]): readonly Step[] {
  const kept = steps.filter(({ isKept }) => isKept);
  const most = EASY_SHARE * Math.max(...kept.map(({ perSecond }) => perSecond));
  const easy = kept.filter(({ perSecond }) => perSecond <= most);
  return [easy, kept, [step]].find(({ length }) => length > 0) ?? [];
}

/**
 * Milliseconds of PostgreSQL per request, of all steps together: a session reports its time once a second, so the share of one
 * short step may be far too small.
 */
function activePerRequest(steps: readonly Step[]): number {
  const active = steps.reduce((sum, { load }) => sum + load.activeStatements, 0);
  const requests = steps.reduce((sum, { figures }) => sum + figures.perSecond, 0);
  return (active * 1_000) / Math.max(requests, 1);
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
  return [
    {
      name: POOL_OPTIONS[load.pool] ?? 'DATABASE_POOL_SIZE',
      value: pool,
      reason:
        resource === 'connections'
          ? `all ${load.poolSize} were busy; PostgreSQL has room for ${free} more`
          : `${load.poolBusy.toFixed(1)} of ${load.poolSize} were busy on average`,
    },
    recommendThreads(resource, load),
    {
      name: 'lateral_pool_waiting',
      value: Math.max(1, load.waiting),
      reason: 'at the highest rate no more requests waited in nine of ten samples: add an instance above this value',
    },
  ];
}

function recommendThreads(
  resource: Resource,
  { threads, processors, service: { limit } }: LoadFigures,
): Recommendation {
  const name = 'WORKERS';
  if (resource !== 'service processor') return { name, value: threads, reason: 'the threads have reserves' };
  const most = Math.min(processors, Math.max(1, Math.floor(limit ?? processors)));
  if (threads < most) return { name, value: threads + 1, reason: 'the busiest thread has no reserve' };
  const help = limit === null ? 'add instances' : `raise the limit of ${limit} processors, or add instances`;
  return { name, value: threads, reason: `all processors have a thread: ${help}` };
}

/**
 * `client`: this program could not send faster. `other programs`: they took the processors, so nothing is known about the service. `none`:
 * no resource was exhausted, as far as the service reports.
 */
type Resource =
  | 'service processor'
  | 'PostgreSQL processor'
  | 'PostgreSQL storage'
  | 'connections'
  | 'locks'
  | 'client'
  | 'other programs'
  | 'none';

interface Exhausted {
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

/**
 * Names the resource that reached its limit: a full pool or a slow statement is often only the consequence of a processor without reserves.
 */
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
function isStarved(overload: Overload): boolean {
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
