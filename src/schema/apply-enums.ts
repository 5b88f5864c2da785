/** Types that list their values: made where they are missing, and taught the values that are new. None is ever taken away. */
import { invalidPayload } from '../errors.js';
import { checkSpelling } from './apply-names.js';
import type { DdlStatement } from './ddl-statement.js';
import { enumNameOf, type FieldEntry } from './parse-snapshot.js';
import type { Details } from './snapshot.js';

export function planEnums(fields: readonly FieldEntry[], { enums }: Details): DdlStatement[] {
  return [...valuesByType(fields)].flatMap(([type, values]): DdlStatement[] => {
    const present = Object.hasOwn(enums, type) ? enums[type] : undefined;
    if (present) return addValues(type, present, values);
    checkSpelling(type, 'type');
    return [{ kind: 'create-enum', type, values }];
  });
}

function valuesByType(fields: readonly FieldEntry[]): ReadonlyMap<string, readonly string[]> {
  const types = new Map<string, readonly string[]>();
  for (const { schema } of fields) {
    const type = schema?.enum_values ? enumNameOf(schema.data_type) : null;
    if (!schema?.enum_values || type === null) continue;
    const former = types.get(type);
    if (former && JSON.stringify(former) !== JSON.stringify(schema.enum_values))
      throw invalidPayload(`The fields of type "${type}" do not agree on its values`);
    types.set(type, schema.enum_values);
  }
  return types;
}

function addValues(type: string, present: readonly string[], wanted: readonly string[]): DdlStatement[] {
  const kept = wanted.filter((value) => present.includes(value));
  if (JSON.stringify(kept) !== JSON.stringify(present))
    throw invalidPayload(`The values of the type "${type}" can only grow: none can leave or change its place`);
  return wanted.flatMap((value, position): DdlStatement[] => {
    if (present.includes(value)) return [];
    const before = position === 0 ? (present[0] ?? null) : null;
    return [
      { kind: 'add-enum-value', type, value, before, after: position === 0 ? null : (wanted[position - 1] ?? null) },
    ];
  });
}
