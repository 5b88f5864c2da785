/** Arguments of lists → the query of the request AST, through the parsers that REST uses, and the input types of payloads. */
import {
  type GraphQLField,
  type GraphQLInputFieldConfig,
  GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLList,
  type GraphQLNamedType,
  GraphQLNonNull,
  getNamedType,
  isInputObjectType,
  isListType,
  isNonNullType,
} from 'graphql';
import { isObject } from '../../base/exact-json.js';
import { propertiesOf } from '../../base/narrow.js';
import { isKey } from '../model/item-key.js';
import { type Collection, type Field, isRequired } from '../model/model.js';
import type { Query } from '../request/ast.js';
import type { ParseContext, ValueList } from '../request/parse-context.js';
import { parseQuery } from '../request/query-parameters.js';
import { operatorsOf, UPDATE_OPERATORS, type UpdateOperator } from '../request/update-operators.js';
import { valueTypeOf } from './common.js';
import { extend, filterBindingOf, operatorExtensions, STAGED } from './field-binding.js';
import { descriptionOf } from './item-types.js';
import { ID_SCALAR, JSON_SCALAR } from './scalars.js';
import type { SchemaAccess } from './schema-access.js';
import { isExpressible, type OperandKind, type TypeNames, writtenName } from './schema-names.js';

export type Arguments = Readonly<Record<string, unknown>>;

/** The values and limits of an operation while it is parsed. */
export interface DocumentContext extends ParseContext {
  readonly values: ValueList;
}

export function parseQueryArguments(
  field: GraphQLField<unknown, unknown>,
  { filter, sort, limit, offset, page, search, groupBy, having }: Arguments,
  context: ParseContext,
): Query {
  const type = field.args.find((each) => each.name === 'filter')?.type;
  const input = {
    filter: filter && type ? parseFilterArgument(filter, type) : undefined,
    sort: withoutNulls(sort),
    limit,
    offset,
    page,
    search,
    groupBy: withoutNulls(groupBy),
    having,
  };
  return parseQuery(input, context);
}

/** Turns keys into those of REST: `item:headings`, `year(date)`. Values stay as they are. */
function parseFilterArgument(value: unknown, input: GraphQLInputType): unknown {
  const type = isNonNullType(input) ? input.ofType : input;
  if (isListType(type)) {
    return Array.isArray(value) ? value.map((each) => parseFilterArgument(each, type.ofType)) : value;
  }
  const named = getNamedType(type);
  if (!isInputObjectType(named) || !isObject(value)) return value;
  const fields = named.getFields();
  const filter: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) {
    const field = fields[key];
    if (!field) continue;
    const binding = filterBindingOf(field);
    if (binding?.kind === 'functions') {
      for (const [name, condition] of Object.entries(propertiesOf(inner)))
        filter[`${name}(${writtenName(binding.field)})`] = condition;
    } else filter[binding ? binding.key : key] = parseFilterArgument(inner, field.type);
  }
  return filter;
}

/** The schema allows null as an entry of a list. It has no effect. */
function withoutNulls(list: unknown): unknown {
  if (list === null || list === undefined) return undefined;
  return Array.isArray(list) ? list.filter((each) => each !== null) : list;
}

type Fields = Record<string, GraphQLInputFieldConfig>;
type Action = 'create' | 'update';

const OPERAND_KINDS = { increment: 'increment', decrement: 'increment', append: 'append', merge: 'merge' } as const;

const STAGES = ['create', 'update', 'delete'] as const;

/**
 * Collections → input types of payloads. Root items have types of their own for create and update; related items share one
 * type whose fields are all optional, since an object with a key links or changes an item and one without makes one.
 * GraphQL has no unions of inputs: the detailed form of a list, `{create, update, delete}`, works because a single object
 * in the place of a list is a list of one.
 */
export class InputTypes {
  readonly #known = new Map<string, GraphQLInputObjectType | null>();

  /** Types are added to those that were made before. */
  constructor(
    private readonly access: SchemaAccess,
    private readonly names: TypeNames,
    private readonly made: Map<string, GraphQLNamedType>,
  ) {}

  /** Returns null if the caller may not write, or has no field to write to. */
  root(collection: Collection, action: Action): GraphQLInputObjectType | null {
    return this.#make(action, collection);
  }

  /** Nested items: created or changed. */
  related(name: string): GraphQLInputObjectType | null {
    const collection = this.access.model.collections.get(name);
    if (!collection || !isExpressible(collection)) return null;
    return this.#make('relation', collection, !STAGES.some((stage) => collection.fields.has(stage)));
  }

