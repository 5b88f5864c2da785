/** What is good enough, as plain arithmetic on what was measured: everything that makes a bench fail is decided here. */
import type { CaseResult } from './measure.js';

/** Of the slowest hundredth, as a multiple of the middle, with this many connections. */
export const TAIL = { connections: 32, most: 4 };

/** A revision may be this much slower before it counts: a shared machine is not calmer than that. */
export const MOST_FALL = 0.1;

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

export interface Change {
  /** Throughput now as a multiple of that of the other revision. */
  readonly change: number;
  readonly hasFallen: boolean;
}

/** Both are divided by one ceiling, so that the ratios to it stand to each other as the rates do. */
export function judgeChange(now: number, before: number): Change {
  const change = now / before;
  return { change, hasFallen: !(change >= 1 - MOST_FALL) };
}

function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}
