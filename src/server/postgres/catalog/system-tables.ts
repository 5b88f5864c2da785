/**
 * The service's own tables and fields, which the files of sql/server/system define. Which of the tables of a
 * database they are is known by where an installation is (migrate.ts), so a user's table may have any name.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { packagePath } from '../../../base/package-files.js';
import { definedFields } from '../../../compiler/sql/definitions.js';

/** A file of sql/server/system, or the demo model. */
export interface SystemFile {
  readonly name: string;
  readonly text: string;
}

/** Lists what has been carried out: where it is, there is an installation. */
export const MIGRATIONS = 'service_migrations';

let known: SystemFile[] | null = null;

/** In the order in which they are carried out. */
export function systemFiles(): readonly SystemFile[] {
  const folder = packagePath('sql', 'server', 'system');
  known ??= readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((name) => ({ name, text: readFileSync(packagePath('sql', 'server', 'system', name), 'utf8') }));
  return known;
}

let tables: ReadonlySet<string> | null = null;

/** The names of the service's own tables. No other collection has one of them. */
export function systemTables(): ReadonlySet<string> {
  tables ??= new Set([MIGRATIONS, ...systemFiles().flatMap(tablesOf)]);
  return tables;
}

/** Each `create table` of a migration begins a line, so a pattern finds it: the grammar is not loaded this early. */
export function tablesOf({ text }: SystemFile): string[] {
  return [...text.matchAll(/^create (?:unlogged )?table (\w+)/gm)].map(([, name = '']) => name);
}

let fields: ReadonlySet<string> | null = null;

/** Whether the field of a system collection is defined by the service; others are the user's own. */
export function isSystemField(collection: string, field: string): boolean {
  fields ??= new Set(systemFiles().flatMap(({ text }) => definedFields(text).map((pair) => pair.join(' '))));
  return fields.has(`${collection} ${field}`);
}
