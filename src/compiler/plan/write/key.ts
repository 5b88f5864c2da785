/** Keys of a payload, checked against the columns they name an item by. */

import { base64OfHex } from '../../../base/base64.js';
import { forbidden, invalidPayload } from '../../../base/errors.js';
import { Digits, isObject, parseJson, writeJson } from '../../../base/exact-json.js';
import { elementAt } from '../../../base/narrow.js';
import { forEachInSlices } from '../../../base/time-slices.js';
import { isKey, singleKey } from '../../model/item-key.js';
import { type Collection, collectionOf, type Field, type Model } from '../../model/model.js';
import { type Key, readKey, refuseKeys } from '../../request/write.js';
import { strayAttribute } from '../../sql/composite.js';
import { jsonKey, recordKey, recordLiteral } from '../../sql/key-literal.js';
import { joinKey, splitKey } from '../../sql/key-text.js';
import { checkValue } from './column-value.js';

type Payload = Readonly<Record<string, unknown>>;

/** The key of one column that a new item comes with. The parts of a key of several are columns like others. */
function payloadKey(collection: Collection, payload: Payload, path: string): Key | null {
  const field = singleKey(collection);
  const keyValue = field && givenPart(field, payload[field.name]);
  if (keyValue === undefined || keyValue === null) return null;
  if (isNestedValue(keyValue)) throw invalidPayload(`The key of "${path || collection.name}" must be a single value`);
  return checkKey(collection, keyValue);
}

/**
 * The key of a new item: the one in its payload, or that of the nested item whose key it shares. Returns null if the statement
 * generates it.
 */
export function newKey(collection: Collection, payload: Payload, path: string, model: Model): Key | null {
  const key = singleKey(collection);
  const keyValue = key && payload[key.name];
  if (key?.relation?.kind !== 'many-to-one' || !isObject(keyValue)) return payloadKey(collection, payload, path);
  const parent = collectionOf(model, key.relation.oneCollection);
  if (key.relation.referenced !== singleKey(parent)?.name) return payloadKey(collection, payload, path);
  const named = namedKey(parent, keyValue);
  return named === null ? null : checkKey(parent, named);
}

/** A part of the key that follows from the payload's place: the reference to the item that contains it. */
export interface ImpliedPart {
  readonly field: Field;
  readonly value: unknown;
}

/** The key of the item that a payload names, not checked, or null if it names none. */
export function namedKey(collection: Collection, payload: Payload, implied: readonly ImpliedPart[] = []): unknown {
  const sole = singleKey(collection);
  if (sole && implied.length === 0) return givenPart(sole, payload[sole.name]) ?? null;
  const parts = collection.key.map((field) => {
    const impliedPart = implied.find((each) => each.field === field);
    return impliedPart ? impliedPart.value : payloadKeyPart(collection, field, payload);
  });
  if (parts.length === 0 || parts.some((part) => part === null || part === undefined)) return null;
  return sole ? parts[0] : joinKey(parts);
}

/** The key of the item that a payload names, or null if it names none. */
export function readNamedKey(collection: Collection, payload: Payload): Key | null {
  const key = namedKey(collection, payload);
  return isWrongBoolean(collection, key) ? null : readKey(key);
}

/** For a one-to-one relation: the key in the payload must be the one that follows from its place. */
export function checkImplied(
  collection: Collection,
  payload: Payload,
  implied: readonly ImpliedPart[],
  path: string,
): void {
  for (const { field, value } of implied) {
    const keyPart = isKey(collection, field) ? payloadKeyPart(collection, field, payload) : null;
    if (keyPart === null || keyPart === undefined) continue;
    if (String(checkValue(field, keyPart, `${path}.${field.name}`)) !== String(value))
      throw invalidPayload(
        `"${path}.${field.name}" is a part of the key of "${collection.name}" and must refer to the item that contains it`,
      );
  }
}

/** The value of a key column in the payload: by its own name, or by the name of a composite reference. */
function payloadKeyPart(collection: Collection, field: Field, payload: Payload): unknown {
  const keyPart = payload[field.name];
  if (keyPart === undefined) return singleKey(collection) ? null : referencedKeyPart(collection, field, payload);
  if (!isNestedValue(keyPart) || isShownAsJson(field)) return givenPart(field, keyPart);
  return field.relation?.kind === 'many-to-one' ? propertyOf(keyPart, field.relation.referenced) : null;
}

function referencedKeyPart({ fields }: Collection, { name }: Field, payload: Payload): unknown {
  for (const { name: alias, column, relation } of fields.values()) {
    if (column || relation?.kind !== 'many-to-one') continue;
    const position = relation.columns.findIndex((each) => each.column === name);
    const value = position < 0 ? null : payload[alias];
    if (value === null || value === undefined) continue;
    if (isNestedValue(value)) return propertyOf(value, elementAt(relation.columns, position).referenced);
    return splitKey(String(value), relation.columns.length)?.[position] ?? null;
  }
  return null;
}

function propertyOf(document: unknown, name: string): unknown {
  const value = (document as Payload)[name];
  return isNestedValue(value) ? null : value;
}

function isNestedValue(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !(value instanceof Digits);
}

/** A key that does not fit its columns names no item. */
export function checkKey(collection: Collection, key: unknown): Key {
  checkKeyed(collection);
  if (isNestedValue(key) || key === null || key === undefined || isWrongBoolean(collection, key))
    throw invalidPayload(`A key of "${collection.name}" must be a string or a number`);
  const fields = collection.key;
  const parts = fields.length === 1 ? [key] : splitKey(String(key), fields.length);
  if (!parts) throw forbidden();
  try {
    const checked = fields.map((field, position) => checkPart(field, parts[position]));
    return fields.length === 1 ? (elementAt(checked, 0) as Key) : joinKey(checked);
  } catch {
    throw forbidden();
  }
}

