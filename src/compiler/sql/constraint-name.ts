/** Names of constraints and indexes that the service makes, or proposes. */
import { createHash } from 'node:crypto';

const MAX_NAME_BYTES = 63;

/** `articles_slug_unique`. Names that are shortened or spelt otherwise get a digest, so that they stay unique. */
export function constraintName(
  table: string,
  column: string,
  suffix: 'unique' | 'index' | 'foreign' | 'check',
): string {
  const exact = `${table}_${column}_${suffix}`;
  const name = exact.toLowerCase().replace(/[^\w]/g, '_');
  if (name === exact && Buffer.byteLength(exact) <= MAX_NAME_BYTES) return name;
  const digest = createHash('sha256')
    .update(JSON.stringify([table, column]))
    .digest('hex')
    .slice(0, 8);
  return `${name.slice(0, MAX_NAME_BYTES - suffix.length - digest.length - 2)}_${digest}_${suffix}`;
}
