/**
 * Sends recorded requests again, at the recorded times or at a constant rate, as the recorded callers. Two targets get the same requests in
 * turns, so that other work of the machine affects both.
 */

import { UsageError } from '../../base/errors.js';
import { elementAt, propertiesOf } from '../../base/narrow.js';
import { VIEW_AS_HEADER } from '../../server/access/view-as.js';
import type { Measured, Rate } from './limits.js';
import { type Failure, OpenLoop, type Sending, writeRequest } from './open-loop.js';
import { type Percentiles, percentilesOf } from './percentiles.js';
import { authorization, basePath, type Callers, callerKey, findCallers, type Target } from './target.js';
import type { RecordedRequest, Traffic } from './traffic-file.js';

export interface ReplayOptions {
  readonly rate: Rate;
  /** The duration, or null to send the recording once. */
  readonly milliseconds: number | null;
  /** Whether writes are sent too. */
  readonly writes: boolean;
  readonly connections: number;
  readonly onProgress?: (progress: Progress) => void;
  readonly signal?: AbortSignal;
}

export interface Progress {
  readonly elapsedMs: number;
  readonly totalMs: number;
  readonly requests: number;
  readonly errors: number;
  /** The rate since the last progress. */
  readonly perSecond: number;
  readonly p99: number;
}

/** The requests of one shape, or all of them. */
export interface Figures extends Measured {
  readonly perSecond: number;
  /** Errors by their cause, such as "timed out" or "status 503". */
  readonly causes: Readonly<Record<string, number>>;
}

export interface ShapeFigures {
  /** The digest of the statement, or method and path of requests without one. */
  readonly id: string;
  /** An example: method, path and names of parameters. */
  readonly title: string;
  /** As the service measured it, without the network. */
  readonly recorded: Figures;
  /** By target. */
  readonly replayed: readonly Figures[];
}

export interface ReplayResult {
  readonly targets: readonly string[];
  readonly rate: Rate;
  /** Milliseconds that each target was under load. */
  readonly milliseconds: number;
  readonly shapes: readonly ShapeFigures[];
  readonly recorded: Figures;
  /** By target. */
  readonly all: readonly TargetFigures[];
  /** Requests that were left out, by reason. */
  readonly omitted: Readonly<Record<string, number>>;
  /** Whether it was stopped before its end. */
  readonly isInterrupted: boolean;
}

export interface TargetFigures extends Figures {
  /** How late this client sent requests although a connection was free, in milliseconds. */
  readonly lateness: Percentiles;
}

/** A request of the recording, with its bytes for each target. */
interface Replayable {
  readonly request: RecordedRequest;
  readonly id: string;
  readonly sendings: readonly ReplaySending[];
}

interface ReplaySending extends Sending {
  readonly request: RecordedRequest;
  readonly id: string;
}

/** Milliseconds without a response after which a request has failed. */
const TIMEOUT_MS = 10_000;

/** With two targets, each is under load for so long at a time. */
const TURN_MS = { least: 1_000, most: 5_000, turns: 10 };

/** Requests and their callers for the given targets. */
export interface PreparedReplay {
  readonly targets: readonly Target[];
  readonly traffic: Traffic;
  readonly requests: readonly Replayable[];
  readonly omitted: Readonly<Record<string, number>>;
}

export async function prepareReplay(
  traffic: Traffic,
  targets: readonly Target[],
  writes: boolean,
): Promise<PreparedReplay> {
  const omitted: Record<string, number> = {};
  const leaveOut = (reason: string): void => {
    omitted[reason] = (omitted[reason] ?? 0) + 1;
  };
  const known = traffic.recorded.filter((request) => {
    const reason = request.omitted ?? (request.write && !writes ? 'write' : null);
    if (reason !== null) leaveOut(reason);
    return reason === null;
  });
  const callers = await Promise.all(targets.map((target) => findCallers(target, known)));
  const requests = known.flatMap((request) => {
    const id = shapeId(request);
    const isKnown = callers.every((each) => (each.get(callerKey(request)) ?? null) !== null);
    if (!isKnown && !request.write) {
      leaveOut('unknown caller');
      return [];
    }
    const sendings = targets.map((target, index) => sendingOf(request, id, target, callers[index] ?? new Map()));
    return [{ request, id, sendings }];
  });
  return { targets, traffic, requests, omitted };
}

