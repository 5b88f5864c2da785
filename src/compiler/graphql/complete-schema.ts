/**
 * A schema with all its types, collected, printed and introspected in slices. graphql-js does each at once, and collects by
 * recursion: with thousands of collections that takes seconds.
 */
import {
  type DocumentNode,
  execute,
  type GraphQLFieldMap,
  type GraphQLNamedType,
  GraphQLObjectType,
  GraphQLSchema,
  type GraphQLType,
  getNamedType,
  isInputObjectType,
  isIntrospectionType,
  isObjectType,
  isSpecifiedScalarType,
  isUnionType,
  type OperationTypeNode,
  printType,
  specifiedDirectives,
} from 'graphql';
import { isObject } from '../../base/exact-json.js';
import type { Steps } from '../../base/time-slices.js';
import { DocumentFailure } from './failure.js';
import { VOID_SCALAR } from './scalars.js';

export interface RootTypes {
  readonly query: GraphQLObjectType;
  readonly mutation: GraphQLObjectType | null;
  readonly subscription: GraphQLObjectType | null;
}

export type TypeMap = Record<string, GraphQLNamedType>;

/** A small query type for the constructor of graphql-js, which would collect all types of the real one. */
export const PLACEHOLDER = new GraphQLObjectType({ name: 'Query', fields: { _empty: { type: VOID_SCALAR } } });

/** A schema with root types and a map of types of our own. */
export abstract class ServedSchema extends GraphQLSchema {
  abstract readonly roots: RootTypes;
  abstract readonly types: TypeMap;
  /** The types that graphql-js has collected. */
  protected readonly collected: TypeMap = super.getTypeMap();

  override getQueryType(): GraphQLObjectType {
    return this.roots.query;
  }

  override getMutationType(): GraphQLObjectType | null {
    return this.roots.mutation;
  }

  override getSubscriptionType(): GraphQLObjectType | null {
    return this.roots.subscription;
  }

  override getRootType(operation: OperationTypeNode): GraphQLObjectType | null {
    return this.roots[operation];
  }

  override getTypeMap(): TypeMap {
    return this.types;
  }

  override getType(name: string): GraphQLNamedType | undefined {
    return this.types[name];
  }
}

export class CompleteSchema extends ServedSchema {
  constructor(
    readonly roots: RootTypes,
    readonly types: TypeMap,
  ) {
    super({ query: PLACEHOLDER, assumeValid: true });
  }
}

/** Every type that the roots lead to, in the order of graphql-js: a type, then those it refers to. */
export function* collectTypes({ query, mutation, subscription }: RootTypes, meta: GraphQLNamedType): Steps<TypeMap> {
  const types: TypeMap = Object.create(null);
  const ofDirectives = specifiedDirectives.flatMap(({ args }) => args.map(({ type }) => type));
  const waiting: GraphQLType[] = [query, mutation, subscription, ...ofDirectives, meta]
    .filter((type) => type !== null)
    .reverse();
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const type = getNamedType(next);
    if (types[type.name]) continue;
    types[type.name] = type;
    const references = referencesOf(type);
    for (let index = references.length - 1; index >= 0; index--) {
      const reference = references[index];
      if (reference && !types[getNamedType(reference).name]) waiting.push(reference);
    }
    yield;
  }
  return types;
}

function referencesOf(type: GraphQLNamedType): readonly GraphQLType[] {
  if (isUnionType(type)) return type.getTypes();
  if (isInputObjectType(type)) return Object.values(type.getFields()).map((field) => field.type);
  if (!isObjectType(type)) return [];
  return Object.values(type.getFields()).flatMap((field) => [field.type, ...field.args.map((each) => each.type)]);
}

/** The same as `printSchema`: ours have no descriptions and directives of their own. */
export function* printTypes(schema: GraphQLSchema): Steps<string> {
  const texts: string[] = [];
  for (const type of Object.values(schema.getTypeMap())) {
    if (isSpecifiedScalarType(type) || isIntrospectionType(type)) continue;
    texts.push(printType(type));
    yield;
  }
  return texts.join('\n\n');
}

const TYPES_PER_STEP = 20;
const FIELDS_PER_STEP = 50;

type Variables = Readonly<Record<string, unknown>>;
type Answer = Readonly<Record<string, unknown>>;
type Ask = (types: readonly GraphQLNamedType[]) => Answer;

