/** Statements of the folder sql, with the names of PostgreSQL's own operators and functions qualified. */
import { readFileSync } from 'node:fs';
import { packagePath } from '../../base/package-files.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';

/** `readSql('server', 'auth', 'begin.sql')`. */
export function readSql(...path: string[]): string {
  return withCatalog(readFileSync(packagePath('sql', ...path), 'utf8'));
}
