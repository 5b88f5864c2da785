/** /ext/<name>: the routes of extensions. */

import { invalidPayload, StartError } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { elementAt, messageOf } from '../../base/narrow.js';
import type { Identities } from '../../server/access/identities.js';
import { type Identity, onlyAdministrator, onlyUser } from '../../server/access/identity.js';
import { type ApiRoute, type Description, route } from '../../server/api/action.js';
import type {
  Extension,
  ExtensionRouter,
  RouteOptions,
  RouteRequest,
  RouteSchema,
} from '../../server/execute/hooks/definition.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Reply } from '../../server/http/reply.js';
import type { ResponseMemory } from '../../server/postgres/wire/response-memory.js';
import { type ExtensionCall, type Extensions, hookCaller } from './extensions.js';
import { routeReply } from './route-response.js';

interface ExtensionRoute {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** Below `/ext/<name>`; '' for that itself. */
  readonly path: string;
  readonly options: RouteOptions;
  readonly handle: (request: RouteRequest<never>) => unknown;
}

interface ExtensionRouteServices {
  readonly identities: Identities;
  readonly extensions: Extensions;
  /** Memory for large responses. */
  readonly responseMemory: ResponseMemory;
}

export function extensionRoutes(services: ExtensionRouteServices): ApiRoute[] {
  return services.extensions.all.flatMap((extension) =>
    routesOf(extension).map((own) => apiRoute(own, extension.name, services)),
  );
}

const SEGMENT = /^:?[a-z0-9_.-]+$/;
const ALLOWED = ['anyone', 'users', 'administrators'];

function routesOf(extension: Extension): ExtensionRoute[] {
  const routes: ExtensionRoute[] = [];
  const add =
    (method: ExtensionRoute['method']) =>
    (path: string, options: RouteOptions, handle: ExtensionRoute['handle']): void => {
      const place = `the route ${method} ${path} of the extension "${extension.name}"`;
      const segments = path.split('/').slice(1);
      const isValid = path === '/' || (path.startsWith('/') && segments.every((each) => SEGMENT.test(each)));
      if (!isValid) throw new StartError(`${place}: its path must look like /orders/:id, in lower case`);
      if (typeof handle !== 'function') throw new StartError(`${place}: it needs options and a handler`);
      if (options.allow !== undefined && !ALLOWED.includes(options.allow))
        throw new StartError(`${place}: "allow" must be one of ${ALLOWED.join(', ')}`);
      for (const schema of [options.body, options.answer]) if (schema !== undefined) checkSchema(schema, place);
      const own = path === '/' ? '' : path;
      if (routes.some((each) => each.method === method && each.path === own))
        throw new StartError(`${place}: it exists`);
      routes.push({ method, path: own, options, handle });
    };
  const router: ExtensionRouter = { get: add('GET'), post: add('POST'), patch: add('PATCH'), delete: add('DELETE') };
  extension.routes?.(router);
  return routes;
}

function apiRoute(own: ExtensionRoute, name: string, services: ExtensionRouteServices): ApiRoute {
  const { identities, extensions } = services;
  const { method, options } = own;
  const path = `/ext/${name}${own.path}`;
  const description: Description = {
    summary: options.summary ?? `${method} of the extension ${name}`,
    ...(options.body && { body: { ...options.body } }),
    ...(options.answer && { data: { ...options.answer } }),
  };
  const names = path.split('/').flatMap((each) => (each.startsWith(':') ? [each.slice(1)] : []));
  return route(
    `${method} ${path}` as `${string} /${string}`,
    async (exchange) => {
      const caller = allowed(await identities.identify(exchange), options.allow ?? 'users');
      const hasBody = method === 'POST' || method === 'PATCH';
      const body = hasBody ? await exchange.json() : undefined;
      if (options.body) checkInput(body, options.body);
      const request = requestOf(exchange, { names, caller, body, extensions });
      return answered(
        { extension: name, kind: `${method} ${path}`, collection: null, call: current(own, name, extensions) },
        request,
        services,
      );
    },
    description,
  );
}

/** After a reload, the handler of the new definition. */
function current(own: ExtensionRoute, name: string, extensions: Extensions): (request: RouteRequest<never>) => unknown {
  if (extensions.generation === 0) return own.handle;
  const extension = extensions.all.find((each) => each.name === name);
  const found = extension && routesOf(extension).find(({ method, path }) => method === own.method && path === own.path);
  return (found ?? own).handle;
}

function allowed(identity: Identity, allow: NonNullable<RouteOptions['allow']>): Identity {
  if (allow === 'administrators') return onlyAdministrator(identity);
  // A program calls as an administrator without a user.
  return allow === 'users' && !identity.administrator ? onlyUser(identity) : identity;
}

function requestOf(
  { method, parameters, queryString, id }: Exchange,
  {
    names,
    caller,
    body,
    extensions,
  }: { names: readonly string[]; caller: Identity; body: unknown; extensions: Extensions },
): RouteRequest<never> {
  return {
    method,
    parameters: Object.fromEntries(names.map((name, position) => [name, elementAt(parameters, position)])),
    query: new URLSearchParams(queryString),
    // The schema of the route says what it is.
    body: body as never,
    caller: hookCaller(caller),
    requestId: id,
    api: extensions.services.apiFor(caller),
  };
}

