/** Types of a snapshot's columns that no step creates: they must exist in the database. */
import { invalidPayload } from '../../base/errors.js';
import { quoteIdentifier } from '../../sql/fragment.js';
import type { ColumnType, DdlStatement, ExactType } from '../change/ddl-statement.js';
import { enumKey } from './parse-snapshot.js';

/** `type`: quoted, without modifiers. */
export interface NeededType {
  readonly type: string;
  readonly fields: readonly string[];
}

/** Not types, but accepted as such in a column definition. */
const SERIAL = /^(small|big)?serial$|^serial[248]$/;

export function neededTypes(steps: readonly DdlStatement[]): NeededType[] {
  // The rows of a table are a type too.
  const created = new Set(
    steps.flatMap((step) =>
      step.kind === 'create-enum'
        ? [enumKey({ schema: step.schema, name: step.type })]
        : step.kind === 'create-table'
          ? [enumKey({ schema: null, name: step.table })]
          : [],
    ),
  );
  const needed = new Map<string, string[]>();
  for (const { field, type } of steps.flatMap(typedColumns)) {
    if (type.type !== 'exact') continue;
    const { names } = type.name;
    const own = names.at(-1) ?? '';
    if (created.has(enumKey({ schema: names.length === 1 ? null : (names[0] ?? null), name: own })) || SERIAL.test(own))
      continue;
    const name = names.map(quoteIdentifier).join('.');
    needed.set(name, [...(needed.get(name) ?? []), field]);
  }
  return [...needed].map(([type, fields]) => ({ type, fields }));
}

interface TypedColumn {
  readonly field: string;
  readonly type: ColumnType | ExactType;
}

function typedColumns(step: DdlStatement): TypedColumn[] {
  switch (step.kind) {
    case 'create-table':
      return step.columns.map(({ name, type }) => ({ field: `${step.table}.${name}`, type }));
    case 'add-column':
      return [{ field: `${step.table}.${step.column.name}`, type: step.column.type }];
    case 'change-type':
      return [{ field: `${step.table}.${step.column}`, type: step.type }];
    default:
      return [];
  }
}

export function refuseMissing(missing: readonly NeededType[]): void {
  if (missing.length === 0) return;
  const list = missing.map(({ type, fields }) => `the type ${type} of ${fields.map((each) => `"${each}"`).join(', ')}`);
  throw invalidPayload(`The database does not have ${list.join(', nor ')}: create it there first`);
}
