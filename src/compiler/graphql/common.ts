/** Types that do not depend on the model: functions of fields, operators of filters, results of deletes. */
import {
  GraphQLBoolean,
  GraphQLEnumType,
  type GraphQLFieldConfigMap,
  GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLList,
  type GraphQLNamedType,
  GraphQLNonNull,
  GraphQLObjectType,
  type GraphQLOutputType,
  GraphQLString,
} from 'graphql';
import { isOneOf } from '../../base/narrow.js';
import { type Field, isSecretField } from '../model/model.js';
import {
  ARRAY_OPERATORS,
  DISTANCE_OPERATORS,
  DOCUMENT_OPERATORS,
  GEOMETRY_OPERATORS,
  LIST_OPERATORS,
  NETWORK_OPERATORS,
  type Operator,
  RANGE_OPERATORS,
  type Representation,
  SCALAR_OPERATORS,
  SEARCH_OPERATORS,
  TEXT_OPERATORS,
  TREE_OPERATORS,
} from '../request/ast.js';
import { extend } from './field-binding.js';
import {
  BIG_INT_SCALAR,
  DATE_SCALAR,
  FLOAT_SCALAR,
  GEOMETRY_SCALAR,
  HASH_SCALAR,
  ID_SCALAR,
  INT_SCALAR,
  JSON_FILTER_SCALAR,
  JSON_SCALAR,
  STRING_OR_FLOAT_SCALAR,
} from './scalars.js';

const DATE_PARTS = ['year', 'month', 'week', 'day', 'weekday'] as const;
const TIME_PARTS = ['hour', 'minute', 'second'] as const;

type Part = (typeof DATE_PARTS)[number] | (typeof TIME_PARTS)[number] | 'count';

function functions(name: string, parts: readonly Part[], more: GraphQLFieldConfigMap<unknown, unknown> = {}) {
  const fields = parts.map((part) => [
    part,
    { type: INT_SCALAR, extensions: extend({ kind: 'function', call: part }) },
  ]);
  return new GraphQLObjectType({ name, fields: { ...Object.fromEntries(fields), ...more } });
}

const DATE_FUNCTIONS = functions('date_functions', DATE_PARTS);
const TIME_FUNCTIONS = functions('time_functions', TIME_PARTS);
const MOMENT_FUNCTIONS = functions('datetime_functions', [...DATE_PARTS, ...TIME_PARTS]);
const COUNT_FUNCTIONS = functions('count_functions', ['count']);
const JSON_FUNCTIONS = functions('json_functions', ['count'], {
  json: {
    type: JSON_SCALAR,
    args: { path: { type: new GraphQLNonNull(GraphQLString) } },
    extensions: extend({ kind: 'json' }),
  },
});

function operators(
  name: string,
  value: GraphQLInputType,
  names: readonly (Operator | 'json' | 'length')[],
  limit: GraphQLInputType = value,
) {
  const typeOf = (operator: Operator | 'json' | 'length'): GraphQLInputType =>
    operandType(operator, /between$/.test(operator) ? limit : value);
  const fields = names.map((operator) => [`_${operator}`, { type: typeOf(operator) }]);
  return new GraphQLInputObjectType({ name: `${name}_filter_operators`, fields: Object.fromEntries(fields) });
}

function operandType(operator: Operator | 'json' | 'length', value: GraphQLInputType): GraphQLInputType {
  if (operator === 'json') return JSON_FILTER_SCALAR;
  if (operator === 'length') return NUMBER_OPERATORS;
  if (operator === 'has_key') return GraphQLString;
  if (operator === 'fts' || operator === 'dwithin') return JSON_SCALAR;
  if (/^n?(null|empty)$/.test(operator)) return GraphQLBoolean;
  const takesList = isOneOf([...LIST_OPERATORS, ...ARRAY_OPERATORS], operator);
  return takesList ? new GraphQLList(value) : value;
}

const PRESENCE = ['null', 'nnull'] as const;
const EQUALITY = ['eq', 'neq', 'in', 'nin', ...PRESENCE] as const;
const ORDERED = [...SCALAR_OPERATORS, ...LIST_OPERATORS, ...PRESENCE];

