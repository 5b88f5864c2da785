/**
 * The REST API as an OpenAPI 3.1 document: its paths are those of the routes, its schemas those of the collections and functions that
 * the caller may use. It is derived from both, so it names nothing else.
 */
import { packageVersion } from '../../base/package-files.js';
import type { Steps } from '../../base/time-slices.js';
import { keyNamesOf } from '../../compiler/model/describe-model.js';
import { isKey, singleKey } from '../../compiler/model/item-key.js';
import {
  type Argument,
  type Collection,
  type Field,
  isRequired,
  type Model,
  type Overload,
  type Returns,
  type ServedFunction,
} from '../../compiler/model/model.js';
import { shownName } from '../../compiler/model/synonyms.js';
import { resourceAt, resourceOf } from '../../compiler/model/system-resources.js';
import { operatorsOf, type UpdateOperator } from '../../compiler/request/update-operators.js';
import type { ApiRoute, Description } from '../../server/api/action.js';
import {
  type Answer,
  BOOLEAN,
  data,
  described,
  done,
  EXPORT_MEDIA,
  either,
  FORM,
  failedPrecondition,
  INTEGER,
  ITEM_PARAMETERS,
  json,
  KEY,
  LIST_PARAMETERS,
  list,
  object,
  ok,
  orNull,
  PARAMETERS,
  parameterRefs,
  pathParameter,
  queryParameter,
  ref,
  responses,
  type Schema,
  STRING,
  UUID,
} from '../../server/api/openapi/json-schema.js';
import type { Route } from '../../server/http/router.js';
import { COMPONENTS } from './components.js';

