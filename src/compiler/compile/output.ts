/** Values on their way out: how a column is shown in JSON. */
import type { Field } from '../model/model.js';
import type { Synonyms } from '../model/synonyms.js';
import type { Representation } from '../request/ast.js';
import { alias, type Fragment, literal, sql } from '../sql/fragment.js';
import { isGeometry, showGeometry } from './geometry.js';
import type { JsonValue } from './json.js';

/**
 * The column as JSON shows it. Numbers that JavaScript would round travel as text; instants are UTC
 * whatever the zone of the session; the rest is what `to_json` makes of it.
 */
export function showField(column: Fragment, field: Field, as: Representation = 'default'): JsonValue {
  if (field.special.includes('conceal'))
    return { form: 'quoted', text: sql`case when ${column} is null then null else '**********' end` };
  if (field.synonyms) return { form: 'value', value: shownNames(column, field.synonyms) };
  if (isGeometry(field)) return showGeometry(column, field);
  const base = baseType(field);
  if (field.column?.base_type === '_bytea' && as === 'default') return { form: 'value', value: base64Array(column) };
  if (as === 'text' && PLAIN.has(base)) return quoted(column, base);
  // As text it would lose the spaces at its end.
  if (as === 'text' && base === 'bpchar') return { form: 'value', value: column };
  if (as === 'text' && !TEXTUAL.has(base)) return { form: 'value', value: sql`${column}::text` };
  switch (base) {
    case 'int2':
    case 'int4':
    case 'json':
    case 'jsonb':
      return { form: 'json', text: textOf(column, base) };
    case 'int8':
      return as === 'number' || field.type === 'integer'
        ? { form: 'json', text: textOf(column, base) }
        : quoted(column, base);
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
      return { form: 'quoted', text: base64(column) };
    case 'timestamptz':
      if (field.type !== 'timestamp') break;
      return showInstant(column);
    case 'timestamp':
      if (field.type !== 'dateTime') break;
      return showWallClock(column);
  }
  if (field.type === 'csv')
    return { form: 'value', value: sql`case when ${column} = '' then '{}' else string_to_array(${column}, ',') end` };
  return { form: 'value', value: column };
}

function shownNames(column: Fragment, { shown }: Synonyms): Fragment {
  return sql`coalesce(${literal(JSON.stringify(shown))}::jsonb ->> ${column}::text, ${column}::text)`;
}

/** Types whose text has no character that JSON escapes. */
const PLAIN: ReadonlySet<string> = new Set(['int2', 'int4', 'int8', 'numeric', 'uuid']);

/** Types whose text the service formats itself, in keys too. */
const TEXTUAL: ReadonlySet<string> = new Set(['bytea', 'timestamp', 'timestamptz']);

/** PostgreSQL's own type below domains; nothing for arrays, and for types of others. */
function baseType({ column }: Field): string {
  return column && column.base_schema === 'pg_catalog' && !column.is_array ? column.base_type : '';
}

function quoted(column: Fragment, base: string): JsonValue {
  return { form: 'quoted', text: textOf(column, base) };
}

/** PostgreSQL breaks it into lines. */
export function base64(column: Fragment): Fragment {
  return sql`translate(encode(${column}, 'base64'), E'\\n', '')`;
}

/** Arrays of one dimension. Others are shown as PostgreSQL shows them. */
function base64Array(column: Fragment): Fragment {
  const entries = sql`select ${base64(sql`${alias('e')}.b`)}
    from pg_catalog.unnest(${column}) with ordinality ${alias('e')} (b, n)
    order by ${alias('e')}.n`;
  return sql`case when cardinality(${column}) = 0 or array_ndims(${column}) = 1 then array(${entries}) else ${column}::text[] end`;
}

/** As a cast to text, but of one type alone. */
const TEXTS: Readonly<Record<string, (column: Fragment) => Fragment>> = {
  int2: (column) => sql`textin(int2out(${column}))`,
  int4: (column) => sql`textin(int4out(${column}))`,
  int8: (column) => sql`textin(int8out(${column}))`,
  numeric: (column) => sql`textin(numeric_out(${column}))`,
  uuid: (column) => sql`textin(uuid_out(${column}))`,
  json: (column) => sql`textin(json_out(${column}))`,
  jsonb: (column) => sql`textin(jsonb_out(${column}))`,
};

function textOf(column: Fragment, base: string): Fragment {
  const text = TEXTS[base]?.(column);
  if (!text) throw new Error(`the text of ${base} is not known to be JSON`);
  return text;
}

/**
 * UTC with milliseconds, or with microseconds where some are set. Infinity has no digits. An era cannot be named before the zone, so
 * ` BC` comes last, where PostgreSQL reads it again. The expression is short because each new statement is read by the grammar.
 */
function showInstant(column: Fragment): JsonValue {
  const digits = sql`case when ${column} = ${column}::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end`;
  const era = sql`case when ${column} < ${FIRST_YEAR}::timestamptz then ' BC' else '' end`;
  return {
    form: 'quoted',
    text: sql`case when isfinite(${column}) then to_char(${column} at time zone 'UTC', ${digits}) || ${era} else ${column}::text end`,
  };
}

/** Without fractions of seconds where there are none, else with milliseconds or microseconds. */
function showWallClock(column: Fragment): JsonValue {
  const short = sql`${column} <> ${column}::timestamp(0) and ${column} = ${column}::timestamp(5)`;
  const digits = sql`case when ${column} = ${column}::timestamp(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS' else 'YYYY-MM-DD"T"HH24:MI:SS.US' end`;
  const era = sql`case when ${column} < ${FIRST_YEAR}::timestamp then ' BC"' else '"' end`;
  const padded = sql`'"' || to_char(${column}, ${digits}) || ${era}`;
  return {
    form: 'json',
    text: sql`case when isfinite(${column}) and ${short} then ${padded} else pg_catalog.to_json(${column})::text end`,
  };
}

/** Read without its zone where there is none. */
const FIRST_YEAR = sql`'0001-01-01 00:00:00+00'`;
