/**
 * Which plan a read gets. Most shapes have one plan for all values. If the values of a filter are uneven, the plan depends on the number of
 * rows that match: for common values PostgreSQL follows the index of the sort order, for rare ones it finds the rows first
 * (`fenced`), and for the rest it plans each read. Whether a shape is uneven is found out once, in the background, from its
 * generic plan and from the statistics of its columns, and again when statistics change. See docs/decisions/plans-per-value.md.
 */
import { oneStep } from '../../base/time-slices.js';
import { compileRead } from '../../compiler/compile/read.js';
import type { Condition } from '../../compiler/plan/plan.js';
import type { Statement } from '../../compiler/sql/fragment.js';
import type { Parameter, Slot } from '../../compiler/sql/parameter.js';
import { qualified } from '../../compiler/statements/used-tables.js';
import type { BilledCaller, CallerBudgets } from '../../server/execute/caller-budget.js';
import { type CompiledRead, factOf } from '../../server/execute/reads/compiled-read.js';
import {
  type BoundRead,
  type BoundTexts,
  NO_ADDRESS,
  type ReadExecutor,
  type ReadListener,
  type Shape,
} from '../../server/execute/reads/read-executor.js';
import { ReadLayer } from '../../server/execute/reads/read-layer.js';
import { explainGeneric, findsByIndex, type PlanNode, stretchOf } from '../../server/postgres/generic-plan.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { TableStatistics } from './column-statistics.js';
import { Statistics } from './statistics.js';
import {
  type BoundValues,
  estimatedColumn,
  fencedRead,
  selectivity,
  type UnevenPage,
  type UnevenRead,
  unevenRead,
} from './uneven.js';

/** The choice for a shape, and the version of the statistics that it was made with. */
interface Choice {
  readonly shapeFor: (values: BoundTexts) => Shape;
  readonly version: number;
}

/** Why its values may need different plans, or null if one plan serves all. PostgreSQL has no statistics of the rows that a function returns. */
export const unevenOf = factOf<UnevenRead | null>(({ plan, calls }) => (calls.length > 0 ? null : unevenRead(plan)));

/** Milliseconds between a failed EXPLAIN of a shape and the next attempt. */
const RETRY_MS = 1_000;

export class PlanChoices extends ReadLayer {
  readonly statistics: Statistics;
  readonly #choices = new WeakMap<CompiledRead, Choice>();
  /** Statements of shapes without a choice yet. They are not prepared, so PostgreSQL plans them for their values. */
  readonly #unprepared = new WeakMap<CompiledRead, Shape>();
  readonly #pending = new WeakSet<CompiledRead>();
  /** Shapes are explained one after the other: it is not urgent. */
  #last: Promise<void> = Promise.resolve();

  constructor(
    next: ReadExecutor,
    private readonly database: Database,
    private readonly budgets: CallerBudgets,
    statisticsIntervalMs: number,
  ) {
    super(next);
    this.statistics = new Statistics(database, statisticsIntervalMs);
  }

  execute(read: BoundRead, listener: ReadListener): void {
    const { compiled, parameters, prepare, caller } = read;
    read.shape = this.shapeOf(compiled, parameters, prepare ? { caller, from: NO_ADDRESS } : null);
    this.next.execute(read, listener);
  }

