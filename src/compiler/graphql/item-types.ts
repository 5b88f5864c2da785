/**
 * Builds the GraphQL types of collections. Types refer to each other in cycles, so the fields of a type are built on first use.
 */
import {
  type GraphQLFieldConfig,
  type GraphQLFieldConfigArgumentMap,
  GraphQLList,
  type GraphQLNamedType,
  GraphQLNonNull,
  GraphQLObjectType,
  type GraphQLObjectTypeConfig,
  type GraphQLOutputType,
  GraphQLString,
  GraphQLUnionType,
} from 'graphql';
import { isTagged } from '../model/item-key.js';
import { type Collection, type Field, isSecretField, isStamped, NUMBER_TYPES, ORDERED_TYPES } from '../model/model.js';
import type { AggregateFunction } from '../request/ast.js';
import { EVENT_ENUM, functionsOf, valueTypeOf } from './common.js';
import { extend, typeExtensions } from './field-binding.js';
import type { FilterTypes } from './filters.js';
import { BIG_INT_SCALAR, FLOAT_SCALAR, ID_SCALAR, INT_SCALAR, JSON_SCALAR } from './scalars.js';
import type { SchemaAccess } from './schema-access.js';
import { isExpressible, otherFieldNames, readableFields, type TypeNames } from './schema-names.js';

/** The field with the entity tag of an item's row. */
const ETAG = '_etag';

type FieldConfig = GraphQLFieldConfig<unknown, unknown>;
type Fields = Record<string, FieldConfig>;

export class ObjectTypes {
  readonly #arguments = new Map<string, GraphQLFieldConfigArgumentMap>();

  /** Types are added to those that were made before. */
  constructor(
    private readonly access: SchemaAccess,
    private readonly names: TypeNames,
    private readonly filters: FilterTypes,
    private readonly made: Map<string, GraphQLNamedType>,
  ) {}

