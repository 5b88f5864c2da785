/** Values of a row as SQL: columns, functions of them, counts and aggregates, and how each is shown in JSON. */
import { assertNever } from '../../base/assert-never.js';
import type { AggregatePlan, OperandPlan } from '../plan/plan.js';
import type { Representation } from '../request/ast.js';
import { alias, type Fragment, identifier, parameter, sql } from '../sql/fragment.js';
import { areEqual, comparedField, operandSchema } from './compare.js';
import { FromClause, refersTo, shownIf } from './from-clause.js';
import { rankOf } from './full-text.js';
import { typeName } from './identifiers.js';
import type { JsonValue } from './json.js';
import { commaList, compositeKeyRows, inputKeyColumns, inputKeyNames, keyParameters, unnest } from './key-columns.js';
import { base64, showField } from './output.js';

export function compileOperand(operand: OperandPlan, source: FromClause, descending = false): Fragment {
  switch (operand.kind) {
    case 'field':
      return source.column(operand.through, operand.field);
    case 'date': {
      const column = source.column(operand.through, operand.field);
      const value = operand.field.column?.base_type === 'timestamptz' ? sql`(${column} at time zone 'UTC')` : column;
      const part = sql`floor(extract(${DATE_PARTS[operand.function]} from ${value}))::int4`;
      // Infinity has no year.
      return operand.field.type === 'time' ? part : sql`case when isfinite(${column}) then ${part} end`;
    }
    case 'length': {
      const column = source.column(operand.through, operand.field);
      if (operand.field.column?.is_array) return sql`cardinality(${column})`;
      return operand.field.column?.base_type === 'jsonb'
        ? sql`case when jsonb_typeof(${column}) = 'array' then jsonb_array_length(${column}) end`
        : sql`case when json_typeof(${column}) = 'array' then json_array_length(${column}) end`;
    }
    case 'count': {
      const child = new FromClause(alias(`t${source.scope.next()}`), source.scope, operand.toMany.collection);
      const rows = child.from(refersTo(operand.toMany, child, source, operand.through));
      return masked(operand, source, sql`(select count(*) from ${rows})`);
    }
    case 'json': {
      const column = source.column(operand.through, operand.field);
      const path = sql`${parameter({ kind: 'path', slot: operand.path })}::text[]`;
      if (operand.as === 'json') return sql`(${column} #> ${path})`;
      const text = sql`(${column} #>> ${path})`;
      if (operand.as === 'text') return text;
      return sql`case when ${text} ~ '^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]{1,3})?$' then ${text}::numeric end`;
    }
    case 'first': {
      const child = new FromClause(alias(`t${source.scope.next()}`), source.scope, operand.toMany.collection);
      const same = refersTo(operand.toMany, child, source, operand.through);
      const value = compileOperand(operand.operand, child, descending);
      const direction = descending ? sql` desc` : sql``;
      const rows = child.from(same);
      return masked(operand, source, sql`(select ${value} from ${rows} order by ${value}${direction} limit 1)`);
    }
    case 'aggregate':
      return compileAggregate(operand.aggregate, source);
    case 'rank':
      return rankOf(source.column(operand.through, operand.field), operand, operand.slot);
    case 'key':
      return source.raw([], operand.field);
    case 'position':
      return compilePosition(operand, source);
    default:
      return assertNever(operand);
  }
}

/** The position of the row's key in the list of keys that the request sends. */
function compilePosition({ key, slot }: Extract<OperandPlan, { kind: 'position' }>, source: FromClause): Fragment {
  const { collection } = source;
  const names = inputKeyNames(collection);
  const keys = alias(`o${source.scope.next()}`);
  const columns = key.map((field) => source.raw([], field));
  const same = areEqual(inputKeyColumns(collection, keys), columns, key);
  const composite = compositeKeyRows(key, names, slot);
  const rows = composite
    ? sql`${composite} ${keys}`
    : sql`${unnest(keyParameters(key, slot, 'list'))} with ordinality as ${keys} (${commaList(names)}, n)`;
  source.join(sql` join ${rows} on ${same}`);
  return sql`${keys}.n`;
}

/** A value of the rows behind an alias field, or null if the caller may not see the field. */
function masked({ through, toMany }: Listing, source: FromClause, value: Fragment): Fragment {
  return shownIf(toMany.via && source.mask(through, toMany.via), value);
}

type Listing = Extract<OperandPlan, { kind: 'count' | 'first' }>;

const DATE_PARTS = {
  year: sql`year`,
  month: sql`month`,
  week: sql`week`,
  day: sql`day`,
  weekday: sql`dow`,
  hour: sql`hour`,
  minute: sql`minute`,
  second: sql`second`,
} as const;