/** Methods that OpenAPI 3.1 knows: SEARCH is described with the GET of the same path. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'POST', 'PATCH', 'DELETE']);

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
        'Lists can also be read with the methods QUERY and SEARCH, with the parameters as an object "query" in the body, if a query is too long for a URL.',
    },
    servers: [{ url }],
    security: [{ token: [] }, {}],
    tags: tagsOf(paths, collections, names, model),
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      parameters: PARAMETERS,
      schemas: { ...schemas, ...COMPONENTS },
      responses: { Error: { description: 'The error.', content: json(ref('Error')) } },
    },
  };
}

/** Collections of the service without a resource, such as sessions, cannot be read. The schema's have schemas of their own. */
function isShown({ name, system }: Collection): boolean {
  return !system || resourceOf(name) !== null;
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
  const resource = resourceAt(route.path)?.name;
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

function describeFunctions(route: Route, model: Model, names: ComponentNames): Described[] {
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

/** Names of components by collection: letters, digits and underscores, which every generator of clients can write. */
type ComponentNames = ReadonlyMap<string, string>;

function nameSchemas(collections: Iterable<Collection>, { synonyms }: Model): ComponentNames {
  const names = new Map<string, string>();
  const usedNames = new Set(Object.keys(COMPONENTS));
  for (const collection of collections) {
    const { name } = collection;
    const base = synonyms ? directusSchema(collection) : ownSchema(collection);
    let unique = base;
    for (let count = 2; usedNames.has(unique); count++) unique = `${base}_${count}`;
    usedNames.add(unique);
    names.set(name, unique);
  }
  return names;
}

function ownSchema({ name, system }: Collection): string {
  const safe = name.replace(/[^A-Za-z0-9_]/g, '_');
  return system ? safe : `Items_${safe}`;
}

/** As Directus writes them: `Users`, `ItemsBlogPosts`. */
function directusSchema({ name, system }: Collection): string {
  return system ? titled(name.replace(/^service_/, '')) : `Items${titled(name)}`;
}

function titled(name: string): string {
  const words = name.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
  return words.map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join('');
}

interface Described {
  readonly path: string;
  readonly operation: Schema;
}

interface Resource {
  readonly collection: Collection;
  /** The path of the list. */
  readonly path: string;
  readonly tags: readonly string[];
  readonly names: ComponentNames;
}

const VERBS: Readonly<Record<string, string>> = { GET: 'Read', POST: 'Create', PATCH: 'Update', DELETE: 'Delete' };

/** A singleton is one item at the path of a list, and cannot be made or deleted. */
function describeOperation(
  { method, path: pattern }: Route,
  resource: Resource,
  { synonyms }: Model,
): Described | null {
  const { collection, names, tags } = resource;
  const single = pattern.endsWith(':key');
  if (collection.key.length === 0 && (single || (method !== 'GET' && method !== 'SEARCH'))) return null;
  if (collection.singleton && (single || method === 'POST' || method === 'DELETE')) return null;
  const kind = single || collection.singleton ? 'one' : 'many';
  const item = ref(names.get(collection.name) ?? '');
  const payload = method === 'POST' ? newItem(collection, item) : changedItem(collection, item);
  const { parameters, body, answers } = OPERATIONS[`${kind} ${method}`]?.(item, payload) ?? UNKNOWN;
  const operation = {
    tags,
    summary: `${VERBS[method] ?? method} ${shownName(synonyms, collection.name)}`,
    parameters: [
      ...(single ? [pathParameter('key', keySchema(collection))] : []),
      ...parameterRefs(collection.system ? parameters.filter((name) => !CONFLICTS.includes(name)) : parameters),
    ],
    ...(body && {
      requestBody: { required: true, content: { ...json(body), ...contentOf(collection, kind, method) } },
    }),
    responses: responses(answers),
  };
  return { path: `${resource.path}${single ? '/{key}' : ''}`, operation };
}

/** Files come with their content as a form. */
function contentOf({ name, system }: Collection, kind: 'one' | 'many', method: string): Schema {
  const isUpload = system && name === 'service_files' && method === (kind === 'many' ? 'POST' : 'PATCH');
  return isUpload ? { 'multipart/form-data': FORM } : {};
}

/** Collections of the service do not take these. */
const CONFLICTS: readonly string[] = ['on_conflict', 'resolution'];

interface Parts {
  readonly parameters: readonly string[];
  readonly body: Schema | null;
  readonly answers: readonly Answer[];
}

const UNKNOWN: Parts = { parameters: [], body: null, answers: [done] };

/** A write has no body if the caller may not read the items. */
const OPERATIONS: Readonly<Record<string, (item: Schema, payload: Schema) => Parts>> = {
  'many GET': (item) => {
    const content = object({ data: list(item), meta: ref('Meta') }, ['data']);
    const answer = { ...ok(content), content: { ...json(content), ...EXPORT_MEDIA } };
    return { parameters: [...LIST_PARAMETERS, 'version'], body: null, answers: [answer] };
  },
  'many POST': (item, payload) => ({
    parameters: [...ITEM_PARAMETERS, ...CONFLICTS, 'idempotencyKey', 'ifNoneMatch'],
    body: either(payload, list(payload)),
    answers: [ok(data(either(item, list(item)))), done, failedPrecondition],
  }),
  'many PATCH': (item, payload) => ({
    parameters: [...ITEM_PARAMETERS, 'idempotencyKey'],
    body: either(
      list(payload),
      object({ keys: ref('Keys'), data: payload }, ['keys', 'data']),
      object({ query: ref('Query'), data: payload }, ['query', 'data']),
    ),
    answers: [ok(data(list(item))), done],
  }),
  'many DELETE': () => ({
    parameters: ['idempotencyKey'],
    body: either(ref('Keys'), object({ keys: ref('Keys') }, ['keys']), object({ query: ref('Query') }, ['query'])),
    answers: [done],
  }),
  'one GET': (item) => ({ parameters: [...ITEM_PARAMETERS, 'version'], body: null, answers: [ok(data(item))] }),
  'one PATCH': (item, payload) => ({
    parameters: [...ITEM_PARAMETERS, 'idempotencyKey', 'ifMatch'],
    body: payload,
    answers: [ok(data(item)), done, failedPrecondition],
  }),
  'one DELETE': () => ({
    parameters: ['idempotencyKey', 'ifMatch'],
    body: null,
    answers: [done, failedPrecondition],
  }),
};

/** Only a new item has required fields: answers have the selected fields, and updates the changed ones. */
function newItem({ fields }: Collection, item: Schema): Schema {
  const required = [...fields.values()].filter(isRequired).map(({ name }) => name);
  return required.length > 0 ? { allOf: [item, { required }] } : item;
}

/** Fields of a change may have operators instead of values. */
function changedItem(collection: Collection, item: Schema): Schema {
  if (collection.system) return item;
  const fields = [...collection.fields.values()].flatMap((field) => {
    const operators = isKey(collection, field) ? [] : operatorsOf(field);
    return operators.length > 0 ? [[field.name, operatedSchema(field, operators)] as const] : [];
  });
  return fields.length > 0 ? either(item, object(Object.fromEntries(fields))) : item;
}

function operatedSchema(field: Field, operators: readonly UpdateOperator[]): Schema {
  return either(valueSchema(field), ...[...operators, 'set'].map((name) => ref(`${titled(name)}Operator`)));
}

function itemSchema(collection: Collection, model: Model, names: ComponentNames): Schema {
  const properties = [...collection.fields.values()].flatMap((field) => {
    const schema = fieldSchema(field, model, names);
    return schema ? [[field.name, described(schema, field.meta?.['note'] ?? field.column?.comment)] as const] : [];
  });
  const name = model.synonyms && { 'x-collection': shownName(model.synonyms, collection.name) };
  const key = keyNamesOf(collection);
  const schema = { ...object(Object.fromEntries(properties)), ...name, ...(key && { 'x-primary-key': key }) };
  return described(schema, collection.meta?.['note'] ?? collection.comment);
}

/** The schema of rows without relations, as a function returns them. */
function fieldsSchema({ fields }: Collection): Schema {
  return object(Object.fromEntries([...fields.values()].map((field) => [field.name, valueSchema(field)])));
}

function fieldSchema(field: Field, model: Model, names: ComponentNames): Schema | null {
  const { relation } = field;
  const related = (name: string): Schema[] => {
    const cached = model.collections.has(name) ? names.get(name) : undefined;
    return cached === undefined ? [] : [ref(cached)];
  };
  switch (relation?.kind) {
    case 'one-to-one':
    case 'one-to-many': {
      const many = model.collections.get(relation.manyCollection);
      const schemas = [many ? keySchema(many) : KEY, ...related(relation.manyCollection)];
      return relation.kind === 'one-to-one' ? either(...schemas, { type: 'null' }) : list(either(...schemas));
    }
    case 'many-to-one':
      return either(valueSchema(field), ...related(relation.oneCollection));
    case 'many-to-any':
      return either(valueSchema(field), ...relation.allowedCollections.flatMap(related));
    default:
      if (!field.column) return null;
      return field.computed ? { ...valueSchema(field), readOnly: true } : valueSchema(field);
  }
}

const JOINED_KEY: Schema = {
  type: 'string',
  description: 'The parts of the key, joined by `~`; `~` and `\\\\` inside a part are escaped with `\\\\`',
};

function keySchema(collection: Collection): Schema {
  const field = singleKey(collection);
  if (!field) return JOINED_KEY;
  const { type } = typeSchema(field);
  return type === 'integer' || type === 'string' ? typeSchema(field) : KEY;
}

function valueSchema(field: Field): Schema {
  const schema = typeSchema(field);
  return field.column?.is_nullable === false || schema['type'] === undefined ? schema : orNull(schema);
}

/** A value that may be any JSON has an empty schema. Types that are not listed are strings. */
const TYPE_SCHEMAS: Readonly<Record<string, Schema>> = {
  integer: INTEGER,
  float: { type: 'number' },
  boolean: BOOLEAN,
  uuid: UUID,
  date: { type: 'string', format: 'date' },
  timestamp: { type: 'string', format: 'date-time' },
  csv: list(STRING),
  json: {},
  unknown: {},
};

function typeSchema({ type, column }: Field): Schema {
  if (column?.is_array) return { type: 'array' };
  return TYPE_SCHEMAS[type] ?? (type.startsWith('geometry') ? {} : STRING);
}
