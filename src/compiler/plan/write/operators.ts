/** Operators of a payload: which objects are operators, and whether they fit the field, its item and the caller's permissions. */
import { invalidPayload } from '../../../base/errors.js';
import { isObject } from '../../../base/exact-json.js';
import { isKey, singleKey } from '../../model/item-key.js';
import type { Field, Model } from '../../model/model.js';
import { isIntercepted } from '../../model/write-facts.js';
import {
  type NamedOperator,
  namedOperator,
  Operated,
  operatorsOf,
  SET,
  takesObjects,
  type UpdateOperator,
} from '../../request/update-operators.js';
import { checkValue } from './column-value.js';
import type { Guard } from './guard.js';
import type { Row, WritePlanContext } from './payload-row.js';
import { changedKey } from './resolve-conflicts.js';

/** The item that an operator changes. */
type OperatedRow = Pick<Row, 'collection' | 'verb'>;

export class PayloadOperators {
  constructor(
    private readonly context: Pick<WritePlanContext, 'operators' | 'isLiteral' | 'model'>,
    private readonly guard: Guard | null,
  ) {}

  /** The value of a field as the payload means it: an operator is an `Operated`, `{"_set": value}` is the value. */
  read(row: OperatedRow, field: Field, value: unknown, path: string): unknown {
    if (!isObject(value) || !field.column) return value;
    if (value instanceof Operated) return this.#check(row, field, value, path);
    const { operators, isLiteral } = this.context;
    if (!operators || isLiteral || row.collection.system) return value;
    const named = operatorIn(field, value, this.context.model);
    if (!named) return value;
    const { key, operator, isMixed } = named;
    if (isKey(row.collection, field) && !takesObjects(field)) refuseKey(row, path);
    if (row.verb === 'insert' && operators !== 'all') {
      if (operator === null && !isMixed) return value[SET];
      if (takesObjects(field)) return value;
    }
    if (isMixed)
      throw invalidPayload(
        `"${path}" has other keys next to "${key}". An operator is the only key of its object. To store the object, send {"${SET}": {...}}`,
      );
    return operator === null ? value[SET] : this.#check(row, field, new Operated(operator, value[key]), path);
  }

  /** An operator reads the stored value, and errors may reveal it: the caller needs permission to read the field. */
  #check({ collection, verb }: OperatedRow, field: Field, { operator, operand }: Operated, path: string): Operated {
    if (verb === 'insert' && this.context.operators !== 'all')
      throw invalidPayload(`"${path}": "_${operator}" changes an item that exists, so a new item cannot have it`);
    if (isKey(collection, field)) throw changedKey(path, collection);
    const allowed = operatorsOf(field);
    if (!allowed.includes(operator)) {
      const others = [...allowed.map((each) => `_${each}`), SET].join(', ');
      throw invalidPayload(
        `"${path}": "_${operator}" does not apply to a field of type ${field.type}. Possible: ${others}`,
      );
    }
    if (collection.distributed && collection.shardColumn === field.name)
      throw invalidPayload(
        `"${path}": "_${operator}" does not apply to the distribution column of "${collection.name}"`,
      );
    // Such a trigger computes the new row from the snapshot of the statement: of two changes at once, one would be lost.
    if (collection.kind === 'view' && isIntercepted(collection, 'update'))
      throw invalidPayload(
        `"${path}": "_${operator}" does not apply to "${collection.name}", a view that a trigger writes`,
      );
    this.guard?.checkReadable(collection, field, path);
    return new Operated(operator, checkOperand(field, operator, operand, `${path}._${operator}`));
  }
}

/** The operator that an object names, or null if it is a value or a related item. Fields without a column have no operators. */
export function operatorIn(field: Field, value: Readonly<Record<string, unknown>>, model: Model): NamedOperator | null {
  const named = field.column ? namedOperator(value) : null;
  return named && !isRelated(field, named.key, model) ? named : null;
}

/** Whether an object with this key may describe a related item: its collection has a field with the name of an operator. */
function isRelated({ relation }: Field, key: string, model: Model): boolean {
  if (relation?.kind !== 'many-to-one' && relation?.kind !== 'many-to-any') return false;
  const targets = relation.kind === 'many-to-one' ? [relation.oneCollection] : relation.allowedCollections;
  return targets.some((name) => model.collections.get(name)?.fields.has(key));
}

/** A part of a composite key is a column of a new item. */
function refuseKey({ collection, verb }: OperatedRow, path: string): void {
  if (verb !== 'insert') throw changedKey(path, collection);
  if (singleKey(collection)) throw invalidPayload(`"${path}" is the key of "${collection.name}": send a single value`);
}

/** `path` leads to the operand. */
export function checkOperand(field: Field, operator: UpdateOperator, operand: unknown, path: string): unknown {
  if (operand === null || operand === undefined) throw invalidPayload(`The value of "${path}" must not be null`);
  if (operator === 'merge' && !isObject(operand)) throw invalidPayload(`The value of "${path}" must be an object`);
  const isList = field.column?.is_array || field.type === 'json';
  return checkValue(field, operator === 'append' && isList && !Array.isArray(operand) ? [operand] : operand, path);
}
