/** Which names a snapshot may hold: more than a request may create, since the snapshot may come from an older database. */
import { invalidPayload } from '../../base/errors.js';
import { checkNewName } from '../change/plan-names.js';

/** Letters and digits of any script, and between them characters that are harmless in a URL, a field path and a shell. */
const NAME = /^[\p{L}_][\p{L}\p{M}\p{N}_$]*(?:[ .-][\p{L}\p{M}\p{N}_$]+)*$/u;

/** Whether a collection of that name can be created in another database. */
export function isPortableCollectionName(name: string): boolean {
  return isValidName(name) && !name.startsWith('pg_');
}

export function checkSpelling(name: string, what: 'collection' | 'field' | 'type'): void {
  checkNewName(name);
  if (!isValidName(name)) throw invalidPayload(`${JSON.stringify(name)} cannot be the name of a ${what}`);
}

/** Whether a field of that name can be created in another database. */
export function isPortableName(name: string): boolean {
  return isValidName(name) && Buffer.byteLength(name) <= 63;
}

function isValidName(name: string): boolean {
  return NAME.test(name) && !name.startsWith('__');
}
