/**
 * Root fields that call functions: queries where they write nothing, mutations where they may. Forms of one name that differ in
 * their arguments are one field, whose arguments are those of all of them; a form that returns something else is left out.
 */
import {
  type GraphQLFieldConfigArgumentMap,
  type GraphQLInputType,
  GraphQLList,
  GraphQLNonNull,
  type GraphQLOutputType,
  GraphQLString,
} from 'graphql';
import type { Argument, Collection, Field, Overload, Returns, ServedFunction } from '../mirror/model.js';
import { valueTypeOf } from './common.js';
import { extend, type FunctionBinding } from './field-binding.js';
import { descriptionOf, type ObjectTypes } from './item-types.js';
import type { RootFields } from './roots.js';
import { JSON_SCALAR, VOID_SCALAR } from './scalars.js';
import type { SchemaAccess } from './schema-access.js';
import { isName } from './schema-names.js';

/** What is called as a field that already exists gives way to it. */
export function functionFields(
  operation: 'query' | 'mutation',
  access: SchemaAccess,
  types: ObjectTypes,
  existing: RootFields,
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
      type: new GraphQLList(new GraphQLNonNull(types.aggregated(items))),
      description,
      args: {
        groupBy: { type: new GraphQLList(GraphQLString) },
        having: { type: JSON_SCALAR },
        ...result.args,
        ...own,
      },
      extensions: extend({ ...binding, groups: true }),
    };
  }
  return fields;
}

/** Of those that the operation may call, the ones that return what the first returns and whose arguments can be written. */
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
function argumentsOf(forms: readonly Overload[]): GraphQLFieldConfigArgumentMap {
  const known = new Map<string, Argument[]>();
  for (const argument of forms.flatMap((form) => form.arguments))
    known.set(argument.name, [...(known.get(argument.name) ?? []), argument]);
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
  readonly args: GraphQLFieldConfigArgumentMap;
  /** Rows that can be grouped. */
  readonly items: Collection | null;
}

/** Null where the caller may see nothing of it. */
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

function listOf(type: GraphQLOutputType): GraphQLOutputType {
  return new GraphQLList(new GraphQLNonNull(type));
}

/** Whether there is a mutation among the functions that the caller may call. */
export function mayCallVolatile({ readable }: SchemaAccess): boolean {
  return [...readable.functions.values()].some((served) => isName(served.name) && formsOf(served, true).length > 0);
}
