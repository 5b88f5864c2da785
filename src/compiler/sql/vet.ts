/**
 * Expressions that come with a request: defaults and generated columns. PostgreSQL's grammar reads them; only what stands
 * on these lists passes, so that nothing that reads a table, waits or changes anything can be put into a definition.
 */
import { LRUCache } from 'lru-cache';
import { isRecord, propertiesOf } from '../../base/narrow.js';
import { onlyExpression, parseSqlExpression, tryParse } from './grammar.js';

/** Tables have the same few defaults: `now()`, `gen_random_uuid()`, `'{}'::text[]`. */
const knownTrees = new LRUCache<string, { readonly tree: unknown }>({ max: 500 });

const MAX_KNOWN_LENGTH = 200;

/** The reason why the expression is not safe in a definition, or null if it is safe. It may name `columns`. */
export function complaintAbout(text: string, columns: readonly string[]): string | null {
  const target = expressionTree(text);
  if (target === null) return 'it is not a single expression';
  const complaints: string[] = [];
  judge(target, new Set(columns), complaints);
  return complaints[0] ?? null;
}

function expressionTree(text: string): unknown {
  const cached = knownTrees.get(text);
  if (cached) return cached.tree;
  const tree = parseSqlExpression(text);
  if (text.length <= MAX_KNOWN_LENGTH) knownTrees.set(text, { tree });
  return tree;
}

/** The meaning of a default given as a string: the string itself, an expression to be checked, or neither of them safely. */
type ExpressionKind =
  | { readonly kind: 'words'; readonly text: string }
  | { readonly kind: 'expression' }
  | { readonly kind: 'ambiguous' };

/**
 * A text in quotes is a constant; one that calls a function is an expression; one that would do anything if somebody put
 * it into a statement, bare or between quotes, is nobody's honest default. All others stand for themselves.
 */
export function readSqlText(text: string): ExpressionKind {
  const quoted = [tryParse(`select '${text}'`), tryParse(`select ('${text}')`)];
  const bare = tryParse(`select ${text}`);
  if (quoted.some((parsed) => parsed !== null && (parsed.length > 1 || acts(parsed)))) return AMBIGUOUS;
  const target = bare === null ? null : onlyExpression(bare);
  if (target !== null) {
    const constant = stringConstant(target);
    if (constant !== null) return { kind: 'words', text: constant };
    if (acts(target)) return { kind: 'expression' };
  }
  if (bare !== null && (bare.length > 1 || acts(bare))) return AMBIGUOUS;
  // "Select an option" is a query between parentheses, but one that asks for nothing.
  const enclosed = tryParse(`select (${text})`);
  if (enclosed !== null && (enclosed.length > 1 || /"(FuncCall|fromClause)"/.test(JSON.stringify(enclosed))))
    return AMBIGUOUS;
  return { kind: 'words', text };
}

const AMBIGUOUS: ExpressionKind = { kind: 'ambiguous' };

type Node = Readonly<Record<string, unknown>>;

const FUNCTIONS: ReadonlySet<string> = new Set(
  `now clock_timestamp statement_timestamp transaction_timestamp timezone date_trunc date_part extract age
  make_date make_time make_timestamp make_timestamptz make_interval to_timestamp date to_char to_date to_number
  justify_days justify_hours gen_random_uuid uuidv4 uuidv7 uuid_generate_v4 random abs ceil ceiling floor round
  trunc sign sqrt power exp ln log mod div sin cos tan asin acos atan atan2 degrees radians pi width_bucket lower
  upper initcap length char_length character_length octet_length trim btrim ltrim rtrim left right substr
  substring replace translate reverse split_part position strpos starts_with regexp_replace concat concat_ws
  format md5 sha256 encode decode ascii chr to_hex unaccent coalesce nullif json_build_object json_build_array
  jsonb_build_object jsonb_build_array to_json to_jsonb json_array_length jsonb_array_length json_typeof
  jsonb_typeof jsonb_extract_path_text json_extract_path_text array_length cardinality array_to_string
  string_to_array to_tsvector setweight strip num_nonnulls num_nulls int4range int8range numrange daterange
  tsrange tstzrange lower_inc upper_inc isempty array_append array_prepend array_cat array_remove array_position
  array_upper array_lower point box circle host network masklen uuid_nil uuid_generate_v1 uuid_generate_v1mc
  greatest least cbrt factorial gcd lcm lpad rpad repeat overlay bit_length jsonb_strip_nulls jsonb_extract_path
  json_extract_path to_tsquery`.split(/\s+/),
);

