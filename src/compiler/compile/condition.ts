/** Conditions → SQL. The one filter compiler: reads, counts and existence tests all pass here. */
import { assertNever } from '../../base/assert-never.js';
import { onlyOf } from '../../base/narrow.js';
import { requireSingleKey } from '../model/item-key.js';
import type { Field, InnerType } from '../model/model.js';
import {
  type Condition,
  type OperandPlan,
  type OperatorSource,
  type ToManyJoin,
  type ToOneJoin,
  typedValue,
  type ValuePlan,
} from '../plan/plan.js';
import type { Operator } from '../request/ast.js';
import { isDocumentCodec, type Pattern } from '../sql/codec.js';
import { alias, type Fragment, identifier, join, operatorIn, parameter, sql } from '../sql/fragment.js';
import { operandOperator, operatorOf } from './compare.js';
import { FromClause, refersTo } from './from-clause.js';
import { matchesWords } from './full-text.js';
import { compareGeometries, isWithinDistance } from './geometry.js';
import { typeName } from './identifiers.js';
import { hasKey } from './key-columns.js';
import { asText, comparable, compileOperand, isNotNull, isNull, operandTypeName } from './operand.js';

/** Returns null if the condition always holds. */
export function compileCondition(condition: Condition, source: FromClause): Fragment | null {
  switch (condition.kind) {
    case 'and':
    case 'or': {
      const parts = condition.conditions.map((each) => compileCondition(each, source)).filter((each) => each !== null);
      if (parts.length === 0) return null;
      return onlyOf(parts) ?? sql`(${join(parts, condition.kind === 'and' ? sql` and ` : sql` or `)})`;
    }
    case 'key': {
      const { key, shown, asJson, filter } = condition;
      if (!filter) {
        const columns = key.map((field) => source.raw([], field));
        const masks = shown ? key.map((field) => source.mask([], field)).filter((each) => each !== null) : [];
        return join([hasKey(key, columns, condition, asJson ? 'shown' : 'key'), ...masks], sql` and `);
      }
      const columns = key.map((field) => source.column(filter.through, field));
      const test = hasKey(key, columns, condition, 'filter');
      return filter.negated ? sql`not (${test})` : test;
    }
    case 'reference':
      return compileReference(condition, source);
    case 'compare':
      return compileComparison(condition, source);
    case 'exists': {
      const { toMany, through, where } = condition;
      const test = existence(toMany, through, where, source);
      const mask = toMany.via && source.mask(through, toMany.via);
      const result = condition.negated ? sql`not ${test}` : test;
      return mask ? sql`(${mask} and ${result})` : result;
    }
    case 'search':
      return compileSearch(condition, source);
    case 'rule':
      return source.holds(condition.rule);
    default:
      return assertNever(condition);
  }
}

/** A reference with a null column names nothing: it is neither equal to a given key nor different from it. */
function compileReference(
  { through, toOne, negated, keyParameter }: Extract<Condition, { kind: 'reference' }>,
  source: FromClause,
): Fragment {
  const columns = source.reference(through, toOne);
  const isHeld = join(
    columns.map((column) => sql`${column} is not null`),
    sql` and `,
  );
  if (!keyParameter) return negated ? sql`not (${isHeld})` : sql`(${isHeld})`;
  const isGiven = hasKey(toOne.columns, columns, keyParameter, 'filter');
  return negated ? sql`(${isHeld} and not (${isGiven}))` : isGiven;
}

function existence(toMany: ToManyJoin, through: readonly ToOneJoin[], where: Condition, outer: FromClause): Fragment {
  const child = new FromClause(alias(`t${outer.scope.next()}`), outer.scope, toMany.collection);
  const same = refersTo(toMany, child, outer, through);
  const inner = compileCondition(where, child);
  return sql`exists (select from ${child.from(same, inner)})`;
}