  /** Until the choice is made, the read is planned for its values. */
  override shapeOf(shape: CompiledRead, values: BoundTexts, billed: BilledCaller | null): Shape {
    const uneven = unevenOf(shape);
    if (uneven === null) return shape;
    const choice = this.#choices.get(shape);
    if (choice?.version !== this.statistics.version && billed && !this.#pending.has(shape))
      this.#decide(shape, uneven, billed);
    return choice ? choice.shapeFor(values) : this.#undecided(shape);
  }

  override async settledShapeOf(shape: CompiledRead, values: BoundTexts, billed: BilledCaller): Promise<Shape> {
    if (unevenOf(shape) === null) return shape;
    this.shapeOf(shape, values, billed);
    await this.#last;
    return this.shapeOf(shape, values, null);
  }

  override hasOnePlan(compiled: CompiledRead): boolean {
    return unevenOf(compiled) === null;
  }

  override chooseAgain(): void {
    this.statistics.version++;
  }

  #decide(shape: CompiledRead, uneven: UnevenRead, billed: BilledCaller): void {
    this.#pending.add(shape);
    this.#last = this.#last.then(async () => {
      try {
        const { version } = this.statistics;
        this.#choices.set(shape, { shapeFor: await this.#choose(shape, uneven, billed), version });
        this.#pending.delete(shape);
      } catch {
        // Requests report the failure themselves. Without a choice each of them is planned for its values.
        setTimeout(() => this.#pending.delete(shape), RETRY_MS).unref();
      }
    });
  }

  async #choose(shape: CompiledRead, uneven: UnevenRead, billed: BilledCaller): Promise<Choice['shapeFor']> {
    const { statement } = shape;
    await this.statistics.load(uneven.collections);
    if (uneven.collections.every((collection) => this.statistics.of(collection)?.isSmall)) return () => shape;
    const plan = await explainGeneric(this.database, statement);
    const statistics = uneven.page && this.statistics.of(uneven.page.level.collection);
    const risk = riskOf(plan, uneven.page, statistics);
    if (risk === null) return () => shape;
    // Each strategy is a shape with its own queue, so a batch never mixes them.
    const perRead: Shape = { statement, result: shape.result, isPlannedPerRead: true };
    if (risk === 'heavy' || !uneven.page || !statistics || statistics.rows < 0) return () => perRead;
    const estimate = rowEstimate(uneven.page, statistics, statement.parameters);
    if (risk === 'hub')
      return (values) => {
        const { rows, isExact } = estimate(values);
        return isExact && rows < HUB_ROWS ? shape : perRead;
      };
    const fenced = (await this.#fenced(shape, uneven.page, billed)) ?? perRead;
    return (values) => {
      const { rows, isExact, even } = estimate(values);
      if (rows < even) return fenced;
      return isExact && rows >= COMMON_MULTIPLE * even ? shape : perRead;
    };
  }

  async #fenced(shape: CompiledRead, page: UnevenPage, billed: BilledCaller): Promise<Shape | null> {
    const { length } = shape.statement.text;
    const fenced = await this.budgets.inTurn(billed, length, () => oneStep(() => compileFenced(shape, page)));
    if (!fenced) return null;
    const isServedByIndex = findsByIndex(await explainGeneric(this.database, fenced.statement));
    if (isServedByIndex) return fenced;
    const { statement, result, plan } = fenced;
    return { statement, result, isFenced: true, isPlannedPerRead: true, linkedPlan: plan };
  }

  #undecided(shape: CompiledRead): Shape {
    const existing = this.#unprepared.get(shape);
    if (existing) return existing;
    const { statement, result } = shape;
    const unprepared: Shape = { statement, result, isUnprepared: true };
    this.#unprepared.set(shape, unprepared);
    return unprepared;
  }
}

/** The read in a form that selects the rows before it sorts them, with the same parameters; null if it has no such form. */
function compileFenced({ plan, statement, result, model }: CompiledRead, { level }: UnevenPage): FencedRead | null {
  if (level.locked) return null;
  const fenced = fencedRead(plan, level);
  const compiled = qualified(compileRead(fenced), 'read', model);
  if (JSON.stringify(compiled.parameters) !== JSON.stringify(statement.parameters)) return null;
  return { statement: compiled, result, isFenced: true, plan: fenced, model };
}

interface FencedRead extends Shape {
  readonly plan: NonNullable<Shape['plan']>;
  readonly statement: Statement;
  readonly result: string;
}

/** Limits in the planner's cost units, of which PostgreSQL works off 100 to 280 per millisecond. */
const MAX_STRETCH = 2_000;
const HEAVY_COST = 10_000;

/** Rows of a value that are too many to collect. */
const HUB_ROWS = 10_000;
/** A value is a hub if this many times more rows have it than the planner expects of any value. */
const HUB_MULTIPLE = 20;

/** Why one plan may be wrong for some values of a shape; null if no reason is known. */
type Risk =
  /** The plan reads rows in the sort order, and expects to find enough that match the filter. */
  | 'walk'
  /** The plan collects all rows that match, and one value has very many. */
  | 'hub'
  /** The plan takes so long that planning it for each value costs nothing in comparison. */
  | 'heavy'
  | null;

function riskOf(plan: PlanNode, page: UnevenPage | null, statistics: TableStatistics | null): Risk {
  if (stretchOf(plan) > MAX_STRETCH) return 'walk';
  if (page && statistics && hasHub(page.where, statistics)) return 'hub';
  return plan['Total Cost'] > HEAVY_COST ? 'heavy' : null;
}

/** For these operators the planner assumes few rows as long as it does not know the value. */
const UNDERESTIMATED = /^(between|i?(contains|starts_with|ends_with))$/;

