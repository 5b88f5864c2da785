/**
 * The places in an operation of a transaction where `{"$ref": "0"}` stands. Where only a key of the referenced collection can stand, the
 * key links the item, as it would in a nested payload. Elsewhere it becomes a value that the caller may read, so the caller must be allowed
 * to read the key.
 */
import { isObject } from '../../../base/exact-json.js';
import { keyNames, singleKey } from '../../model/item-key.js';
import { type Collection, type Field, isSecretField, type ManyToAny, type Model } from '../../model/model.js';
import { ownValue } from '../../model/synonyms.js';
import {
  isLiteral,
  isReference,
  readReference,
  referencesIn,
  type StepReference,
} from '../../request/step-reference.js';
import { type Access, maskOf, restrictionOf } from '../access.js';
import { isAlways } from '../plan.js';
import type { Payload } from './payload-row.js';

/** An operation before its references are known. */
interface ReferringWrite {
  readonly method: 'POST' | 'PATCH' | 'DELETE';
  readonly collection: string;
  readonly key: unknown;
  readonly body: unknown;
  /** Whether the collection has one item, which the body changes. */
  readonly isSingleton: boolean;
}

/** A reference that stands for a value, and the collection of its item. */
export interface ValueReference {
  readonly reference: StepReference;
  readonly collection: string;
}

/** The references that stand for values. `collectionAt` answers the collection of an operation. */
export function valueReferences(
  write: ReferringWrite,
  model: Model,
  collectionAt: (operation: number) => string,
): readonly ValueReference[] {
  const collection = model.collections.get(write.collection);
  // A request for it is refused later.
  if (!collection) return [];
  const places = new ReferencePlaces(model, collectionAt);
  places.visitOperation(collection, write);
  return places.values.map((reference) => ({ reference, collection: collectionAt(reference.operation) }));
}

class ReferencePlaces {
  readonly values: StepReference[] = [];

  constructor(
    private readonly model: Model,
    private readonly collectionAt: (operation: number) => string,
  ) {}

  visitOperation(collection: Collection, { method, key, body, isSingleton }: ReferringWrite): void {
    this.#key(collection, key);
    if (method === 'DELETE' && Array.isArray(body)) for (const entry of body) this.#key(collection, entry);
    else if (Array.isArray(body)) for (const item of body) this.#item(collection, item);
    else if (method === 'POST' || isSingleton || (method === 'PATCH' && key !== null)) this.#item(collection, body);
    else if (isObject(body)) {
      const { keys, data, ...rest } = body;
      if (Array.isArray(keys)) for (const entry of keys) this.#key(collection, entry);
      else this.#value(keys);
      this.#item(collection, data);
      this.#value(rest);
    }
  }

  /** The key of an item of the collection, which may be the key of the item that it belongs to. */
  #key(collection: Collection, value: unknown): void {
    const field = singleKey(collection);
    const parent = field && linkedBy(field, this.model);
    if (isReference(value)) this.#link([collection, parent], value);
    else this.#value(value);
  }

  /** A payload, or the key of an item. */
  #itemOrKey(collection: Collection, value: unknown): void {
    if (isReference(value)) this.#key(collection, value);
    else this.#item(collection, value);
  }

  #item(collection: Collection, payload: unknown): void {
    if (!isObject(payload) || isReference(payload)) {
      this.#value(payload);
      return;
    }
    for (const [name, value] of Object.entries(payload)) {
      const field = collection.fields.get(name);
      if (!field || isLiteral(value)) this.#value(value);
      else if (field === singleKey(collection) && isReference(value)) this.#key(collection, value);
      else this.#field(field, value, payload);
    }
  }

  #field(field: Field, value: unknown, payload: Payload): void {
    const { relation } = field;
    switch (relation?.kind) {
      case 'many-to-one': {
        const target = this.model.collections.get(relation.oneCollection);
        if (isReference(value)) this.#link([linkedBy(field, this.model)], value);
        else if (target) this.#item(target, value);
        else this.#value(value);
        break;
      }
      case 'many-to-any': {
        const target = this.#anyTarget(relation, payload);
        if (target) this.#itemOrKey(target, value);
        else this.#value(value);
        break;
      }
      case 'one-to-one':
      case 'one-to-many': {
        const target = this.model.collections.get(relation.manyCollection);
        const entries = relation.kind === 'one-to-one' ? [value] : listedItems(value);
        for (const entry of entries) if (target) this.#itemOrKey(target, entry);
        break;
      }
      default:
        this.#value(value);
    }
  }

  #anyTarget({ collectionField }: ManyToAny, payload: Payload): Collection | undefined {
    const name = ownValue(this.model.synonyms, payload[collectionField]);
    return typeof name === 'string' ? this.model.collections.get(name) : undefined;
  }

  #link(targets: readonly (Collection | null)[], value: Payload): void {
    const reference = readReference(value);
    const referenced = this.model.collections.get(this.collectionAt(reference.operation));
    if (!targets.some((target) => target !== null && target === referenced)) this.values.push(reference);
  }

  #value(value: unknown): void {
    this.values.push(...referencesIn(value));
  }
}

/** The collection whose keys the field holds, or null if it holds no keys or other columns than those of the key. */
function linkedBy({ relation }: Field, model: Model): Collection | null {
  if (relation?.kind !== 'many-to-one') return null;
  const target = model.collections.get(relation.oneCollection);
  if (!target) return null;
  const referenced = relation.columns.map((each) => each.referenced);
  const names = keyNames(target);
  return names.length === referenced.length && names.every((name) => referenced.includes(name)) ? target : null;
}

/** The entries of a list, or those of `create`, `update` and `delete`. */
function listedItems(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  if (!isObject(value) || isReference(value)) return [value];
  return Object.values(value).flat();
}

/** In which items the caller may read the key. Nobody may read a concealed one. */
export function readableKeys(collection: Collection, access: Access | null, model: Model): 'all' | 'some' | 'none' {
  const readable = access ? access.view(model).collections.get(collection.name) : collection;
  if (!readable || collection.key.some((field) => !readable.fields.has(field.name) || isSecretField(field)))
    return 'none';
  const restriction = restrictionOf(readable);
  if (!restriction) return 'all';
  const conditions = [restriction.rows, ...collection.key.map((field) => maskOf(readable, field))];
  return conditions.every(isAlways) ? 'all' : 'some';
}
