/**
 * Which value conditions fix a column of a row to. Tables that are on several servers are asked on one of them only if the planner
 * sees a value for the column that says on which: behind a page, which has a limit, it does not find that value by itself.
 */
import type { Field } from '../mirror/model.js';
import { type Condition, type ToOneJoin, typedValue } from '../plan/plan.js';
import { type Fragment, parameter, sql } from '../sql/fragment.js';
import { typeName } from './identifiers.js';
import { keyParameters } from './key-columns.js';

/** The column of the row itself that has the value of the field: a reference has that of what it refers to. */
function heldBy(through: readonly ToOneJoin[], field: Field): Field | undefined {
  const [toOne, ...others] = through;
  if (!toOne) return field;
  if (toOne.kind !== 'one' || others.length > 0) return undefined;
  const own = toOne.columns[toOne.key.findIndex(({ name }) => name === field.name)];
  return own?.column?.base_type === field.column?.base_type ? own : undefined;
}

/** Null where the condition does not fix it, or to more than one value. It names no row, so it can stand anywhere in the statement. */
export function fixedBy(condition: Condition, name: string): Fragment | null {
  switch (condition.kind) {
    case 'and': {
      for (const each of condition.conditions) {
        const value = fixedBy(each, name);
        if (value) return value;
      }
      return null;
    }
    case 'rule':
      return fixedBy(condition.rule, name);
    case 'key': {
      const { key, slot, many, filter } = condition;
      if (many || (filter && (filter.negated || filter.through.length > 0))) return null;
      const position = key.findIndex((field) => field.name === name);
      return keyParameters(key, slot, 'value', filter ? 'filter' : 'key')[position] ?? null;
    }
    case 'compare': {
      const { operand, operator, value } = condition;
      if (operator !== 'eq' || value?.kind !== 'slot' || value.operator !== undefined) return null;
      if (operand.kind !== 'field' || heldBy(operand.through, operand.field)?.name !== name) return null;
      return sql`${parameter({ kind: 'value', ...typedValue(value) })}::${typeName(operand.field)}`;
    }
    default:
      return null;
  }
}