/** Only keys of type boolean are shown as booleans. */
function isWrongBoolean(collection: Collection, key: unknown): boolean {
  return typeof key === 'boolean' && singleKey(collection)?.type !== 'boolean';
}

function checkPart(field: Field, part: unknown): unknown {
  const composite = field.column?.composite;
  if (composite) return recordKey(String(part), composite) ?? fail();
  if (field.type === 'boolean') return String(checkValue(field, part, field.name));
  if (field.type !== 'json') return checkValue(field, part, field.name);
  const value = parseJson(jsonKey(String(part)));
  return writeJson(checkValue(field, value, field.name));
}

function fail(): never {
  throw forbidden();
}

function isShownAsJson({ type, column }: Field): boolean {
  return type === 'json' || column?.composite != null;
}

/** The value of a payload for a part of a key, as PostgreSQL's text of that part. */
export function givenPart(field: Field, value: unknown): unknown {
  if (value === undefined || value === null || !isShownAsJson(field)) return value;
  const composite = field.column?.composite;
  if (!composite) return writeJson(value);
  if (!isObject(value)) return value;
  const stray = strayAttribute(value, composite, field.name);
  if (stray !== null) throw invalidPayload(stray);
  return recordLiteral(value, composite);
}

/** The key that an answer shows as this JSON value, or null if the value is not a key. */
export function shownKey(collection: Collection, value: unknown): Key | null {
  if (!hasDocumentKey(collection) && isWrongBoolean(collection, value)) return null;
  return readKey(hasDocumentKey(collection) ? givenPart(elementAt(collection.key, 0), value) : value);
}

/** Whether the key is shown as JSON of any kind: one column of type jsonb or of a composite type. */
export function hasDocumentKey({ key }: Collection): boolean {
  const [field] = key;
  return key.length === 1 && field !== undefined && isShownAsJson(field);
}

/** The key of a row with the columns of the key. */
export function keyOfRow({ key }: Collection, row: Payload): Key {
  const parts = key.map((field) => givenPart(field, row[field.name]));
  return parts.length === 1 ? (readKey(parts[0]) ?? refuseKeys()) : joinKey(parts);
}

/** The part of a checked key as a value of the input of a write. */
function partEntry(field: Field | undefined, part: Key | undefined): unknown {
  return field?.type === 'json' && part !== undefined ? parseJson(String(part)) : part;
}

/** Items without a key can only be read as lists. */
export function checkKeyed({ name, key }: Collection): void {
  if (key.length > 0) return;
  throw forbidden(
    `"${name}" has no key: it can be listed, but its items cannot be read by key or written. Add a primary key or a unique index on not-null columns, or declare the key in service_collections.primary_key.`,
  );
}

/** In a list of keys, the text `5` and the number could not be distinguished, nor an object that is a key from an item. */
export function refuseJsonKey({ name, key }: Collection, path: string): void {
  if (!key.some(({ type }) => type === 'json')) return;
  throw invalidPayload(
    `"${path}" cannot be a nested payload: "${name}" has a key of type jsonb. Write the items in separate requests`,
  );
}

/** A value that cannot be a key is not a reference. */
export function checkReference(target: Collection, key: unknown, location: string): void {
  try {
    checkKey(target, key);
  } catch {
    throw invalidPayload(`"${location}" cannot be a key of "${target.name}"`);
  }
}

/** A key as it is shown, from the text that PostgreSQL reads; one that is shown already stays as it is. */
export function displayKey({ key: fields }: Collection, key: unknown): string {
  const display = ({ type }: Field, text: string): string =>
    type === 'binary' && text.startsWith('\\x') ? base64OfHex(text.slice(2)) : text;
  const [only] = fields;
  if (fields.length === 1) return display(only as Field, String(key));
  const parts = splitKey(String(key), fields.length) ?? [];
  return joinKey(fields.map((field, position) => display(field, parts[position] ?? '')));
}

/** A key as it is shown, from the form that a write stores: the text of one column, or the parts as they are shown. */
export function displayWrittenKey(collection: Collection, key: Key): string {
  return collection.key.length === 1 ? displayKey(collection, key) : String(key);
}

/** A key that a write stored, as the JSON value that responses have for it. */
export function shownWrittenKey(collection: Collection, key: Key): unknown {
  const [field, ...others] = collection.key;
  const shown = displayWrittenKey(collection, key);
  if (!field || others.length > 0) return shown;
  const base = field.column?.base_type ?? '';
  return /^(int[24]|bool|jsonb?)$/.test(base) ? parseJson(shown) : shown;
}

/** The part of a checked key for the column. */
export function keyPart({ key: fields }: Collection, key: Key, field: Field): string | undefined {
  return fields.length === 1 ? String(key) : splitKey(String(key), fields.length)?.[fields.indexOf(field)];
}

/** A checked key as entries of the input of a write: one under the name itself, or one for each part. */
export function keyEntries({ key: fields }: Collection, name: string, key: Key): Record<string, unknown> {
  if (fields.length === 1) return { [name]: partEntry(fields[0], key) };
  const parts = splitKey(String(key), fields.length) ?? [];
  return Object.fromEntries(parts.map((part, position) => [`${name}_${position}`, partEntry(fields[position], part)]));
}

/** A key as the fields of a payload that name the item. */
export function keyPayload({ key: fields }: Collection, key: unknown): Payload {
  const parts = fields.length === 1 ? [key] : splitKey(String(key), fields.length);
  return Object.fromEntries(fields.map(({ name }, position) => [name, parts?.[position] ?? null]));
}

export async function checkKeys(collection: Collection, keys: readonly unknown[]): Promise<void> {
  await forEachInSlices(keys, (key) => void checkKey(collection, key));
}
