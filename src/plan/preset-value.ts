/** Values that policies give to fields. */
import { forbidden } from '../base/errors.js';
import type { Field, Model } from '../mirror/model.js';
import { parseVariable } from '../request/filter.js';
import { resolveVariable } from '../sql/parameter.js';
import { planCaller } from './caller-value.js';
import { checkValue } from './write/column-value.js';
import type { ColumnValue, WriteVariables } from './write/payload-row.js';

type PresetValue = Extract<ColumnValue, { kind: 'value' | 'caller' }>;

/** What a policy gives to a field that the payload leaves out: a value, or a variable of the caller. */
export function presetValue(field: Field, value: unknown, variables: WriteVariables, model: Model): PresetValue {
  try {
    const variable = typeof value === 'string' ? parseVariable(value) : null;
    if (variable?.kind === 'path') return { kind: 'caller', plan: planCaller(variable.name, variable.path, model) };
    const resolved = variable ? resolveVariable(variable.text, variables) : value;
    return { kind: 'value', value: checkValue(field, resolved, field.name) };
  } catch {
    // A preset that is not valid must not be dropped: the write is refused.
    throw forbidden();
  }
}