/** A term that does not fit a numeric field is null there and matches nothing: the text stays the same for every term. */
function compileSearch({ slot, fields, vector }: Extract<Condition, { kind: 'search' }>, source: FromClause): Fragment {
  if (vector) return matchesWords(source.column([], vector.field), vector, slot);
  const tests = fields.map((field) => {
    const column = source.column([], field);
    const operand: OperandPlan = { kind: 'field', through: [], field };
    if (field.type === 'string' || field.type === 'text') {
      const text = { codec: 'text', field: 'search', use: 'filter' } as const;
      const term = parameter({ kind: 'pattern', slot, ...text, pattern: 'contains' });
      return sql`${asText(operand, column)} ${operandOperator(operand, '~~*')} ${term}`;
    }
    return sql`${column} ${operatorOf(field, '=')} ${parameter({ kind: 'search', slot, codec: field.column?.base_type ?? 'text' })}::${typeName(field)}`;
  });
  return tests.length === 0 ? sql`false` : sql`(${join(tests, sql` or `)})`;
}

type Comparison = 'eq' | 'neq' | 'lt' | 'lte' | 'gt' | 'gte';

const COMPARISONS: Readonly<Record<Comparison, string>> = {
  eq: '=',
  neq: '<>',
  lt: '<',
  lte: '<=',
  gt: '>',
  gte: '>=',
};

function isComparison(operator: Operator): operator is Comparison {
  return operator in COMPARISONS;
}

const PATTERNS: Readonly<Record<string, Pattern>> = { contains: 'contains', starts_with: 'starts', ends_with: 'ends' };

/** The left side of a comparison. */
interface Compared {
  readonly left: Fragment;
  readonly operand: OperandPlan;
  readonly operator: Operator;
  readonly source: FromClause;
}

function compileComparison(
  { operand, operator, value, using }: Extract<Condition, { kind: 'compare' }>,
  source: FromClause,
): Fragment {
  const left = comparable(operand, compileOperand(operand, source));
  const compared: Compared = { left, operand, operator, source };
  switch (operator) {
    case 'null':
      return isNull(operand, left);
    case 'nnull':
      return isNotNull(operand, left);
    case 'empty':
      return sql`(${isNull(operand, left)} or ${asText(operand, left)} ${textOperator(operand, '=')} '')`;
    case 'nempty':
      return sql`(${isNotNull(operand, left)} and ${asText(operand, left)} ${textOperator(operand, '<>')} '')`;
  }
  if (!value) throw new Error(`the operator ${operator} needs a value`);
  if (value.kind === 'caller') return compareWithCaller(compared, value);
  const typed = typedValue(value);
  const own =
    value.operator && operand.kind === 'field' ? compileTypeOperator(compared, operand.field, typed, using) : null;
  if (own) return own;
  const type = operandTypeName(operand);
  if (operator === 'dwithin' && operand.kind === 'field') {
    const geometry = sql`${parameter({ kind: 'entry', position: 0, ...typed })}::text`;
    const distance = sql`${parameter({ kind: 'entry', position: 1, ...typed, codec: 'float8' })}::float8`;
    return isWithinDistance(left, geometry, distance, operand.field);
  }
  if (value.codec === 'geojson' && operand.kind === 'field')
    return compareGeometries(left, operator, sql`${parameter({ kind: 'value', ...typed })}::text`, operand.field);
  if (isDocumentCodec(value.codec)) return compareRecords(compared, typed);
  if (isComparison(operator))
    return sql`${left} ${operandOperator(operand, COMPARISONS[operator])} ${parameter({ kind: 'value', ...typed })}::${type}`;
  switch (operator) {
    case 'in':
      return sql`${left} ${operandOperator(operand, '=')} any(${parameter({ kind: 'list', ...typed })}::${type}[])`;
    case 'nin':
      return sql`${left} ${operandOperator(operand, '<>')} all(${parameter({ kind: 'list', ...typed })}::${type}[])`;
    case 'regex':
      return sql`${asText(operand, left)} ${textOperator(operand, '~')} ${parameter({ kind: 'value', ...typed, codec: 'text' })}::text`;
    case 'between':
    case 'nbetween': {
      const entry = (position: number): Fragment => sql`${parameter({ kind: 'entry', position, ...typed })}::${type}`;
      return isBetween(operator, left, [entry(0), entry(1)], (symbol) => operandOperator(operand, symbol));
    }
    default: {
      const [, negated, insensitive, name = ''] = /^(n?)(i?)(contains|starts_with|ends_with)$/.exec(operator) ?? [];
      const pattern = parameter({ kind: 'pattern', ...typed, pattern: PATTERNS[name] ?? 'contains' });
      const like = textOperator(operand, `${negated ? '!' : ''}~~${insensitive ? '*' : ''}`);
      return sql`${asText(operand, left)} ${like} ${pattern}`;
    }
  }
}

