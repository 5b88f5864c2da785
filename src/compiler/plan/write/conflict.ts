/**
 * Creates that may meet items which exist: `on_conflict` names a unique index or the key, by which they are found. With `merge` they are
 * changed, for which the caller needs both rights; with `ignore` they are left alone. Payloads hold values alone: what is nested in
 * an item would be created before it is known whether the item is.
 */

import { invalidPayload, invalidQuery } from '../../../base/errors.js';
import { Digits } from '../../../base/exact-json.js';
import { forEachInSlices } from '../../../base/time-slices.js';
import { isKey, keyNames, singleKey } from '../../model/item-key.js';
import { type Collection, collectionOf, type Field, type Model } from '../../model/model.js';
import { ownValue } from '../../model/synonyms.js';
import type { OnConflict } from '../../request/on-conflict.js';
import { Operated } from '../../request/update-operators.js';
import { Guard } from './guard.js';
import { checkKey, checkKeyed, namedKey } from './key.js';
import { referredValues, setReference } from './links.js';
import { PayloadOperators } from './operators.js';
import { planUpsert } from './payload.js';
import { columnValueOf, isGenerated, isKeyReference, isMadeByDatabase, isUnchanged } from './payload-fields.js';
import type { Payload, Row, WritePlanContext } from './payload-row.js';
import type { ConflictTarget, PlannedWrite } from './write.js';
import { changedNames, Rows } from './write-rows.js';

/** Rows of a file: without `onConflict`, those with a key that exists are changed. */
export function planImported(
  collection: Collection,
  rows: readonly Payload[],
  onConflict: OnConflict | null,
  context: WritePlanContext,
): Promise<PlannedWrite> {
  return onConflict
    ? planOnConflict(collection, rows, onConflict, { ...context, isShown: false })
    : planUpsert(collection, rows, context);
}

interface ConflictPlanContext extends WritePlanContext {
  /** Whether the answer has the items, in the order of the payload, without those that were ignored. True by default. */
  readonly isShown?: boolean;
}

export async function planOnConflict(
  collection: Collection,
  payloads: readonly Payload[],
  onConflict: OnConflict,
  context: ConflictPlanContext,
): Promise<PlannedWrite> {
  const { isShown = true } = context;
  const guard = context.access && new Guard(context.access, context.model);
  const conflict = targetOf(collection, onConflict, guard);
  const rows = new Rows(context, guard, conflict);
  const operators = new PayloadOperators(context, guard);
  const rowsFound = new Set<Row>();
  await forEachInSlices(payloads, (payload, position) => {
    const path = payloads.length > 1 ? `${position}` : '';
    const row = addRow({ rows, collection, conflict, guard, operators, model: context.model }, payload, path);
    if (rowsFound.has(row)) throw duplicateEntry(path, conflict);
    rowsFound.add(row);
  });
  return rows.finish(collection, isShown ? [...rowsFound].map(({ number }) => number) : [], isShown ? null : []);
}

export function duplicateEntry(path: string, { fields }: ConflictTarget): Error {
  const names = fields.map(({ name }) => `"${name}"`).join(', ');
  return invalidPayload(
    `${path === '' ? 'The item' : `Entry ${path}`} has the same ${names} as another item of the payload`,
  );
}

/** The key of an item never changes: a given key applies to a new item. */
export function mismatchedKey(path: string, collection: Collection, { fields }: ConflictTarget): Error {
  const names = fields.map(({ name }) => `"${name}"`).join(', ');
  const key = keyNames(collection).join(', ');
  return invalidPayload(
    `"${path === '' ? key : `${path}.${key}`}" is not the key of the item that has the same ${names}`,
  );
}