  /** The type of a collection's items, or null if the caller may not see them or GraphQL cannot name them. */
  item(name: string): GraphQLObjectType | null {
    const typeName = this.names.item(name);
    const known = this.#known(typeName);
    if (known) return known;
    const collection = this.access.readable.collections.get(name);
    if (!collection || !isExpressible(collection)) return null;
    return this.#make({
      name: typeName,
      description: descriptionOf(collection.meta?.['note'] ?? collection.comment),
      extensions: typeExtensions(name),
      fields: () => this.#fields(collection),
    });
  }

  #known(name: string): GraphQLObjectType | null {
    const type = this.made.get(name);
    return type instanceof GraphQLObjectType ? type : null;
  }

  #make(config: GraphQLObjectTypeConfig<unknown, unknown>): GraphQLObjectType {
    const type = new GraphQLObjectType(config);
    this.made.set(type.name, type);
    return type;
  }

  /** The type of rows that a function returns and no collection has, or null if GraphQL can name none of their columns. */
  result(name: string, collection: Collection): GraphQLObjectType | null {
    const type = this.names.of('result', name);
    const known = this.#known(type);
    if (known) return known;
    const names = otherFieldNames(collection);
    const fields = readableFields(collection).map((field): [string, FieldConfig] => {
      const { type: shown, as } = valueTypeOf(field);
      return [
        names.get(field.name) ?? field.name,
        { type: shown, extensions: extend({ kind: 'value', field: field.name, as }) },
      ];
    });
    return fields.length > 0 ? this.#make({ name: type, fields: Object.fromEntries(fields) }) : null;
  }

  /** The arguments of a list of the collection's items. */
  listArguments(collection: Collection): GraphQLFieldConfigArgumentMap {
    const cached = this.#arguments.get(collection.name);
    if (cached) return cached;
    const created: GraphQLFieldConfigArgumentMap = {
      filter: { type: this.filters.filter(collection.name) },
      sort: { type: new GraphQLList(GraphQLString) },
      limit: { type: INT_SCALAR },
      offset: { type: INT_SCALAR },
      page: { type: INT_SCALAR },
      search: { type: GraphQLString },
    };
    this.#arguments.set(collection.name, created);
    return created;
  }

  /** The type of a change event. */
  mutated(collection: Collection, item: GraphQLObjectType): GraphQLObjectType {
    const name = this.names.of('mutated', collection.name);
    const fields = {
      key: { type: new GraphQLNonNull(ID_SCALAR), extensions: extend({ kind: 'event', part: 'key' }) },
      event: { type: EVENT_ENUM, extensions: extend({ kind: 'event', part: 'event' }) },
      data: { type: item, extensions: extend({ kind: 'event', part: 'data' }) },
    };
    return this.#known(name) ?? this.#make({ name, fields });
  }

  aggregated(collection: Collection): GraphQLObjectType {
    const name = this.names.of('aggregated', collection.name);
    return this.#known(name) ?? this.#make({ name, fields: () => this.#aggregatedFields(collection) });
  }

  #aggregatedFields(collection: Collection): Fields {
    const fields = readableFields(collection).filter((field) => field.column && !isSecretField(field));
    const numbers = fields.filter((field) => NUMBER_TYPES.has(field.type) && !field.column?.is_array);
    const inner = (suffix: 'count' | 'fields' | 'sums' | 'extremes', of: readonly Field[], type: typeof extremeType) =>
      of.length === 0
        ? null
        : this.#make({
            name: this.names.of(`aggregated ${suffix}`, collection.name),
            fields: () =>
              Object.fromEntries(
                of.map((field) => [this.names.field(collection, field.name), aggregateField(field, type(field))]),
              ),
          });
    const functions = (names: readonly AggregateFunction[], type: GraphQLObjectType | null): Fields =>
      type ? Object.fromEntries(names.map((name) => [name, functionField(name, type)])) : {};
    const averages = inner('fields', numbers, () => FLOAT_SCALAR);
    const hasBig = numbers.some((field) => numberType(field) === BIG_INT_SCALAR);
    return {
      group: { type: JSON_SCALAR, extensions: extend({ kind: 'groups' }) },
      countAll: { type: INT_SCALAR, extensions: extend({ kind: 'rows' }) },
      ...functions(
        ['count', 'countDistinct'],
        inner('count', fields, () => INT_SCALAR),
      ),
      ...functions(['avg', 'avgDistinct'], averages),
      ...functions(['sum', 'sumDistinct'], hasBig ? inner('sums', numbers, numberType) : averages),
      ...functions(['min', 'max'], inner('extremes', fields.filter(isOrdered), extremeType)),
    };
  }

  #fields(collection: Collection): Fields {
    const fields: Fields = {};
    for (const field of readableFields(collection)) {
      const name = this.names.field(collection, field.name);
      const config = this.#related(collection, field) ?? this.#value(collection, field);
      if (config)
        fields[name] = { ...config, description: descriptionOf(field.meta?.['note'] ?? field.column?.comment) };
      const functions = this.#functions(collection, field);
      if (functions) fields[`${name}_func`] = functions;
    }
    // A field of the collection has the name first.
    if (isTagged(collection)) fields[ETAG] ??= { type: GraphQLString, extensions: extend({ kind: 'tag' }) };
    return fields;
  }

  #functions(collection: Collection, field: Field): FieldConfig | null {
    const functions = functionsOf(field);
    if (!functions || collection.fields.has(`${field.name}_func`)) return null;
    if (field.relation?.kind === 'one-to-many' && !this.item(field.relation.manyCollection)) return null;
    return { type: functions.output, extensions: extend({ kind: 'functions', field: field.name }) };
  }

  #related(collection: Collection, field: Field): FieldConfig | null {
    const { relation } = field;
    const extensions = extend({ kind: 'related', field: field.name });
    switch (relation?.kind) {
      case 'many-to-one':
      case 'one-to-one':
      case 'one-to-many': {
        const many = relation.kind === 'one-to-many';
        const name = relation.kind === 'many-to-one' ? relation.oneCollection : relation.manyCollection;
        const target = this.access.readable.collections.get(name);
        const type = target && this.item(target.name);
        if (!target || !type) return null;
        return { type: many ? new GraphQLList(type) : type, args: this.listArguments(target), extensions };
      }
      case 'many-to-any': {
        const types = relation.allowedCollections.flatMap((name) => this.item(name) ?? []);
        if (types.length === 0) return null;
        const name = this.names.of('union', collection.name, field.name);
        const union = new GraphQLUnionType({ name, types });
        this.made.set(name, union);
        return { type: union, extensions };
      }
      default:
        return null;
    }
  }

  #value(collection: Collection, field: Field): FieldConfig | null {
    const { column } = field;
    if (!column) return null;
    const { type, as } = valueTypeOf(field);
    const filled = column.default_expression !== null || column.is_generated || isStamped(field);
    const never =
      !field.relation &&
      !collection.singleton &&
      this.access.isCertain(collection, field) &&
      (column.is_primary_key || (!column.is_nullable && !filled));
    return {
      type: never ? new GraphQLNonNull(type) : type,
      extensions: extend({ kind: 'value', field: field.name, as }),
    };
  }
}

function aggregateField({ name }: Field, type: GraphQLOutputType): FieldConfig {
  return { type, extensions: extend({ kind: 'aggregate', field: name }) };
}

function functionField(name: AggregateFunction, type: GraphQLObjectType): FieldConfig {
  return { type, extensions: extend({ kind: 'aggregates', function: name }) };
}

function isOrdered(field: Field): boolean {
  return ORDERED_TYPES.has(field.type) && !field.column?.is_array;
}

function extremeType(field: Field): GraphQLOutputType {
  return NUMBER_TYPES.has(field.type) ? numberType(field) : valueTypeOf(field).type;
}

/** The type of sums and extremes: whole numbers that a float cannot hold stay texts. */
function numberType(field: Field): GraphQLOutputType {
  return field.type === 'bigInteger' ? BIG_INT_SCALAR : FLOAT_SCALAR;
}

export function descriptionOf(note: unknown): string | undefined {
  return typeof note === 'string' && note !== '' ? note : undefined;
}
