/**
 * Answers to `__schema`, type by type, with pauses: with thousands of collections graphql-js would take seconds at once. It executes the
 * same selection on one part of the types after the other; the lists are then joined.
 */
import {
  type DocumentNode,
  execute,
  type GraphQLFieldMap,
  type GraphQLNamedType,
  GraphQLObjectType,
  type GraphQLSchema,
  isObjectType,
} from 'graphql';
import { isObject } from '../base/exact-json.js';
import type { Steps } from '../base/time-slices.js';
import { CompleteSchema, type TypeMap } from './complete-schema.js';
import { DocumentFailure } from './failure.js';
import { VOID_SCALAR } from './scalars.js';

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
  const text = joined(frame, lists);
  yield;
  return text;
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
  for (const [key, { frame, lists: fieldLists }] of inner) lists.get(key)?.push(joined(frame, fieldLists));
}

function emptyLists(answer: Answer): ReadonlyMap<string, string[]> {
  const names = Object.keys(answer).filter((key) => Array.isArray(answer[key]) && entriesOf(answer, key).length === 0);
  return new Map(names.map((name) => [name, []]));
}

function entriesOf(answer: Answer, key: string): readonly unknown[] {
  const value = answer[key];
  return Array.isArray(value) ? value : [];
}

function joined(frame: Answer, lists: ReadonlyMap<string, readonly string[]>): string {
  const entries = Object.entries(frame).map(([key, value]) => {
    const texts = lists.get(key);
    return `${JSON.stringify(key)}:${texts ? `[${texts.join(',')}]` : JSON.stringify(value)}`;
  });
  return `{${entries.join(',')}}`;
}

const PLACEHOLDER = new GraphQLObjectType({ name: 'Query', fields: { _empty: { type: VOID_SCALAR } } });

/** Tells of some types alone, and knows all of them by name. */
class SchemaPart extends CompleteSchema {
  shown: readonly GraphQLNamedType[] = [];

  constructor({ roots, types }: CompleteSchema) {
    super(PLACEHOLDER, roots, types);
  }

  override getTypeMap(): TypeMap {
    // Called by the constructor of graphql-js too, before there is a list.
    return Object.fromEntries((this.shown ?? []).map((type) => [type.name, type]));
  }
}
