/** Collections → input types of filters. They lie over what may be read: nothing may be learned by filtering. */
import { type GraphQLInputFieldConfig, GraphQLInputObjectType, GraphQLList } from 'graphql';
import type { Collection, Field } from '../mirror/model.js';
import { functionsOf, operatorsOf } from './common.js';
import { extend } from './meaning.js';
import { expressibleFields, isExpressible, type TypeNames } from './names.js';
import type { Sight } from './sight.js';

type Fields = Record<string, GraphQLInputFieldConfig>;

export class FilterTypes {
  readonly #sight: Sight;
  readonly #names: TypeNames;
  readonly #filters = new Map<string, GraphQLInputObjectType>();
  readonly #quantified = new Map<string, GraphQLInputObjectType>();

  constructor(sight: Sight, names: TypeNames) {
    this.#sight = sight;
    this.#names = names;
  }

  /** The collection must be readable. */
  filter(name: string): GraphQLInputObjectType {
    return this.#make(this.#filters, name, 'filter', (collection, self) => this.#fields(collection, self));
  }

  /** The filter of a list: about some of its items, or none. */
  #quantifiedFilter(name: string): GraphQLInputObjectType {
    return this.#make(this.#quantified, name, 'quantifier_filter', (collection, self) => {
      const filter = this.filter(name);
      return { ...this.#fields(collection, self), _some: { type: filter }, _none: { type: filter } };
    });
  }

  #make(
    known: Map<string, GraphQLInputObjectType>,
    name: string,
    suffix: string,
    fields: (collection: Collection, self: GraphQLInputObjectType) => Fields,
  ): GraphQLInputObjectType {
    const before = known.get(name);
    if (before) return before;
    const collection = this.#collection(name);
    if (!collection) throw new Error(`"${name}" is not readable`);
    const type: GraphQLInputObjectType = new GraphQLInputObjectType({
      name: this.#names.take(`${name}_${suffix}`),
      fields: () => fields(collection, type),
    });
    known.set(name, type);
    return type;
  }

  #collection(name: string): Collection | null {
    const collection = this.#sight.readable.collections.get(name);
    return collection && isExpressible(collection) ? collection : null;
  }

  #fields(collection: Collection, self: GraphQLInputObjectType): Fields {
    const fields: Fields = {};
    for (const field of expressibleFields(collection)) {
      this.#addField(fields, collection, field);
      const functions = functionsOf(field);
      const name = `${field.name}_func`;
      if (functions && !collection.fields.has(name) && this.#leads(field))
        fields[name] = { type: functions.filter, extensions: extend({ kind: 'functions', field: field.name }) };
    }
    const list = { type: new GraphQLList(self) };
    return { ...fields, _and: list, _or: list };
  }

  #addField(fields: Fields, collection: Collection, field: Field): void {
    const { relation } = field;
    if (relation?.kind === 'one-to-many') {
      if (this.#collection(relation.manyCollection))
        fields[field.name] = { type: this.#quantifiedFilter(relation.manyCollection) };
      return;
    }
    if (relation?.kind === 'many-to-one' && this.#collection(relation.oneCollection)) {
      fields[field.name] = { type: this.filter(relation.oneCollection) };
      return;
    }
    if (relation?.kind === 'many-to-any') {
      for (const target of relation.allowedCollections) {
        const name = `${field.name}__${target}`;
        if (this.#collection(target) && !collection.fields.has(name))
          fields[name] = {
            type: this.filter(target),
            extensions: extend({ kind: 'key', key: `${field.name}:${target}` }),
          };
      }
    }
    if (field.column) fields[field.name] = { type: operatorsOf(field) };
  }

  #leads({ relation }: Field): boolean {
    return relation?.kind !== 'one-to-many' || this.#collection(relation.manyCollection) !== null;
  }
}
