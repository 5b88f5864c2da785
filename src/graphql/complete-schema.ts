/**
 * A schema with all its types, collected and printed in slices. graphql-js does both at once, and collects by recursion: with
 * thousands of collections that takes seconds.
 */
import {
  type GraphQLNamedType,
  type GraphQLObjectType,
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
import type { Steps } from '../base/time-slices.js';

interface RootTypes {
  readonly query: GraphQLObjectType;
  readonly mutation: GraphQLObjectType | null;
  readonly subscription: GraphQLObjectType | null;
}

export type TypeMap = Record<string, GraphQLNamedType>;

export class CompleteSchema extends GraphQLSchema {
  /** `placeholder`: a small query type; the constructor of graphql-js would collect the types of ours. */
  constructor(
    placeholder: GraphQLObjectType,
    readonly roots: RootTypes,
    readonly types: TypeMap,
  ) {
    super({ query: placeholder, assumeValid: true });
  }

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
