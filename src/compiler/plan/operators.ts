/** The operators for each type of field, and the types of their values. */
import { invalidQuery } from '../../base/errors.js';
import { type Field, isSecretField } from '../model/model.js';
import {
  ARRAY_OPERATORS,
  DISTANCE_OPERATORS,
  DOCUMENT_OPERATORS,
  GEOMETRY_OPERATORS,
  NETWORK_OPERATORS,
  type Operator,
  RANGE_OPERATORS,
  SEARCH_OPERATORS,
  TEXT_OPERATORS,
  TREE_OPERATORS,
} from '../request/ast.js';
import type { OperandPlan, OperandType } from './plan.js';
import { isJson, operandType } from './resolve-names.js';

const PRESENCE: readonly Operator[] = ['null', 'nnull'];
const EQUALITY: readonly Operator[] = ['eq', 'neq', 'in', 'nin', ...PRESENCE];
const ORDERED: readonly Operator[] = [...EQUALITY, 'lt', 'lte', 'gt', 'gte', 'between', 'nbetween'];
const TEXT: readonly Operator[] = [...ORDERED, ...TEXT_OPERATORS, 'empty', 'nempty', 'regex'];
const SECRET: readonly Operator[] = ['empty', 'nempty', ...PRESENCE];
const SHAPES: readonly Operator[] = ['eq', 'neq', ...PRESENCE, ...GEOMETRY_OPERATORS, ...DISTANCE_OPERATORS];

const BY_TYPE: Readonly<Record<string, readonly Operator[]>> = {
  string: TEXT,
  text: TEXT,
  csv: TEXT,
  binary: TEXT,
  uuid: EQUALITY,
  json: EQUALITY,
  boolean: ['eq', 'neq', ...PRESENCE],
  integer: ORDERED,
  bigInteger: ORDERED,
  decimal: ORDERED,
  float: ORDERED,
  date: ORDERED,
  dateTime: ORDERED,
  time: ORDERED,
  timestamp: ORDERED,
  unknown: [...ORDERED, 'empty', 'nempty'],
};

/** Texts as PostgreSQL has them: neither enums, intervals nor bytes. */
const TEXT_TYPES: ReadonlySet<string> = new Set(['text', 'varchar', 'bpchar', 'citext']);

/** Types of PostgreSQL without a field type. */
const BY_BASE_TYPE: Readonly<Record<string, readonly Operator[]>> = {
  inet: NETWORK_OPERATORS,
  cidr: NETWORK_OPERATORS,
  ltree: TREE_OPERATORS,
  tsvector: ['fts'],
};

export function checkOperator(operator: Operator, operand: OperandPlan): void {
  if (operator === 'submitted') return;
  const { type, operators } = allowedOperators(operand);
  if (!operators.includes(operator)) {
    throw invalidQuery(`"${type}" field type does not contain the "_${operator}" filter operator`);
  }
}

/** As a filter writes them. */
export function operatorNames(operand: OperandPlan): string[] {
  return allowedOperators(operand).operators.map((operator) => `_${operator}`);
}

function allowedOperators(operand: OperandPlan): { type: string; operators: readonly Operator[] } {
  switch (operand.kind) {
    case 'field':
      return operatorsOf(operand.field);
    case 'json':
      return { type: 'json path', operators: TEXT };
    case 'aggregate':
      return { type: 'aggregate', operators: ORDERED };
    default:
      return { type: 'integer', operators: ORDERED };
  }
}

function operatorsOf(field: Field): { type: string; operators: readonly Operator[] } {
  if (isSecretField(field)) return { type: 'hash', operators: SECRET };
  const { type, column } = field;
  if (type.startsWith('geometry')) return { type, operators: SHAPES };
  if (column?.is_array) return { type: column.data_type, operators: [...ORDERED, ...ARRAY_OPERATORS] };
  const operators = BY_TYPE[type] ?? PRESENCE;
  if (type === 'json') return { type, operators: isJson(field) ? [...operators, ...DOCUMENT_OPERATORS] : operators };
  if ((type === 'string' || type === 'text') && column && TEXT_TYPES.has(column.base_type))
    return { type, operators: [...operators, ...SEARCH_OPERATORS] };
  if (type !== 'unknown' || !column) return { type, operators };
  const own = column.inner ? RANGE_OPERATORS : (BY_BASE_TYPE[column.base_type] ?? []);
  return { type: column.data_type, operators: [...operators, ...own] };
}

/** The type of an operator's value; for most it is that of the field. */
export function comparedTypeOf(operator: Operator, operand: OperandPlan): OperandType {
  const type = operandType(operand);
  const codec = codecOf(operator, operand);
  return codec === null ? type : { codec, composite: null, label: type.label, operator };
}

function codecOf(operator: Operator, operand: OperandPlan): string | null {
  const inner = operand.kind === 'field' ? operand.field.column?.inner : null;
  switch (operator) {
    case 'contains_all':
    case 'contains_any':
    case 'contained_in':
    case 'contains_value':
      return inner?.type ?? 'text';
    case 'overlaps':
    case 'adjacent':
      return inner?.kind ?? 'text';
    case 'json_contains':
      return 'jsonb';
    case 'has_key':
    case 'fts':
    case 'similar':
      return 'text';
    case 'descendant_of':
    case 'ancestor_of':
      return 'ltree';
    case 'within_network':
      return 'network';
    case 'within':
    case 'covers':
    case 'dwithin':
      return 'geojson';
    default:
      return null;
  }
}
