/** Names of constraints and indexes that the service makes, or proposes. */
import { sha256 } from '../../base/sha256.js';
import { isLongerThan } from '../../base/utf8.js';

const MAX_NAME_BYTES = 63;

/** `articles_slug_unique`. Names that are shortened or spelt otherwise get a digest, so that they stay unique. */
export function constraintName(
  table: string,
  column: string,
  suffix: 'unique' | 'index' | 'foreign' | 'check',
): string {
  const exact = `${table}_${column}_${suffix}`;
  const name = exact.toLowerCase().replace(/[^\w]/g, '_');
  if (name === exact && !isLongerThan(exact, MAX_NAME_BYTES)) return name;
  const digest = sha256(JSON.stringify([table, column])).slice(0, 8);
  return `${name.slice(0, MAX_NAME_BYTES - suffix.length - digest.length - 2)}_${digest}_${suffix}`;
}
