/** Values on their way out: how a column is shown in JSON. */
import type { Field } from '../mirror/model.js';
import type { Representation } from '../request/ast.js';
import { type Fragment, sql } from '../sql/fragment.js';

/**
 * The column as JSON shows it. Numbers that JavaScript would round travel as text; instants are UTC with milliseconds
 * whatever the zone of the session; the rest is what `row_to_json` makes of it.
 */
export function outputExpression(column: Fragment, field: Field, as: Representation = 'default'): Fragment {
  if (field.special.includes('conceal')) return sql`case when ${column} is null then null else '**********' end`;
  if (as === 'text') return sql`${column}::text`;
  if (field.column?.is_array) return column;
  switch (field.type) {
    case 'bigInteger':
    case 'decimal':
      return as === 'number' ? column : sql`${column}::text`;
    case 'timestamp':
      return isInstant(field)
        ? finite(column, sql`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`)
        : column;
    case 'dateTime':
      return isWallClock(field) ? finite(column, sql`to_char(${column}, 'YYYY-MM-DD"T"HH24:MI:SS')`) : column;
    case 'csv':
      return sql`case when ${column} = '' then '{}' else string_to_array(${column}, ',') end`;
    case 'binary':
      return sql`translate(encode(${column}, 'base64'), E'\\n', '')`;
    default:
      return column;
  }
}

/** Infinity has no digits: `to_char` would show nothing. */
function finite(column: Fragment, shown: Fragment): Fragment {
  return sql`case when isfinite(${column}) then ${shown} else ${column}::text end`;
}

function isInstant(field: Field): boolean {
  return field.column?.base_type === 'timestamptz';
}

function isWallClock(field: Field): boolean {
  return field.column?.base_type === 'timestamp';
}
