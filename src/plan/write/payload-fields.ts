/** The fields of a payload: which of them are written. */

import { invalidPayload } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { isKey, keyNames } from '../../mirror/item-key.js';
import type { Collection, Field, ManyToOne } from '../../mirror/model.js';
import { isGenerated } from '../kept-value.js';
import { CONCEALED, checkValue } from './column-value.js';
import type { Payload, Row } from './payload-row.js';

/** An empty password leaves the stored one as it is, and so does a secret as it is shown. */
export function isUnchanged(field: Field, value: unknown): boolean {
  return (field.special.includes('hash') && value === '') || (field.special.includes('conceal') && value === CONCEALED);
}

/** The fields that a payload changes: the key only says of which item. */
export function fieldNamesOf(collection: Collection, payload: Payload): string[] {
  const names = keyNames(collection);
  return Object.keys(payload).filter((name) => {
    const field = collection.fields.get(name);
    return !names.includes(name) && !(field && isKeyReference(collection, field));
  });
}

/** Whether the field is a composite reference of key columns: it names the item, as they do. */
export function isKeyReference(
  collection: Collection,
  field: Field,
): field is Field & { readonly relation: ManyToOne } {
  const { column, relation } = field;
  if (column || relation?.kind !== 'many-to-one') return false;
  return relation.columns.every((each) => isKey(collection, collection.fields.get(each.column)));
}

/** The parent decides the reference, whatever the child's payload says of it. */
export function without(payload: Payload, fields: readonly Field[]): Payload {
  const names = fields.map(({ name }) => name);
  return Object.fromEntries(Object.entries(payload).filter(([name]) => !names.includes(name)));
}

/** The detailed form of a list: items to create, update and remove. */
export function stagedLists(
  value: unknown,
  location: string,
): Readonly<Record<'create' | 'update' | 'removed', unknown[]>> {
  if (!isObject(value))
    throw invalidPayload(`"${location}" must be a list, or an object with create, update and delete`);
  const { create = [], update = [], delete: removed = [], ...unknown } = value;
  const [unknownName] = Object.keys(unknown);
  if (unknownName === undefined && Array.isArray(create) && Array.isArray(update) && Array.isArray(removed))
    return { create, update, removed };
  throw invalidPayload(
    `Invalid one-to-many update structure in "${location}": create, update and delete are lists${unknownName === undefined ? '' : `, "${unknownName}" is unknown`}`,
  );
}

export function writableValue({ collection }: Row, field: Field, value: unknown, path: string): unknown {
  if (field.column?.is_generated && !isKey(collection, field)) throw isGenerated(path);
  return checkValue(field, value, path);
}