const STRING_OPERATORS = operators('string', GraphQLString, [
  ...ORDERED,
  ...TEXT_OPERATORS,
  ...SEARCH_OPERATORS,
  'empty',
  'nempty',
]);
const NUMBER_OPERATORS = operators('number', STRING_OR_FLOAT_SCALAR, ORDERED);
const BIG_INT_OPERATORS = operators('big_int', BIG_INT_SCALAR, ORDERED);
const DATE_OPERATORS = operators('date', GraphQLString, ORDERED, STRING_OR_FLOAT_SCALAR);
const BOOLEAN_OPERATORS = operators('boolean', GraphQLBoolean, ['eq', 'neq', ...PRESENCE]);
export const ID_OPERATORS = operators('id', ID_SCALAR, EQUALITY);
const HASH_OPERATORS = operators('hash', HASH_SCALAR, ['empty', 'nempty', ...PRESENCE]);
const JSON_OPERATORS = operators('json', JSON_SCALAR, [...EQUALITY, 'json', ...DOCUMENT_OPERATORS]);
const ARRAY_FILTERS = operators('array', JSON_SCALAR, [...ORDERED, ...ARRAY_OPERATORS, 'length']);
const OBJECT_FILTERS = operators('object', JSON_SCALAR, [...ORDERED, 'empty', 'nempty']);
const RANGE_FILTERS = operators('range', GraphQLString, [...ORDERED, ...RANGE_OPERATORS, 'empty', 'nempty']);
const TREE_FILTERS = operators('tree', GraphQLString, [...ORDERED, ...TREE_OPERATORS, 'empty', 'nempty']);
const WORDS_FILTERS = operators('tsvector', GraphQLString, [...ORDERED, 'fts', 'empty', 'nempty']);
const NETWORK_FILTERS = operators('network', GraphQLString, [...ORDERED, ...NETWORK_OPERATORS, 'empty', 'nempty']);
const GEOMETRY_FILTERS = operators('geometry', GEOMETRY_SCALAR, [
  ...(['eq', 'neq', ...PRESENCE] as const),
  ...GEOMETRY_OPERATORS,
  ...DISTANCE_OPERATORS,
]);

function functionFilter(name: string, parts: readonly Part[]) {
  const fields = parts.map((part) => [part, { type: NUMBER_OPERATORS }]);
  return new GraphQLInputObjectType({ name: `${name}_function_filter_operators`, fields: Object.fromEntries(fields) });
}

const DATE_FUNCTION_FILTER = functionFilter('date', DATE_PARTS);
const TIME_FUNCTION_FILTER = functionFilter('time', TIME_PARTS);
const MOMENT_FUNCTION_FILTER = functionFilter('datetime', [...DATE_PARTS, ...TIME_PARTS]);
const COUNT_FUNCTION_FILTER = functionFilter('count', ['count']);

/** Functions of a field: the object that shows them, and the filter over them. */
interface Functions {
  readonly output: GraphQLObjectType;
  readonly filter: GraphQLInputObjectType;
}

const OF_MOMENT: Functions = { output: MOMENT_FUNCTIONS, filter: MOMENT_FUNCTION_FILTER };
const FUNCTIONS: Readonly<Record<string, Functions>> = {
  date: { output: DATE_FUNCTIONS, filter: DATE_FUNCTION_FILTER },
  time: { output: TIME_FUNCTIONS, filter: TIME_FUNCTION_FILTER },
  dateTime: OF_MOMENT,
  timestamp: OF_MOMENT,
  json: { output: JSON_FUNCTIONS, filter: COUNT_FUNCTION_FILTER },
};

export function functionsOf(field: Field): Functions | null {
  if (field.relation?.kind === 'one-to-many') return { output: COUNT_FUNCTIONS, filter: COUNT_FUNCTION_FILTER };
  return field.column && !isSecretField(field) ? (FUNCTIONS[field.type] ?? null) : null;
}

interface ValueType {
  readonly type: GraphQLOutputType & GraphQLInputType;
  readonly as: Representation;
}

/** Values of composite types and of hstore: objects, as in REST. */
function isShownAsObject({ type, column }: Field): boolean {
  return type === 'unknown' && column !== null && (column.composite !== null || column.base_type === 'hstore');
}

const DATE: ValueType = { type: DATE_SCALAR, as: 'default' };
const VALUE_TYPES: Readonly<Record<string, ValueType>> = {
  integer: { type: INT_SCALAR, as: 'default' },
  bigInteger: { type: BIG_INT_SCALAR, as: 'default' },
  decimal: { type: FLOAT_SCALAR, as: 'number' },
  float: { type: FLOAT_SCALAR, as: 'default' },
  boolean: { type: GraphQLBoolean, as: 'default' },
  date: DATE,
  dateTime: DATE,
  time: DATE,
  timestamp: DATE,
  json: { type: JSON_SCALAR, as: 'default' },
  csv: { type: new GraphQLList(GraphQLString), as: 'default' },
  unknown: { type: GraphQLString, as: 'text' },
};

