/** Root fields: what the caller may read and write, collection by collection. */
import {
  GraphQLBoolean,
  GraphQLEnumType,
  type GraphQLFieldConfig,
  GraphQLList,
  GraphQLNonNull,
  type GraphQLObjectType,
  type GraphQLOutputType,
  GraphQLString,
} from 'graphql';
import { runSteps, type Steps } from '../base/time-slices.js';
import { hasVersions, showsKey } from '../mirror/item-key.js';
import type { Collection } from '../mirror/model.js';
import { SYSTEM_RESOURCES } from '../mirror/system-resources.js';
import { RESOLUTIONS } from '../request/on-conflict.js';
import { DELETE_MANY, DELETE_ONE, EVENT_ENUM } from './common.js';
import { extend, type RootBinding } from './field-binding.js';
import type { InputTypes } from './inputs.js';
import type { ObjectTypes } from './item-types.js';
import { ID_SCALAR, JSON_SCALAR, VOID_SCALAR } from './scalars.js';
import type { RootScope, SchemaAccess } from './schema-access.js';
import { isExpressible, rootName } from './schema-names.js';

export type RootFields = Record<string, GraphQLFieldConfig<unknown, unknown>>;

/** The fields of a root type: made when a document needs them, or beforehand with pauses. */
export class LazyRootFields {
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

/** The schema and logins have fields of their own. */
const SYSTEM: ReadonlySet<string> = new Set(SYSTEM_RESOURCES.map(({ name }) => `service_${name}`));
const READ_ONLY: ReadonlySet<string> = new Set(
  SYSTEM_RESOURCES.filter(({ kind }) => kind === 'read').map(({ name }) => `service_${name}`),
);

export function rootCollections(access: SchemaAccess, scope: RootScope): { read: Collection[]; write: Collection[] } {
  const isRoot = (collection: Collection): boolean =>
    (scope === 'system' ? SYSTEM.has(collection.name) : !collection.system) && isExpressible(collection);
  return {
    read: [...access.readable.collections.values()].filter(isRoot),
    write: [...access.model.collections.values()].filter(
      (each) =>
        isRoot(each) &&
        !READ_ONLY.has(each.name) &&
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

export function* queryFields(collections: readonly Collection[], types: ObjectTypes): Steps<RootFields> {
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
export function* subscriptionFields(
  collections: readonly Collection[],
  access: SchemaAccess,
  types: ObjectTypes,
): Steps<RootFields> {
  const fields = yield* queryFields(collections, types);
  for (const collection of collections) {
    yield;
    const type = types.item(collection.name);
    const name = `${rootName(collection)}_mutated`;
    if (!type || name in fields || !hasEvents(collection, access)) continue;
    fields[name] = {
      type: types.mutated(collection, type),
      args: { event: { type: EVENT_ENUM } },
      extensions: rootBinding({ kind: 'mutated', collection: collection.name }),
    };
  }
  return fields;
}

/** An event names the key of its item: it must be one that the caller may see in every row. */
function hasEvents(collection: Collection, access: SchemaAccess): boolean {
  if (collection.kind === 'view' || !showsKey(collection)) return false;
  return collection.key.every((field) => access.isCertain(collection, field));
}

/** A type needs a field, also for who may see nothing. */
export const NO_FIELDS: RootFields = { _empty: { type: VOID_SCALAR, extensions: extend({ kind: 'empty' }) } };

function listField(collection: Collection, type: GraphQLObjectType, types: ObjectTypes): RootFields[string] {
  const { name } = collection;
  return collection.singleton
    ? {
        type,
        args: hasVersions(collection) ? VERSION : {},
        extensions: rootBinding({ kind: 'singleton', collection: name }),
      }
    : {
        type: listOf(type),
        args: types.listArguments(collection),
        extensions: rootBinding({ kind: 'list', collection: name }),
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
    const id = { type: new GraphQLNonNull(ID_SCALAR) };
    const codecs = collection.key.map(({ column }) => column?.base_type ?? 'text');
    const extensions = rootBinding({ kind: 'item', collection: name, codecs });
    const isVersioned = hasVersions(collection);
    add(`${root}_by_id`, () => ({ type, args: { id, ...(isVersioned && VERSION) }, extensions }));
    const version = { type: new GraphQLNonNull(GraphQLString) };
    if (isVersioned) add(`${root}_by_version`, () => ({ type, args: { id, version }, extensions }));
  }
  add(`${root}_aggregated`, () => ({
    type: listOf(types.aggregated(collection)),
    args: {
      groupBy: { type: new GraphQLList(GraphQLString) },
      having: { type: JSON_SCALAR },
      ...types.listArguments(collection),
    },
    extensions: rootBinding({ kind: 'aggregated', collection: name }),
  }));
}

export function* mutationFields(
  collections: readonly Collection[],
  access: SchemaAccess,
  types: ObjectTypes,
  inputs: InputTypes,
): Steps<RootFields> {
  const fields: RootFields = {};
  for (const collection of collections) {
    yield;
    if (collection.singleton) addSingleton(fields, collection, types, inputs);
    else {
      addCreates(fields, collection, access, types, inputs);
      addUpdates(fields, collection, access, types, inputs);
      if (access.mayDelete(collection)) addDeletes(fields, collection);
    }
  }
  return fields;
}

const RESOLUTION = new GraphQLEnumType({
  name: 'conflict_resolution',
  values: Object.fromEntries(RESOLUTIONS.map((name) => [name, {}])),
});

/** What becomes of items that exist already, by columns that are unique. */
const ON_CONFLICT = {
  on_conflict: { type: new GraphQLList(new GraphQLNonNull(GraphQLString)) },
  resolution: { type: RESOLUTION },
};

function addCreates(
  fields: RootFields,
  collection: Collection,
  access: SchemaAccess,
  types: ObjectTypes,
  inputs: InputTypes,
): void {
  const input = inputs.root(collection, 'create');
  if (!input) return;
  const conflict = collection.system ? {} : ON_CONFLICT;
  const { one, many, args, readable } = returnTypes(collection, access, types);
  const { name } = collection;
  const root = rootName(collection);
  const data = { type: new GraphQLNonNull(input) };
  fields[`create_${root}_items`] = {
    type: many,
    args: { data: { type: new GraphQLList(new GraphQLNonNull(input)) }, ...conflict, ...args },
    extensions: rootBinding({ kind: 'create', collection: name, many: true, readable }),
  };
  fields[`create_${root}_item`] = {
    type: one,
    args: { data, ...conflict },
    extensions: rootBinding({ kind: 'create', collection: name, many: false, readable }),
  };
}

function addUpdates(
  fields: RootFields,
  collection: Collection,
  access: SchemaAccess,
  types: ObjectTypes,
  inputs: InputTypes,
): void {
  const input = inputs.root(collection, 'update');
  if (!input) return;
  const { one, many, args, readable } = returnTypes(collection, access, types);
  const { name } = collection;
  const root = rootName(collection);
  const data = { type: new GraphQLNonNull(input) };
  fields[`update_${root}_items`] = {
    type: many,
    args: { ids: { type: new GraphQLNonNull(new GraphQLList(ID_SCALAR)) }, data, ...args },
    extensions: rootBinding({ kind: 'update', collection: name, many: true, readable }),
  };
  fields[`update_${root}_batch`] = {
    type: many,
    args: { data: { type: new GraphQLList(new GraphQLNonNull(input)) }, ...args },
    extensions: rootBinding({ kind: 'batch', collection: name, many: true, readable }),
  };
  fields[`update_${root}_item`] = {
    type: one,
    args: { id: { type: new GraphQLNonNull(ID_SCALAR) }, data },
    extensions: rootBinding({ kind: 'update', collection: name, many: false, readable }),
  };
}

function addDeletes(fields: RootFields, { name, ...collection }: Collection): void {
  const root = rootName({ name, ...collection });
  fields[`delete_${root}_items`] = {
    type: DELETE_MANY,
    args: { ids: { type: new GraphQLNonNull(new GraphQLList(ID_SCALAR)) } },
    extensions: rootBinding({ kind: 'delete', collection: name, many: true, readable: false }),
  };
  fields[`delete_${root}_item`] = {
    type: DELETE_ONE,
    args: { id: { type: new GraphQLNonNull(ID_SCALAR) } },
    extensions: rootBinding({ kind: 'delete', collection: name, many: false, readable: false }),
  };
}

function addSingleton(fields: RootFields, collection: Collection, types: ObjectTypes, inputs: InputTypes): void {
  const input = inputs.root(collection, 'update');
  if (!input) return;
  const type = types.item(collection.name);
  fields[`update_${rootName(collection)}`] = {
    type: type ?? GraphQLBoolean,
    args: { data: { type: new GraphQLNonNull(input) } },
    extensions: rootBinding({ kind: 'update-singleton', collection: collection.name, readable: type !== null }),
  };
}

interface RootReturn {
  readonly one: GraphQLOutputType;
  readonly many: GraphQLOutputType;
  readonly args: NonNullable<RootFields[string]['args']>;
  readonly readable: boolean;
}

/** Callers who may write but not read get a Boolean. */
function returnTypes(collection: Collection, access: SchemaAccess, types: ObjectTypes): RootReturn {
  const type = types.item(collection.name);
  const readable = access.readable.collections.get(collection.name);
  if (!type || !readable) return { one: GraphQLBoolean, many: GraphQLBoolean, args: {}, readable: false };
  return { one: type, many: listOf(type), args: types.listArguments(readable), readable: true };
}

function listOf(type: GraphQLObjectType): GraphQLOutputType {
  return new GraphQLNonNull(new GraphQLList(new GraphQLNonNull(type)));
}

function rootBinding(value: RootBinding): Record<string, unknown> {
  return extend(value);
}

/** What callers may see and change of themselves. */
export function ownQueryFields(types: ObjectTypes): RootFields {
  const [user, role] = [types.item('service_users'), types.item('service_roles')];
  return {
    ...(user ? { users_me: { type: user, extensions: rootBinding({ kind: 'me' }) } } : {}),
    ...(role ? { roles_me: { type: listOf(role), extensions: rootBinding({ kind: 'my-roles' }) } } : {}),
  };
}

export function ownMutationFields(access: SchemaAccess, types: ObjectTypes, inputs: InputTypes): RootFields {
  const users = access.model.collections.get('service_users');
  const input = users && inputs.root(users, 'update');
  if (!input) return {};
  const type = types.item('service_users');
  const args = { data: { type: new GraphQLNonNull(input) } };
  const extensions = rootBinding({ kind: 'update-me', readable: type !== null });
  return { update_users_me: { type: type ?? GraphQLBoolean, args, extensions } };
}
