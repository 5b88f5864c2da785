/** Values on their way out: how a column is shown in JSON. */
import type { Column, Field } from '../mirror/model.js';
import type { Representation } from '../request/ast.js';
import { type Fragment, sql } from '../sql/fragment.js';
import type { Form, Shown } from './json.js';

/**
 * The column as JSON shows it. Numbers that JavaScript would round travel as text; instants are UTC with milliseconds
 * whatever the zone of the session; the rest is what `to_json` makes of it.
 */
export function showField(column: Fragment, field: Field, as: Representation = 'default'): Shown {
  if (field.special.includes('conceal'))
    return { value: sql`case when ${column} is null then null else '**********' end`, form: 'quoted' };
  if (as === 'text') return { value: sql`${column}::text`, form: textForm(field) };
  if (field.column?.is_array) return { value: column, form: 'any' };
  switch (field.type) {
    case 'bigInteger':
    case 'decimal':
      if (as !== 'number') return { value: sql`${column}::text`, form: 'quoted' };
      break;
    case 'timestamp':
      if (isOf(field, 'timestamptz'))
        return finite(column, sql`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`);
      break;
    case 'dateTime':
      if (isOf(field, 'timestamp')) return finite(column, sql`to_char(${column}, 'YYYY-MM-DD"T"HH24:MI:SS')`);
      break;
    case 'csv':
      return { value: sql`case when ${column} = '' then '{}' else string_to_array(${column}, ',') end`, form: 'any' };
    case 'binary':
      return { value: sql`translate(encode(${column}, 'base64'), E'\\n', '')`, form: 'quoted' };
  }
  if (isOf(field, 'uuid')) return { value: sql`${column}::text`, form: 'quoted' };
  return { value: column, form: BARE.some((type) => isOf(field, type)) ? 'bare' : 'any' };
}

/** Types whose text is JSON. Of floating point numbers and numerics it is not: NaN and Infinity are among them. */
const BARE: readonly Column['base_type'][] = ['int4', 'int8', 'int2', 'bool', 'json', 'jsonb'];

/** Types whose text has no character that JSON escapes. */
const PLAIN: readonly Column['base_type'][] = ['int4', 'int8', 'int2', 'numeric', 'uuid'];

function textForm(field: Field): Form {
  return !field.column?.is_array && PLAIN.some((type) => isOf(field, type)) ? 'quoted' : 'any';
}

/** Infinity has no digits: `to_char` would show nothing. */
function finite(column: Fragment, shown: Fragment): Shown {
  return { value: sql`case when isfinite(${column}) then ${shown} else ${column}::text end`, form: 'quoted' };
}

function isOf({ column }: Field, type: string): boolean {
  return column?.base_schema === 'pg_catalog' && column.base_type === type;
}
