/**
 * The schema of what a caller may see, one per set of permissions and model. Reading a document needs the types that it names and no
 * others, so a type is made when it is first asked for; a thousand collections cost the first request milliseconds. Only
 * introspection and the schema as text have all of it made, in slices, with other requests in between. The root fields are what the
 * caller may read, write and call, collection by collection and function by function.
 */
import {
  __Schema,
  GraphQLBoolean,
  GraphQLEnumType,
  type GraphQLFieldConfig,
  type GraphQLFieldConfigArgumentMap,
  type GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLList,
  type GraphQLNamedType,
  GraphQLNonNull,
  type GraphQLNullableType,
  GraphQLObjectType,
  type GraphQLOutputType,
  GraphQLString,
} from 'graphql';
import { LRUCache } from 'lru-cache';
import { groupBy } from '../../base/narrow.js';
import { mapSteps, runInSlices, runSteps, type Steps } from '../../base/time-slices.js';
import { hasVersions, showsKey } from '../model/item-key.js';
import type { Collection, Field, Overload, Returns, ServedFunction } from '../model/model.js';
import { resourceOf } from '../model/system-resources.js';
import { RESOLUTIONS } from '../request/on-conflict.js';
import { InputTypes } from './arguments.js';
import { COMMON_TYPES, DELETE_MANY, DELETE_ONE, EVENT_ENUM, valueTypeOf } from './common.js';
import {
  CompleteSchema,
  collectTypes,
  PLACEHOLDER,
  printTypes,
  type RootTypes,
  ServedSchema,
  type TypeMap,
} from './complete-schema.js';
import { extend, type FunctionBinding, type SystemField } from './field-binding.js';
import { FilterTypes } from './filters.js';
import { descriptionOf, ObjectTypes } from './item-types.js';
import { ID_SCALAR, JSON_SCALAR, VOID_SCALAR } from './scalars.js';
import type { RootScope, SchemaAccess } from './schema-access.js';
import { isExpressible, isName, rootName, TypeNames } from './schema-names.js';
import { SystemFields, type SystemRoots } from './system-fields.js';

export class Schemas {
  readonly #known: LRUCache<string, LazySchema>;
  readonly #systemFields: SystemFields;

  /** `systemFields` are the root fields that REST routes implement. */
  constructor(capacity: number, systemFields: readonly SystemField[]) {
    this.#systemFields = new SystemFields(systemFields);
    this.#known = new LRUCache({ max: capacity });
  }

  clear(): void {
    this.#known.clear();
  }

  get(access: SchemaAccess, scope: RootScope): LazySchema {
    const key = schemaKey(access, scope);
    const cached = this.#known.get(key);
    if (cached) return cached;
    const created = new LazySchema(access, scope, this.#systemFields);
    this.#known.set(key, created);
    return created;
  }
}

export function schemaKey(access: SchemaAccess, scope: RootScope): string {
  return `${scope} ${access.model.version} ${access.key}`;
}

export class LazySchema extends ServedSchema {
  readonly roots: RootTypes;
  readonly types: TypeMap;
  readonly #made = new Map<string, GraphQLNamedType>();
  readonly #names: TypeNames;
  readonly #filters: FilterTypes;
  readonly #schemaTypes: SchemaTypes;
  readonly #rootFields: readonly LazyRootFields[];
  #complete: Promise<CompleteSchema> | null = null;

