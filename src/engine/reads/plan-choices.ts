/**
 * Finds out, once per shape and in the background, whether one plan serves all of its values: from the plan that PostgreSQL would
 * make, and from what it knows of the columns. Again when statistics have changed.
 */

import { oneStep } from '../../base/time-slices.js';
import type { Shape } from '../../batching/shape-queue.js';
import type { Condition } from '../../plan/plan.js';
import { estimatedColumn } from '../../plan/selectivity.js';
import type { UnevenPage, UnevenRead } from '../../plan/uneven.js';
import { Statistics } from '../../postgres/catalog/statistics-reader.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Statement } from '../../sql/fragment.js';
import type { BilledCaller, CallerBudgets } from '../caller-budget.js';
import { explainGeneric, findsByIndex, stretchOf } from './generic-plan.js';
import { HUB_ROWS, PlanChoice, type PlanVariants, type Risk } from './plan-choice.js';

/** Costs of PostgreSQL's planner: 100 to 280 of them take a millisecond. */
const MAX_STRETCH = 2_000;
const HEAVY_COST = 10_000;
/** A value is a hub if so many times more rows have it than the planner expects of any. */
const HUB_MULTIPLE = 20;

/** A shape whose values may be uneven, and what was found out about it. */
export interface UnevenShape extends Shape {
  readonly statement: Statement;
  readonly result: string;
  readonly uneven: UnevenRead;
  /** The same read with its rows found before they are put in order; null where it cannot be compiled. */
  readonly fenced: () => (Shape & { readonly statement: Statement }) | null;
}

/** What was found out about a shape; null for that all values want the same plan. */
interface Verdict {
  readonly choice: PlanChoice | null;
  /** Of the statistics. */
  version: number;
}

/** Milliseconds before a shape that could not be explained is tried again. */
const RETRY_MS = 1_000;

export class PlanChoices {
  readonly statistics: Statistics;
  readonly #database: Database;
  readonly #verdicts = new WeakMap<UnevenShape, Verdict>();
  /** The same, each read by itself. */
  readonly #singles = new WeakMap<UnevenShape, Shape>();
  readonly #pending = new WeakSet<UnevenShape>();
  /** One after the other: it is not urgent. */
  #last: Promise<void> = Promise.resolve();

  readonly #budgets: CallerBudgets;

  constructor(database: Database, budgets: CallerBudgets, statisticsIntervalMs: number) {
    this.#database = database;
    this.#budgets = budgets;
    this.statistics = new Statistics(database, statisticsIntervalMs);
  }

  /**
   * The way in which a read is sent; until more is known, by itself and planned for its values. What is compiled to know more is
   * counted against the caller: null where nothing is to be found out.
   */
  shapeFor(shape: UnevenShape, values: readonly (string | null)[], billed: BilledCaller | null): Shape {
    const verdict = this.#verdicts.get(shape);
    if (verdict?.version !== this.statistics.version && billed && !this.#pending.has(shape))
      this.#decide(shape, billed);
    if (!verdict) return this.#single(shape);
    return verdict.choice === null ? shape : verdict.choice.shapeFor(values);
  }

  #decide(shape: UnevenShape, billed: BilledCaller): void {
    this.#pending.add(shape);
    this.#last = this.#last.then(async () => {
      try {
        const { version } = this.statistics;
        this.#verdicts.set(shape, { choice: await this.#choiceOf(shape, billed), version });
        this.#pending.delete(shape);
      } catch {
        // Requests report the failure themselves; without a verdict each of them is planned for its values.
        setTimeout(() => this.#pending.delete(shape), RETRY_MS).unref();
      }
    });
  }

  async #choiceOf(shape: UnevenShape, billed: BilledCaller): Promise<PlanChoice | null> {
    const { uneven, statement } = shape;
    await this.statistics.load(uneven.collections);
    if (uneven.collections.every((collection) => this.statistics.of(collection)?.isSmall)) return null;
    const plan = await explainGeneric(this.#database, statement);
    const risk =
      stretchOf(plan) > MAX_STRETCH
        ? 'walk'
        : this.#hasHub(uneven.page)
          ? 'hub'
          : plan['Total Cost'] > HEAVY_COST
            ? 'heavy'
            : null;
    if (risk === null) return null;
    const statistics = uneven.page && this.statistics.of(uneven.page.level.collection);
    const variants = await this.#variantsOf(shape, risk, billed);
    return new PlanChoice(risk, uneven.page, statistics, statement.parameters, variants);
  }

  async #variantsOf(shape: UnevenShape, risk: Risk, billed: BilledCaller): Promise<PlanVariants> {
    const { statement, result } = shape;
    const perRead: Shape = { statement, result, batchText: unbatched, isPlannedPerRead: true };
    const plain: Shape = { statement, result, batchText: shape.batchText };
    const { length } = statement.text;
    const fence =
      risk === 'walk' ? await this.#budgets.inTurn(billed, length, () => oneStep(() => shape.fenced())) : null;
    if (!fence) return { plain, perRead, fenced: null };
    const fencedPerRead: Shape = { ...fence, batchText: unbatched, isPlannedPerRead: true };
    const isPlain = findsByIndex(await explainGeneric(this.#database, fence.statement));
    return { plain, perRead, fenced: isPlain ? fence : fencedPerRead };
  }

  #single(shape: UnevenShape): Shape {
    const existing = this.#singles.get(shape);
    if (existing) return existing;
    const { statement, result } = shape;
    const single: Shape = { statement, result, batchText: unbatched, isUnprepared: true };
    this.#singles.set(shape, single);
    return single;
  }

  /** Whether a value that a page is filtered by may have very many rows, far more than the planner expects. */
  #hasHub(page: UnevenPage | null): boolean {
    const statistics = page && this.statistics.of(page.level.collection);
    if (!statistics || statistics.rows < HUB_ROWS) return false;
    return comparisons(page.where).some(({ operand, operator }) => {
      if (UNDERESTIMATED.test(operator)) return true;
      if (operator !== 'eq' && operator !== 'in') return false;
      const column = statistics.column(estimatedColumn(operand)?.name ?? '');
      const largest = (column?.largestShare ?? 0) * statistics.rows;
      return largest > HUB_ROWS && largest > HUB_MULTIPLE * Math.max(1, (column?.otherShare ?? 1) * statistics.rows);
    });
  }
}

/** Of these the planner assumes that few rows meet them, as long as it does not know the value. */
const UNDERESTIMATED = /^(between|i?(contains|starts_with|ends_with))$/;

function unbatched(): string {
  return '';
}

/** Comparisons that must all hold. */
function comparisons(condition: Condition): Extract<Condition, { kind: 'compare' }>[] {
  if (condition.kind === 'and') return condition.conditions.flatMap(comparisons);
  if (condition.kind === 'rule') return comparisons(condition.rule);
  return condition.kind === 'compare' ? [condition] : [];
}
