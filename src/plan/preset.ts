/** Presets: what a policy gives to a field that the payload leaves out, a value or a variable of the caller. */
import { forbidden } from '../errors.js';
import type { Field, Model } from '../mirror/model.js';
import { parseVariable } from '../request/variables.js';
import { resolveVariable } from '../sql/parameter.js';
import { checkValue } from './column-value.js';
import { planCaller } from './filter.js';
import type { ColumnValue, WriteVariables } from './payload-row.js';

export type PresetValue = Extract<ColumnValue, { kind: 'value' | 'caller' }>;

export function presetValue(field: Field, value: unknown, variables: WriteVariables, model: Model): PresetValue {
  try {
    const variable = typeof value === 'string' ? parseVariable(value) : null;
    if (variable?.kind === 'path') return { kind: 'caller', plan: planCaller(variable.name, variable.path, model) };
    const given = variable ? resolveVariable(variable.text, variables) : value;
    return { kind: 'value', value: checkValue(field, given, field.name) };
  } catch {
    // Whoever may write only what a policy says, and the policy says nonsense, may not write.
    throw forbidden();
  }
}
