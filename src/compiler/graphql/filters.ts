/** Collections → input types of filters. They contain only readable fields, so that filters cannot reveal hidden values. */
import { type GraphQLInputFieldConfig, GraphQLInputObjectType, GraphQLList, type GraphQLNamedType } from 'graphql';
import type { Collection, Field } from '../model/model.js';
import { quoteName } from '../request/expression.js';
import { functionsOf, ID_OPERATORS, operatorsOf } from './common.js';
import { extend } from './field-binding.js';
import type { SchemaAccess } from './schema-access.js';
import { isExpressible, isName, readableFields, type TypeNames, writtenName } from './schema-names.js';

type Fields = Record<string, GraphQLInputFieldConfig>;

export class FilterTypes {
  /** Types are added to those that were made before. */
  constructor(
    private readonly access: SchemaAccess,
    private readonly names: TypeNames,
    private readonly made: Map<string, GraphQLNamedType>,
  ) {}

  /** The collection must be readable. */
  filter(name: string): GraphQLInputObjectType {
    return this.#make('filter', name, (collection, self) => this.#fields(collection, self));
  }

  /** The filter of a list: about some of its items, or none. */
  quantified(name: string): GraphQLInputObjectType {
    return this.#make('quantifier', name, (collection, self) => {
      const filter = this.filter(name);
      return { ...this.#fields(collection, self), _some: { type: filter }, _none: { type: filter } };
    });
  }

  /** The filter of a reference that several columns hold: about the item, or about the key that names it. */
  reference(name: string): GraphQLInputObjectType {
    return this.#make('reference', name, (collection, self) => ({
      ...this.#fields(collection, self),
      ...ID_OPERATORS.toConfig().fields,
    }));
  }

  #make(
    kind: 'filter' | 'quantifier' | 'reference',
    name: string,
    fields: (collection: Collection, self: GraphQLInputObjectType) => Fields,
  ): GraphQLInputObjectType {
    const typeName = this.names.of(kind, name);
    const before = this.made.get(typeName);
    if (before instanceof GraphQLInputObjectType) return before;
    const collection = this.#collection(name);
    if (!collection) throw new Error(`"${name}" is not readable`);
    const type: GraphQLInputObjectType = new GraphQLInputObjectType({
      name: typeName,
      fields: () => fields(collection, type),
    });
    this.made.set(typeName, type);
    return type;
  }

  #collection(name: string): Collection | null {
    const collection = this.access.readable.collections.get(name);
    return collection && isExpressible(collection) ? collection : null;
  }

  #fields(collection: Collection, self: GraphQLInputObjectType): Fields {
    const fields: Fields = {};
    for (const field of readableFields(collection)) {
      this.#addField(fields, collection, field);
      const functions = functionsOf(field);
      const name = `${this.names.field(collection, field.name)}_func`;
      if (functions && !collection.fields.has(name) && this.#leads(field))
        fields[name] = { type: functions.filter, extensions: extend({ kind: 'functions', field: field.name }) };
    }
    const list = { type: new GraphQLList(self) };
    return { ...fields, _and: list, _or: list };
  }

  #addField(fields: Fields, collection: Collection, field: Field): void {
    const { relation } = field;
    const shown = this.names.field(collection, field.name);
    const add = (type: GraphQLInputObjectType): void => {
      const isOwn = shown === field.name;
      fields[shown] = isOwn ? { type } : { type, extensions: extend({ kind: 'key', key: writtenName(field.name) }) };
    };
    if (relation?.kind === 'one-to-many') {
      if (this.#collection(relation.manyCollection)) add(this.quantified(relation.manyCollection));
      return;
    }
    if (relation?.kind === 'one-to-one') {
      if (this.#collection(relation.manyCollection)) add(this.filter(relation.manyCollection));
      return;
    }
    if (relation?.kind === 'many-to-one' && this.#collection(relation.oneCollection)) {
      const { oneCollection } = relation;
      add(field.column ? this.filter(oneCollection) : this.reference(oneCollection));
      return;
    }
    if (relation?.kind === 'many-to-any') {
      for (const target of relation.allowedCollections) {
        const name = `${shown}__${this.names.item(target)}`;
        if (this.#collection(target) && !collection.fields.has(name))
          fields[name] = {
            type: this.filter(target),
            extensions: extend({
              kind: 'key',
              key: isName(field.name) ? `${field.name}:${target}` : quoteName(`${field.name}:${target}`),
            }),
          };
      }
    }
    if (field.column) add(operatorsOf(field));
  }

  #leads({ relation }: Field): boolean {
    return relation?.kind !== 'one-to-many' || this.#collection(relation.manyCollection) !== null;
  }
}
