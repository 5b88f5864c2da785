/**
 * Names of types, fields and root fields. Collections keep their own names; generated names give way where a collection is called the
 * same. Collections whose names GraphQL cannot write are left out, with the relations that lead to them; such fields get other names.
 */
import type { Collection, Field, Model } from '../model/model.js';
import { type Synonyms, shownName } from '../model/synonyms.js';
import { isReadable } from '../model/write-facts.js';
import { quoteName } from '../request/expression.js';
import { UPDATE_OPERATORS } from '../request/update-operators.js';
import { COMMON_TYPES } from './common.js';
import { SYSTEM_TYPE_NAMES } from './system-fields.js';

const NAME = /^(?!__)[_A-Za-z][_0-9A-Za-z]*$/;

/** Names of types that stand in every schema, and some that tools expect to be scalars. */
const RESERVED: ReadonlySet<string> = new Set([
  ...['Query', 'Mutation', 'Subscription', 'String', 'Boolean', 'Void', 'DateTime', 'Point', 'Polygon', 'uid'],
  ...COMMON_TYPES.map(({ name }) => name),
  ...SYSTEM_TYPE_NAMES,
]);

export function isName(name: string): boolean {
  return NAME.test(name);
}

/** The field in a path or a filter. */
export function writtenName(field: string): string {
  return NAME.test(field) ? field : quoteName(field);
}

export function isExpressible(collection: Collection): boolean {
  if (!NAME.test(collection.name) || RESERVED.has(collection.name)) return false;
  // A type needs a field.
  for (const field of collection.fields.values()) if (field.column) return true;
  return false;
}

/** The fields that the service's database role may read. */
export function readableFields(collection: Collection): readonly Field[] {
  return [...collection.fields.values()].filter(isReadable);
}

/** Other keys of filters and payloads, and the entity tag. */
const OWN_KEYS = ['_and', '_or', '_some', '_none', '_etag', ...UPDATE_OPERATORS.map((operator) => `_${operator}`)];

const otherNames = new WeakMap<Collection, ReadonlyMap<string, string>>();

/** The names of fields whose own names GraphQL cannot write: other characters become underscores, and taken names get one more. */
export function otherFieldNames(collection: Collection): ReadonlyMap<string, string> {
  const cached = otherNames.get(collection);
  if (cached) return cached;
  const names = new Map<string, string>();
  const own = [...collection.fields.keys()];
  const odd = own.filter((name) => !NAME.test(name));
  if (odd.length > 0) {
    const taken = new Set([...OWN_KEYS, ...own, ...own.map((name) => `${name}_func`)]);
    for (const name of odd) {
      let other = name.replace(/[^_0-9A-Za-z]/g, '_').replace(/^(?=\d)|^_+/, '_');
      while (taken.has(other) || taken.has(`${other}_func`)) other += '_';
      taken.add(other).add(`${other}_func`);
      names.set(name, other);
    }
  }
  otherNames.set(collection, names);
  return names;
}

/** Inputs of the operators of updates; `decrement` has that of `increment`. */
export type OperandKind = 'increment' | 'append' | 'merge';

/** The types that are generated for a collection. Unions belong to one of its fields. */
type GeneratedKind =
  | 'filter'
  | 'quantifier'
  | 'reference'
  | 'create'
  | 'update'
  | 'relation'
  | OperandKind
  | 'aggregated'
  | 'aggregated count'
  | 'aggregated fields'
  | 'aggregated sums'
  | 'aggregated extremes'
  | 'mutated'
  | 'union'
  /** The result of a function, whose name replaces the collection's. */
  | 'result';

