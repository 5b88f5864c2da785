/**
 * The service's own statements are written with plain operators and functions: `a = b`, `lower(x)`. PostgreSQL looks such names up in every
 * schema of the search path. An extension, or a role that may create objects in `public`, can add a better match there. So the service
 * sends them as `operator(pg_catalog.=)` and `pg_catalog.lower`. docs/decisions/qualified-names.md has the rule.
 */

/** Literals, quoted names, comments and qualified names stay as they are. */
const KEPT = String.raw`'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\boperator\s*\([^)]*\)`;

/** In `set name = value, other = value`, `=` is an assignment and stays as it is. */
const ASSIGNMENT = String.raw`(?<=(?:\bset|,)\s+)(?:\w+|"[^"]+") =(?=\s)`;

const QUERY_TESTS = String.raw`\b(?:not )?in(?=\s*\(\s*(?:select|with|values)\b)`;

const PATTERNS = String.raw`\b(?:not )?i?like\b`;

const SYMBOLS = ':=|=>|[-+*/<>=~!@#%^&|?]+';

const FUNCTION = String.raw`(?<![\w."$])[a-z]\w*(?=\()`;

const TOKENS = new RegExp([ASSIGNMENT, KEPT, QUERY_TESTS, PATTERNS, FUNCTION, SYMBOLS].join('|'), 'g');

/** Functions of PostgreSQL that our texts call with arguments; without any, no better match than its own is possible. */
const FUNCTIONS: ReadonlySet<string> = new Set(
  `abs array_agg array_ndims array_position array_remove array_to_string avg bool_and bool_or cardinality char_length concat_ws convert_from
  convert_to count current_setting current_schemas decode encode floor format generate_series has_column_privilege
  has_database_privilege has_schema_privilege has_sequence_privilege has_table_privilege hashtext hashtextextended int2out int4out int8out
  float4out float8out uuid_out json_out jsonb_out numeric_out textin boolout xidout isfinite
  json_agg json_array_elements json_array_elements_text json_array_length json_build_array json_build_object json_object_agg
  json_to_record json_to_recordset json_typeof jsonb_agg jsonb_array_elements jsonb_array_elements_text jsonb_array_length
  jsonb_build_array jsonb_build_object jsonb_each jsonb_object_agg jsonb_object_keys jsonb_typeof left lower make_interval max md5 min nextval num_nonnulls obj_description octet_length
  pg_advisory_xact_lock pg_get_serial_sequence pg_has_role pg_notify pg_partition_root pg_partition_tree pg_relation_size pg_sequence_last_value pg_sequence_parameters pg_try_advisory_xact_lock
  pg_wal_lsn_diff pg_walfile_name quote_ident quote_literal regexp_match regexp_replace replace round row_to_json set_config setval sha256 split_part
  starts_with string_agg string_to_array substr sum to_char to_json to_jsonb to_regclass to_regnamespace translate upper`.split(
    /\s+/,
  ),
);

const OPERATORS: Readonly<Record<string, string>> = {
  in: '= any',
  'not in': '<> all',
  like: '~~',
  ilike: '~~*',
  'not like': '!~~',
  'not ilike': '!~~*',
};

/** `a = b` becomes `a operator(pg_catalog.=) b`, `lower(a)` becomes `pg_catalog.lower(a)`. Only for the service's own statements; names in `kept` stay. */
export function withCatalog(text: string, kept: ReadonlySet<string> = new Set()): string {
  return text.replace(TOKENS, (token, offset: number) => {
    if (kept.has(token)) return token;
    if (token === ':=') return '=';
    if (FUNCTIONS.has(token)) return isBare(text, offset + token.length) ? token : `pg_catalog.${token}`;
    const [symbol = '', ...rest] = (OPERATORS[token] ?? token).split(' ');
    if (!isOperator(symbol, text, offset)) return token;
    const before = /\S$/.test(text.slice(0, offset)) ? ' ' : '';
    const after = /^\S/.test(text.slice(offset + token.length)) ? ' ' : '';
    return `${before}${[catalogOperator(symbol), ...rest].join(' ')}${after}`;
  });
}

/** An operator of PostgreSQL's own, or of the schema that holds it. */
export function catalogOperator(symbol: string, schema = 'pg_catalog'): string {
  if (!/^[-+*/<>=~!@#%^&|?]+$/.test(symbol)) throw new Error(`"${symbol}" is no operator`);
  return `operator(${schema}.${symbol})`;
}

/** `count(*)` and `count()`: calls without arguments. */
function isBare(text: string, offset: number): boolean {
  return /^\((?:\*|\s*)\)/.test(text.slice(offset, offset + 4));
}

/** A star may stand for columns, and a minus sign belong to a number. */
function isOperator(symbol: string, text: string, offset: number): boolean {
  if (!/^[-+*/<>=~!@#%^&|?]+$/.test(symbol) || symbol === '=>' || symbol.startsWith('--')) return false;
  if (symbol === '*') return !/(?:^|\bselect|\bdistinct|[,(.])\s*$/.test(text.slice(0, offset));
  return symbol !== '-' || !/^-\d/.test(text.slice(offset));
}
