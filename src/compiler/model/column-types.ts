/**
 * Which type of the service a column has, how long or precise it is, and what its default means as a value. All of it
 * goes by the type below domains as the catalog names it, so a domain behaves like what it stands for.
 */
import { freezeTree } from './freeze.js';
import { type Column, DATE_TYPES, FIELD_TYPES, type FieldType } from './model.js';

type TypeFacts = Pick<Column, 'base_type' | 'base_schema' | 'is_array' | 'enum_values'>;

/** The field type that follows from the column, without metadata. */
export function columnTypeOf(facts: TypeFacts, modifier: number): FieldType {
  if (facts.is_array) return 'unknown';
  if (facts.enum_values) return 'string';
  if (facts.base_schema === 'pg_catalog') return BUILT_IN_TYPES[facts.base_type] ?? 'unknown';
  if (facts.base_type === 'citext') return 'text';
  if (facts.base_type === 'geometry' || facts.base_type === 'geography') return geometryTypeOf(modifier);
  return 'unknown';
}

/** The type with the special flags. A flag that the column could not hold is ignored. */
export function fieldTypeOf(columnType: FieldType, special: readonly string[]): FieldType {
  for (const flag of special) {
    const override = OVERRIDES.get(flag);
    if (override?.holders.has(columnType)) return override.type;
  }
  return columnType;
}

export function lengthOf(facts: TypeFacts, modifier: number): number | null {
  if (facts.base_schema !== 'pg_catalog' || modifier < MODIFIER_HEADER) return null;
  return facts.base_type === 'varchar' || facts.base_type === 'bpchar' ? modifier - MODIFIER_HEADER : null;
}

const LISTING = /^\(+(?:\w+|"(?:[^"]|"")+")\)?(?:::[\w ]+)? = ANY \(\(?ARRAY\[(.*?)\]\)?(?:::[\w .]+\[\])?\)\)$/s;
const LISTED = /^(?:'((?:[^']|'')*)'|\(?'?(-?\d+(?:\.\d+)?)'?\)?)(?:::[\w ."]+(?:\(\d+\))?)?(?:, |$)/;

/** The values of a check such as `status in ('draft', 'published')`, as the catalog prints it; null for any other check. */
export function choicesOf(expression: string): readonly string[] | null {
  let rest = LISTING.exec(expression)?.[1] ?? '';
  const values: string[] = [];
  while (rest !== '') {
    const found = LISTED.exec(rest);
    if (!found) return null;
    values.push(found[1]?.replaceAll("''", "'") ?? found[2] ?? '');
    rest = rest.slice(found[0].length);
  }
  return values.length > 0 ? Object.freeze(values) : null;
}

/** Bits for integers and floats, decimal digits for numeric. */
export function precisionOf(facts: TypeFacts, modifier: number): number | null {
  if (facts.base_schema !== 'pg_catalog') return null;
  if (facts.base_type !== 'numeric') return BINARY_PRECISIONS[facts.base_type] ?? null;
  return modifier < MODIFIER_HEADER ? null : ((modifier - MODIFIER_HEADER) >> 16) & 0xffff;
}

export function scaleOf(facts: TypeFacts, modifier: number): number | null {
  if (facts.base_schema !== 'pg_catalog') return null;
  if (facts.base_type === 'int2' || facts.base_type === 'int4' || facts.base_type === 'int8') return 0;
  if (facts.base_type !== 'numeric' || modifier < MODIFIER_HEADER) return null;
  // Eleven bits with a sign: numeric(3, -2) rounds to hundreds.
  return (((modifier - MODIFIER_HEADER) & 0x7ff) ^ 1024) - 1024;
}

/** Packed into the modifier by PostGIS, above the type of the geometry. */
export function sridOf(facts: TypeFacts, modifier: number): number | null {
  if (facts.is_array || modifier < 0 || (facts.base_type !== 'geometry' && facts.base_type !== 'geography'))
    return null;
  return (modifier & 0x0fffff00) >> 8 || null;
}

/** Constants as values of the type; anything the database has to evaluate stays the text of its expression. */
export function defaultValueOf(expression: string | null, type: FieldType): unknown {
  if (expression === null) return null;
  const literal = literalOf(expression);
  return literal === undefined || !hasTypeOf(expression, type) ? expression : castLiteral(literal, type);
}

const TIME_TYPES: Readonly<Partial<Record<FieldType, RegExp>>> = {
  date: /::date$/,
  dateTime: /::timestamp(\(\d\))? without time zone$/,
  timestamp: /::timestamp(\(\d\))? with time zone$/,
};

/** A moment of another type becomes one of the column's when it is used, by the time zone of the session or by leaving out its time. */
function hasTypeOf(expression: string, type: FieldType): boolean {
  const moment = TIME_TYPES[type];
  return !moment || moment.test(expression) || !Object.values(TIME_TYPES).some((each) => each.test(expression));
}