/** Whether a value of the filter may have very many rows, far more than the planner expects. */
function hasHub(where: Condition, statistics: TableStatistics): boolean {
  if (statistics.rows < HUB_ROWS) return false;
  return comparisons(where).some(({ operand, operator }) => {
    if (UNDERESTIMATED.test(operator)) return true;
    if (operator !== 'eq' && operator !== 'in') return false;
    const column = statistics.column(estimatedColumn(operand)?.name ?? '');
    const largest = (column?.largestShare ?? 0) * statistics.rows;
    return largest > HUB_ROWS && largest > HUB_MULTIPLE * Math.max(1, (column?.otherShare ?? 1) * statistics.rows);
  });
}

/** Comparisons that must all hold. */
function comparisons(condition: Condition): Extract<Condition, { kind: 'compare' }>[] {
  if (condition.kind === 'and') return condition.conditions.flatMap(comparisons);
  if (condition.kind === 'rule') return comparisons(condition.rule);
  return condition.kind === 'compare' ? [condition] : [];
}

/** Below `even` rows a fence is cheaper, above this multiple of it the sort order. In between the planner decides. */
const COMMON_MULTIPLE = 4;

interface RowEstimate {
  /** The number of rows that match, at most if it is not exact. */
  readonly rows: number;
  readonly isExact: boolean;
  /** The number of matching rows for which following the order and collecting cost the same. */
  readonly even: number;
}

function rowEstimate(
  { level, where, isMasked }: UnevenPage,
  statistics: TableStatistics,
  parameters: readonly Parameter[],
): (values: BoundTexts) => RowEstimate {
  const bound = new BoundParameters(parameters);
  return (values) => {
    bound.bind(values);
    const { share, isKnown } = selectivity(where, statistics, bound);
    // Rows that the page takes from the order, including those that it skips.
    const needed =
      (level.offset ? bound.skipped : 0) + (level.limit.kind === 'constant' ? level.limit.value : bound.limit);
    // Measured: half of the geometric mean of the rows that are needed and those that exist.
    const even = 0.5 * Math.sqrt(Math.max(1, needed) * statistics.rows);
    return { rows: share * statistics.rows, isExact: isKnown && !isMasked, even };
  };
}

/** A list with more entries is not estimated. */
const MAX_ENTRIES = 200;

/** The bound values of a read, by the slots of the request that they come from. One object serves all reads of a shape. */
class BoundParameters implements BoundValues {
  readonly #positions = new Map<string, number>();
  readonly #limit: number;
  readonly #offset: number;
  #values: BoundTexts = [];

  constructor(parameters: readonly Parameter[]) {
    parameters.forEach((parameter, position) => {
      if (parameter.kind === 'value' || parameter.kind === 'list')
        this.#positions.set(positionKey(parameter.kind, parameter.slot), position);
      if (parameter.kind === 'entry')
        this.#positions.set(positionKey(`entry ${parameter.position}`, parameter.slot), position);
    });
    this.#limit = parameters.findIndex(({ kind }) => kind === 'limit');
    this.#offset = parameters.findIndex(({ kind }) => kind === 'offset' || kind === 'page');
  }

  bind(values: BoundTexts): void {
    this.#values = values;
  }

  get limit(): number {
    return Number(this.#values[this.#limit] ?? 0);
  }

  get skipped(): number {
    return Number(this.#values[this.#offset] ?? 0);
  }

  value(slot: Slot): string | null | undefined {
    return this.#at(positionKey('value', slot));
  }

  entry(slot: Slot, position: number): string | null | undefined {
    return this.#at(positionKey(`entry ${position}`, slot));
  }

  list(slot: Slot): readonly (string | null)[] | undefined {
    const text = this.#at(positionKey('list', slot));
    if (text === null || text === undefined) return undefined;
    const entries: (string | null)[] = [];
    for (const [entry, quoted] of text.matchAll(/"((?:[^"\\]|\\.)*)"|NULL/gs)) {
      if (entries.length === MAX_ENTRIES) return undefined;
      entries.push(entry === 'NULL' ? null : (quoted ?? '').replace(/\\(.)/gs, '$1'));
    }
    return entries;
  }

  #at(key: string): string | null | undefined {
    const position = this.#positions.get(key);
    return position === undefined ? undefined : this.#values[position];
  }
}

function positionKey(kind: string, slot: Slot): string {
  return typeof slot === 'number' ? `${kind} ${slot}` : `${kind} ${JSON.stringify(slot)}`;
}
