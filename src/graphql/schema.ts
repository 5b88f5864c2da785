/**
 * The schema of what a caller may see, one per set of permissions and model. Reading a document needs the types that it names and no
 * others, so a type is made when it is first asked for; a thousand collections cost the first request milliseconds. Only
 * introspection and the schema as text have all of it made, in slices, with other requests in between.
 */
import { __Schema, type GraphQLNamedType, GraphQLObjectType } from 'graphql';
import { LRUCache } from 'lru-cache';
import { mapSteps, runInSlices, type Steps } from '../base/time-slices.js';
import type { Collection } from '../mirror/model.js';
import { COMMON_TYPES } from './common.js';
import {
  CompleteSchema,
  collectTypes,
  PLACEHOLDER,
  printTypes,
  type RootTypes,
  ServedSchema,
  type TypeMap,
} from './complete-schema.js';
import type { SystemField } from './field-binding.js';
import { FilterTypes } from './filters.js';
import { InputTypes } from './inputs.js';
import { ObjectTypes } from './item-types.js';
import {
  functionFields,
  LazyRootFields,
  mayCallVolatile,
  mutationFields,
  NO_FIELDS,
  ownMutationFields,
  ownQueryFields,
  queryFields,
  type RootFields,
  rootCollections,
  type SchemaTypes,
  subscriptionFields,
} from './roots.js';
import type { RootScope, SchemaAccess } from './schema-access.js';
import { TypeNames } from './schema-names.js';
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
