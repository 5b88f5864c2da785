/**
 * The schema of what a caller may see, one per set of permissions and model. Reading a document needs the types that it names and no
 * others, so a type is made when it is first asked for; a thousand collections cost the first request milliseconds. Only
 * who asks for all of it, by introspection or as text, has all of it made, in slices, with other requests in between.
 */
import { __Schema, type GraphQLNamedType, GraphQLObjectType, GraphQLSchema, type OperationTypeNode } from 'graphql';
import { LRUCache } from 'lru-cache';
import { mapSteps, runInSlices, type Steps } from '../base/time-slices.js';
import type { Collection } from '../mirror/model.js';
import { COMMON_TYPES } from './common.js';
import { CompleteSchema, collectTypes, PLACEHOLDER, printTypes } from './complete-schema.js';
import type { SystemField } from './field-binding.js';
import { FilterTypes } from './filters.js';
import { functionFields, mayCallVolatile } from './function-fields.js';
import { InputTypes } from './inputs.js';
import { ObjectTypes } from './item-types.js';
import {
  LazyRootFields,
  mutationFields,
  NO_FIELDS,
  ownMutationFields,
  ownQueryFields,
  queryFields,
  type RootFields,
  rootCollections,
  subscriptionFields,
} from './roots.js';
import type { RootScope, SchemaAccess } from './schema-access.js';
import { TypeNames } from './schema-names.js';
import { SystemFields, type SystemRoots } from './system-fields.js';

export class Schemas {
  readonly #known: LRUCache<string, LazySchema>;
  readonly #systemFields: SystemFields;

  /** `systemFields` are the root fields that routes carry out. */
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

export class LazySchema extends GraphQLSchema {
  readonly #query: GraphQLObjectType;
  readonly #mutation: GraphQLObjectType | null;
  readonly #subscription: GraphQLObjectType | null;
  readonly #rootFields: readonly LazyRootFields[];
  readonly #names: TypeNames;
  readonly #types: ObjectTypes;
  readonly #filters: FilterTypes;
  readonly #inputs: InputTypes;
  readonly #made = new Map<string, GraphQLNamedType>();
  readonly #map: Record<string, GraphQLNamedType>;
  #complete: Promise<CompleteSchema> | null = null;

