/** Operators in the payload of a change, such as `{"views": {"_increment": 1}}`: the new value is computed from the stored one. */
import type { Field } from '../model/model.js';
import { isReadable } from '../model/write-facts.js';

export const UPDATE_OPERATORS = ['increment', 'decrement', 'append', 'merge'] as const;

export type UpdateOperator = (typeof UPDATE_OPERATORS)[number];

/** `{"_set": value}` is the value itself: JSON that looks like an operator is written with it. */
export const SET = '_set';

/** An operator with its operand. A class, so that no object of a payload is one by its keys. */
export class Operated {
  constructor(
    readonly operator: UpdateOperator,
    readonly operand: unknown,
  ) {}
}

/** A key of a payload's object that names an operator, or `_set`. */
export interface NamedOperator {
  readonly key: string;
  readonly operator: UpdateOperator | null;
  /** Whether the object has other keys as well. */
  readonly isMixed: boolean;
}

/** The operator that a key of the object names, or null if no key does. */
export function namedOperator(value: Readonly<Record<string, unknown>>): NamedOperator | null {
  const operator = UPDATE_OPERATORS.find((each) => Object.hasOwn(value, `_${each}`)) ?? null;
  if (operator === null && !Object.hasOwn(value, SET)) return null;
  return { key: operator === null ? SET : `_${operator}`, operator, isMixed: Object.keys(value).length > 1 };
}

const NUMBERS = /^(int[248]|numeric|float[48]|money|interval)$/;
const TEXTS = /^(text|varchar|bpchar|citext)$/;
const DOCUMENTS = /^jsonb?$/;

/** The operators that fit the type of the field. An operator reads the stored value, so secrets and unreadable columns have none. */
export function operatorsOf(field: Field): readonly UpdateOperator[] {
  const { column, relation, computed, type, special } = field;
  if (!column || relation || computed || column.is_generated || column.identity === 'always') return [];
  if (!isReadable(field) || type === 'hash' || special.some((flag) => /^(conceal|digest|hash)$/.test(flag))) return [];
  if (column.is_array) return ['append'];
  if (DOCUMENTS.test(column.base_type)) return ['append', 'merge'];
  if (NUMBERS.test(column.base_type) && !column.is_primary_key) return ['increment', 'decrement'];
  return TEXTS.test(column.base_type) && /^(text|string|csv)$/.test(type) ? ['append'] : [];
}

/** Whether values of the field may be objects, so that an object with the name of an operator may be a value. */
export function takesObjects({ type, column }: Field): boolean {
  return (
    column !== null &&
    !column.is_array &&
    (type === 'json' || column.composite !== null || column.base_type === 'hstore')
  );
}
