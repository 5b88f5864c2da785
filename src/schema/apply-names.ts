/** How names that come with a snapshot may be spelt. Wider than for new fields of a request: databases have grown elsewhere. */
import { invalidPayload } from '../errors.js';
import { checkNewName } from './plan-names.js';

/** Letters and digits of any script, and what is harmless between them in a URL, a path of fields and a shell. */
const NAME = /^[\p{L}_][\p{L}\p{M}\p{N}_$]*(?:[ .-][\p{L}\p{M}\p{N}_$]+)*$/u;

/** Whether a collection of that name could be made elsewhere. */
export function isMovable(name: string): boolean {
  return isWellSpelt(name) && !name.startsWith('pg_');
}

export function checkSpelling(name: string, what: 'collection' | 'field' | 'type'): void {
  checkNewName(name);
  if (!isWellSpelt(name)) throw invalidPayload(`${JSON.stringify(name)} cannot be the name of a ${what}`);
}

/** Whether a field of that name could be made elsewhere. */
export function isMovableField(name: string): boolean {
  return isWellSpelt(name) && Buffer.byteLength(name) <= 63;
}

function isWellSpelt(name: string): boolean {
  return NAME.test(name) && !name.startsWith('__');
}
