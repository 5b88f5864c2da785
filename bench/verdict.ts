/** The targets, and the decision whether a measurement meets them. */
import type { CaseResult } from './measure.js';
import { mean, median } from './statistics.js';

/** The 99th percentile as a multiple of the median, with this many connections. */
export const TAIL = { connections: 32, most: 4 };

/** A revision may be this much slower before it counts: the noise of a shared machine. */
export const MOST_FALL = 0.1;

/** How much more CPU time a request may take before it counts: CPU time varies less than the rate. */
export const MOST_PROCESSOR = 0.05;

/** With this many rounds, a rate that is lower in nearly all of them counts as lower, also with the same CPU time. */
export const REPEATED = { rounds: 6, share: 5 / 6 };

/** In MiB, under mixed load. */
export const MOST_MEMORY = 200;

export const MOST_GROWTH = 0.05;

/** How much p99 of small reads may grow during one long query. */
export const MOST_DELAY = 2;

export interface Judgement {
  readonly wanted: number;
  readonly found: number;
  readonly isMet: boolean;
}

/** Returns null if the case has no target. A case that could not be measured, or returned errors, has missed it. */
export function judgeRatio({ target, ratio, beside, failure }: CaseResult): Judgement | null {
  if (target === null) return null;
  const found = beside?.ratio ?? ratio ?? 0;
  return { wanted: target, found, isMet: failure === null && found >= target };
}

export function judgeTail({ service, connections }: CaseResult): Judgement | null {
  if (service === null || connections !== TAIL.connections) return null;
  const found = service.p99 / service.p50;
  return { wanted: TAIL.most, found, isMet: found <= TAIL.most };
}

export interface MemoryJudgement {
  /** The maximum of the last fifth. */
  readonly end: number;
  /** The means of the second and of the last fifth. */
  readonly early: number;
  readonly late: number;
  readonly isSmall: boolean;
  readonly isFlat: boolean;
  readonly isMet: boolean;
}

/**
 * Flat: the mean of the last fifth is at most 5 % above the mean of the second fifth. In five minutes these are the last and the second
 * minute. The first is left out, because caches and the heap fill then.
 */
export function judgeMemory(samples: readonly number[]): MemoryJudgement {
  const part = (number: number): readonly number[] =>
    samples.slice(Math.floor((samples.length * number) / 5), Math.floor((samples.length * (number + 1)) / 5));
  const early = mean(part(1));
  const late = mean(part(4));
  const end = Math.max(...part(4));
  const isSmall = end <= MOST_MEMORY;
  const isFlat = late <= early * (1 + MOST_GROWTH);
  return { end, early, late, isSmall, isFlat, isMet: isSmall && isFlat };
}

export type Side = 'now' | 'before';

/** One revision under load, once. */
export interface Turn {
  readonly requestsPerSecond: number;
  /** Milliseconds per request, of the service and of PostgreSQL together; null if the system does not report them. */
  readonly processor: number | null;
}

/** One turn of each, one right after the other. */
export type Round = Readonly<Record<Side, Turn>>;

export interface Change {
  /** Requests per second, the best of all rounds. */
  readonly now: number;
  readonly before: number;
  /** The one as a multiple of the other. */
  readonly rate: number;
  /** CPU time per request as a multiple of that of the other revision: the median of the rounds. */
  readonly processor: number | null;
  /** The rate alone is lower: more rounds can show whether it is noise. */
  readonly isLower: boolean;
  readonly hasFallen: boolean;
  /** The reason why it counts or does not. */
  readonly note: string;
}

/**
 * A revision is slower if its rate is more than 10 % lower and each request takes more than 5 % more CPU time. Other processes on the
 * machine can reduce the rate alone. So a lower rate alone counts only if it is lower in nearly all of six rounds or more: then requests
 * wait for something. Without CPU times the rate decides.
 */
export function judgeChange(rounds: readonly Round[]): Change {
  const now = Math.max(0, ...rounds.map((round) => round.now.requestsPerSecond));
  const before = Math.max(0, ...rounds.map((round) => round.before.requestsPerSecond));
  const rate = now / before;
  const isLow = (factor: number): boolean => !(factor >= 1 - MOST_FALL);
  const factors = rounds.flatMap((round) =>
    round.now.processor === null || round.before.processor === null
      ? []
      : [round.now.processor / round.before.processor],
  );
  const processor = factors.length < rounds.length || factors.length === 0 ? null : median(factors);
  const change = { now, before, rate, processor, isLower: isLow(rate) };
  const isDearer = processor !== null && processor > 1 + MOST_PROCESSOR;
  if (!change.isLower) return { ...change, hasFallen: false, note: isDearer ? 'more CPU time alone' : '' };
  if (processor === null) return { ...change, hasFallen: true, note: 'slower' };
  if (isDearer) return { ...change, hasFallen: true, note: 'slower, and more CPU time' };
  const lower = rounds.filter((round) => isLow(round.now.requestsPerSecond / round.before.requestsPerSecond)).length;
  const isRepeated = rounds.length >= REPEATED.rounds && lower >= rounds.length * REPEATED.share;
  const note = `${lower} of ${rounds.length} rounds lower, same CPU time`;
  return { ...change, hasFallen: isRepeated, note: isRepeated ? note : `noise: ${note}` };
}