const MODIFIER_HEADER = 4;

const BUILT_IN_TYPES: Readonly<Record<string, FieldType>> = {
  int2: 'integer',
  int4: 'integer',
  int8: 'bigInteger',
  numeric: 'decimal',
  float4: 'float',
  float8: 'float',
  varchar: 'string',
  bpchar: 'string',
  interval: 'string',
  text: 'text',
  bool: 'boolean',
  uuid: 'uuid',
  date: 'date',
  time: 'time',
  timetz: 'time',
  timestamp: 'dateTime',
  timestamptz: 'timestamp',
  json: 'json',
  jsonb: 'json',
  bytea: 'binary',
};

const BINARY_PRECISIONS: Readonly<Record<string, number>> = { int2: 16, int4: 32, int8: 64, float4: 24, float8: 53 };

const TEXTS: ReadonlySet<string> = new Set(['string', 'text']);

/** The geometry types, in the order of their numbers in the type modifier of PostGIS. */
const GEOMETRIES: readonly FieldType[] = FIELD_TYPES.filter((type) => type.startsWith('geometry'));

interface Override {
  readonly type: FieldType;
  readonly holders: ReadonlySet<string>;
}

/** Flags are free text: a Map has no inherited names that one could hit. */
const OVERRIDES: ReadonlyMap<string, Override> = new Map<string, Override>([
  ['cast-json', { type: 'json', holders: TEXTS }],
  ['cast-csv', { type: 'csv', holders: TEXTS }],
  ['hash', { type: 'hash', holders: TEXTS }],
  ['uuid', { type: 'uuid', holders: TEXTS }],
  ['file', { type: 'uuid', holders: TEXTS }],
  ['cast-timestamp', { type: 'timestamp', holders: DATE_TYPES }],
  ['cast-datetime', { type: 'dateTime', holders: DATE_TYPES }],
  ...GEOMETRIES.map((type) => [type, { type, holders: new Set(['geometry']) }] satisfies [string, Override]),
]);

function geometryTypeOf(modifier: number): FieldType {
  return modifier < 0 ? 'geometry' : (GEOMETRIES[(modifier & 0xfc) >> 2] ?? 'geometry');
}

const NULL_CONSTANT = /^NULL(::|$)/;
const BARE_CONSTANT = /^\(?(-?\d+(?:\.\d+)?|true|false)\)?(?:::|$)/;
const QUOTED_CONSTANT = /^(E?)'((?:[^']|'')*)'(?:::|$)/;
/** A constant cast twice. The name of a type holds no operator: `('a'::text || (now())::text)` is no constant. */
const CAST_CONSTANT = /^\((E?'(?:[^']|'')*'::(?:"(?:[^"]|"")*"|[\w .[\]]|\(\d+(?:,\d+)?\))+)\)::[^']*$/;

/**
 * The text of a constant without quotes and casts, null for NULL, undefined for what is no constant. The catalog prints
 * operators in parentheses, so what starts with a literal and goes on with a cast is only a literal.
 */
function literalOf(expression: string): string | null | undefined {
  if (NULL_CONSTANT.test(expression)) return null;
  const bare = BARE_CONSTANT.exec(expression);
  if (bare) return bare[1];
  const cast = CAST_CONSTANT.exec(expression);
  // 'now' and its kin are evaluated by a cast at run time, although they look like constants.
  if (cast?.[1] && !/^'(now|today|tomorrow|yesterday)'/i.test(cast[1])) return literalOf(cast[1]);
  const quoted = QUOTED_CONSTANT.exec(expression);
  if (!quoted) return undefined;
  const text = (quoted[2] ?? '').replaceAll("''", "'");
  return quoted[1] === 'E' ? text.replaceAll('\\\\', '\\') : text;
}

function castLiteral(literal: string | null, type: FieldType): unknown {
  if (literal === null) return null;
  switch (type) {
    case 'integer':
    case 'bigInteger':
    case 'float':
    case 'decimal':
      return numberOf(literal);
    case 'boolean':
      return literal === 'true' || literal === 't';
    case 'json':
      return documentOf(literal);
    default:
      return literal;
  }
}

/** Text that is no JSON (the value of a domain, for one) must not fail the load. */
function documentOf(literal: string): unknown {
  try {
    return freezeTree(JSON.parse(literal));
  } catch {
    return literal;
  }
}

/** A number where it says the same as the text: NaN, infinity and what exceeds a double stay text. */
function numberOf(literal: string): number | string {
  const number = Number(literal);
  if (!Number.isFinite(number) || (Number.isInteger(number) && !Number.isSafeInteger(number))) return literal;
  return significantDigits(literal) > 15 ? literal : number;
}

function significantDigits(literal: string): number {
  return literal.replace(/[-.]/g, '').replace(/^0+/, '').length;
}
