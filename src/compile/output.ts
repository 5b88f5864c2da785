/** Values on their way out: how a column is shown in JSON. */
import type { Field } from '../mirror/model.js';
import type { Representation } from '../request/ast.js';
import { type Fragment, sql } from '../sql/fragment.js';
import type { Shown } from './json.js';

/**
 * The column as JSON shows it. Numbers that JavaScript would round travel as text; instants are UTC with milliseconds
 * whatever the zone of the session; the rest is what `to_json` makes of it.
 */
export function showField(column: Fragment, field: Field, as: Representation = 'default'): Shown {
  if (field.special.includes('conceal'))
    return { form: 'quoted', text: sql`case when ${column} is null then null else '**********' end` };
  const base = baseType(field);
  if (as === 'text') return PLAIN.has(base) ? quoted(column, base) : { form: 'value', value: sql`${column}::text` };
  switch (base) {
    case 'int2':
    case 'int4':
    case 'json':
    case 'jsonb':
      return { form: 'json', text: textOf(column, base) };
    case 'int8':
      return as === 'number' ? { form: 'json', text: textOf(column, base) } : quoted(column, base);
    case 'numeric':
      // As a number it may be NaN, which is none in JSON.
      return as === 'number' ? { form: 'value', value: column } : quoted(column, base);
    case 'bool':
      return {
        form: 'json',
        text: sql`case booleq(${column}, true) when true then 'true' when false then 'false' end`,
      };
    case 'uuid':
      return quoted(column, base);
    case 'bytea':
      return { form: 'quoted', text: sql`translate(encode(${column}, 'base64'), E'\\n', '')` };
    case 'timestamptz':
      if (field.type !== 'timestamp') break;
      return finite(column, sql`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`);
    case 'timestamp':
      if (field.type !== 'dateTime') break;
      return finite(column, sql`to_char(${column}, 'YYYY-MM-DD"T"HH24:MI:SS')`);
  }
  if (field.type === 'csv')
    return { form: 'value', value: sql`case when ${column} = '' then '{}' else string_to_array(${column}, ',') end` };
  return { form: 'value', value: column };
}

/** Types whose text has no character that JSON escapes. */
const PLAIN: ReadonlySet<string> = new Set(['int2', 'int4', 'int8', 'numeric', 'uuid']);

/** PostgreSQL's own type below domains; nothing for arrays, and for types of others. */
function baseType({ column }: Field): string {
  return column && column.base_schema === 'pg_catalog' && !column.is_array ? column.base_type : '';
}

function quoted(column: Fragment, base: string): Shown {
  return { form: 'quoted', text: textOf(column, base) };
}

/** As a cast to text, but of this type alone. */
function textOf(column: Fragment, base: string): Fragment {
  switch (base) {
    case 'int2':
      return sql`textin(int2out(${column}))`;
    case 'int4':
      return sql`textin(int4out(${column}))`;
    case 'int8':
      return sql`textin(int8out(${column}))`;
    case 'numeric':
      return sql`textin(numeric_out(${column}))`;
    case 'uuid':
      return sql`textin(uuid_out(${column}))`;
    case 'json':
      return sql`textin(json_out(${column}))`;
    case 'jsonb':
      return sql`textin(jsonb_out(${column}))`;
    default:
      throw new Error(`the text of ${base} is not known to be JSON`);
  }
}

/** Infinity has no digits: `to_char` would show nothing. */
function finite(column: Fragment, shown: Fragment): Shown {
  return { form: 'quoted', text: sql`case when isfinite(${column}) then ${shown} else ${column}::text end` };
}
