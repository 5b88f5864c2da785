/** What is good enough, as plain arithmetic on what was measured: everything that makes a bench fail is decided here. */
import type { CaseResult } from './measure.js';
import { mean, median } from './statistics.js';

/** Of the slowest hundredth, as a multiple of the middle, with this many connections. */
export const TAIL = { connections: 32, most: 4 };

/** A revision may be this much slower before it counts: a shared machine is not calmer than that. */
export const MOST_FALL = 0.1;

/** How much more processor time a request may take before that counts: it varies less than the rate. */
export const MOST_PROCESSOR = 0.05;

/** From so many rounds on, a rate that is lower in nearly all of them is lower whatever the processor says. */
export const REPEATED = { rounds: 6, share: 5 / 6 };

/** In MiB, under mixed load. */
export const MOST_MEMORY = 200;

export const MOST_GROWTH = 0.05;

/** How much slower the slowest hundredth of small reads may get beside one long query. */
export const MOST_DELAY = 2;

export interface Judgement {
  readonly wanted: number;
  readonly found: number;
  readonly isMet: boolean;
}

/** Null when nothing is asked of the case. One that could not be measured, or answered with errors, has missed it. */
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
  /** The highest of the last fifth. */
  readonly end: number;
  /** The means of the second and of the last fifth. */
  readonly early: number;
  readonly late: number;
  readonly isSmall: boolean;
  readonly isFlat: boolean;
  readonly isMet: boolean;
}

/**
 * Flat: the mean of the last fifth of the time is at most 5 % above the mean of the second fifth; of five minutes these
 * are the last and the second one. The first is left out, because caches and the heap fill then.
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

/** One revision under load for one time. */
export interface Turn {
  readonly requestsPerSecond: number;
  /** Milliseconds per request, of the service and of PostgreSQL together; null where nobody says. */
  readonly processor: number | null;
}

/** One turn of each, right after each other. */
export type Round = Readonly<Record<Side, Turn>>;

export interface Change {
  /** Requests per second, the best of all rounds. */
  readonly now: number;
  readonly before: number;
  /** The one as a multiple of the other. */
  readonly rate: number;
  /** Processor time per request as a multiple of that of the other revision: the median of the rounds. */
  readonly processor: number | null;
  /** The rate alone: more rounds may tell whether it is noise. */
  readonly isLower: boolean;
  readonly hasFallen: boolean;
  /** Why it counts, or does not. */
  readonly note: string;
}

/**
 * A revision is slower when its rate is more than 10 % lower and each request takes more than 5 % more processor time too. A lower rate
 * alone is what a neighbour on the machine does to it: that counts only when it is lower in nearly all of six rounds or more, as it is
 * when requests wait for something. Without processor times the rate decides.
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
  if (!change.isLower) return { ...change, hasFallen: false, note: isDearer ? 'more processor time alone' : '' };
  if (processor === null) return { ...change, hasFallen: true, note: 'slower' };
  if (isDearer) return { ...change, hasFallen: true, note: 'slower, and more processor time' };
  const lower = rounds.filter((round) => isLow(round.now.requestsPerSecond / round.before.requestsPerSecond)).length;
  const isRepeated = rounds.length >= REPEATED.rounds && lower >= rounds.length * REPEATED.share;
  const note = `${lower} of ${rounds.length} rounds lower, same processor time`;
  return { ...change, hasFallen: isRepeated, note: isRepeated ? note : `noise: ${note}` };
}