/** The time of the handler includes that of reading the body of its `Response`. */
async function answered(
  route: ExtensionCall<RouteRequest<never>>,
  request: RouteRequest<never>,
  { extensions, responseMemory }: ExtensionRouteServices,
): Promise<Reply> {
  const over = new AbortController();
  const call = async (given: RouteRequest<never>): Promise<Reply> =>
    routeReply(await route.call(given), responseMemory, over.signal);
  return extensions.run({ ...route, call }, request, async () => over.abort());
}

/** The types of JSON Schema. */
const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  object: isObject,
  array: Array.isArray,
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: Number.isInteger,
  boolean: (value) => typeof value === 'boolean',
  null: (value) => value === null,
};

/** The part of JSON Schema that schemas of routes may use. */
const KEYWORDS: readonly string[] = [
  ...['type', 'properties', 'required', 'additionalProperties', 'items', 'enum', 'minimum', 'maximum'],
  ...['minLength', 'maxLength', 'minItems', 'maxItems', 'pattern', 'description', 'title', 'examples'],
];

/** A keyword that would have no effect is refused at the start. */
function checkSchema(schema: unknown, place: string): void {
  if (!isObject(schema)) throw new StartError(`${place}: a schema must be an object`);
  for (const [keyword, value] of Object.entries(schema)) {
    if (!KEYWORDS.includes(keyword))
      throw new StartError(`${place}: the keyword "${keyword}" is not supported, only ${KEYWORDS.join(', ')}`);
    if (keyword === 'type' && !typesOf(value).every((type) => Object.hasOwn(TYPES, type)))
      throw new StartError(`${place}: "type" must be one of ${Object.keys(TYPES).join(', ')}`);
    if (keyword === 'pattern') checkPattern(value, place);
    if (keyword === 'items') checkSchema(value, `${place}.items`);
    if (keyword === 'properties' && isObject(value))
      for (const [name, each] of Object.entries(value)) checkSchema(each, `${place}.${name}`);
  }
}

function checkPattern(pattern: unknown, place: string): void {
  try {
    if (typeof pattern !== 'string') throw new TypeError('it must be a string');
    new RegExp(pattern, 'u');
  } catch (error) {
    throw new StartError(`${place}: "pattern": ${messageOf(error)}`);
  }
}

/** Throws for the first part of the body that does not meet the schema. */
function checkInput(value: unknown, schema: RouteSchema, path = 'The body'): void {
  const { type, enum: allowed } = schema;
  if (type !== undefined && !typesOf(type).some((each) => TYPES[each]?.(value)))
    throw invalidPayload(`${path} must be of type ${typesOf(type).join(' or ')}`);
  if (Array.isArray(allowed) && !allowed.includes(value))
    throw invalidPayload(`${path} must be one of ${allowed.map((each) => JSON.stringify(each)).join(', ')}`);
  if (typeof value === 'number') checkRange(value, schema, ['minimum', 'maximum'], path);
  if (typeof value === 'string') {
    checkRange(value.length, schema, ['minLength', 'maxLength'], `The length of ${path}`);
    const { pattern } = schema;
    if (typeof pattern === 'string' && !new RegExp(pattern, 'u').test(value))
      throw invalidPayload(`${path} does not match ${pattern}`);
  }
  if (Array.isArray(value)) {
    checkRange(value.length, schema, ['minItems', 'maxItems'], `The length of ${path}`);
    const { items } = schema;
    if (isObject(items)) for (const [index, each] of value.entries()) checkInput(each, items, `${path}[${index}]`);
  }
  if (isObject(value)) checkProperties(value, schema);
}

function checkProperties(value: RouteSchema, schema: RouteSchema): void {
  const { required, additionalProperties } = schema;
  const properties = isObject(schema['properties']) ? schema['properties'] : {};
  const missing = Array.isArray(required) ? required.find((name) => !Object.hasOwn(value, String(name))) : undefined;
  if (missing !== undefined) throw invalidPayload(`"${missing}" is required`);
  for (const [name, each] of Object.entries(value)) {
    const own = Object.hasOwn(properties, name) ? properties[name] : undefined;
    if (isObject(own)) checkInput(each, own, `"${name}"`);
    else if (additionalProperties === false) throw invalidPayload(`"${name}" is not allowed`);
    else if (isObject(additionalProperties)) checkInput(each, additionalProperties, `"${name}"`);
  }
}

function checkRange(value: number, schema: RouteSchema, [least, most]: readonly [string, string], path: string): void {
  const [low, high] = [schema[least], schema[most]];
  if (typeof low === 'number' && value < low) throw invalidPayload(`${path} must be at least ${low}`);
  if (typeof high === 'number' && value > high) throw invalidPayload(`${path} must be at most ${high}`);
}

function typesOf(type: unknown): string[] {
  return Array.isArray(type) ? type.map(String) : [String(type)];
}
