/**
 * Which reads may want different plans for different values: those whose pages are filtered by values. A read by key is not one
 * of them, whatever is nested below it. `selectivity` estimates the share of rows that the values of one request select.
 */

import type { Collection } from '../../compiler/model/model.js';
import { isMaskedOperand, restrictionOf } from '../../compiler/plan/access.js';
import {
  both,
  type Condition,
  type Level,
  type OperandPlan,
  type OperationPlan,
  type Output,
  type ReadPlan,
  type RowLevel,
  type ValuePlan,
} from '../../compiler/plan/plan.js';
import type { TableStatistics } from './column-statistics.js';

export interface UnevenRead {
  /** The only page that values filter: then they are distinguished by how many rows match. It is null if there are several. */
  readonly page: UnevenPage | null;
  /** The collections whose pages they are. */
  readonly collections: readonly Collection[];
}

export interface UnevenPage {
  readonly level: RowLevel;
  /** The condition of its rows, including permission rules. */
  readonly where: Condition;
  /** Whether fields that the request compares may be hidden from the caller: then a value leaves fewer rows than have it. */
  readonly isMasked: boolean;
}

/** Returns null if one plan is right for all values. */
export function unevenRead(plan: ReadPlan | OperationPlan): UnevenRead | null {
  const reads = plan.kind === 'read' ? [plan] : plan.parts.flatMap((part) => (part.kind === 'read' ? [part.plan] : []));
  const roots = reads.map(({ level }) => level).filter((level) => isFiltered(level));
  const nested = reads.flatMap(({ level }) => levelsBelow(level)).filter(({ where }) => dependsOnRequest(where));
  if (roots.length + nested.length === 0) return null;
  const collections = [...roots, ...nested].map(({ collection }) => collection);
  const [root] = roots;
  const isOnly = roots.length === 1 && nested.length === 0;
  if (!isOnly || root?.kind !== 'rows' || root.limit.kind === 'all' || root.order.length === 0)
    return { page: null, collections };
  const isMasked = comparesMasked(root.where, root.collection);
  return { page: { level: root, where: conditionOf(root), isMasked }, collections };
}

/** The same plan, in which the rows of the page are found before they are put in order. */
export function fencedRead<Plan extends ReadPlan | OperationPlan>(plan: Plan, page: RowLevel): Plan {
  if (plan.kind === 'read') return plan.level === page ? { ...plan, level: { ...page, fenced: true } } : plan;
  const parts = plan.parts.map((part) =>
    part.kind === 'read' ? { ...part, plan: fencedRead(part.plan, page) } : part,
  );
  return { ...plan, parts };
}

function isFiltered(level: Level): boolean {
  if (level.where.kind === 'key' && !level.where.many) return false;
  return (level.kind === 'rows' && level.after !== null) || holdsValues(conditionOf(level));
}

function conditionOf({ collection, where }: Level): Condition {
  const restriction = restrictionOf(collection);
  return restriction ? both(where, restriction.rows) : where;
}

/** A constant of a rule counts where statistics estimate it; others are the same for every request of the shape. */
function holdsValues(condition: Condition): boolean {
  switch (condition.kind) {
    case 'and':
    case 'or':
      return condition.conditions.some(holdsValues);
    case 'compare':
      return condition.value !== null && (estimatedColumn(condition.operand) !== null || dependsOnRequest(condition));
    case 'rule':
      return holdsValues(condition.rule);
    default:
      return dependsOnRequest(condition);
  }
}

function comparesMasked(condition: Condition, collection: Collection): boolean {
  switch (condition.kind) {
    case 'and':
    case 'or':
      return condition.conditions.some((each) => comparesMasked(each, collection));
    case 'compare':
      return isMaskedOperand(collection, condition.operand);
    case 'rule':
      return false;
    case 'key':
      return condition.filter !== undefined && (restrictionOf(collection)?.masks.size ?? 0) > 0;
    default:
      return (restrictionOf(collection)?.masks.size ?? 0) > 0;
  }
}

function levelsBelow(level: Level): Level[] {
  return level.kind === 'rows' ? level.outputs.flatMap(levelsOf) : [];
}

function levelsOf(output: Output): Level[] {
  switch (output.kind) {
    case 'object':
      return output.outputs.flatMap(levelsOf);
    case 'one':
    case 'many':
    case 'keys':
      return [output.level, ...levelsBelow(output.level)];
    case 'any':
      return output.targets.flatMap(({ level }) => [level, ...levelsBelow(level)]);
    default:
      return [];
  }
}

/** Conditions are frozen and belong to a shape: found out once, not with each request. */
const depending = new WeakMap<Condition, boolean>();

/** Whether the condition may differ between requests of one shape. A rule with constants alone does not. */
function dependsOnRequest(condition: Condition): boolean {
  const cached = depending.get(condition);
  if (cached !== undefined) return cached;
  const depends = readsRequestValues(condition);
  depending.set(condition, depends);
  return depends;
}