  /** The fields that fit the operator, and that the caller may update and read: an operator reads what it changes. */
  operands(collection: Collection, kind: OperandKind): GraphQLInputObjectType | null {
    const name = this.names.of(kind, collection.name);
    const cached = this.#known.get(name);
    if (cached !== undefined) return cached;
    const readable = this.access.readable.collections.get(collection.name);
    const fields = collection.system
      ? []
      : this.#writable(collection, 'update').filter(
          (field) => !isKey(collection, field) && operatorsOf(field).includes(kind) && readable?.fields.has(field.name),
        );
    const type =
      fields.length === 0
        ? null
        : new GraphQLInputObjectType({
            name,
            fields: () =>
              Object.fromEntries(fields.map((field) => this.#input(collection, field, valueTypeOf(field).type))),
          });
    this.#known.set(name, type);
    if (type) this.made.set(name, type);
    return type;
  }

  #make(kind: Action | 'relation', collection: Collection, isStaged = false): GraphQLInputObjectType | null {
    const name = this.names.of(kind, collection.name);
    const cached = this.#known.get(name);
    if (cached !== undefined) return cached;
    const actions: readonly Action[] = kind === 'relation' ? ['create', 'update'] : [kind];
    const isWritable = actions.some((each) => this.#writable(collection, each).length > 0);
    const type = isWritable
      ? new GraphQLInputObjectType({ name, extensions: isStaged ? STAGED : {}, fields: () => fields() })
      : null;
    const fields = (): Fields => ({
      ...this.#fields(collection, actions, kind === 'create'),
      ...(kind === 'create' ? {} : this.#operatorFields(collection)),
      ...(isStaged && type ? staged(type) : {}),
    });
    this.#known.set(name, type);
    if (type) this.made.set(name, type);
    return type;
  }

  /** The operators that fit fields of the collection, with their operands. */
  operators(collection: Collection): (readonly [UpdateOperator, GraphQLInputObjectType])[] {
    return UPDATE_OPERATORS.flatMap((operator) => {
      const type = this.operands(collection, OPERAND_KINDS[operator]);
      return type ? [[operator, type] as const] : [];
    });
  }

  /** `_increment: {views: 1}` next to the fields of an item. A field of the same name takes precedence. */
  #operatorFields(collection: Collection): Fields {
    const entries = this.operators(collection).map(
      ([operator, type]) => [`_${operator}`, { type, extensions: operatorExtensions(operator) }] as const,
    );
    return Object.fromEntries(entries.filter(([name]) => !collection.fields.has(name)));
  }

  #writable(collection: Collection, action: Action): Field[] {
    const allowed = this.access.writable(collection, action);
    if (!allowed) return [];
    return [...collection.fields.values()].filter(
      (field) => !field.column?.is_generated && (allowed === 'all' || allowed.has(field.name)),
    );
  }

  #fields(collection: Collection, actions: readonly Action[], strict: boolean): Fields {
    const fields: Fields = {};
    // The key names the item, whether or not it may be written.
    if (!strict)
      for (const field of collection.key) {
        const [name, config] = this.#input(collection, field, ID_SCALAR);
        fields[name] = config;
      }
    for (const field of new Set(actions.flatMap((action) => this.#writable(collection, action)))) {
      const type = this.#type(field);
      if (!type) continue;
      const required = strict && isRequired(field) && !field.relation;
      const [name, config] = this.#input(collection, field, required ? new GraphQLNonNull(type) : type);
      fields[name] = { ...config, description: descriptionOf(field.meta?.['note'] ?? field.column?.comment) };
    }
    return fields;
  }

  #input(collection: Collection, { name: field }: Field, type: GraphQLInputType): [string, GraphQLInputFieldConfig] {
    const name = this.names.field(collection, field);
    return [name, name === field ? { type } : { type, extensions: extend({ kind: 'input', field }) }];
  }

  #type(field: Field): GraphQLInputType | null {
    const { relation } = field;
    switch (relation?.kind) {
      case 'many-to-one':
        return this.related(relation.oneCollection) ?? valueTypeOf(field).type;
      case 'one-to-one':
        return this.related(relation.manyCollection);
      case 'one-to-many': {
        const type = this.related(relation.manyCollection);
        return type && new GraphQLList(type);
      }
      case 'many-to-any':
        // A key, or the item itself, whose collection is in another field.
        return JSON_SCALAR;
      default:
        return field.column ? valueTypeOf(field).type : null;
    }
  }
}

function staged(self: GraphQLInputObjectType): Fields {
  const items = { type: new GraphQLList(new GraphQLNonNull(self)) };
  return { create: items, update: items, delete: { type: new GraphQLList(ID_SCALAR) } };
}
