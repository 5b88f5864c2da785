/**
 * The service's own tables and fields. The files of sql/server/system and those of features define them, and an installation records the names
 * of its tables: those of a feature that was deleted stay tables of the service. Which of the tables of a database they are is known by
 * where an installation is (migrate.ts), so a user's table may have any name.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { packagePath } from '../../../base/package-files.js';
import { definedFields } from '../../../compiler/sql/definitions.js';

/** A migration, or the demo model. */
export interface SystemFile {
  readonly name: string;
  readonly text: string;
}

/** Lists what has been carried out: where it is, there is an installation. */
export const MIGRATIONS = 'service_migrations';

const CORE_FOLDER = packagePath('sql', 'server', 'system');

/** The registered migrations, by their names. */
const files = new Map<string, SystemFile>();
const tables = new Set<string>([MIGRATIONS]);
let fields: ReadonlySet<string> | null = null;

/** The files of sql/server/system and those of features, in the order of their names. */
export function readMigrations(paths: readonly string[]): readonly SystemFile[] {
  const core = readdirSync(CORE_FOLDER).filter((name) => name.endsWith('.sql'));
  return [...core.map((name) => packagePath('sql', 'server', 'system', name)), ...paths]
    .map((path) => ({ name: basename(path), text: readFileSync(path, 'utf8') }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** To be called before a database is opened. */
export function addMigrations(added: readonly SystemFile[]): void {
  for (const file of added) files.set(file.name, file);
  addSystemTables(added.flatMap(tablesOf));
  fields = null;
}

/** Adds the tables that an installation has recorded. */
export function addSystemTables(names: readonly string[]): void {
  for (const name of names) tables.add(name);
}

/** In the order in which they are carried out. */
export function systemFiles(): readonly SystemFile[] {
  if (files.size === 0) addMigrations(readMigrations([]));
  return [...files.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** The names of the service's own tables. No other collection has one of them. */
export function systemTables(): ReadonlySet<string> {
  if (files.size === 0) addMigrations(readMigrations([]));
  return tables;
}

/** Each `create table` of a migration begins a line, so a pattern finds it: the grammar is not loaded this early. */
export function tablesOf({ text }: SystemFile): string[] {
  return [...text.matchAll(/^create (?:unlogged )?table (\w+)/gm)].map(([, name = '']) => name);
}

/**
 * Whether the field of a system collection is defined by the service; others are the user's own. All fields of a table are the service's if
 * no migration here defines it.
 */
export function isSystemField(collection: string, field: string): boolean {
  fields ??= new Set(
    systemFiles().flatMap(({ text }) => definedFields(text).flatMap(([table, name]) => [table, `${table} ${name}`])),
  );
  return fields.has(`${collection} ${field}`) || (tables.has(collection) && !fields.has(collection));
}