/** Errors must not reveal unique columns that the caller may not write. */
function targetOf(collection: Collection, { columns, resolution }: OnConflict, guard: Guard | null): ConflictTarget {
  const { name, key: own, fields, uniqueKeys, keysWithNulls, system } = collection;
  if (system) throw invalidQuery(`"on_conflict" does not apply to "${name}"`);
  checkKeyed(collection);
  if (columns === null) return { fields: own, resolution, equatesNulls: false };
  const keys = [keyNames(collection), ...uniqueKeys];
  const match = keys.find((key) => isSameSet(key, columns));
  const mayWrite = (key: readonly string[]): boolean => guard?.covers('create', collection, key) ?? true;
  if (!match || !mayWrite(match)) {
    const possible = keys.filter(mayWrite).map((key) => key.join(','));
    throw invalidQuery(
      `"on_conflict": no unique index of "${name}" has just the columns ${columns.join(',')}. Possible: ${[...new Set(possible)].join(' or ') || 'none'}`,
    );
  }
  const equatesNulls = keysWithNulls.some((key) => isSameSet(key, columns));
  return { fields: match.flatMap((each) => fields.get(each) ?? []), resolution, equatesNulls };
}

function isSameSet(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((each) => other.includes(each));
}

interface Target {
  readonly rows: Rows;
  readonly collection: Collection;
  readonly conflict: ConflictTarget;
  readonly guard: Guard | null;
  readonly operators: PayloadOperators;
  readonly model: Model;
}

function addRow({ rows, collection, conflict, guard, operators, model }: Target, payload: Payload, path: string): Row {
  const merges = conflict.resolution === 'merge';
  const names = Object.keys(payload);
  guard?.check('create', collection, names, path);
  if (merges) guard?.check('update', collection, changedNames(names, collection, conflict), path);
  const named = namedKey(collection, payload);
  const key = named === null ? null : checkKey(collection, named);
  const isMade = (field: Field): boolean => field === singleKey(collection) && !field.column?.is_generated;
  const row = rows.add(collection, merges ? 'upsert' : 'insert', key, path);
  if (key !== null) for (const name of keyNames(collection)) row.fields.add(name);
  for (const [name, given] of Object.entries(payload)) {
    const location = path === '' ? name : `${path}.${name}`;
    const field = collection.fields.get(name);
    if (!field) throw invalidPayload(`"${location}" is not a field of "${collection.name}"`);
    const value = operators.read(row, field, given, location);
    if (isKey(collection, field) || isUnchanged(field, value)) continue;
    if (value instanceof Operated && conflict.fields.includes(field))
      throw invalidPayload(`"${location}" must be a value: it is a column of "on_conflict"`);
    if (field.special.includes('sealed')) throw invalidPayload(`"${location}" cannot be written: the service sets it`);
    if (!isKeyReference(collection, field)) row.fields.add(name);
    const { relation } = field;
    if (!field.column && relation?.kind === 'many-to-one' && !isNested(value)) {
      const values = referredValues(collectionOf(model, relation.oneCollection), relation, value, location);
      setReference(row, relation, values, (verb, part, columnValue) => rows[verb](row, part, columnValue, location));
      continue;
    }
    checkRelation(field, { payload, value }, location, model);
    if (!field.column) continue;
    if (isMadeByDatabase(collection, field)) throw isGenerated(location);
    rows.set(row, field, columnValueOf(row, field, value, location), location);
  }
  for (const field of [...conflict.fields, ...collection.key]) {
    const isKnown = payload[field.name] !== undefined || row.columnValues.has(field.name);
    if (isKnown || isMade(field) || (key !== null && isKey(collection, field))) continue;
    const location = path === '' ? field.name : `${path}.${field.name}`;
    throw invalidPayload(`"${location}" is required: it is a column of "on_conflict" or of the key`);
  }
  return row;
}

function isNested(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !(value instanceof Digits);
}

function checkRelation(
  { relation, column }: Field,
  { payload, value }: { readonly payload: Payload; readonly value: unknown },
  location: string,
  { synonyms }: Model,
): void {
  if (!relation) return;
  if (isNested(value) || !column)
    throw invalidPayload(`"${location}" cannot be nested: with "on_conflict" a payload holds values and keys`);
  if (relation.kind !== 'many-to-any' || value === null) return;
  const name = ownValue(synonyms, payload[relation.collectionField]);
  if (name === undefined || !relation.allowedCollections.includes(String(name)))
    throw invalidPayload(
      `"${location}" needs "${relation.collectionField}" next to it: one of ${relation.allowedCollections.join(', ')}`,
    );
}