/** The JSON of the field `name`, which is one of `__schema` or `__type`. */
export function introspectAtOnce(
  name: string,
  document: DocumentNode,
  variables: Variables,
  schema: GraphQLSchema,
): unknown {
  const result = execute({ schema, document, variableValues: variables });
  if (result instanceof Promise) throw new Error('introspection answers at once');
  if (result.errors) throw DocumentFailure.of(result.errors, true);
  return result.data?.[name] ?? null;
}

/** The JSON of the field `name`, which is one of `__schema`. */
export function* introspectInSteps(
  name: string,
  document: DocumentNode,
  variables: Variables,
  schema: CompleteSchema,
): Steps<string> {
  const part = new SchemaPart(schema);
  const ask: Ask = (types) => {
    part.shown = types;
    const answer = introspectAtOnce(name, document, variables, part);
    return isObject(answer) ? answer : {};
  };
  // Without any type the lists of types are the only ones that are empty.
  const frame = ask([]);
  const lists = emptyLists(frame);
  if (lists.size === 0) return JSON.stringify(frame);
  const add = (answer: Answer): void => {
    for (const [key, texts] of lists) texts.push(...entriesOf(answer, key).map((entry) => JSON.stringify(entry)));
  };
  let few: GraphQLNamedType[] = [];
  for (const type of Object.values(schema.getTypeMap())) {
    if (isObjectType(type) && Object.keys(type.getFields()).length > FIELDS_PER_STEP) {
      add(ask(few));
      few = [];
      yield* addLarge(type, ask, lists);
    } else if (few.push(type) >= TYPES_PER_STEP) {
      add(ask(few));
      few = [];
    }
    yield;
  }
  add(ask(few));
  yield;
  yield;
  return yield* joined(frame, lists);
}

/** A type with thousands of fields: the root types have several for each collection. */
function* addLarge(type: GraphQLObjectType, ask: Ask, lists: ReadonlyMap<string, string[]>): Steps<void> {
  const withFields = (fields: GraphQLFieldMap<unknown, unknown>): GraphQLNamedType =>
    Object.create(type, { getFields: { value: () => fields } });
  const frames = ask([withFields({})]);
  const inner = new Map(
    [...lists.keys()].map((key) => {
      const [entry] = entriesOf(frames, key);
      const frame = isObject(entry) ? entry : {};
      return [key, { frame, lists: emptyLists(frame) }];
    }),
  );
  const fields = Object.entries(type.getFields());
  for (let start = 0; start < fields.length; start += FIELDS_PER_STEP) {
    const answer = ask([withFields(Object.fromEntries(fields.slice(start, start + FIELDS_PER_STEP)))]);
    for (const [key, { lists: fieldLists }] of inner) {
      const [entry] = entriesOf(answer, key);
      for (const [name, texts] of fieldLists)
        if (isObject(entry)) texts.push(...entriesOf(entry, name).map((each) => JSON.stringify(each)));
    }
    yield;
  }
  for (const [key, { frame, lists: fieldLists }] of inner) lists.get(key)?.push(yield* joined(frame, fieldLists));
}

function emptyLists(answer: Answer): ReadonlyMap<string, string[]> {
  const names = Object.keys(answer).filter((key) => Array.isArray(answer[key]) && entriesOf(answer, key).length === 0);
  return new Map(names.map((name) => [name, []]));
}

function entriesOf(answer: Answer, key: string): readonly unknown[] {
  const value = answer[key];
  return Array.isArray(value) ? value : [];
}

/** To join a list of 70 MB takes 50 ms, so others have their turn after each. */
function* joined(frame: Answer, lists: ReadonlyMap<string, readonly string[]>): Steps<string> {
  let text = '';
  for (const [key, value] of Object.entries(frame)) {
    const texts = lists.get(key);
    text += `${text === '' ? '' : ','}${JSON.stringify(key)}:${texts ? `[${texts.join(',')}]` : JSON.stringify(value)}`;
    yield;
  }
  return `{${text}}`;
}

/** Lists only some of the types, and finds all of them by name. */
class SchemaPart extends CompleteSchema {
  shown: readonly GraphQLNamedType[] = [];

  constructor({ roots, types }: CompleteSchema) {
    super(roots, types);
  }

  override getTypeMap(): TypeMap {
    // Called by the constructor of graphql-js too, before there is a list.
    return Object.fromEntries((this.shown ?? []).map((type) => [type.name, type]));
  }
}