/** The operator for the result of `asText`, which leaves `citext` unchanged. */
function textOperator(operand: OperandPlan, symbol: string): Fragment {
  const field = operand.kind === 'field' ? operand.field : null;
  return field?.column?.base_type === 'citext' ? operatorOf(field, symbol) : operatorIn('pg_catalog', symbol);
}

/** `between` as two comparisons, whose operators can carry a schema. */
function isBetween(
  operator: 'between' | 'nbetween',
  left: Fragment,
  [low, high]: readonly [Fragment, Fragment],
  operatorFor: (symbol: string) => Fragment,
): Fragment {
  return operator === 'between'
    ? sql`(${left} ${operatorFor('>=')} ${low} and ${left} ${operatorFor('<=')} ${high})`
    : sql`(${left} ${operatorFor('<')} ${low} or ${left} ${operatorFor('>')} ${high})`;
}

/**
 * Arrays and composite values come as JSON, from which PostgreSQL makes them as it does in a write. A list of arrays is not a
 * type of its own, so the entries of a list are rows.
 */
function compareRecords({ left, operand, operator, source: { scope } }: Compared, typed: Typed): Fragment {
  const type = operandTypeName(operand);
  const record = alias(`x${scope.next()}`);
  const recordFrom = (json: Fragment): Fragment => sql`json_to_record(${json}::json) as ${record} (v ${type})`;
  if (operator === 'in' || operator === 'nin') {
    const entry = alias(`e${scope.next()}`);
    const list = sql`pg_catalog.unnest(${parameter({ kind: 'list', ...typed })}::text[]) ${entry} (j)`;
    const rows = sql`select ${record}.v from ${list} cross join lateral ${recordFrom(sql`${entry}.j`)}`;
    // PostgreSQL builds a hash table for `not (… = any …)`, and compares one by one for `<> all`.
    return operator === 'in' ? sql`${left} = any (${rows})` : sql`not (${left} = any (${rows}))`;
  }
  if (operator === 'between' || operator === 'nbetween') {
    const bound = (position: number): Fragment =>
      sql`(select ${record}.v from ${recordFrom(parameter({ kind: 'entry', position, ...typed }))})`;
    return isBetween(operator, left, [bound(0), bound(1)], (symbol) => operatorIn('pg_catalog', symbol));
  }
  if (!isComparison(operator)) throw new Error(`the operator ${operator} does not compare`);
  return sql`${left} ${operatorIn('pg_catalog', COMPARISONS[operator])} (select ${record}.v
    from ${recordFrom(parameter({ kind: 'value', ...typed }))})`;
}

/** A field of the caller may have several values: equality means one of them. */
function compareWithCaller(
  { left, operand, operator, source }: Compared,
  value: Extract<ValuePlan, { kind: 'caller' }>,
): Fragment {
  const rows = compileCaller(value, operandTypeName(operand), source.scope);
  if (operator === 'eq' || operator === 'in') return sql`${left} ${operandOperator(operand, '=')} any(array(${rows}))`;
  if (operator === 'neq' || operator === 'nin')
    return sql`${left} ${operandOperator(operand, '<>')} all(array(${rows}))`;
  if (!isComparison(operator)) throw new Error(`the operator ${operator} cannot be used with a field of $CURRENT_USER`);
  return sql`${left} ${operandOperator(operand, COMPARISONS[operator])} (${rows} limit 1)`;
}