export function compileAggregate(aggregate: AggregatePlan, source: FromClause): Fragment {
  if (!aggregate.operand) return sql`count(*)`;
  const value = compileOperand(aggregate.operand, source);
  switch (aggregate.function) {
    case 'count':
    case 'countAll':
      return sql`count(${value})`;
    case 'countDistinct':
      return sql`count(distinct ${value})`;
    case 'sum':
      return sql`sum(${value})`;
    case 'sumDistinct':
      return sql`sum(distinct ${value})`;
    case 'avg':
      return sql`avg(${value})`;
    case 'avgDistinct':
      return sql`avg(distinct ${value})`;
    case 'min':
      return sql`${extremeOf(aggregate.operand, 'min')}(${value})`;
    case 'max':
      return sql`${extremeOf(aggregate.operand, 'max')}(${value})`;
    default:
      return assertNever(aggregate.function);
  }
}

/** Extensions have aggregates of their own for their types. */
function extremeOf(operand: OperandPlan, name: 'min' | 'max'): Fragment {
  return sql`${identifier(operandSchema(operand))}.${identifier(name)}`;
}

/** The value as JSON shows it, from the expression that holds it. */
export function showOperand(operand: OperandPlan, value: Fragment, as: Representation = 'default'): JsonValue {
  switch (operand.kind) {
    case 'field':
      return showField(value, operand.field, as);
    case 'aggregate':
      return showAggregate(operand.aggregate, value, as);
    case 'date':
    case 'length':
    case 'count':
      return { form: 'json', text: sql`${value}::text` };
    case 'json':
      return operand.as === 'json' ? { form: 'json', text: sql`${value}::text` } : { form: 'value', value };
    default:
      return { form: 'value', value };
  }
}

/** Sums and averages of numbers that JavaScript would round are texts; counts, and results for integers and floats, are numbers. */
export function showAggregate(aggregate: AggregatePlan, value: Fragment, as: Representation = 'default'): JsonValue {
  const { operand } = aggregate;
  if (operand === null || aggregate.function.startsWith('count'))
    return { form: 'document', text: sql`${value}::text` };
  if (operand.kind !== 'field') return { form: 'value', value };
  if (aggregate.function === 'min' || aggregate.function === 'max') return showField(value, operand.field, as);
  const exact = operand.field.type === 'decimal' || operand.field.type === 'bigInteger';
  return exact && as !== 'number' ? { form: 'quoted', text: sql`${value}::text` } : { form: 'value', value };
}

/** `json` has no equality: its values are compared as `jsonb`. */
export function comparable(operand: OperandPlan, value: Fragment): Fragment {
  return operand.kind === 'field' && operand.field.column?.base_type === 'json' ? sql`${value}::jsonb` : value;
}

/**
 * Whether there is a value. `is null` on a composite value asks about its attributes; compared with the constant null, PostgreSQL tests the
 * value itself.
 */
export function isNull(operand: OperandPlan, value: Fragment): Fragment {
  return isComposite(operand) ? sql`${value} is not distinct from null` : sql`${value} is null`;
}

export function isNotNull(operand: OperandPlan, value: Fragment): Fragment {
  return isComposite(operand) ? sql`${value} is distinct from null` : sql`${value} is not null`;
}

function isComposite(operand: OperandPlan): boolean {
  const column = comparedField(operand)?.column;
  return column?.composite != null && !column.is_array;
}

/** The type of a value that is compared with the operand. */
export function operandTypeName(operand: OperandPlan): Fragment {
  const field = comparedField(operand);
  if (field) return field.column?.base_type === 'json' ? sql`jsonb` : typeName(field);
  switch (operand.kind) {
    case 'date':
    case 'length':
    case 'position':
      return sql`int4`;
    case 'count':
      return sql`int8`;
    case 'rank':
      return sql`float4`;
    case 'json':
      return operand.as === 'numeric' ? sql`numeric` : sql`text`;
    case 'first':
      return operandTypeName(operand.operand);
    case 'aggregate': {
      const { aggregate } = operand;
      const isExtreme = aggregate.function === 'min' || aggregate.function === 'max';
      return isExtreme && aggregate.operand ? operandTypeName(aggregate.operand) : sql`numeric`;
    }
    default:
      throw new Error(`the type of ${operand.kind} is not known`);
  }
}

/** The operand as text: patterns and emptiness need it. */
export function asText(operand: OperandPlan, value: Fragment): Fragment {
  if (operand.kind === 'json') return value;
  const base = operand.kind === 'field' ? operand.field.column?.base_type : undefined;
  if (base === 'bytea') return base64(value);
  return base === 'text' || base === 'varchar' || base === 'bpchar' || base === 'citext' ? value : sql`${value}::text`;
}
