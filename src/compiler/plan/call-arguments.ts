/** The arguments of a call, checked against their types before PostgreSQL sees them, so that an error names the argument. */

import { invalidQuery, ServiceError } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import type { Argument } from '../model/model.js';
import type { Value, Values } from '../sql/parameter.js';
import type { CallPlan } from './plan.js';
import { checkValue } from './write/column-value.js';

export function checkArguments(calls: readonly CallPlan[], values: Values): void {
  for (const call of calls) {
    for (const { argument, slot } of call.arguments) {
      if (slot !== null) checkArgument(argument, typeof slot === 'number' ? values[slot] : slot.constant);
    }
  }
}

function checkArgument({ name, field }: Argument, value: Value | undefined): void {
  const argumentValue = plainValue(
    value,
    field.column?.is_array || field.column?.composite !== null || field.type === 'json',
  );
  try {
    checkValue(field, argumentValue, name);
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    throw invalidQuery(`Argument "${name}": ${error.message.replace(/^[^.]*\. |\.$/g, '')}`);
  }
}

/** PostgreSQL checks the texts of arrays, records and documents. */
function plainValue(value: Value | undefined, isDocument: boolean): unknown {
  if (typeof value === 'string' && isDocument) return null;
  if (typeof value !== 'object' || value === null || !('json' in value)) return value;
  return value.text !== undefined && !isDocument ? value.text : parseJson(value.json);
}
