/**
 * The schema of a caller's sight: built when it is first needed, once per set of rights and model, in slices, so that
 * other requests are served in between. Building it waits for nothing, so concurrent callers share one promise.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GraphQLObjectType, GraphQLSchema, isInputObjectType, printSchema } from 'graphql';
import { LRUCache } from 'lru-cache';
import { FilterTypes } from './filters.js';
import { InputTypes } from './inputs.js';
import { isExpressible, TypeNames } from './names.js';
import { mutationFields, queryFields, rootCollections } from './roots.js';
import type { RootScope, Sight } from './sight.js';
import { ObjectTypes } from './types.js';

/** Milliseconds after which others have their turn. */
const SLICE = 10;

export class Schemas {
  readonly #known: LRUCache<string, Promise<GraphQLSchema>>;

  constructor(capacity: number) {
    this.#known = new LRUCache({ max: capacity });
  }

  get(sight: Sight, scope: RootScope): Promise<GraphQLSchema> {
    const key = schemaKey(sight, scope);
    const known = this.#known.get(key);
    if (known) return known;
    const made = buildSchema(sight, scope);
    this.#known.set(key, made);
    made.catch(() => this.#known.delete(key));
    return made;
  }
}

export function schemaKey(sight: Sight, scope: RootScope): string {
  return `${scope} ${sight.model.version} ${sight.key}`;
}

export async function buildSchema(sight: Sight, scope: RootScope): Promise<GraphQLSchema> {
  const pace = new Pace();
  const names = new TypeNames(sight.model);
  const filters = new FilterTypes(sight, names);
  const types = new ObjectTypes(sight, names, filters);
  const inputs = new InputTypes(sight, names);
  // What a type refers to is made here, type by type: the schema then only collects what is there.
  for (const collection of sight.readable.collections.values()) {
    if (!isExpressible(collection)) continue;
    types.item(collection.name)?.getFields();
    filters.filter(collection.name).getFields();
    if (pace.isOver()) await pace.rest();
  }
  const roots = rootCollections(sight, scope);
  const query = new GraphQLObjectType({ name: 'Query', fields: queryFields(roots.read, types) });
  await pace.rest();
  const mutations = mutationFields(roots.write, sight, types, inputs);
  const mutation =
    Object.keys(mutations).length > 0 ? new GraphQLObjectType({ name: 'Mutation', fields: mutations }) : null;
  await pace.rest();
  for (const field of Object.values(mutation?.getFields() ?? {})) {
    for (const { type } of field.args) if (isInputObjectType(type)) type.getFields();
    if (pace.isOver()) await pace.rest();
  }
  await pace.rest();
  // Built from the model, it is valid by construction; checking a thousand collections would take longer than building.
  return new GraphQLSchema({ query, mutation, assumeValid: true });
}

export function describeSchema(schema: GraphQLSchema): string {
  return printSchema(schema);
}

class Pace {
  #start = performance.now();

  isOver(): boolean {
    return performance.now() - this.#start > SLICE;
  }

  async rest(): Promise<void> {
    await nextTurn();
    this.#start = performance.now();
  }
}
