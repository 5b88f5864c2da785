/** Payloads × model → write plan: items that are created, updated, or either. The payload is walked once. */

import { invalidPayload } from '../../../base/errors.js';
import { isObject } from '../../../base/exact-json.js';
import { elementAt } from '../../../base/narrow.js';
import { forEachInSlices, oneByOne } from '../../../base/time-slices.js';
import { isKey, keyNames, singleKey } from '../../model/item-key.js';
import {
  type Collection,
  collectionOf,
  type Field,
  type ManyToAny,
  type ManyToOne,
  type Model,
  type OneToMany,
  type OneToOne,
} from '../../model/model.js';
import { ownValue } from '../../model/synonyms.js';
import type { Key } from '../../request/write.js';
import { fieldOf, holdingFields } from '../resolve-names.js';
import { checkValue } from './column-value.js';
import { Guard } from './guard.js';
import {
  checkImplied,
  checkKey,
  checkKeyed,
  checkReference,
  displayKey,
  type ImpliedPart,
  keyPart,
  namedKey,
  newKey,
  refuseJsonKey,
} from './key.js';
import {
  impliedParts,
  keyValue,
  linkValue,
  linkValues,
  lookedUpValue,
  referencedKey,
  referredValues,
  setReference,
} from './links.js';
import { PayloadOperators } from './operators.js';
import {
  columnValueOf,
  fieldNamesOf,
  isKeyReference,
  isUnchanged,
  keepsValue,
  stagedLists,
  without,
  writableValue,
} from './payload-fields.js';
import {
  type ColumnValue,
  type ItemChange,
  LinkedItem,
  type Payload,
  type Row,
  type WritePlanContext,
} from './payload-row.js';
import type { PlannedWrite } from './write.js';
import { checkRows, Rows } from './write-rows.js';

export async function planCreate(
  collection: Collection,
  payloads: readonly Payload[],
  context: WritePlanContext,
): Promise<PlannedWrite> {
  // Each item is a row at least: too many of them need not wait for their turn.
  checkRows(payloads.length, context.maxRows);
  return planned(payloads, async () => {
    const walker = new PayloadWalker(context);
    const many = payloads.length > 1;
    const root: number[] = [];
    await forEachInSlices(payloads, (payload, position) => {
      root.push(walker.create(collection, payload, many ? `${position}` : '').number);
    });
    return walker.finish(collection, root, null);
  });
}

/** From this number of items on, a payload takes tens of megabytes while it is planned. */
const LARGE = 5_000;

function planned<Result>(items: readonly unknown[], work: () => Promise<Result>): Promise<Result> {
  return items.length > LARGE ? oneByOne(work) : work();
}

export function planUpdate(
  collection: Collection,
  changes: readonly ItemChange[],
  context: WritePlanContext,
): Promise<PlannedWrite> {
  return planned(changes, async () => {
    const walker = new PayloadWalker(context);
    const many = changes.length > 1;
    const root: number[] = [];
    await forEachInSlices(changes, ({ key, data }, position) => {
      root.push(walker.update(collection, { key, data }, many ? `${position}` : '', true).number);
    });
    const keys = changes.map(({ key }) => key);
    return walker.finish(collection, root, keys);
  });
}

/** Rows with a key are changed, or made with it; rows without one are made. */
export async function planUpsert(
  collection: Collection,
  payloads: readonly Payload[],
  context: WritePlanContext,
): Promise<PlannedWrite> {
  const walker = new PayloadWalker(context);
  await forEachInSlices(payloads, (payload) => void walker.save(collection, payload, ''));
  return walker.finish(collection, [], []);
}

/** A field of a payload. */
interface PayloadEntry {
  /** The row that the payload describes. */
  readonly row: Row;
  readonly field: Field;
  readonly payload: Payload;
  readonly value: unknown;
  readonly path: string;
}

/** A payload of an item that is named by its key. */
interface KeyedPayload {
  readonly key: unknown;
  readonly data: Payload;
}

/** How the items of a relation refer to their parent. */
interface ChildLinks {
  readonly target: Collection;
  readonly foreignKey: Field;
  readonly columns: readonly Field[];
  /** The parts of a child's key that follow from its parent. */
  readonly implied: () => ImpliedPart[];
}

