/** The value of a column that refers to a row of the payload: the key of the row, or its value in another unique column. */
import { invalidPayload } from '../../../base/errors.js';
import { elementAt } from '../../../base/narrow.js';
import { isKey, keyNames, singleKey } from '../../model/item-key.js';
import {
  type Collection,
  collectionOf,
  type Field,
  type ManyToOne,
  type Model,
  type OneToMany,
  type OneToOne,
} from '../../model/model.js';
import { changesNewKeys } from '../../model/write-facts.js';
import type { Key } from '../../request/write.js';
import { fieldOf, holdingFields } from '../resolve-names.js';
import { checkValue } from './column-value.js';
import type { Guard } from './guard.js';
import { checkKey, checkReference, type ImpliedPart, keyPart } from './key.js';
import type { ColumnValue, Payload, Row } from './payload-row.js';
import { clearedColumns } from './resolve-conflicts.js';

/** A place in the payload, and the permissions that apply to it. */
interface PayloadPlace {
  readonly path: string;
  readonly guard: Guard | null;
}

function refersToKey({ referenced }: ManyToOne | OneToMany | OneToOne, { collection }: Row): boolean {
  return referenced === singleKey(collection)?.name;
}

/** The key of a row, or the row itself where the statement is to make its key, or a trigger may change it. */
export function keyValue(row: Row): ColumnValue {
  const key = knownKey(row);
  return key === null ? { kind: 'reference', row } : { kind: 'value', value: key };
}

/** An item of a payload that contains others. */
export type LinkParent = Pick<Row, 'collection' | 'verb' | 'key'>;

function knownKey({ collection, verb, key }: LinkParent): Key | null {
  return verb === 'insert' && changesNewKeys(collection) ? null : key;
}

/** The parts of a child's key that follow from its parent, as far as they are known before the statement runs. */
export function impliedParts(
  parent: LinkParent,
  payload: Payload,
  { relation, path }: { readonly relation: OneToMany | OneToOne; readonly path: string },
  model: Model,
): ImpliedPart[] {
  const target = collectionOf(model, relation.manyCollection);
  const columns = holdingFields(model, relation);
  if (!columns.some((column) => isKey(target, column))) return [];
  const { collection } = parent;
  return columns.flatMap((field, position): ImpliedPart[] => {
    const { referenced } = elementAt(relation.columns, position);
    const own = fieldOf(collection, referenced);
    if (columns.length > 1 ? isKey(collection, own) : own === singleKey(collection)) {
      const key = columns.length > 1 ? parent.key : knownKey(parent);
      return key === null ? [] : [{ field, value: keyPart(collection, key, own) }];
    }
    const value = payload[referenced];
    return value === undefined || value === null ? [] : [{ field, value: checkValue(own, value, path) }];
  });
}

/** The value for each column of a composite reference. `payload` is that of the row that they refer to. */
export function linkValues(
  row: Row,
  payload: Payload,
  { columns }: ManyToOne | OneToMany | OneToOne,
  location: string,
): ColumnValue[] {
  const { collection, key } = row;
  return columns.map(({ column, referenced }): ColumnValue => {
    const field = fieldOf(collection, referenced);
    if (isKey(collection, field)) {
      if (key === null) return collection.key.length > 1 ? { kind: 'reference', row, part: field } : keyValue(row);
      return { kind: 'value', value: keyPart(collection, key, field) };
    }
    const referencedValue = payload[referenced];
    if (referencedValue === undefined || referencedValue === null)
      throw invalidPayload(`"${location}" needs "${referenced}" of "${collection.name}": "${column}" refers to it`);
    return { kind: 'value', value: checkValue(field, referencedValue, location) };
  });
}

/** `payload` is that of the row that `field` refers to. A value that it leaves out is read from the stored row. */
export function linkValue(
  row: Row,
  payload: Payload,
  { relation, field }: { readonly relation: ManyToOne | OneToMany | OneToOne; readonly field: Field },
  at: PayloadPlace,
): ColumnValue {
  const location = at.path;
  if (refersToKey(relation, row)) return keyValue(row);
  const { referenced } = relation;
  const referencedValue = payload[referenced];
  if (referencedValue !== undefined && referencedValue !== null)
    return { kind: 'value', value: checkValue(field, referencedValue, location) };
  if (row.verb === 'insert' || row.key === null)
    throw invalidPayload(
      `"${location}" needs "${referenced}" of "${row.collection.name}": "${field.name}" refers to it`,
    );
  return lookedUpValue(row.collection, row.key, referenced, at);
}

/** The value of the row with this key in the column that is referred to, if the caller may read it. */
export function lookedUpValue(
  collection: Collection,
  key: Key,
  referenced: string,
  { path, guard }: PayloadPlace,
): ColumnValue {
  const of = guard?.lookupOf(collection, referenced, path) ?? {
    collection,
    field: fieldOf(collection, referenced),
  };
  return { kind: 'lookup', key, of };
}

/** A composite reference that is written as one value is the key of an item. */
export function referencedKey(target: Collection, { columns }: ManyToOne, path: string): readonly Field[] {
  if (columns.map(({ referenced }) => referenced).join() !== keyNames(target).join())
    throw invalidPayload(`"${path}" does not refer to the key of "${target.name}": write its columns`);
  return target.key;
}

/** The values of the columns of such a reference if a key or null is written to it. */
export function referredValues(target: Collection, relation: ManyToOne, value: unknown, path: string): ColumnValue[] {
  if (value === null) return relation.columns.map(() => ({ kind: 'value', value: null }));
  const parts = referencedKey(target, relation, path);
  checkReference(target, value, path);
  const key = checkKey(target, value);
  return parts.map((part) => ({ kind: 'value', value: keyPart(target, key, part) }));
}

/** Calls `write` for each written column: with `claim` if the column is part of a known key, otherwise with `set`. */
export function setReference(
  row: Row,
  { columns }: ManyToOne,
  values: readonly ColumnValue[],
  write: (verb: 'set' | 'claim', field: Field, columnValue: ColumnValue) => void,
): void {
  const { collection, verb, key } = row;
  const fields = columns.map(({ column }) => fieldOf(collection, column));
  const isCleared = values.every((each) => each.kind === 'value' && each.value === null);
  const written = isCleared ? clearedColumns(collection, fields) : fields;
  fields.forEach((field, position) => {
    if (!written.includes(field)) return;
    const columnValue = elementAt(values, position);
    const isKnown = isKey(collection, field) && (verb !== 'insert' || key !== null);
    write(isKnown ? 'claim' : 'set', field, columnValue);
  });
}