/** An administrator cannot write as another caller: writes are sent as the owner of the token. */
function sendingOf(request: RecordedRequest, id: string, target: Target, callers: Callers): ReplaySending {
  const { method, path, query, body, prefer, accept, write } = request;
  const view = write ? null : callers.get(callerKey(request));
  const headers = {
    ...authorization(target),
    ...(view ? { [VIEW_AS_HEADER]: view } : {}),
    ...(prefer === undefined ? {} : { Prefer: prefer }),
    ...(accept === undefined ? {} : { Accept: accept }),
    ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
  };
  const url = `${basePath(target)}${path}${query === undefined ? '' : `?${query}`}`;
  // A POST without a body needs a length.
  const sent = body ?? (method === 'GET' || method === 'HEAD' ? undefined : '');
  const bytes = writeRequest({ method, headers, path: url, body: sent }, target.url.host);
  return { bytes, isHead: method === 'HEAD', request, id };
}

function shapeId({ shape, method, path }: RecordedRequest): string {
  return shape ?? `${method} ${templateOf(path)}`;
}

/** The path without the key of an item. */
function templateOf(path: string): string {
  return path.replace(/^(\/items\/[^/]+|\/(?!items|rpc|graphql)[^/]+)\/(?!me$).+$/, '$1/:key');
}

function titleOf({ method, path, query, body }: RecordedRequest): string {
  const names = (query ?? '').split('&').map((parameter) => parameter.split('=', 1)[0] ?? '');
  const parameters = [...new Set(names.filter((name) => name !== '').map(decode))].join(',');
  const field = path.startsWith('/graphql') ? rootFieldOf(body ?? '') : '';
  return `${method} ${templateOf(path)}${parameters === '' ? '' : `?${parameters}`}${field === '' ? '' : ` ${field}`}`;
}

