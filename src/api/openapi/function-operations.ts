/** Functions in the document: what they take and what they answer, as far as the caller may call them. */
import type { Route } from '../../http/router.js';
import type { Argument, Model, Overload, Returns, ServedFunction } from '../../mirror/model.js';
import { type ComponentNames, type Described, fieldsSchema, valueSchema } from './item-operations.js';
import { data, described, either, json, list, object, ok, orNull, ref, responses, type Schema } from './json-schema.js';
import { LIST_PARAMETERS, parameterRefs, queryParameter } from './parameters.js';

export function describeFunctions(route: Route, model: Model, names: ComponentNames): Described[] {
  return [...model.functions.values()].flatMap((served) => describeFunction(route, served, names) ?? []);
}

/** By GET those that write nothing. */
function describeFunction(
  { method }: Route,
  { name, note, overloads }: ServedFunction,
  names: ComponentNames,
): Described | null {
  const callable = method === 'GET' ? overloads.filter(({ volatile }) => !volatile) : overloads;
  if (callable.length === 0) return null;
  const returnsItems = callable.some(({ returns }) => returns.kind === 'items');
  const isWrite = method === 'POST' && callable.some(({ volatile }) => volatile);
  const isOptional = callable.some((overload) => overload.arguments.every(({ required }) => !required));
  const refs = [...(returnsItems ? LIST_PARAMETERS : []), ...(isWrite ? ['idempotencyKey'] : [])];
  const operation = {
    tags: ['rpc'],
    summary: `Call ${name}`,
    ...descriptionOf(note ?? callable[0]?.comment),
    parameters: [...(method === 'GET' ? urlArguments(callable) : []), ...parameterRefs(refs)],
    ...(method === 'POST' && {
      requestBody: { required: !isOptional, content: json(either(...callable.map(argumentsSchema))) },
    }),
    responses: responses([ok(data(either(...callable.map(({ returns }) => resultSchema(returns, names)))))]),
  };
  return { path: `/rpc/${encodeURIComponent(name)}`, operation };
}

function descriptionOf(text: string | null | undefined): Schema {
  return text ? { description: text } : {};
}

/** An argument that every form needs is required. One that is called like a parameter of a query comes by POST. */
function urlArguments(overloads: readonly Overload[]): Schema[] {
  const known = new Map<string, Argument>();
  for (const argument of overloads.flatMap((overload) => overload.arguments)) known.set(argument.name, argument);
  const sent = [...known.values()].filter(({ name }) => !LIST_PARAMETERS.includes(name));
  return sent.map(({ name, field }) => ({
    ...queryParameter(name, valueSchema(field), 'An argument of the function.'),
    required: overloads.every((overload) => overload.arguments.some((each) => each.name === name && each.required)),
  }));
}

function argumentsSchema(overload: Overload): Schema {
  const properties = Object.fromEntries(overload.arguments.map(({ name, field }) => [name, valueSchema(field)]));
  const required = overload.arguments.filter((argument) => argument.required).map(({ name }) => name);
  return described({ ...object(properties, required), additionalProperties: false }, overload.comment);
}

function resultSchema(returns: Returns, names: ComponentNames): Schema {
  if (returns.kind === 'nothing') return { type: 'null' };
  const one = rowSchema(returns, names);
  if (returns.set) return list(one);
  return returns.kind === 'value' ? one : orNull(one);
}

function rowSchema(returns: Exclude<Returns, { kind: 'nothing' }>, names: ComponentNames): Schema {
  switch (returns.kind) {
    case 'items': {
      const name = names.get(returns.collection);
      return name === undefined ? {} : ref(name);
    }
    case 'record':
      return fieldsSchema(returns.collection);
    default:
      return Object.values((fieldsSchema(returns.collection)['properties'] ?? {}) as Record<string, Schema>)[0] ?? {};
  }
}