const SPELLINGS: readonly (readonly [GeneratedKind, (collection: string) => string])[] = [
  ['filter', (name) => `${name}_filter`],
  ['quantifier', (name) => `${name}_quantifier_filter`],
  ['reference', (name) => `${name}_reference_filter`],
  ['create', (name) => `create_${name}_input`],
  ['update', (name) => `update_${name}_input`],
  ['relation', (name) => `${name}_relation_input`],
  ['increment', (name) => `increment_${name}_input`],
  ['append', (name) => `append_${name}_input`],
  ['merge', (name) => `merge_${name}_input`],
  ['aggregated', (name) => `${name}_aggregated`],
  ['aggregated count', (name) => `${name}_aggregated_count`],
  ['aggregated fields', (name) => `${name}_aggregated_fields`],
  ['aggregated sums', (name) => `${name}_aggregated_sums`],
  ['aggregated extremes', (name) => `${name}_aggregated_extremes`],
  ['mutated', (name) => `${name}_mutated`],
];

interface Generated {
  readonly kind: GeneratedKind;
  readonly collection: string;
}

/** All names are given out beforehand, so that they do not depend on which type is made first. */
export class TypeNames {
  readonly #names = new Map<string, string>();
  readonly #generated = new Map<string, Generated>();
  /** The names of collections in types, if they differ from the collections' own. */
  readonly #shown = new Map<string, string>();
  readonly #collections = new Map<string, string>();

  static readonly #known = new WeakMap<Model, TypeNames>();

  /** All callers share these names. */
  static of(model: Model): TypeNames {
    const known = TypeNames.#known.get(model) ?? new TypeNames(model);
    TypeNames.#known.set(model, known);
    return known;
  }

  private constructor(private readonly model: Model) {
    if (model.synonyms) this.#showNames(model, model.synonyms);
    const usedNames = new Set([...RESERVED, ...model.collections.keys(), ...this.#shown.values()]);
    const give = (wanted: string, generated: Generated, field = ''): void => {
      let name = wanted;
      while (usedNames.has(name)) name += '_';
      usedNames.add(name);
      this.#names.set(keyOf(generated.kind, generated.collection, field), name);
      this.#generated.set(name, generated);
    };
    for (const collection of model.collections.values()) {
      if (!isExpressible(collection)) continue;
      const shown = this.item(collection.name);
      for (const [kind, spell] of SPELLINGS) give(spell(shown), { kind, collection: collection.name });
      for (const { name, relation } of collection.fields.values()) {
        if (relation?.kind === 'many-to-any')
          give(`${shown}_${this.field(collection, name)}_union`, { kind: 'union', collection: collection.name }, name);
      }
    }
    for (const name of model.functions.keys())
      if (isName(name)) give(`${name}_result`, { kind: 'result', collection: name });
  }

  #showNames({ collections }: Model, synonyms: Synonyms): void {
    for (const name of collections.keys()) {
      const shown = shownName(synonyms, name);
      if (shown === name) continue;
      this.#shown.set(name, shown);
      this.#collections.set(shown, name);
    }
  }

  /** The type of a collection's items. */
  item(collection: string): string {
    return this.#shown.get(collection) ?? collection;
  }

  /** A field of a collection of the model. The names are those of the whole collection, whatever the caller may see of it. */
  field({ name: collection }: Collection, name: string): string {
    if (NAME.test(name)) return name;
    const whole = this.model.collections.get(collection);
    return (whole && otherFieldNames(whole).get(name)) ?? name;
  }

  /** The collection whose items have the type, if it is one. */
  collection(type: string): string {
    const collection = this.#collections.get(type) ?? type;
    return this.item(collection) === type ? collection : '';
  }

  of(kind: GeneratedKind, collection: string, field = ''): string {
    const name = this.#names.get(keyOf(kind, collection, field));
    if (name === undefined) throw new Error(`"${collection}" has no name for ${kind}`);
    return name;
  }

  /** The owner of a generated name. */
  find(name: string): Generated | undefined {
    return this.#generated.get(name);
  }

  all(): IterableIterator<string> {
    return this.#generated.keys();
  }
}

function keyOf(kind: string, collection: string, field: string): string {
  return `${kind} ${collection} ${field}`;
}

/** `service_users` is `users` among the root fields of the system. */
export function rootName(collection: Collection): string {
  return collection.system ? collection.name.replace(/^service_/, '') : collection.name;
}
