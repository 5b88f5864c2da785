/** Estimates the share of rows that meet the conditions of a page, from the values of a request and column statistics. */
import type { TableStatistics } from '../mirror/column-statistics.js';
import type { Condition, OperandPlan, ValuePlan } from './plan.js';

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

/** Conditions are frozen and belong to a shape: found out once, not with each request. */
const depending = new WeakMap<Condition, boolean>();

/** Whether the condition may differ between requests of one shape. A rule with constants alone does not. */
export function dependsOnRequest(condition: Condition): boolean {
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

/** Variables are the caller's, or the time's. */
function isConstant(value: ValuePlan): boolean {
  return value.kind === 'slot' && isConstantSlot(value.slot);
}

function isConstantSlot(slot: Slot): boolean {
  if (typeof slot === 'number') return false;
  const { constant } = slot;
  const entries: readonly unknown[] = Array.isArray(constant) ? constant : [constant];
  return entries.every((entry) => typeof entry !== 'object' || entry === null || !('variable' in entry));
}

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

/** The column of an operand that is a plain column of the row, else null. */
export function estimatedColumn(operand: OperandPlan): { readonly name: string; readonly base_type: string } | null {
  return operand.kind === 'field' && operand.through.length === 0 ? operand.field.column : null;
}
