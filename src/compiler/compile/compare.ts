/**
 * Comparisons by the operators of a column's type. Types of PostgreSQL, and those made of them (enums, domains, arrays, ranges,
 * composites), are compared by its own operators; base types of an extension, such as `citext`, by operators of its schema.
 */

import { elementAt, onlyOf } from '../../base/narrow.js';
import type { Field } from '../model/model.js';
import type { OperandPlan } from '../plan/plan.js';
import { type Fragment, join, operatorIn, sql } from '../sql/fragment.js';

const CATALOG = 'pg_catalog';

/** The schema of the operators for values of the field. */
export function operatorSchema({ column }: Field): string {
  if (!column || column.is_array || column.enum_values || column.composite || column.inner) return CATALOG;
  return column.base_schema;
}

export function operatorOf(field: Field, symbol: string): Fragment {
  return operatorIn(operatorSchema(field), symbol);
}

/** An operand that is no column has a type of PostgreSQL. */
export function operandOperator(operand: OperandPlan, symbol: string): Fragment {
  return operatorIn(operandSchema(operand), symbol);
}

export function operandSchema(operand: OperandPlan): string {
  const field = comparedField(operand);
  return field ? operatorSchema(field) : CATALOG;
}

/** The field whose type the operand has, or null if it has a type of PostgreSQL. */
export function comparedField(operand: OperandPlan): Field | null {
  switch (operand.kind) {
    case 'field':
    case 'key':
      return operand.field;
    case 'first':
      return comparedField(operand.operand);
    case 'aggregate':
      return /^(min|max)$/.test(operand.aggregate.function) && operand.aggregate.operand
        ? comparedField(operand.aggregate.operand)
        : null;
    default:
      return null;
  }
}

/** The operator for values of two columns: where their types differ, both become types of PostgreSQL. */
function equalityOf(field: Field, other: Field): Fragment {
  const schema = operatorSchema(field);
  return operatorIn(schema === operatorSchema(other) ? schema : CATALOG, '=');
}

/** Compares column by column. `fields` have the types of both sides, unless those of the other side are given. */
export function areEqual(
  left: readonly Fragment[],
  right: readonly Fragment[],
  fields: readonly Field[],
  others: readonly Field[] = fields,
): Fragment {
  return join(
    left.map((each, position) => {
      const equals = equalityOf(elementAt(fields, position), elementAt(others, position));
      return sql`${each} ${equals} ${elementAt(right, position)}`;
    }),
    sql` and `,
  );
}

/** The same, with nulls that equal each other in columns that may be null. An index can find the rows, unlike by `is not distinct from`. */
export function areSame(left: readonly Fragment[], right: readonly Fragment[], fields: readonly Field[]): Fragment {
  return join(
    fields.map((field, position) => {
      const [one, other] = [elementAt(left, position), elementAt(right, position)];
      const equal = areEqual([one], [other], [field]);
      return field.column?.is_nullable === false ? equal : sql`(${equal} or (${one} is null and ${other} is null))`;
    }),
    sql` and `,
  );
}

/**
 * Whether the query returns the row of these columns. A row comparison takes one operator. If the columns need operators of several
 * schemas, `in` lets PostgreSQL look them up.
 */
export function isAmong(columns: readonly Fragment[], fields: readonly Field[], query: Fragment): Fragment {
  const row = onlyOf(columns) ?? sql`(${join(columns, sql`, `)})`;
  const schema = onlyOf([...new Set(fields.map(operatorSchema))]);
  return schema === null ? sql`${row} in (${query})` : sql`${row} ${operatorIn(schema, '=')} any (${query})`;
}