/** Levels of items inside items. */
const MAX_DEPTH = 1_000;

/** Lists with more entries are walked in slices. */
const SHORT_LIST = 1_000;

/**
 * The walk through a payload: each object becomes a row of the list for its table and verb, each relation a reference between rows. A
 * row that is named twice is one row; if the two disagree the payload is refused.
 */
class PayloadWalker {
  readonly rows: Rows;
  readonly #model: Model;
  readonly #guard: Guard | null;
  readonly #operators: PayloadOperators;
  readonly #sharedValues = new Map<unknown, ColumnValue>();
  /** Long lists: they are walked in slices, after everything else. */
  readonly #deferred: (() => Promise<void>)[] = [];
  #depth = 0;

  constructor(context: WritePlanContext) {
    this.#model = context.model;
    this.#guard = context.access && new Guard(context.access, context.model);
    this.#operators = new PayloadOperators(context, this.#guard);
    this.rows = new Rows(context, this.#guard);
  }

  async finish(collection: Collection, root: readonly number[], keys: readonly Key[] | null): Promise<PlannedWrite> {
    // The loop also visits entries that it adds: an entry of a long list may hold another long list.
    for (const work of this.#deferred) await work();
    return this.rows.finish(collection, root, keys);
  }

  #forEachEntry<Entry>(list: readonly Entry[], work: (entry: Entry, position: number) => void): void {
    if (list.length <= SHORT_LIST) {
      list.forEach(work);
      return;
    }
    const depth = this.#depth;
    this.#deferred.push(() => {
      this.#depth = depth;
      return forEachInSlices(list, work);
    });
  }

  create(collection: Collection, payload: Payload, path: string): Row {
    this.#guard?.check('create', collection, Object.keys(payload), path);
    const key = newKey(collection, payload, path, this.#model);
    const row = this.rows.add(collection, 'insert', key, path);
    if (key !== null) for (const name of keyNames(collection)) row.fields.add(name);
    this.#writeFields(row, payload, path);
    return row;
  }

  update(collection: Collection, { key, data }: KeyedPayload, path: string, isRoot = false): Row {
    this.#guard?.check('update', collection, fieldNamesOf(collection, data), path);
    const row = this.rows.add(collection, 'update', checkKey(collection, key), path);
    this.#writeFields(row, data, path, isRoot);
    return row;
  }

  save(collection: Collection, payload: Payload, path: string): Row {
    const key = namedKey(collection, payload);
    return key === null
      ? this.create(collection, payload, path)
      : this.#upsert(collection, { key, data: payload }, fieldNamesOf(collection, payload), path);
  }

  /** An object with a key: the item is changed, or made with that key, as far as the caller may do the one and the other. */
  #upsert(collection: Collection, { key, data }: KeyedPayload, names: readonly string[], path: string): Row {
    const verb = this.#guard?.verb(collection, names, path) ?? 'upsert';
    const row = this.rows.add(collection, verb, checkKey(collection, key), path);
    this.#writeFields(row, data, path);
    return row;
  }

  #writeFields(row: Row, payload: Payload, path: string, isRoot = false): void {
    const { collection } = row;
    if (++this.#depth > MAX_DEPTH) throw invalidPayload(`The payload is nested deeper than ${MAX_DEPTH} levels`);
    // Neither an iterator nor a helper in between: the stack that a level takes bounds how deep a payload may nest.
    const names = Object.keys(payload);
    for (let position = 0; position < names.length; position++) {
      const name = elementAt(names, position);
      const fieldPath = path === '' ? name : `${path}.${name}`;
      const field = collection.fields.get(name);
      if (!field) throw invalidPayload(`"${fieldPath}" is not a field of "${collection.name}"`);
      const value = this.#operators.read(row, field, payload[name], fieldPath);
      if (field === singleKey(collection)) {
        if (row.verb === 'insert' && isObject(value))
          this.#setSharedKey({ row, field, payload, value, path: fieldPath });
        continue;
      }
      if (row.verb !== 'insert' && isKey(collection, field)) {
        const part = this.#keyPartValue({ row, field, payload, value, path: fieldPath });
        this.rows.claim(row, field, part, fieldPath);
        continue;
      }
      if (row.verb !== 'insert' && isKeyReference(collection, field)) {
        this.#setCompositeReference(row, field.relation, value, fieldPath);
        continue;
      }
      if (isUnchanged(field, value)) continue;
      if (field.special.includes('sealed'))
        throw invalidPayload(`"${fieldPath}" cannot be written: the service sets it`);
      row.fields.add(name);
      if (keepsValue(row, field, value, { path: fieldPath, guard: this.#guard })) continue;
      switch (field.relation?.kind) {
        case 'one-to-many':
          this.#writeOneToMany({ row, field, payload, value, path: fieldPath }, field.relation);
          break;
        case 'one-to-one':
          this.#writeOneToOne({ row, field, payload, value, path: fieldPath }, field.relation);
          break;
        case 'many-to-one':
        case 'many-to-any': {
          if (field.relation.kind === 'many-to-one' && field.relation.columns.length > 1) {
            this.#setCompositeReference(row, field.relation, value, fieldPath);
            break;
          }
          const shared = isRoot ? this.#sharedValues.get(value) : undefined;
          const entry = { row, field, payload, value, path: fieldPath };
          const columnValue = shared ?? this.#referenceValue(entry, field.relation);
          // A change of several items creates a related item once, for all of them.
          if (isRoot && isObject(value)) this.#sharedValues.set(value, columnValue);
          this.rows.set(row, field, columnValue, fieldPath);
          break;
        }
        default:
          // Alias fields without a relation (presentation, groups) hold nothing.
          if (field.column) this.rows.set(row, field, columnValueOf(row, field, value, fieldPath), fieldPath);
      }
    }
    this.#depth--;
  }

  /** The row takes the key of the row that it refers to. The same statement may create that row. */
  #setSharedKey(entry: PayloadEntry): void {
    const { row, field, path } = entry;
    if (field.relation?.kind !== 'many-to-one') return;
    const columnValue = this.#referenceValue(entry, field.relation);
    row.fields.add(field.name);
    if (columnValue.kind === 'reference') this.rows.set(row, field, columnValue, path);
  }

  /** A reference that several columns hold: each gets its part of the related item's key. */
  #setCompositeReference(row: Row, relation: ManyToOne, value: unknown, path: string): void {
    const target = collectionOf(this.#model, relation.oneCollection);
    if (value !== null) refuseJsonKey(target, path);
    const related = isObject(value) ? (this.#sharedValues.get(value) ?? this.#relatedKey(target, value, path)) : null;
    if (related) this.#sharedValues.set(value, related);
    const ofItem = (item: ColumnValue, part: Field): ColumnValue =>
      item.kind === 'reference'
        ? { ...item, part }
        : { kind: 'value', value: keyPart(target, ('value' in item ? item.value : null) as Key, part) };
    const values = related
      ? referencedKey(target, relation, path).map((part) => ofItem(related, part))
      : referredValues(target, relation, value, path);
    setReference(row, relation, values, (verb, field, columnValue) => this.rows[verb](row, field, columnValue, path));
  }

  /** The value that a payload gives a part of its item's key. */
  #keyPartValue(entry: PayloadEntry): ColumnValue {
    const { row, field, value, path } = entry;
    const { relation } = field;
    if (relation?.kind === 'many-to-one' || relation?.kind === 'many-to-any')
      return this.#referenceValue(entry, relation);
    return { kind: 'value', value: writableValue(row, field, value, path) };
  }

  /** A scalar links, null clears, an object makes or changes the related item. */
  #referenceValue(entry: PayloadEntry, relation: ManyToOne | ManyToAny): ColumnValue {
    const { row, field, value, path } = entry;
    if (relation.kind === 'many-to-any') return this.#manyToAnyValue(entry, relation);
    if (!isObject(value)) return { kind: 'value', value: writableValue(row, field, value, path) };
    const target = collectionOf(this.#model, relation.oneCollection);
    if (relation.referenced !== singleKey(target)?.name)
      return this.#uniqueColumnReference({ field, relation, target }, value, path);
    return this.#relatedKey(target, value, path);
  }

  /** For a relation that refers to another column than the key. */
  #uniqueColumnReference(
    { field, relation, target }: { readonly field: Field; readonly relation: ManyToOne; readonly target: Collection },
    payload: Payload,
    path: string,
  ): ColumnValue {
    refuseJsonKey(target, path);
    const key = namedKey(target, payload);
    const names = fieldNamesOf(target, payload);
    if (key !== null && this.#guard?.onlyRefers(target, names))
      return lookedUpValue(target, checkKey(target, key), relation.referenced, { path, guard: this.#guard });
    const keyed = { key, data: payload };
    const row = key === null ? this.create(target, payload, path) : this.#upsert(target, keyed, names, path);
    return linkValue(row, payload, { relation, field }, { path, guard: this.#guard });
  }

  #relatedKey(target: Collection, payload: Payload, path: string): ColumnValue {
    refuseJsonKey(target, path);
    const key = namedKey(target, payload);
    if (key === null) return keyValue(this.create(target, payload, path));
    return this.#existingKey(target, key, payload, path);
  }

  #existingKey(target: Collection, key: unknown, payload: Payload, path: string): ColumnValue {
    const names = fieldNamesOf(target, payload);
    if (this.#guard?.onlyRefers(target, names)) return { kind: 'value', value: checkKey(target, key) };
    return { kind: 'value', value: this.#upsert(target, { key, data: payload }, names, path).key };
  }

  #manyToAnyValue({ row, field, payload, value, path }: PayloadEntry, relation: ManyToAny): ColumnValue {
    const { collectionField, allowedCollections } = relation;
    const name = ownValue(this.#model.synonyms, payload[collectionField]);
    const target = typeof name === 'string' ? this.#model.collections.get(name) : undefined;
    const isNested = isObject(value);
    if (isNested ? typeof name !== 'string' : value !== null && name === undefined && row.verb === 'insert')
      throw invalidPayload(`"${path}" needs "${collectionField}", the name of its collection`);
    if ((isNested && !target) || (value !== null && name !== undefined && !allowedCollections.includes(String(name))))
      throw invalidPayload(`"${path}" cannot refer to "${name}": allowed are ${allowedCollections.join(', ')}`);
    if (!isNested || !target) {
      if (target && value !== null) checkReference(target, value, path);
      return { kind: 'value', value: writableValue(row, field, value, path) };
    }
    const columnValue = this.#relatedKey(target, value, path);
    // The key is kept as text, whatever its type is where it comes from.
    if (columnValue.kind !== 'value') return columnValue;
    const text = displayKey(target, columnValue.value);
    return { kind: 'value', value: checkValue(fieldOf(row.collection, field.name), text, path) };
  }

  /** A key links an item, an object makes or changes it, null lets it go; the one that was there leaves. */
  #writeOneToOne(entry: PayloadEntry, relation: OneToOne): void {
    const { row, value, path } = entry;
    if (Array.isArray(value))
      throw invalidPayload(`"${path}" must be an object, a key or null: it is a to-one relation`);
    row.writesRelated = true;
    const links = this.#childLinks(entry, relation);
    const { target, implied } = links;
    if (isObject(value) && !(value instanceof LinkedItem)) checkImplied(target, value, implied(), path);
    if (value !== null) links.link(this.#writeChild(links, value, path), path);
    // Where the key is the reference there is no other item that could leave.
    const isOnly = value !== null && namedKey(target, {}, implied()) !== null;
    if (row.verb !== 'insert' && !isOnly) this.rows.unlink(links.unlinked, row, null);
  }

  /** How a child comes to refer to the row. */
  #childLinks({ row, payload, path }: PayloadEntry, relation: OneToMany | OneToOne) {
    const target = collectionOf(this.#model, relation.manyCollection);
    checkKeyed(target);
    refuseJsonKey(row.collection, path);
    refuseJsonKey(target, path);
    const foreignKey = fieldOf(target, relation.manyField);
    const columns = holdingFields(this.#model, relation);
    const references = (): ColumnValue[] =>
      columns.length > 1
        ? linkValues(row, payload, relation, path)
        : [linkValue(row, payload, { relation, field: foreignKey }, { path, guard: this.#guard })];
    const link = (child: Row, childPath: string): void => {
      const values = references();
      columns.forEach((column, position) => {
        if (child.verb !== 'insert' && isKey(target, column)) {
          this.rows.claim(child, column, elementAt(values, position), childPath);
          return;
        }
        child.fields.add(foreignKey.name);
        this.rows.set(child, column, elementAt(values, position), childPath);
      });
    };
    const implied = (): ImpliedPart[] => impliedParts(row, payload, { relation, path }, this.#model);
    const unlinked = { collection: target, field: foreignKey, action: relation.deselectAction };
    return { target, foreignKey, columns, link, implied, unlinked };
  }

  #writeOneToMany(entry: PayloadEntry, relation: OneToMany): void {
    const { row, value, path } = entry;
    const links = this.#childLinks(entry, relation);
    const { target, foreignKey, columns, link, implied, unlinked } = links;
    if (value === null || Array.isArray(value)) {
      row.writesRelated = true;
      const entries: unknown[] = value ?? [];
      this.#forEachEntry(entries, (child, position) => {
        const at = `${path}.${position}`;
        link(this.#writeChild(links, child, at), at);
      });
      if (row.verb !== 'insert') this.rows.unlink(unlinked, row, null);
      return;
    }
    const { create, update, removed } = stagedLists(value, path);
    row.writesRelated ||= create.length + update.length + removed.length > 0;
    this.#forEachEntry(create, (entry: unknown, position) => {
      const at = `${path}.create.${position}`;
      if (!isObject(entry)) throw invalidPayload(`"${at}" must be an object`);
      const child = this.create(target, without(entry, [foreignKey, ...columns]), at);
      link(child, at);
      if (relation.sortField !== null && columns.length === 1)
        this.rows.append(child, foreignKey, relation.sortField, position + 1);
    });
    const changed = new Set<string>();
    this.#forEachEntry(update, (entry: unknown, position) => {
      const at = `${path}.update.${position}`;
      const key = isObject(entry) ? namedKey(target, entry, implied()) : null;
      if (!isObject(entry) || key === null) throw invalidPayload(`"${at}" must be an object with its primary key`);
      const child = this.update(target, { key, data: without(entry, [foreignKey, ...columns]) }, at);
      changed.add(String(child.key));
      link(child, at);
    });
    // Behind the changes, also where those are many.
    const isLong = update.length > SHORT_LIST || removed.length > SHORT_LIST;
    const keys: Key[] = [];
    const remove = (key: unknown): void => {
      const checked = checkKey(target, key);
      if (changed.has(String(checked))) throw invalidPayload(`"${path}" both changes and removes item ${checked}`);
      keys.push(checked);
    };
    const unlink = (): void => {
      if (keys.length > 0 && row.verb !== 'insert') this.rows.unlink(unlinked, row, keys);
    };
    if (isLong) this.#deferred.push(() => forEachInSlices(removed, remove).then(unlink));
    else {
      removed.forEach(remove);
      unlink();
    }
  }

  /** A key links an existing item; an object makes one, or changes the one whose key it has. */
  #writeChild({ target, foreignKey, columns, implied }: ChildLinks, entry: unknown, path: string): Row {
    // The reference is not written where it is a part of the key that names the item.
    const written = columns.every((column) => isKey(target, column)) ? [] : [foreignKey.name];
    if (!isObject(entry)) {
      this.#guard?.check('update', target, written, path);
      return this.rows.add(target, 'update', checkKey(target, entry), path);
    }
    if (entry instanceof LinkedItem)
      return this.update(target, { key: entry.key, data: without(entry.data, [foreignKey, ...columns]) }, path);
    const payload = without(entry, [foreignKey, ...columns]);
    const key = namedKey(target, payload, implied());
    if (key === null) return this.create(target, payload, path);
    return this.#upsert(target, { key, data: payload }, [...fieldNamesOf(target, payload), ...written], path);
  }
}
