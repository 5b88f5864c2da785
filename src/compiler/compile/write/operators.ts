/** Operators of changes as SQL: the new value of a column from its stored value and the operand of the payload. */
import { elementAt } from '../../../base/narrow.js';
import type { Field } from '../../model/model.js';
import type { WriteColumn } from '../../plan/write/write.js';
import type { UpdateOperator } from '../../request/update-operators.js';
import { type Fragment, join, literal, nothing, operatorIn, sql } from '../../sql/fragment.js';
import { typeName } from '../identifiers.js';

/** Concatenates arrays, and JSON. */
const CONCATENATE = operatorIn('pg_catalog', '||');

interface Operands {
  readonly stored: Fragment;
  readonly operand: Fragment;
  /** The name of the operator of the row, for columns whose rows differ in it. */
  readonly operator: Fragment;
  /** Ends the statement: the stored JSON is of another kind than the operator needs. */
  readonly refusal: Fragment;
}

/** A stored null counts as 0, and as an empty text, list or object. */
export function operatedValue({ field, operators, choosesOperator }: WriteColumn, operands: Operands): Fragment {
  const results = operators.map((operator) => resultOf(operator, field, operands));
  if (!choosesOperator) return elementAt(results, 0);
  const cases = results.map(
    (result, index) => sql` when ${operands.operator} = ${literal(elementAt(operators, index))} then ${result}`,
  );
  return sql`case${join(cases, nothing)} else ${operands.operand} end`;
}

function resultOf(operator: UpdateOperator, field: Field, operands: Operands): Fragment {
  const { stored, operand } = operands;
  switch (operator) {
    case 'increment':
      return sql`coalesce(${stored}, '0'::${typeName(field)}) + ${operand}`;
    case 'decrement':
      return sql`coalesce(${stored}, '0'::${typeName(field)}) - ${operand}`;
    case 'merge':
      return combined(field, 'object', operands);
    case 'append':
      if (field.column?.is_array) return sql`coalesce(${stored}, '{}'::${typeName(field)}) ${CONCATENATE} ${operand}`;
      if (field.type === 'json') return combined(field, 'array', operands);
      if (field.type === 'csv') return sql`concat_ws(',', nullif(${stored}::text, ''), nullif(${operand}::text, ''))`;
      return sql`coalesce(${stored}::text, '') || ${operand}::text`;
  }
}

/** Both are arrays, or both are objects. JSON null is shown as null, and counts as empty too. */
function combined({ column }: Field, kind: 'array' | 'object', { stored, operand, refusal }: Operands): Fragment {
  const isBinary = column?.base_type === 'jsonb';
  const kindOfStored = isBinary ? sql`jsonb_typeof(${stored})` : sql`json_typeof(${stored})`;
  const both = isBinary
    ? sql`${stored} ${CONCATENATE} ${operand}`
    : sql`(${stored}::jsonb ${CONCATENATE} ${operand}::jsonb)::json`;
  return sql`case when coalesce(${kindOfStored}, 'null') = 'null' then ${operand} when ${kindOfStored} = ${literal(kind)} then ${both}
    when ${refusal} then null end`;
}
