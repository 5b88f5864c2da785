/** Keys of a payload, checked against the column they name an item by. */
import { Digits } from '../digits.js';
import { forbidden, invalidPayload } from '../errors.js';
import type { Collection } from '../mirror/model.js';
import type { Key } from '../request/write.js';
import { forEachInSlices } from '../time-slices.js';
import { checkValue } from './column-value.js';

export function givenKey(collection: Collection, payload: Readonly<Record<string, unknown>>, path: string): Key | null {
  const given = payload[collection.primaryKey.name];
  if (given === undefined || given === null) return null;
  if (typeof given === 'object' && !(given instanceof Digits))
    throw invalidPayload(`The key of "${path || collection.name}" must be a single value`);
  return checkKey(collection, given);
}

/** A key that does not fit its column names no item. */
export function checkKey(collection: Collection, key: unknown): Key {
  if (typeof key !== 'string' && typeof key !== 'number' && !(key instanceof Digits))
    throw invalidPayload(`A key of "${collection.name}" must be a string or a number`);
  try {
    return checkValue(collection.primaryKey, key, collection.primaryKey.name) as Key;
  } catch {
    throw forbidden();
  }
}

/** What no item could have as its key is no reference. */
export function checkReference(target: Collection, key: unknown, place: string): void {
  try {
    checkKey(target, key);
  } catch {
    throw invalidPayload(`"${place}" cannot be a key of "${target.name}"`);
  }
}

/** A key as it is shown, from the text that PostgreSQL reads. */
export function shownKey({ primaryKey }: Collection, key: unknown): string {
  const text = String(key);
  return primaryKey.type === 'binary' ? Buffer.from(text.slice(2), 'hex').toString('base64') : text;
}

export async function checkKeys(collection: Collection, keys: readonly unknown[]): Promise<void> {
  await forEachInSlices(keys, (key) => void checkKey(collection, key));
}