/** The first field of the GraphQL document in a body; '' if there is none. */
export function rootFieldOf(body: string): string {
  try {
    const { query } = propertiesOf(JSON.parse(body));
    return /\{\s*(?:\w+\s*:\s*)?(\w+)/.exec(String(query))?.[1] ?? '';
  } catch {
    return '';
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** When each request is due, from the beginning of the replay: the recording repeats until its time has passed. */
class ReplayPlan {
  readonly milliseconds: number;
  readonly #cycleMs: number;
  readonly #factor: number;

  constructor(
    private readonly requests: readonly Replayable[],
    recordedMs: number,
    { rate, milliseconds }: Pick<ReplayOptions, 'rate' | 'milliseconds'>,
  ) {
    const last = requests.at(-1)?.request.t ?? 0;
    const isConstant = rate.kind === 'constant';
    this.#factor = isConstant ? 0 : rate.factor;
    this.#cycleMs = isConstant ? (requests.length * 1_000) / rate.perSecond : Math.max(recordedMs, last) / rate.factor;
    if (milliseconds !== null && this.#cycleMs === 0)
      throw new UsageError('the recording has no length, so its rate is unknown: use a rate such as --rate 50/s');
    this.milliseconds = milliseconds ?? this.#cycleMs;
  }

  /** The time of a request, or null if it lies behind the end. */
  dueOf(index: number): number | null {
    const { length } = this.requests;
    if (length === 0) return null;
    const cycle = Math.floor(index / length);
    const { t } = elementAt(this.requests, index % length).request;
    const within = this.#factor === 0 ? ((index % length) * this.#cycleMs) / length : t / this.#factor;
    const due = cycle * this.#cycleMs + within;
    return due < this.milliseconds || (cycle === 0 && this.milliseconds === this.#cycleMs) ? due : null;
  }

  sendingOf(index: number, target: number): ReplaySending {
    return elementAt(elementAt(this.requests, index % this.requests.length).sendings, target);
  }
}

export async function replay(prepared: PreparedReplay, options: ReplayOptions): Promise<ReplayResult> {
  const { targets, requests, traffic } = prepared;
  const plan = new ReplayPlan(requests, traffic.milliseconds, options);
  const progress = new ProgressMeter(plan.milliseconds * targets.length, options.onProgress);
  const runs = targets.map((target, index) => new TargetRun(target, index, plan, progress));
  try {
    await Promise.all(runs.map((run) => run.connect(options.connections)));
    for (const [turn, end] of turnsOf(plan.milliseconds, targets.length).entries())
      for (const run of turn % 2 === 0 ? runs : runs.toReversed()) await run.until(end, options.signal);
  } finally {
    progress.end();
    for (const run of runs) run.end();
  }
  return { ...resultOf(prepared, runs, options.rate), isInterrupted: options.signal?.aborted === true };
}

/** The ends of the turns of each target. */
function turnsOf(milliseconds: number, targets: number): number[] {
  if (targets === 1) return [milliseconds];
  const length = Math.min(TURN_MS.most, Math.max(TURN_MS.least, milliseconds / TURN_MS.turns));
  const turns = Math.max(1, Math.round(milliseconds / length));
  return Array.from({ length: turns }, (_, turn) => (turn === turns - 1 ? milliseconds : (turn + 1) * length));
}

/** Milliseconds between two reports of progress. */
const PROGRESS_MS = 1_000;

class ProgressMeter {
  readonly #begun = performance.now();
  readonly #timer: NodeJS.Timeout | null;
  #requests = 0;
  #errors = 0;
  #latencies: number[] = [];
  #last = this.#begun;

  constructor(
    private readonly totalMs: number,
    private readonly report: ReplayOptions['onProgress'],
  ) {
    this.#timer = report ? setInterval(() => this.#report(), PROGRESS_MS).unref() : null;
  }

  add(latency: number, isError: boolean): void {
    this.#requests++;
    if (isError) this.#errors++;
    this.#latencies.push(latency);
  }

  end(): void {
    if (this.#timer) clearInterval(this.#timer);
  }

  #report(): void {
    const now = performance.now();
    const latencies = this.#latencies;
    this.#latencies = [];
    this.report?.({
      elapsedMs: now - this.#begun,
      totalMs: this.totalMs,
      requests: this.#requests,
      errors: this.#errors,
      perSecond: (latencies.length * 1_000) / (now - this.#last),
      p99: percentilesOf(latencies).p99,
    });
    this.#last = now;
  }
}

/** The figures of a shape while they are collected. */
class Tally {
  readonly latencies: number[] = [];
  readonly #causes: Record<string, number> = {};
  #errors = 0;
  #different = 0;

  /** `cause` is that of an error, or null. */
  add(latency: number, cause: string | null, isDifferent: boolean): void {
    this.latencies.push(latency);
    if (isDifferent) this.#different++;
    if (cause === null) return;
    this.#errors++;
    this.#causes[cause] = (this.#causes[cause] ?? 0) + 1;
  }

  figures(milliseconds: number): Figures {
    const requests = this.latencies.length;
    return {
      requests,
      perSecond: milliseconds === 0 ? 0 : (requests * 1_000) / milliseconds,
      latency: percentilesOf(this.latencies),
      errors: this.#errors,
      different: this.#different,
      causes: this.#causes,
    };
  }
}

/** The requests to one target. */
class TargetRun {
  readonly shapes = new Map<string, Tally>();
  readonly all = new Tally();
  readonly #lateness: number[] = [];
  readonly #loop: OpenLoop<ReplaySending>;
  /** The next request. */
  #next = 0;
  /** The time that its turns took, and that the schedule has for them. */
  #elapsedMs = 0;
  #plannedMs = 0;
  /** The latencies of requests that were due in the first half of the turn. */
  #early: number[] = [];
  #halfway = 0;
  #signal: AbortSignal | undefined;

  constructor(
    target: Target,
    private readonly index: number,
    private readonly plan: ReplayPlan,
    private readonly progress: ProgressMeter,
  ) {
    const listener = {
      onAnswer: (sending: ReplaySending, latency: number, status: number, failure: Failure) => {
        // Requests that an interruption cut off say nothing about the service.
        if (status === 0 && this.#signal?.aborted) return;
        if (performance.now() - latency < this.#halfway) this.#early.push(latency);
        this.#count(sending, latency, status, failure);
      },
      onSend: (_: ReplaySending, late: number) => void this.#lateness.push(late),
    };
    this.#loop = new OpenLoop(target.url, listener, TIMEOUT_MS);
  }

  connect(connections: number): Promise<void> {
    return this.#loop.connect(connections);
  }

  /** Sends the requests that are due before the given time of the plan. */
  async until(endMs: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return;
    this.#signal = signal;
    const begun = performance.now();
    const planned = endMs - this.#plannedMs;
    this.#halfway = begun + planned / 2;
    this.#early = [];
    const offset = begun - this.#plannedMs;
    const dueOf = (): number | null => {
      const due = this.plan.dueOf(this.#next);
      return due === null || due > endMs || (due === endMs && endMs < this.plan.milliseconds) ? null : due;
    };
    const schedule = {
      peek: () => {
        const due = dueOf();
        return due === null ? null : due + offset;
      },
      take: () => this.plan.sendingOf(this.#next++, this.index),
    };
    await this.#loop.run(schedule, offset + endMs + TIMEOUT_MS, signal);
    // Requests that could not be sent in time have waited for all of it.
    const cause = this.#loop.isRefused ? REFUSED : 'not sent, because all connections were busy';
    for (let due = dueOf(); due !== null && !signal?.aborted; due = dueOf())
      this.#count(schedule.take(), performance.now() - due - offset, 0, cause);
    this.#plannedMs = endMs;
    const elapsed = performance.now() - begun;
    // The last responses take their time, as all do. If they take longer than the early ones, requests have piled up.
    const usual = percentilesOf(this.#early).p99;
    this.#elapsedMs += signal?.aborted ? elapsed : Math.max(planned, elapsed - usual);
  }

  end(): void {
    this.#loop.end();
  }

  get elapsedMs(): number {
    return this.#elapsedMs;
  }

  figures(): TargetFigures {
    return { ...this.all.figures(this.#elapsedMs), lateness: percentilesOf(this.#lateness) };
  }

  figuresOf(id: string): Figures {
    return (this.shapes.get(id) ?? new Tally()).figures(this.#elapsedMs);
  }

  #count({ request, id }: ReplaySending, latency: number, status: number, failure: string): void {
    const cause = causeOf(status, failure);
    const isDifferent = !isSameStatus(request.status, status);
    const tally = this.shapes.get(id) ?? new Tally();
    this.shapes.set(id, tally);
    for (const each of [tally, this.all]) each.add(latency, cause, isDifferent);
    this.progress.add(latency, cause !== null);
  }
}

const CLIENT_LEFT_STATUS = 499;

const REFUSED = 'connection refused';

/** Causes of a service that is not there: they say nothing about this client. */
export const AWAY: readonly string[] = [REFUSED, 'connection closed'] satisfies readonly (Failure | typeof REFUSED)[];

/** No response, too many requests, or a fault of the service; null for other responses. */
function causeOf(status: number, failure: string): string | null {
  if (status === 0) return failure;
  return status === 429 || status >= 500 ? `status ${status}` : null;
}

/** A replay has nothing cached, so what was 304 is 200. The status for a client that left is not known. */
function isSameStatus(recorded: number, replayed: number): boolean {
  return recorded === replayed || (recorded === 304 && replayed === 200) || recorded === CLIENT_LEFT_STATUS;
}

function resultOf(
  { traffic, targets, requests, omitted }: PreparedReplay,
  runs: readonly TargetRun[],
  rate: Rate,
): Omit<ReplayResult, 'isInterrupted'> {
  const examples = new Map<string, RecordedRequest>();
  const recorded = new Map<string, Tally>();
  const all = new Tally();
  for (const { request, id } of requests) {
    if (!examples.has(id)) examples.set(id, request);
    const tally = recorded.get(id) ?? new Tally();
    recorded.set(id, tally);
    for (const each of [tally, all]) each.add(request.ms, causeOf(request.status, 'no response'), false);
  }
  const shapes = [...recorded].map(([id, tally]) => ({
    id,
    title: titleOf(
      elementAt(
        [examples.get(id)].flatMap((each) => each ?? []),
        0,
      ),
    ),
    recorded: tally.figures(traffic.milliseconds),
    replayed: runs.map((run) => run.figuresOf(id)),
  }));
  return {
    targets: targets.map(({ url }) => url.origin + url.pathname.replace(/\/+$/, '')),
    rate,
    milliseconds: Math.max(0, ...runs.map(({ elapsedMs }) => elapsedMs)),
    shapes: shapes.sort((one, other) => other.recorded.requests - one.recorded.requests),
    recorded: all.figures(traffic.milliseconds),
    all: runs.map((run) => run.figures()),
    omitted,
  };
}
