/**
 * What FAMILY_COMPATIBILITY changes of /collections, /fields and /relations: system tables are called directus_* in requests and answers,
 * and `meta.special` is a list. Tools that read the schema of a Directus, such as generators of types, read this one then.
 */
import { isObject } from '../digits.js';
import { listOf } from '../mirror/columns.js';
import { systemTables } from '../postgres/system-tables.js';
import { type ActionRoute, actionRoute, type RouteAction } from './action.js';

/** GraphQL calls the actions as they are: its schema says of which types they answer. */
export function withFamilyNames(routes: readonly ActionRoute[]): ActionRoute[] {
  return routes.map((route) => ({
    ...route,
    handle: actionRoute(route.method, route.path, translate(route.action)).handle,
  }));
}

function translate(action: RouteAction): RouteAction {
  return async (request) => {
    const result = await action({
      client: request.client,
      queryString: request.queryString,
      parameters: request.parameters.map(ownName),
      json: async (parse) => mapped(await request.json(parse), ownName),
    });
    return result.data === undefined ? result : { ...result, data: mapped(result.data, familyName) };
  };
}

function ownName(name: string): string {
  const own = name.startsWith('directus_') ? `service_${name.slice(9)}` : name;
  return systemTables().has(own) ? own : name;
}

function familyName(name: string): string {
  return systemTables().has(name) ? `directus_${name.slice(8)}` : name;
}

/** Properties whose values are names of collections. */
const NAMES: ReadonlySet<string> = new Set([
  'collection',
  'related_collection',
  'many_collection',
  'one_collection',
  'one_allowed_collections',
  'foreign_key_table',
  'table',
  'keys',
]);

function mapped(value: unknown, rename: (name: string) => string, property = ''): unknown {
  if (typeof value === 'string') {
    if (property === 'special' && rename === familyName) return listOf(value);
    return NAMES.has(property) ? rename(value) : value;
  }
  if (Array.isArray(value)) return value.map((each) => mapped(each, rename, property));
  if (!isObject(value) || OPAQUE.has(property)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, mapped(each, rename, name)]));
}

/** What applications have put there is theirs. */
const OPAQUE: ReadonlySet<string> = new Set(['options', 'display_options', 'conditions', 'validation', 'translations']);