/** How a column is shown, and what is accepted for it. */
export function valueTypeOf(field: Field): ValueType {
  if (isSecretField(field)) return { type: HASH_SCALAR, as: 'default' };
  if (field.column?.is_primary_key || field.type === 'uuid') return { type: ID_SCALAR, as: 'text' };
  if (field.column?.is_array || isShownAsObject(field)) return { type: JSON_SCALAR, as: 'default' };
  if (field.type.startsWith('geometry')) return { type: GEOMETRY_SCALAR, as: 'default' };
  return VALUE_TYPES[field.type] ?? { type: GraphQLString, as: 'default' };
}

const BY_TYPE: Readonly<Record<string, GraphQLInputObjectType>> = {
  integer: NUMBER_OPERATORS,
  decimal: NUMBER_OPERATORS,
  float: NUMBER_OPERATORS,
  bigInteger: BIG_INT_OPERATORS,
  boolean: BOOLEAN_OPERATORS,
  date: DATE_OPERATORS,
  dateTime: DATE_OPERATORS,
  time: DATE_OPERATORS,
  timestamp: DATE_OPERATORS,
  json: JSON_OPERATORS,
  uuid: ID_OPERATORS,
};
const BY_BASE_TYPE: Readonly<Record<string, GraphQLInputObjectType>> = {
  inet: NETWORK_FILTERS,
  cidr: NETWORK_FILTERS,
  ltree: TREE_FILTERS,
  tsvector: WORDS_FILTERS,
};

export function operatorsOf(field: Field): GraphQLInputObjectType {
  const { type, column } = field;
  if (isSecretField(field)) return HASH_OPERATORS;
  if (type.startsWith('geometry')) return GEOMETRY_FILTERS;
  if (column?.is_array) return ARRAY_FILTERS;
  if (column?.inner) return RANGE_FILTERS;
  if (isShownAsObject(field)) return OBJECT_FILTERS;
  return BY_TYPE[type] ?? (type === 'unknown' ? BY_BASE_TYPE[column?.base_type ?? ''] : undefined) ?? STRING_OPERATORS;
}

export const DELETE_ONE = new GraphQLObjectType({
  name: 'delete_one',
  fields: { id: { type: new GraphQLNonNull(ID_SCALAR) } },
});

export const DELETE_MANY = new GraphQLObjectType({
  name: 'delete_many',
  fields: { ids: { type: new GraphQLNonNull(new GraphQLList(new GraphQLNonNull(ID_SCALAR))) } },
});

/** The kinds of changes that events report. */
export const EVENT_ENUM = new GraphQLEnumType({ name: 'EventEnum', values: { create: {}, update: {}, delete: {} } });

/** Types that documents may name although no collection has led to them yet. */
export const COMMON_TYPES: readonly GraphQLNamedType[] = [
  ...[
    BIG_INT_SCALAR,
    DATE_SCALAR,
    GEOMETRY_SCALAR,
    HASH_SCALAR,
    JSON_SCALAR,
    JSON_FILTER_SCALAR,
    STRING_OR_FLOAT_SCALAR,
  ],
  ...[DATE_FUNCTIONS, TIME_FUNCTIONS, MOMENT_FUNCTIONS, COUNT_FUNCTIONS, JSON_FUNCTIONS],
  ...[STRING_OPERATORS, NUMBER_OPERATORS, BIG_INT_OPERATORS, DATE_OPERATORS, BOOLEAN_OPERATORS],
  ...[ID_OPERATORS, HASH_OPERATORS, JSON_OPERATORS, ARRAY_FILTERS, GEOMETRY_FILTERS],
  ...[RANGE_FILTERS, NETWORK_FILTERS, TREE_FILTERS, WORDS_FILTERS, OBJECT_FILTERS],
  ...[DATE_FUNCTION_FILTER, TIME_FUNCTION_FILTER, MOMENT_FUNCTION_FILTER, COUNT_FUNCTION_FILTER],
  ...[DELETE_ONE, DELETE_MANY, EVENT_ENUM],
];