  constructor(access: SchemaAccess, scope: RootScope, systemFields: SystemFields) {
    const system = scope === 'system' ? systemFields.of(access.model) : null;
    // Built from the model, it is valid by construction.
    super({ query: PLACEHOLDER, types: [...COMMON_TYPES, ...(system?.types ?? [])], assumeValid: true });
    this.#names = TypeNames.of(access.model);
    this.#filters = new FilterTypes(access, this.#names, this.#made);
    this.#schemaTypes = {
      access,
      types: new ObjectTypes(access, this.#names, this.#filters, this.#made),
      inputs: new InputTypes(access, this.#names, this.#made),
    };
    const { read, write } = rootCollections(access, scope);
    const queries = new LazyRootFields(() => this.#queryFields(read, system));
    const mutations = new LazyRootFields(() => this.#mutationFields(write, system));
    const subscriptions = new LazyRootFields(() => subscriptionFields(read, this.#schemaTypes));
    this.#rootFields = [queries, mutations, subscriptions];
    const mayWrite = write.length > 0 || system || mayCallVolatile(access);
    const maySubscribe = read.length > 0 && !system;
    this.roots = {
      query: new GraphQLObjectType({ name: 'Query', fields: queries.get }),
      mutation: mayWrite ? new GraphQLObjectType({ name: 'Mutation', fields: mutations.get }) : null,
      subscription: maySubscribe ? new GraphQLObjectType({ name: 'Subscription', fields: subscriptions.get }) : null,
    };
    this.types = this.#lazyMap(this.collected);
  }

  *#queryFields(roots: readonly Collection[], system: SystemRoots | null): Steps<RootFields> {
    const { types } = this.#schemaTypes;
    const collections = yield* queryFields(roots, types);
    const fields = system
      ? { ...collections, ...ownQueryFields(types), ...system.query }
      : { ...collections, ...functionFields('query', collections, this.#schemaTypes) };
    return Object.keys(fields).length > 0 ? fields : NO_FIELDS;
  }

  *#mutationFields(roots: readonly Collection[], system: SystemRoots | null): Steps<RootFields> {
    const writes = yield* mutationFields(roots, this.#schemaTypes);
    return system
      ? { ...writes, ...ownMutationFields(this.#schemaTypes), ...system.mutation }
      : { ...writes, ...functionFields('mutation', writes, this.#schemaTypes) };
  }

  /** All of it, for introspection and as text. */
  complete(): Promise<CompleteSchema> {
    this.#complete ??= this.#makeComplete();
    return this.#complete;
  }

  async #makeComplete(): Promise<CompleteSchema> {
    for (const fields of this.#rootFields) await runInSlices(fields.prepare());
    await runInSlices(mapSteps(Object.values(this.roots), (type) => type?.getFields()));
    return new CompleteSchema(this.roots, await runInSlices(collectTypes(this.roots, __Schema)));
  }

  /** Types by name, made when they are asked for; graphql-js looks them up here. */
  #lazyMap(common: TypeMap): TypeMap {
    const find = (name: string): GraphQLNamedType | undefined => {
      if (name === 'Query') return this.roots.query;
      if (name === 'Mutation') return this.roots.mutation ?? undefined;
      if (name === 'Subscription') return this.roots.subscription ?? undefined;
      return this.#made.get(name) ?? this.#make(name) ?? (Object.hasOwn(common, name) ? common[name] : undefined);
    };
    const { collections } = this.#schemaTypes.access.readable;
    const names = (): string[] => [
      ...new Set([
        ...Object.keys(common),
        ...[...collections.keys()].map((name) => this.#names.item(name)),
        ...this.#names.all(),
      ]),
    ];
    return new Proxy(common, {
      get: (_, name) => (typeof name === 'string' ? find(name) : undefined),
      has: (_, name) => typeof name === 'string' && find(name) !== undefined,
      ownKeys: names,
      getOwnPropertyDescriptor: (_, name) => {
        const value = find(String(name));
        return value && { value, enumerable: true, configurable: true };
      },
    });
  }

  #make(name: string): GraphQLNamedType | undefined {
    const { access, types, inputs } = this.#schemaTypes;
    const generated = this.#names.find(name);
    if (!generated) return types.item(this.#names.collection(name)) ?? undefined;
    const { kind, collection } = generated;
    // Made with the root fields that return it.
    if (kind === 'result') for (const root of [this.roots.query, this.roots.mutation]) root?.getFields();
    if (kind === 'result') return this.#made.get(name);
    const whole = access.model.collections.get(collection);
    if (kind === 'create' || kind === 'update') return (whole && inputs.root(whole, kind)) ?? undefined;
    if (kind === 'increment' || kind === 'append' || kind === 'merge')
      return (whole && inputs.operands(whole, kind)) ?? undefined;
    if (kind === 'relation') return inputs.related(collection) ?? undefined;
    const item = types.item(collection);
    const readable = item && access.readable.collections.get(collection);
    if (!readable) return undefined;
    if (kind === 'mutated') return types.mutated(readable, item);
    if (kind === 'filter') return this.#filters.filter(collection);
    if (kind === 'quantifier') return this.#filters.quantified(collection);
    if (kind === 'reference') return this.#filters.reference(collection);
    if (kind === 'union') item.getFields();
    else types.aggregated(readable).getFields();
    return this.#made.get(name);
  }
}

export async function describeSchema(schema: LazySchema): Promise<string> {
  return runInSlices(printTypes(await schema.complete()));
}

type RootFields = Record<string, GraphQLFieldConfig<unknown, unknown>>;

type Arguments = GraphQLFieldConfigArgumentMap;

/** The types of a caller's schema, from which its root fields are made. */
interface SchemaTypes {
  readonly access: SchemaAccess;
  readonly types: ObjectTypes;
  readonly inputs: InputTypes;
}

/** The fields of a root type: made when a document needs them, or beforehand with pauses. */
class LazyRootFields {
  #made: RootFields | null = null;

  constructor(private readonly steps: () => Steps<RootFields>) {}

  readonly get = (): RootFields => {
    this.#made ??= runSteps(this.steps());
    return this.#made;
  };

  *prepare(): Steps<void> {
    this.#made ??= yield* this.steps();
  }
}

function rootCollections(access: SchemaAccess, scope: RootScope): { read: Collection[]; write: Collection[] } {
  // The schema and logins have fields of their own.
  const isRoot = (collection: Collection): boolean =>
    (scope === 'system' ? resourceOf(collection.name) !== null : !collection.system) && isExpressible(collection);
  return {
    read: [...access.readable.collections.values()].filter(isRoot),
    write: [...access.model.collections.values()].filter(
      (each) =>
        isRoot(each) &&
        resourceOf(each.name)?.kind !== 'read' &&
        each.kind !== 'view' &&
        each.key.length > 0 &&
        isWritable(each, access),
    ),
  };
}

function isWritable(collection: Collection, access: SchemaAccess): boolean {
  const creates = !collection.singleton && access.writable(collection, 'create') !== null;
  const deletes = !collection.singleton && access.mayDelete(collection);
  return creates || deletes || access.writable(collection, 'update') !== null;
}

function* queryFields(collections: readonly Collection[], types: ObjectTypes): Steps<RootFields> {
  const fields: RootFields = {};
  for (const collection of collections) {
    const type = types.item(collection.name);
    if (type) fields[rootName(collection)] = listField(collection, type, types);
    yield;
  }
  // Collections have their names first: what is generated gives way to them.
  for (const collection of collections) {
    const type = types.item(collection.name);
    if (type && !collection.singleton) addDerived(fields, collection, type, types);
    yield;
  }
  return fields;
}

/** Every query that follows changes, and the changes themselves. */
function* subscriptionFields(collections: readonly Collection[], { access, types }: SchemaTypes): Steps<RootFields> {
  const fields = yield* queryFields(collections, types);
  for (const collection of collections) {
    yield;
    const type = types.item(collection.name);
    const name = `${rootName(collection)}_mutated`;
    if (!type || name in fields || !hasEvents(collection, access)) continue;
    fields[name] = {
      type: types.mutated(collection, type),
      args: { event: { type: EVENT_ENUM } },
      extensions: extend({ kind: 'mutated', collection: collection.name }),
    };
  }
  return fields;
}

/** An event names the key of its item: it must be one that the caller may see in every row. */
function hasEvents(collection: Collection, access: SchemaAccess): boolean {
  if (collection.kind === 'view' || !showsKey(collection)) return false;
  return collection.key.every((field) => access.isCertain(collection, field));
}

/** A type needs a field, even for a caller who may see nothing. */
const NO_FIELDS: RootFields = { _empty: { type: VOID_SCALAR, extensions: extend({ kind: 'empty' }) } };

function listField(collection: Collection, type: GraphQLObjectType, types: ObjectTypes): RootFields[string] {
  const { name, singleton } = collection;
  return {
    type: singleton ? type : requiredListOf(type),
    args: !singleton ? types.listArguments(collection) : hasVersions(collection) ? VERSION : {},
    extensions: extend({ kind: singleton ? 'singleton' : 'list', collection: name }),
  };
}

/** The key of the content version that an item is shown as. */
const VERSION = { version: { type: GraphQLString } };

function addDerived(fields: RootFields, collection: Collection, type: GraphQLObjectType, types: ObjectTypes): void {
  const { name } = collection;
  const root = rootName(collection);
  const add = (key: string, field: () => RootFields[string]): void => {
    if (!(key in fields)) fields[key] = field();
  };
  if (showsKey(collection)) {
    const codecs = collection.key.map(({ column }) => column?.base_type ?? 'text');
    const extensions = extend({ kind: 'item', collection: name, codecs });
    const isVersioned = hasVersions(collection);
    add(`${root}_by_id`, () => ({ type, args: { id: ID, ...(isVersioned && VERSION) }, extensions }));
    const version = { type: new GraphQLNonNull(GraphQLString) };
    if (isVersioned) add(`${root}_by_version`, () => ({ type, args: { id: ID, version }, extensions }));
  }
  add(`${root}_aggregated`, () => ({
    type: requiredListOf(types.aggregated(collection)),
    args: { ...GROUPS, ...types.listArguments(collection) },
    extensions: extend({ kind: 'aggregated', collection: name }),
  }));
}

const GROUPS = { groupBy: { type: new GraphQLList(GraphQLString) }, having: { type: JSON_SCALAR } };
const ID = { type: new GraphQLNonNull(ID_SCALAR) };
const IDS = { type: new GraphQLNonNull(new GraphQLList(ID_SCALAR)) };

/** Entity tags of the item, as in the header `If-Match`. */
const IF_MATCH = { if_match: { type: GraphQLString } };

function* mutationFields(collections: readonly Collection[], schema: SchemaTypes): Steps<RootFields> {
  const fields: RootFields = {};
  for (const collection of collections) {
    yield;
    Object.assign(fields, collection.singleton ? singletonField(collection, schema) : writeFields(collection, schema));
  }
  return fields;
}

const RESOLUTION = new GraphQLEnumType({
  name: 'conflict_resolution',
  values: Object.fromEntries(RESOLUTIONS.map((name) => [name, {}])),
});

/** The treatment of items that exist already, by unique columns. */
const ON_CONFLICT = {
  on_conflict: { type: new GraphQLList(new GraphQLNonNull(GraphQLString)) },
  resolution: { type: RESOLUTION },
};

/** Callers who may write but not read get a Boolean. */
function writeFields(collection: Collection, { access, types, inputs }: SchemaTypes): RootFields {
  const { name } = collection;
  const root = rootName(collection);
  const item = types.item(name);
  const itemsArguments = item ? types.listArguments(collection) : {};
  const field = (kind: 'create' | 'update' | 'batch', many: boolean, args: Arguments): RootFields[string] => ({
    type: !item ? GraphQLBoolean : many ? requiredListOf(item) : item,
    args: many ? { ...args, ...itemsArguments } : args,
    extensions: extend({ kind, collection: name, many, readable: item !== null }),
  });
  const fields: RootFields = {};
  const created = inputs.root(collection, 'create');
  if (created) {
    const conflict = collection.system ? {} : ON_CONFLICT;
    fields[`create_${root}_items`] = field('create', true, { data: { type: listOf(created) }, ...conflict });
    fields[`create_${root}_item`] = field('create', false, { ...dataArgument(created), ...conflict });
  }
  const updated = inputs.root(collection, 'update');
  if (updated) {
    const changes = changeArguments(collection, updated, inputs);
    fields[`update_${root}_items`] = field('update', true, { ids: IDS, ...changes });
    fields[`update_${root}_batch`] = field('batch', true, { data: { type: listOf(updated) } });
    fields[`update_${root}_item`] = field('update', false, { id: ID, ...changes, ...IF_MATCH });
  }
  if (access.mayDelete(collection)) {
    const deletion = { kind: 'delete', collection: name, readable: false } as const;
    const [many, one] = [extend({ ...deletion, many: true }), extend({ ...deletion, many: false })];
    fields[`delete_${root}_items`] = { type: DELETE_MANY, args: { ids: IDS }, extensions: many };
    fields[`delete_${root}_item`] = { type: DELETE_ONE, args: { id: ID, ...IF_MATCH }, extensions: one };
  }
  return fields;
}

function singletonField(collection: Collection, { types, inputs }: SchemaTypes): RootFields {
  const input = inputs.root(collection, 'update');
  if (!input) return {};
  const type = types.item(collection.name);
  const extensions = extend({ kind: 'update-singleton', collection: collection.name, readable: type !== null });
  return {
    [`update_${rootName(collection)}`]: {
      type: type ?? GraphQLBoolean,
      args: { ...changeArguments(collection, input, inputs), ...IF_MATCH },
      extensions,
    },
  };
}

/** Values, and operators for the fields that they fit. A change may consist of operators alone. */
function changeArguments(collection: Collection, input: GraphQLInputObjectType, inputs: InputTypes): Arguments {
  const operators = inputs.operators(collection).map(([operator, type]) => [operator, { type }] as const);
  if (operators.length === 0) return dataArgument(input);
  return { data: { type: input }, ...Object.fromEntries(operators) };
}

function dataArgument(input: GraphQLInputObjectType): Arguments {
  return { data: { type: new GraphQLNonNull(input) } };
}

function listOf<Type extends GraphQLNullableType>(type: Type): GraphQLList<GraphQLNonNull<Type>> {
  return new GraphQLList(new GraphQLNonNull(type));
}

function requiredListOf(type: GraphQLObjectType): GraphQLOutputType {
  return new GraphQLNonNull(listOf(type));
}

/** The caller's own user and roles. */
function ownQueryFields(types: ObjectTypes): RootFields {
  const [user, role] = [types.item('service_users'), types.item('service_roles')];
  return {
    ...(user ? { users_me: { type: user, extensions: extend({ kind: 'me' }) } } : {}),
    ...(role ? { roles_me: { type: requiredListOf(role), extensions: extend({ kind: 'my-roles' }) } } : {}),
  };
}

function ownMutationFields({ access, types, inputs }: SchemaTypes): RootFields {
  const users = access.model.collections.get('service_users');
  const input = users && inputs.root(users, 'update');
  if (!input) return {};
  const type = types.item('service_users');
  const extensions = extend({ kind: 'update-me', readable: type !== null });
  return { update_users_me: { type: type ?? GraphQLBoolean, args: dataArgument(input), extensions } };
}

/**
 * Fields that call functions: queries for those that write nothing, mutations for others. Overloads that differ in their arguments are one
 * field, which has the arguments of all of them. An overload that returns something else is left out. Existing fields keep their names.
 */
function functionFields(
  operation: 'query' | 'mutation',
  existing: RootFields,
  { access, types }: SchemaTypes,
): RootFields {
  const fields: RootFields = {};
  for (const served of access.readable.functions.values()) {
    const forms = formsOf(served, operation === 'mutation');
    const [first] = forms;
    if (!first || !isName(served.name)) continue;
    const result = resultOf(first, access, types);
    if (!result) continue;
    const { name } = served;
    const description = descriptionOf(served.note ?? first.comment);
    const own = argumentsOf(forms);
    const binding: FunctionBinding = {
      kind: 'function',
      function: name,
      arguments: Object.keys(own),
      result: result.kind,
      groups: false,
    };
    if (!(name in existing))
      fields[name] = { type: result.type, description, args: { ...result.args, ...own }, extensions: extend(binding) };
    const { items } = result;
    if (!items || operation === 'mutation' || `${name}_aggregated` in existing) continue;
    fields[`${name}_aggregated`] = {
      type: listOf(types.aggregated(items)),
      description,
      args: { ...GROUPS, ...result.args, ...own },
      extensions: extend({ ...binding, groups: true }),
    };
  }
  return fields;
}

/** The overloads that the operation may call, that return the type of the first one, and whose arguments GraphQL can write. */
function formsOf({ overloads }: ServedFunction, isVolatile: boolean): Overload[] {
  const callable = overloads.filter(
    (each) => each.volatile === isVolatile && each.arguments.every(({ name }) => isName(name)),
  );
  const [first] = callable;
  return first ? callable.filter((each) => signature(each.returns) === signature(first.returns)) : [];
}

function signature(returns: Returns): string {
  if (returns.kind === 'nothing') return returns.kind;
  const { kind, set, collection } = returns;
  const columns = typeof collection === 'string' ? collection : [...collection.fields.values()].map(columnText).join();
  return `${kind} ${set} ${columns}`;
}

function columnText({ name, column }: Field): string {
  return `${JSON.stringify(name)} ${column?.data_type}`;
}

/** An argument that every overload requires is required. */
function argumentsOf(forms: readonly Overload[]): Arguments {
  const known = groupBy(
    forms.flatMap((form) => form.arguments),
    ({ name }) => name,
  );
  return Object.fromEntries(
    [...known].map(([name, list]) => {
      const [type, ...others] = new Set<GraphQLInputType>(list.map(({ field }) => valueTypeOf(field).type));
      const argumentType = type && others.length === 0 ? type : JSON_SCALAR;
      const isNeeded = list.length === forms.length && list.every(({ required }) => required);
      return [name, { type: isNeeded ? new GraphQLNonNull(argumentType) : argumentType }];
    }),
  );
}

interface Result {
  readonly kind: FunctionBinding['result'];
  readonly type: GraphQLOutputType;
  readonly args: Arguments;
  /** Rows that can be grouped. */
  readonly items: Collection | null;
}

/** Returns null if the caller may not see the result. */
function resultOf({ name, returns, volatile }: Overload, access: SchemaAccess, types: ObjectTypes): Result | null {
  const nothing: Result = { kind: 'nothing', type: VOID_SCALAR, args: {}, items: null };
  switch (returns.kind) {
    case 'nothing':
      return nothing;
    case 'value': {
      const [field] = returns.collection.fields.values();
      if (!field) return null;
      const { type, as } = valueTypeOf(field);
      return { kind: { as }, type: returns.set ? new GraphQLList(type) : type, args: {}, items: null };
    }
    case 'record': {
      const type = types.result(name, returns.collection);
      return (
        type && { kind: returns.set ? 'list' : 'one', type: returns.set ? listOf(type) : type, args: {}, items: null }
      );
    }
    default: {
      const collection = access.readable.collections.get(returns.collection);
      const type = collection && types.item(collection.name);
      if (!type) return volatile ? nothing : null;
      if (!returns.set) return { kind: 'one', type, args: {}, items: null };
      return { kind: 'list', type: listOf(type), args: types.listArguments(collection), items: collection };
    }
  }
}

/** Whether there is a mutation among the functions that the caller may call. */
function mayCallVolatile({ readable }: SchemaAccess): boolean {
  return [...readable.functions.values()].some((served) => isName(served.name) && formsOf(served, true).length > 0);
}
