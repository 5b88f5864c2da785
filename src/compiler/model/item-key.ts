/** The key of a collection: one column, several, or none if its items cannot be identified. */
import { elementAt } from '../../base/narrow.js';
import { type Collection, type Field, isSecretField } from './model.js';
import { isReadable } from './write-facts.js';

/** The only column of the key, or null if the key has several or there is none. */
export function singleKey({ key }: Collection): Field | null {
  return key.length === 1 ? elementAt(key, 0) : null;
}

/** Throws unless the key is one column, as in all collections of the service itself. */
export function requireSingleKey(collection: Collection): Field {
  const key = singleKey(collection);
  if (!key) throw new Error(`the key of "${collection.name}" is not one column`);
  return key;
}

/** The column of the key that a sequence fills, or null if none does. */
export function countedKey({ key }: Collection): Field | null {
  return key.find(({ column }) => column?.sequence) ?? null;
}

export function isKey({ key }: Collection, field: Field | null | undefined): boolean {
  return key.length === 1 ? key[0] === field : field !== null && field !== undefined && key.includes(field);
}

export function keyNames({ key }: Collection): string[] {
  return key.map(({ name }) => name);
}

/** Whether the caller may see all columns of the key. The collection is part of the caller's model. */
export function showsKey({ key, fields }: Collection): boolean {
  return key.length > 0 && key.every(({ name }) => fields.has(name));
}

/** Whether entity tags of items have a row part. */
export function isTagged({ key, rowTag }: Pick<Collection, 'key' | 'rowTag'>): boolean {
  return key.length > 0 && rowTag !== null;
}

/** Whether no two rows have the same values in these columns: a unique index covers them, or some of them. */
export function areUnique({ uniqueKeys }: Pick<Collection, 'uniqueKeys'>, names: readonly string[]): boolean {
  return uniqueKeys.some((key) => key.length > 0 && key.every((name) => names.includes(name)));
}

/** Whether items of the collection may have content versions, which name them by their keys. */
export function hasVersions({ meta, key }: Pick<Collection, 'meta' | 'key'>): boolean {
  return meta?.['versioning'] === true && key.length > 0;
}

/** The columns of the row part of an entity tag, where it is a digest. Concealed values are left out: they could be found by trial. */
export function digestedFields({ fields }: Collection): Field[] {
  const isDigested = (field: Field): boolean =>
    field.column !== null && !field.computed && isReadable(field) && !isSecretField(field);
  return [...fields.values()].filter(isDigested);
}
