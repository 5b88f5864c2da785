/** Which fields of the system collections are the service's own: those that the files of sql/system define. */
import { readdirSync, readFileSync } from 'node:fs';
import { packagePath } from '../files.js';
import type { Protected } from '../plan/structure.js';
import { definedFields } from '../sql/definitions.js';

let known: ReadonlySet<string> | null = null;

export function systemFields(): Protected {
  known ??= new Set(readFiles().flatMap((text) => definedFields(text).map(([table, field]) => `${table} ${field}`)));
  const fields = known;
  return { isSystemField: (collection, field) => fields.has(`${collection} ${field}`) };
}

function readFiles(): string[] {
  const folder = packagePath('sql', 'system');
  const names = readdirSync(folder).filter((name) => name.endsWith('.sql'));
  return names.map((name) => readFileSync(packagePath('sql', 'system', name), 'utf8'));
}
