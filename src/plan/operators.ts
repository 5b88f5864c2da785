/** Which operators suit which type of field. */
import { invalidQuery } from '../errors.js';
import { type Field, type FieldType, isSecretField } from '../mirror/model.js';
import type { Operator } from '../request/ast.js';
import type { OperandPlan } from './plan.js';

const PRESENCE: readonly Operator[] = ['null', 'nnull'];
const EQUALITY: readonly Operator[] = ['eq', 'neq', 'in', 'nin', ...PRESENCE];
const ORDERED: readonly Operator[] = [...EQUALITY, 'lt', 'lte', 'gt', 'gte', 'between', 'nbetween'];
const TEXT: readonly Operator[] = [
  ...ORDERED,
  'contains',
  'ncontains',
  'icontains',
  'starts_with',
  'nstarts_with',
  'istarts_with',
  'nistarts_with',
  'ends_with',
  'nends_with',
  'iends_with',
  'niends_with',
  'empty',
  'nempty',
  'regex',
];
const SECRET: readonly Operator[] = ['empty', 'nempty', ...PRESENCE];
const SHAPES: readonly Operator[] = [
  'eq',
  'neq',
  ...PRESENCE,
  'intersects',
  'nintersects',
  'intersects_bbox',
  'nintersects_bbox',
];

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

export function checkOperator(operator: Operator, operand: OperandPlan): void {
  if (operator === 'submitted') return;
  const { type, operators } = admitted(operand);
  if (!operators.includes(operator)) {
    throw invalidQuery(`"${type}" field type does not contain the "_${operator}" filter operator`);
  }
}

function admitted(operand: OperandPlan): { type: string; operators: readonly Operator[] } {
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

function operatorsOf(field: Field): { type: FieldType; operators: readonly Operator[] } {
  if (isSecretField(field)) return { type: 'hash', operators: SECRET };
  if (field.type.startsWith('geometry')) return { type: field.type, operators: SHAPES };
  if (field.column?.is_array) return { type: field.type, operators: ORDERED };
  return { type: field.type, operators: BY_TYPE[field.type] ?? PRESENCE };
}