  constructor(
    private readonly access: SchemaAccess,
    scope: RootScope,
    systemFields: SystemFields,
  ) {
    const system = scope === 'system' ? systemFields.of(access.model) : null;
    // Built from the model, it is valid by construction.
    super({
      query: PLACEHOLDER,
      types: [...COMMON_TYPES, ...(system?.types ?? [])],
      assumeValid: true,
    });
    this.#names = TypeNames.of(access.model);
    this.#filters = new FilterTypes(access, this.#names, this.#made);
    this.#types = new ObjectTypes(access, this.#names, this.#filters, this.#made);
    this.#inputs = new InputTypes(access, this.#names, this.#made);
    const roots = rootCollections(access, scope);
    const queries = new LazyRootFields(() => this.#queryFields(roots.read, system));
    const mutations = new LazyRootFields(() => this.#mutationFields(roots.write, system));
    const subscriptions = new LazyRootFields(() => subscriptionFields(roots.read, access, this.#types));
    this.#rootFields = [queries, mutations, subscriptions];
    this.#query = new GraphQLObjectType({ name: 'Query', fields: queries.get });
    this.#mutation =
      roots.write.length === 0 && !system && !mayCallVolatile(access)
        ? null
        : new GraphQLObjectType({ name: 'Mutation', fields: mutations.get });
    this.#subscription =
      roots.read.length === 0 || system
        ? null
        : new GraphQLObjectType({ name: 'Subscription', fields: subscriptions.get });
    this.#map = this.#lazyMap(super.getTypeMap());
  }

  *#queryFields(roots: readonly Collection[], system: SystemRoots | null): Steps<RootFields> {
    const collections = yield* queryFields(roots, this.#types);
    const fields = system
      ? { ...collections, ...ownQueryFields(this.#types), ...system.query }
      : { ...collections, ...functionFields('query', this.access, this.#types, collections) };
    return Object.keys(fields).length > 0 ? fields : NO_FIELDS;
  }

  *#mutationFields(roots: readonly Collection[], system: SystemRoots | null): Steps<RootFields> {
    const writes = yield* mutationFields(roots, this.access, this.#types, this.#inputs);
    return system
      ? { ...writes, ...ownMutationFields(this.access, this.#types, this.#inputs), ...system.mutation }
      : { ...writes, ...functionFields('mutation', this.access, this.#types, writes) };
  }

  override getQueryType(): GraphQLObjectType {
    return this.#query;
  }

  override getMutationType(): GraphQLObjectType | null {
    return this.#mutation;
  }

  override getSubscriptionType(): GraphQLObjectType | null {
    return this.#subscription;
  }

  override getRootType(operation: OperationTypeNode): GraphQLObjectType | null {
    if (operation === 'query') return this.#query;
    return operation === 'mutation' ? this.#mutation : this.#subscription;
  }

  override getTypeMap(): Record<string, GraphQLNamedType> {
    return this.#map;
  }

  override getType(name: string): GraphQLNamedType | undefined {
    return this.#map[name];
  }

  /** All of it, for who wants to know what there is. */
  complete(): Promise<CompleteSchema> {
    this.#complete ??= this.#makeComplete();
    return this.#complete;
  }

  async #makeComplete(): Promise<CompleteSchema> {
    for (const fields of this.#rootFields) await runInSlices(fields.prepare());
    const roots = { query: this.#query, mutation: this.#mutation, subscription: this.#subscription };
    await runInSlices(mapSteps(Object.values(roots), (type) => type?.getFields()));
    return new CompleteSchema(roots, await runInSlices(collectTypes(roots, __Schema)));
  }

  /** Types by name, made when they are asked for; graphql-js looks them up here. */
  #lazyMap(common: Record<string, GraphQLNamedType>): Record<string, GraphQLNamedType> {
    const find = (name: string): GraphQLNamedType | undefined => {
      if (name === 'Query') return this.#query;
      if (name === 'Mutation') return this.#mutation ?? undefined;
      if (name === 'Subscription') return this.#subscription ?? undefined;
      return this.#made.get(name) ?? this.#make(name) ?? (Object.hasOwn(common, name) ? common[name] : undefined);
    };
    const names = (): string[] => [
      ...new Set([
        ...Object.keys(common),
        ...[...this.access.readable.collections.keys()].map((name) => this.#names.item(name)),
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
    const generated = this.#names.find(name);
    if (!generated) return this.#types.item(this.#names.collection(name)) ?? undefined;
    const { kind } = generated;
    if (kind === 'result') return this.#result(name);
    const item = this.#types.item(generated.collection);
    const readable = item && this.access.readable.collections.get(generated.collection);
    const whole = this.access.model.collections.get(generated.collection);
    if (kind === 'create' || kind === 'update') return (whole && this.#inputs.root(whole, kind)) ?? undefined;
    if (kind === 'relation') return this.#inputs.related(generated.collection) ?? undefined;
    if (!readable) return undefined;
    if (kind === 'mutated') return this.#types.mutated(readable, item);
    if (kind === 'filter') return this.#filters.filter(readable.name);
    if (kind === 'quantifier') return this.#filters.quantified(readable.name);
    if (kind === 'reference') return this.#filters.reference(readable.name);
    if (kind === 'union') this.#types.item(readable.name)?.getFields();
    else this.#types.aggregated(readable).getFields();
    return this.#made.get(name);
  }

  /** Made with the root fields that return it. */
  #result(name: string): GraphQLNamedType | undefined {
    for (const root of [this.#query, this.#mutation]) root?.getFields();
    return this.#made.get(name);
  }
}

export async function describeSchema(schema: LazySchema): Promise<string> {
  return runInSlices(printTypes(await schema.complete()));
}
