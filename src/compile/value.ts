/** Values on their way out and in: how a column is shown in JSON, and how a parameter meets a column. */
import type { Field } from '../mirror/model.js';
import { type Fragment, identifier, parameter, sql } from '../sql/fragment.js';
import type { Use } from '../sql/parameter.js';

/**
 * The column as JSON shows it. Numbers that JavaScript would round travel as text; instants are UTC with milliseconds
 * whatever the zone of the session; the rest is what `row_to_json` makes of it.
 */
export function outputExpression(column: Fragment, field: Field): Fragment {
  if (field.special.includes('conceal')) return sql`case when ${column} is null then null else '**********' end`;
  if (field.column?.is_array) return column;
  switch (field.type) {
    case 'bigInteger':
    case 'decimal':
      return sql`${column}::text`;
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

export function keyEquals(column: Fragment, field: Field, slot: number): Fragment {
  return sql`${column} = ${valueParameter(field, slot, 'key')}`;
}

/** The value is cast to the column's own type, so an index on the column can serve it. */
export function valueParameter(field: Field, slot: number, use: Use): Fragment {
  const column = field.column;
  if (!column) throw new Error(`the field "${field.name}" of "${field.collection}" has no column`);
  const value = parameter({ kind: 'value', slot, codec: column.base_type, field: field.name, use });
  return sql`${value}::${identifier(column.base_schema, column.base_type)}`;
}