function readsRequestValues(condition: Condition): boolean {
  switch (condition.kind) {
    case 'and':
    case 'or':
      return condition.conditions.some(dependsOnRequest);
    case 'key':
      return condition.filter !== undefined;
    case 'reference':
      return condition.keyParameter !== null && !isConstantSlot(condition.keyParameter.slot);
    case 'compare':
      return condition.value !== null && !isConstant(condition.value);
    case 'exists':
      return dependsOnRequest(condition.where);
    case 'rule':
      return dependsOnRequest(condition.rule);
    default:
      return true;
  }
}

/** Variables such as `$NOW` are not constants: their values differ by caller or time. */
function isConstant(value: ValuePlan): boolean {
  return value.kind === 'slot' && isConstantSlot(value.slot);
}

function isConstantSlot(slot: Slot): boolean {
  if (typeof slot === 'number') return false;
  const { constant } = slot;
  const entries: readonly unknown[] = Array.isArray(constant) ? constant : [constant];
  return entries.every((entry) => typeof entry !== 'object' || entry === null || !('variable' in entry));
}

/** The column of an operand that is a plain column of the row, else null. */
export function estimatedColumn(operand: OperandPlan): { readonly name: string; readonly base_type: string } | null {
  return operand.kind === 'field' && operand.through.length === 0 ? operand.field.column : null;
}

/** A value of a request as it is bound: by its slot, and of a list its entries. Undefined if there is none. */
export interface BoundValues {
  value(slot: Slot): string | null | undefined;
  list(slot: Slot): readonly (string | null)[] | undefined;
  entry(slot: Slot, position: number): string | null | undefined;
}

type Slot = Extract<ValuePlan, { kind: 'slot' }>['slot'];

interface Selectivity {
  /** An upper bound for the share of rows. */
  readonly share: number;
  /** Whether every condition could be estimated. */
  readonly isKnown: boolean;
}

const UNKNOWN: Selectivity = { share: 1, isKnown: false };
const ALL: Selectivity = { share: 1, isKnown: true };

/** Conditions that must all hold are treated as independent, as PostgreSQL's planner does. */
export function selectivity(condition: Condition, statistics: TableStatistics, values: BoundValues): Selectivity {
  const estimated = estimate(condition, statistics, values);
  // A condition that is the same for all requests of a shape does not distinguish them.
  return estimated.isKnown || dependsOnRequest(condition) ? estimated : ALL;
}

function estimate(condition: Condition, statistics: TableStatistics, values: BoundValues): Selectivity {
  switch (condition.kind) {
    case 'and': {
      let [share, isKnown] = [1, true];
      for (const each of condition.conditions) {
        const part = selectivity(each, statistics, values);
        share *= part.share;
        isKnown &&= part.isKnown;
      }
      return { share, isKnown };
    }
    case 'or': {
      let share = 0;
      for (const each of condition.conditions) {
        const part = selectivity(each, statistics, values);
        if (!part.isKnown) return UNKNOWN;
        share += part.share;
      }
      return { share: Math.min(1, share), isKnown: true };
    }
    case 'rule':
      return selectivity(condition.rule, statistics, values);
    case 'key': {
      if (condition.filter) return UNKNOWN;
      const count = condition.many ? values.list(condition.slot)?.length : 1;
      return count === undefined ? UNKNOWN : { share: count / Math.max(1, statistics.rows), isKnown: true };
    }
    case 'compare': {
      const share = comparedShare(condition, statistics, values);
      return share === null ? UNKNOWN : { share: Math.min(1, Math.max(0, share)), isKnown: true };
    }
    default:
      return UNKNOWN;
  }
}

function comparedShare(
  { operand, operator, value }: Extract<Condition, { kind: 'compare' }>,
  statistics: TableStatistics,
  values: BoundValues,
): number | null {
  const column = estimatedColumn(operand);
  const statisticsOfColumn = column && statistics.column(column.name);
  if (!statisticsOfColumn) return null;
  const type = column.base_type;
  if (operator === 'null') return statisticsOfColumn.nullShare;
  if (operator === 'nnull') return 1 - statisticsOfColumn.nullShare;
  if (value?.kind !== 'slot') return null;
  if (operator === 'in') {
    let sum = 0;
    for (const entry of new Set(values.list(value.slot) ?? [null])) {
      const share = entry === null ? null : statisticsOfColumn.equal(entry, type);
      if (share === null) return null;
      sum += share;
    }
    return sum;
  }
  const below = (text: string | null | undefined): number | null =>
    text === null || text === undefined ? null : statisticsOfColumn.below(text, type);
  if (operator === 'between') {
    const [from, to] = [below(values.entry(value.slot, 0)), below(values.entry(value.slot, 1))];
    return from === null || to === null ? null : to - from;
  }
  const text = values.value(value.slot);
  if (text === null || text === undefined) return null;
  switch (operator) {
    case 'eq':
      return statisticsOfColumn.equal(text, type);
    case 'neq': {
      const share = statisticsOfColumn.equal(text, type);
      return share === null ? null : 1 - share - statisticsOfColumn.nullShare;
    }
    case 'lt':
    case 'lte':
      return below(text);
    case 'gt':
    case 'gte': {
      const share = below(text);
      return share === null ? null : 1 - share - statisticsOfColumn.nullShare;
    }
    default:
      return null;
  }
}
