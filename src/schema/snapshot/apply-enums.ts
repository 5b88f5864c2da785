/** Enum types: created where they are missing, and extended by new values. No value is ever removed. */
import { invalidPayload } from '../../base/errors.js';
import type { DdlStatement } from '../change/ddl-statement.js';
import { checkSpelling } from './apply-names.js';
import { type EnumName, enumKey, enumNameOf, type FieldEntry } from './parse-snapshot.js';
import type { Details } from './snapshot-scope.js';

export function planEnums(
  fields: readonly FieldEntry[],
  { enums }: Details,
  schemas: readonly string[],
): DdlStatement[] {
  return valuesByType(fields).flatMap(([type, values]): DdlStatement[] => {
    const present = enums.get(enumKey(type));
    if (present) return addValues(type, present, values);
    checkSpelling(type.name, 'type');
    if (type.schema !== null && !schemas.includes(type.schema))
      throw invalidPayload(`The type "${type.name}" is in schema "${type.schema}", which is not in DATABASE_SCHEMAS`);
    return [{ kind: 'create-enum', schema: type.schema, type: type.name, values }];
  });
}

type EnumValues = readonly [type: EnumName, values: readonly string[]];

function valuesByType(fields: readonly FieldEntry[]): EnumValues[] {
  const types = new Map<string, EnumValues>();
  for (const { schema } of fields) {
    const type = schema?.enum_values ? enumNameOf(schema.data_type) : null;
    if (!schema?.enum_values || type === null) continue;
    const former = types.get(enumKey(type));
    if (former && JSON.stringify(former[1]) !== JSON.stringify(schema.enum_values))
      throw invalidPayload(`The fields of type "${type.name}" do not agree on its values`);
    types.set(enumKey(type), [type, schema.enum_values]);
  }
  return [...types.values()];
}

function addValues(
  { schema, name: type }: EnumName,
  present: readonly string[],
  wanted: readonly string[],
): DdlStatement[] {
  const remaining = wanted.filter((value) => present.includes(value));
  if (JSON.stringify(remaining) !== JSON.stringify(present))
    throw invalidPayload(`The values of the type "${type}" can only be added to: none can be removed or moved`);
  return wanted.flatMap((value, position): DdlStatement[] => {
    if (present.includes(value)) return [];
    const before = position === 0 ? (present[0] ?? null) : null;
    const after = position === 0 ? null : (wanted[position - 1] ?? null);
    return [{ kind: 'add-enum-value', schema, type, value, before, after }];
  });
}
