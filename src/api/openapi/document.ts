/**
 * The REST API as an OpenAPI 3.1 document: its paths are those of the routes, its schemas those of the collections and functions that
 * the caller may use. It is derived from both, so it names nothing else.
 */
import { packageVersion } from '../../base/package-files.js';
import type { Steps } from '../../base/time-slices.js';
import type { Route } from '../../http/router.js';
import type { Argument, Collection, Model, Overload, Returns, ServedFunction } from '../../mirror/model.js';
import { shownName } from '../../mirror/synonyms.js';
import { SYSTEM_RESOURCES } from '../../mirror/system-resources.js';
import type { ApiRoute, Description } from '../action.js';
import { COMPONENTS } from './components.js';
import {
  type ComponentNames,
  type Described,
  describeOperation,
  fieldsSchema,
  itemSchema,
  nameSchemas,
  titled,
  valueSchema,
} from './item-operations.js';
import {
  type Answer,
  data,
  described,
  done,
  either,
  json,
  list,
  object,
  ok,
  orNull,
  ref,
  responses,
  type Schema,
} from './json-schema.js';
import { LIST_PARAMETERS, PARAMETERS, parameterRefs, pathParameter, queryParameter } from './parameters.js';

/** Methods that OpenAPI 3.1 knows: SEARCH is described with the GET of the same path. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'POST', 'PATCH', 'DELETE']);

/** Our own collections that have a resource, by its path. */
const RESOURCE = new RegExp(`^/(${SYSTEM_RESOURCES.map(({ name }) => name).join('|')})(/:key)?$`);

/** Yields between steps: the document of thousands of collections takes a second, and other requests run in between. */
export function* describeApi(routes: readonly ApiRoute[], model: Model, url: string): Steps<Schema> {
  const collections = [...model.collections.values()].filter(isShown);
  const names = nameSchemas(collections, model);
  const paths: Record<string, Record<string, unknown>> = {};
  const ids = new Set<string>();
  for (const route of routes) {
    if (!METHODS.has(route.method)) continue;
    for (const { path, operation } of describeRoute(route, collections, names, model)) {
      const described = { operationId: operationId(route.method, path, ids), ...operation };
      paths[path] = { ...paths[path], [route.method.toLowerCase()]: described };
      yield;
    }
  }
  const schemas: Record<string, Schema> = {};
  for (const collection of collections) {
    schemas[names.get(collection.name) ?? ''] = itemSchema(collection, model, names);
    yield;
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Lateral',
      version: packageVersion,
      description:
        'Lists can also be read with the method SEARCH, with the parameters as an object "query" in the body, if a query is too long for a URL.',
    },
    servers: [{ url }],
    security: [{ token: [] }, {}],
    tags: tagsOf(paths, collections, names, model),
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      parameters: PARAMETERS,
      schemas: { ...schemas, ...COMPONENTS },
      responses: { Error: { description: 'What went wrong.', content: json(ref('Error')) } },
    },
  };
}

/** Collections of the service without a resource, such as sessions, cannot be read. The schema's have schemas of their own. */
function isShown({ name, system }: Collection): boolean {
  return !system || RESOURCE.test(name.replace(/^service_/, '/'));
}

function* describeRoute(
  route: ApiRoute,
  collections: readonly Collection[],
  names: ComponentNames,
  model: Model,
): Generator<Described> {
  if (route.path.startsWith('/rpc/')) yield* describeFunctions(route, model, names);
  else if (route.path.startsWith('/items/:collection')) {
    for (const collection of collections) {
      if (collection.system) continue;
      const path = `/items/${encodeURIComponent(collection.name)}`;
      const tags = model.synonyms ? ['Items', names.get(collection.name) ?? ''] : ['items'];
      const described = describeOperation(route, { collection, path, tags, names }, model);
      if (described) yield described;
    }
  } else yield* describeResource(route, collections, names, model);
}

function describeResource(
  route: ApiRoute,
  collections: readonly Collection[],
  names: ComponentNames,
  model: Model,
): Described[] {
  const resource = RESOURCE.exec(route.path)?.[1];
  if (resource === undefined) return describeService(route, model);
  const collection = collections.find(({ name }) => name === `service_${resource}`);
  if (!collection) return [];
  const tags = [tagOf(route.path, model)];
  return [describeOperation(route, { collection, path: `/${resource}`, tags, names }, model) ?? []].flat();
}

/** Routes of GraphQL that only refuse, and those that serve the files of a page, are no part of the API. */
function describeService({ method, path: pattern, description }: ApiRoute, model: Model): Described[] {
  if (!description && /^\/(?:$|graphql|explorer)/.test(pattern)) return [];
  const service: Description = description ?? { summary: `${method} ${pattern}`, answers: [] };
  const named = [...pattern.matchAll(/:(\w+)/g)].map(([, name = '']) => pathParameter(name));
  const path = pattern.replace(/:(\w+)/g, '{$1}');
  const operation = {
    tags: [tagOf(path, model)],
    summary: service.summary,
    parameters: [...named, ...(service.parameters ?? [])],
    ...(service.body && {
      requestBody: { required: !service.optional, content: { ...json(service.body), ...service.media } },
    }),
    responses: responses(answersOf(service)),
  };
  return [{ path, operation }];
}

function answersOf({ data: result, answers }: Description): readonly Answer[] {
  return answers ?? [result ? ok(data(result)) : done];
}

/** Directus has longer words for two of them. */
const DIRECTUS_TAGS: Readonly<Record<string, string>> = { auth: 'Authentication', utils: 'Utilities' };

function tagOf(path: string, { synonyms }: Model): string {
  const [, first = ''] = path.split('/');
  return synonyms ? (DIRECTUS_TAGS[first] ?? titled(first)) : first;
}

function tagsOf(paths: object, collections: readonly Collection[], names: ComponentNames, model: Model): Schema[] {
  const tags = new Map(Object.keys(paths).map((path) => [tagOf(path, model), {}]));
  if (model.synonyms)
    for (const { name } of collections)
      tags.set(names.get(name) ?? '', { 'x-collection': shownName(model.synonyms, name) });
  return [...tags].map(([name, more]) => ({ name, ...more }));
}

/** Names that differ in other characters alone get numbers. */
function operationId(method: string, path: string, usedIds: Set<string>): string {
  const base = `${method.toLowerCase()}${path.replace(/[^A-Za-z0-9]+/g, '_').replace(/_$/, '')}`;
  let unique = base;
  for (let count = 2; usedIds.has(unique); count++) unique = `${base}_${count}`;
  usedIds.add(unique);
  return unique;
}

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