/** The values of the caller's, each a row. */
export function compileCaller(
  value: Extract<ValuePlan, { kind: 'caller' }>,
  type: Fragment,
  scope: FromClause['scope'],
): Fragment {
  const user = new FromClause(alias(`t${scope.next()}`), scope, value.collection);
  const callerValue = callerValues(value.operand, user);
  const key = user.raw([], requireSingleKey(value.collection));
  const isCaller = sql`${key} = any(${parameter({ kind: 'caller', variable: value.variable })}::uuid[])`;
  return sql`select ${callerValue}::text::${type} from ${user.from(isCaller)}`;
}

/** All values behind a to-many relation, not only the first. */
function callerValues(operand: OperandPlan, source: FromClause): Fragment {
  if (operand.kind !== 'first') return compileOperand(operand, source);
  const { toMany, through } = operand;
  const child = new FromClause(alias(`t${source.scope.next()}`), source.scope, toMany.collection);
  const same = refersTo(toMany, child, source, through);
  const callerValue = callerValues(operand.operand, child);
  const mask = toMany.via && source.mask(through, toMany.via);
  const rows = sql`select ${callerValue} as ${alias('v')} from ${child.from(same, mask)}`;
  const name = alias(`v${source.scope.next()}`);
  source.join(sql` cross join lateral (${rows}) ${name}`);
  return sql`${name}.${alias('v')}`;
}

type Typed = ReturnType<typeof typedValue>;

/**
 * Operators of PostgreSQL's types: arrays, ranges, documents, networks, trees and words of texts. Each is one that an index of its kind
 * can serve. Returns null for other operators.
 */
function compileTypeOperator(
  { left, operator }: Compared,
  field: Field,
  typed: Typed,
  using: OperatorSource | undefined,
): Fragment | null {
  const value = parameter({ kind: 'value', ...typed });
  const list = sql`${parameter({ kind: 'list', ...typed })}::${typeName(field)}`;
  switch (operator) {
    case 'contains_all':
      return sql`${left} operator(pg_catalog.@>) ${list}`;
    case 'contains_any':
      return sql`${left} operator(pg_catalog.&&) ${list}`;
    case 'contained_in':
      return sql`${left} operator(pg_catalog.<@) ${list}`;
    case 'contains_value':
      return sql`${left} operator(pg_catalog.@>) ${value}::${innerTypeName(field)}`;
    case 'overlaps':
      return sql`${left} operator(pg_catalog.&&) ${value}::${typeName(field)}`;
    case 'adjacent':
      return sql`${left} operator(pg_catalog.-|-) ${value}::${typeName(field)}`;
    case 'json_contains':
      return sql`${left} operator(pg_catalog.@>) ${value}::jsonb`;
    case 'has_key':
      return sql`${left} operator(pg_catalog.?) ${value}::text`;
    case 'within_network':
      return sql`${left} operator(pg_catalog.<<=) ${value}::inet`;
    case 'descendant_of':
      return sql`${left} ${extensionOperator(field.column?.base_schema, '<@')} ${value}::${typeName(field)}`;
    case 'ancestor_of':
      return sql`${left} ${extensionOperator(field.column?.base_schema, '@>')} ${value}::${typeName(field)}`;
    case 'similar': {
      const schema = using?.kind === 'extension' ? using.schema : undefined;
      return sql`${left} ${extensionOperator(schema, '%')} ${value}::text`;
    }
    case 'fts':
      if (using?.kind !== 'configuration') throw new Error('a full text search has a configuration');
      return matchesWords(left, { field, configuration: using.configuration }, typed.slot);
    default:
      return null;
  }
}

/** Operators of an extension are in its schema, which need not be on the search path. */
function extensionOperator(schema: string | undefined, symbol: string): Fragment {
  if (schema === undefined) throw new Error('the schema of the operator is not known');
  return operatorIn(schema, symbol);
}

function innerTypeName({ name, column }: Field): Fragment {
  const inner: InnerType | null | undefined = column?.inner;
  if (!inner) throw new Error(`the field "${name}" has no inner type`);
  return identifier(inner.schema, inner.type);
}
