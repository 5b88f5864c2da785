/**
 * How the reads of one shape are planned. Most shapes have one plan for all values. Where values are uneven, those that many rows
 * have follow the index of the order, those that few have are found by the filter first, and what lies between is planned for its
 * values. Each way has its own queue: a batch never mixes them.
 */
import { LRUCache } from 'lru-cache';
import type { PlanWatch, Shape } from '../batching/shape-queue.js';
import type { TableStatistics } from '../mirror/column-statistics.js';
import { type BoundValues, selectivity } from '../plan/selectivity.js';
import type { UnevenPage } from '../plan/uneven.js';
import type { Parameter } from '../sql/parameter.js';
import { BoundParameters } from './bound-parameters.js';

/** What makes plans of a shape go wrong for some values; null where nothing does. */
export type Risk =
  /** It follows the order, and bets on the filter to leave enough rows. */
  | 'walk'
  /** It collects all rows that the filter leaves, of which one value has very many. */
  | 'hub'
  /** It takes so long that to plan it for each value costs nothing. */
  | 'heavy'
  | null;

/** Between these multiples of the rows where both ways cost the same, the planner is asked. */
const COMMON_MULTIPLE = 4;
/** Rows of a value that are too many to collect. */
export const HUB_ROWS = 10_000;

/** Values that were found to want another way, and how long that is believed. */
const MAX_LEARNED = 1_000;
const LEARNED_MS = 600_000;

export interface PlanVariants {
  /** One plan for all values. */
  readonly plain: Shape;
  readonly perRead: Shape;
  /** The rows found before they are put in order; null where it is not possible. Its first form may be batched. */
  readonly fenced: { readonly plain: Shape; readonly perRead: Shape } | null;
}

export class PlanChoice {
  readonly #risk: Exclude<Risk, null>;
  readonly #page: UnevenPage | null;
  readonly #statistics: TableStatistics | null;
  readonly #parameters: BoundParameters;
  readonly #plain: Shape;
  readonly #perRead: Shape;
  readonly #fenced: Shape | null;
  readonly #learned = new LRUCache<string, Shape>({ max: MAX_LEARNED, ttl: LEARNED_MS });

  constructor(
    risk: Exclude<Risk, null>,
    page: UnevenPage | null,
    statistics: TableStatistics | null,
    parameters: readonly Parameter[],
    variants: PlanVariants,
  ) {
    this.#risk = risk;
    this.#page = page;
    this.#statistics = statistics;
    this.#parameters = new BoundParameters(parameters);
    const { plain, perRead, fenced } = variants;
    const watched = (shape: Shape, other: Shape): Shape => ({
      ...shape,
      watch: new StatementWatch(other, (values) => this.#learned.set(keyOf(values), other)),
    });
    this.#plain = watched(plain, fenced?.perRead ?? perRead);
    this.#perRead = fenced ? watched(perRead, fenced.perRead) : perRead;
    this.#fenced = fenced && watched(fenced.plain, perRead);
  }

  /** The way for these values. */
  shapeFor(values: readonly (string | null)[]): Shape {
    const learned = this.#learned.size > 0 ? this.#learned.get(keyOf(values)) : undefined;
    if (learned) return learned;
    if (this.#risk === 'heavy' || !this.#page || !this.#statistics || this.#statistics.rows < 0) return this.#perRead;
    const bound = this.#parameters.with(values);
    const { share, isKnown } = selectivity(this.#page.where, this.#statistics, bound);
    const rows = share * this.#statistics.rows;
    const isExact = isKnown && !this.#page.isMasked;
    if (this.#risk === 'hub') return isExact && rows < HUB_ROWS ? this.#plain : this.#perRead;
    const even = evenRows(this.#needed(bound), this.#statistics.rows);
    if (rows < even) return this.#fenced ?? this.#perRead;
    return isExact && rows >= COMMON_MULTIPLE * even ? this.#plain : this.#perRead;
  }

  /** Rows that the page takes from the order, those that it skips included. */
  #needed(bound: BoundValues & { readonly skipped: number; readonly limit: number }): number {
    const { limit, offset } = this.#page?.level ?? { limit: null, offset: null };
    return (offset ? bound.skipped : 0) + (limit?.kind === 'constant' ? limit.value : bound.limit);
  }
}

/** Where to follow the order and to collect cost the same: measured, half of the mean of what is wanted and what there is. */
function evenRows(needed: number, all: number): number {
  return 0.5 * Math.sqrt(Math.max(1, needed) * all);
}

function keyOf(values: readonly (string | null)[]): string {
  return JSON.stringify(values);
}

/** A statement is stopped after this time, or after so many times what nine of ten take. */
const MIN_LIMIT_MS = 20;
const LIMIT_MULTIPLE = 8;
/** How far the known time moves with each statement. */
const LEARN_RATE = 0.1;

/** Stops what takes far longer than usual, has it done in another way, and remembers which values that helps. */
class StatementWatch implements PlanWatch {
  readonly instead: Shape;
  readonly #helped: (values: readonly (string | null)[]) => void;
  /** About what nine of ten take; at first more than most do, lest a busy machine pass for a wrong plan. */
  #usualMs = 12;
  /** Doubled when the other way was no faster: then it was not the plan. */
  #patience = 1;

  constructor(instead: Shape, helped: (values: readonly (string | null)[]) => void) {
    this.instead = instead;
    this.#helped = helped;
  }

  get limitMs(): number {
    return this.#patience * Math.max(MIN_LIMIT_MS, LIMIT_MULTIPLE * this.#usualMs);
  }

  learn(ms: number): void {
    const step = LEARN_RATE * Math.max(this.#usualMs, 0.1);
    this.#usualMs += ms > this.#usualMs ? 9 * step : -step;
  }

  compare(values: readonly (string | null)[], ms: number): void {
    if (ms * 2 < this.limitMs) this.#helped(values);
    else this.#patience *= 2;
  }
}
