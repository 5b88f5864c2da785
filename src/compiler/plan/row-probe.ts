/**
 * By which values rows take part in the answer of a read. Where a plan says that a column equals a value, a row with another
 * value in it, before and after a change, cannot change the answer.
 */
import type { Field } from '../model/model.js';
import type { Slot } from '../sql/parameter.js';
import { restrictionOf } from './access.js';
import type { Condition, Level, OperationPlan, ReadPlan } from './plan.js';

export interface RowProbe {
  readonly schema: string;
  readonly table: string;
  readonly columns: readonly ProbedColumn[];
  /** Whether the caller may see only some rows of the table. */
  readonly isRestricted: boolean;
}

interface ProbedColumn {
  readonly name: string;
  readonly kind: ProbedKind;
  readonly slot: Slot;
  /** Which part is meant of a key of several columns. */
  readonly part: { readonly position: number; readonly count: number } | null;
}

/** Types of which equal values have one text, once it is normalized. */
export type ProbedKind = 'integer' | 'uuid';

const KINDS: Readonly<Record<string, ProbedKind>> = {
  int2: 'integer',
  int4: 'integer',
  int8: 'integer',
  uuid: 'uuid',
};

/** Returns null if any row may take part. The key comes first: for an update its old value is always known. */
export function rowProbe(plan: ReadPlan | OperationPlan): RowProbe | null {
  const level = levelOf(plan);
  if (level === null) return null;
  const { collection } = level;
  const rules = restrictionOf(collection)?.rows;
  const conditions = [...conjunctsOf(level.where), ...(rules ? conjunctsOf(rules) : [])];
  const found = conditions.map(columnsOf).filter((columns) => columns !== null);
  const columns = found.find(({ isKey }) => isKey)?.columns ?? found[0]?.columns;
  if (!columns) return null;
  return { schema: collection.schema, table: collection.table, columns, isRestricted: Boolean(rules) };
}

/** The level of the only read, or null: counts next to it do not follow its conditions. */
function levelOf(plan: ReadPlan | OperationPlan): Level | null {
  if (plan.kind === 'read') return plan.meta.length === 0 && !plan.cursor ? plan.level : null;
  const [part, ...others] = plan.parts;
  return part?.kind === 'read' && others.length === 0 ? levelOf(part.plan) : null;
}

function conjunctsOf(condition: Condition): readonly Condition[] {
  if (condition.kind === 'and') return condition.conditions.flatMap(conjunctsOf);
  return condition.kind === 'rule' ? conjunctsOf(condition.rule) : [condition];
}

interface FoundColumns {
  readonly columns: readonly ProbedColumn[];
  readonly isKey: boolean;
}

function columnsOf(condition: Condition): FoundColumns | null {
  if (condition.kind === 'key') {
    const { key, slot, many, filter } = condition;
    if (many || (filter && (filter.negated || filter.through.length > 0))) return null;
    const columns = key.map((field, position) =>
      probed(field, slot, key.length > 1 ? { position, count: key.length } : null),
    );
    return columns.every((column) => column !== null) ? { columns, isKey: true } : null;
  }
  if (condition.kind !== 'compare' || condition.operator !== 'eq' || condition.value?.kind !== 'slot') return null;
  const { operand, value } = condition;
  if (operand.kind !== 'field' || operand.through.length > 0) return null;
  const column = probed(operand.field, value.slot, null);
  return column && { columns: [column], isKey: operand.field.column?.is_primary_key === true };
}

function probed(field: Field, slot: Slot, part: ProbedColumn['part']): ProbedColumn | null {
  const kind = probedKind(field);
  return field.column && kind ? { name: field.column.name, kind, slot, part } : null;
}

/** Returns undefined if equal values of the field may have different texts. */
export function probedKind({ column, computed }: Field): ProbedKind | undefined {
  return column && !computed && !column.is_array ? KINDS[column.base_type] : undefined;
}
