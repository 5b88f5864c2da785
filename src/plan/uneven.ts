/**
 * Which reads may want different plans for different values: those whose pages are filtered by values. A read by key is not one
 * of them, whatever is nested below it.
 */
import type { Collection } from '../mirror/model.js';
import { isMaskedOperand, restrictionOf } from './access.js';
import {
  both,
  type Condition,
  type Level,
  type OperationPlan,
  type Output,
  type ReadPlan,
  type RowLevel,
} from './plan.js';
import { dependsOnRequest, estimatedColumn } from './selectivity.js';

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
