/**
 * How the reads of one shape are planned. Most shapes have one plan for all values. Where values are uneven, those that many rows
 * have follow the index of the order, those that few have are found by the filter first, and what lies between is planned for its
 * values. Each way has its own queue: a batch never mixes them.
 */
import type { Shape } from '../../batching/shape-queue.js';
import type { TableStatistics } from '../../mirror/column-statistics.js';
import { type BoundValues, selectivity } from '../../plan/selectivity.js';
import type { UnevenPage } from '../../plan/uneven.js';
import type { Parameter } from '../../sql/parameter.js';
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

export interface PlanVariants {
  /** One plan for all values. */
  readonly plain: Shape;
  readonly perRead: Shape;
  /** Finds the rows before it sorts them; null if the read cannot be compiled so. */
  readonly fenced: Shape | null;
}

export class PlanChoice {
  readonly #risk: Exclude<Risk, null>;
  readonly #page: UnevenPage | null;
  readonly #statistics: TableStatistics | null;
  readonly #parameters: BoundParameters;
  readonly #variants: PlanVariants;

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
    this.#variants = variants;
  }

  /** The way for these values. */
  shapeFor(values: readonly (string | null)[]): Shape {
    const { plain, perRead, fenced } = this.#variants;
    if (this.#risk === 'heavy' || !this.#page || !this.#statistics || this.#statistics.rows < 0) return perRead;
    const bound = this.#parameters.with(values);
    const { share, isKnown } = selectivity(this.#page.where, this.#statistics, bound);
    const rows = share * this.#statistics.rows;
    const isExact = isKnown && !this.#page.isMasked;
    if (this.#risk === 'hub') return isExact && rows < HUB_ROWS ? plain : perRead;
    const even = evenRows(this.#needed(bound), this.#statistics.rows);
    if (rows < even) return fenced ?? perRead;
    return isExact && rows >= COMMON_MULTIPLE * even ? plain : perRead;
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
