/** The rows that say which functions may be called: those that leave, come or change. */
import type { DdlStatement } from '../change/ddl-statement.js';
import { canonical } from './difference.js';
import type { DeclaredFunction } from './parse-function.js';

/** Without `wanted` nothing is said of them: all stay as they are. */
export function planFunctions(
  current: readonly DeclaredFunction[],
  wanted: readonly DeclaredFunction[] = current,
): DdlStatement[] {
  const former = new Map(current.map((entry) => [entry.name, canonical(entry)]));
  const wantedNames = new Set(wanted.map(({ name }) => name));
  return [
    ...current.flatMap(({ name }) => (wantedNames.has(name) ? [] : [{ kind: 'drop-function-row', name } as const])),
    ...wanted.flatMap((entry) => {
      const { name, ...values } = entry;
      return former.get(name) === canonical(entry) ? [] : [{ kind: 'save-function', name, values } as const];
    }),
  ];
}