const TYPES: ReadonlySet<string> = new Set(
  `bool boolean int2 int4 int8 smallint integer bigint numeric decimal float4 float8 text varchar bpchar char name
  citext bytea uuid json jsonb tsvector date time timetz timestamp timestamptz interval regconfig inet cidr
  macaddr macaddr8 bit varbit money tsquery hstore ltree point line lseg box path polygon circle int4range
  int8range numrange daterange tsrange tstzrange`.split(/\s+/),
);

/** Nodes without specific rules. */
const HARMLESS: ReadonlySet<string> = new Set(
  `A_Const BoolExpr NullTest BooleanTest CaseExpr CaseWhen CoalesceExpr MinMaxExpr List String Integer Float
  Boolean BitString A_ArrayExpr`.split(/\s+/),
);

/** `current_timestamp` and its kin; those that name users and schemas are left out. */
const MOMENTS = /^SVFOP_(CURRENT_DATE|CURRENT_TIME|CURRENT_TIMESTAMP|LOCALTIME|LOCALTIMESTAMP)(_N)?$/;

function judge(node: unknown, columns: ReadonlySet<string>, complaints: string[]): void {
  if (complaints.length > 0) return;
  if (Array.isArray(node)) {
    for (const each of node) judge(each, columns, complaints);
    return;
  }
  if (node === null || typeof node !== 'object') return;
  for (const [key, value] of Object.entries(node)) {
    if (key === 'typeName') judgeType(propertiesOf(value), complaints);
    else if (/^[A-Z]/.test(key)) judgeKind(key, propertiesOf(value), columns, complaints);
    if (key !== 'typeName' && key !== 'ColumnRef') judge(value, columns, complaints);
  }
}

function judgeKind(kind: string, node: Node, columns: ReadonlySet<string>, complaints: string[]): void {
  if (HARMLESS.has(kind) || kind === 'TypeCast') return;
  switch (kind) {
    case 'FuncCall': {
      const name = namesOf(node['funcname']);
      const known = FUNCTIONS.has(name.at(-1) ?? '') && (name.length === 1 || name[0] === 'pg_catalog');
      const plain = Object.keys(node).every((key) => ['funcname', 'args', 'funcformat', 'location'].includes(key));
      if (!known || !plain) complaints.push(`the function "${name.join('.')}" is not allowed`);
      return;
    }
    case 'SQLValueFunction':
      if (!MOMENTS.test(String(node['op']))) complaints.push('it depends on the current user');
      return;
    case 'A_Expr':
      if (namesOf(node['name']).length !== 1) complaints.push('an operator has a schema');
      return;
    case 'ColumnRef': {
      const name = namesOf(node['fields']);
      if (name.length !== 1 || !columns.has(name[0] ?? ''))
        complaints.push(`"${name.join('.')}" is not a column that it can use`);
      return;
    }
    case 'SubLink':
      complaints.push('it contains a subquery');
      return;
    default:
      complaints.push('it contains more than constants, operators and functions');
  }
}

function judgeType(type: Node, complaints: string[]): void {
  const name = namesOf(type['names']);
  const known = TYPES.has(name.at(-1) ?? '') && (name.length === 1 || name[0] === 'pg_catalog');
  if (!known || type['setof'] || type['pct_type']) complaints.push(`the type "${name.join('.')}" is not allowed`);
}

/** Whether anything happens when it is evaluated: a call, a sub-select. */
function acts(node: unknown): boolean {
  if (Array.isArray(node)) return node.some(acts);
  if (node === null || typeof node !== 'object') return false;
  return Object.entries(node).some(([key, value]) => {
    if (key === 'FuncCall' || key === 'SubLink') return true;
    if (key === 'SQLValueFunction') return MOMENTS.test(String(propertiesOf(value)['op']));
    return acts(value);
  });
}

function stringConstant(node: unknown): string | null {
  const { sval } = propertiesOf(propertiesOf(node)['A_Const']);
  return isRecord(sval) ? String(sval['sval'] ?? '') : null;
}

function namesOf(nodes: unknown): string[] {
  if (!Array.isArray(nodes)) return [];
  return nodes.map((node) => String(propertiesOf(propertiesOf(node)['String'])['sval'] ?? '*'));
}
