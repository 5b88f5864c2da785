/**
 * The REST API as an OpenAPI 3.1 document: its paths are those of the routes, its schemas those of the collections that
 * the caller may read. Derived from both, it cannot name what is not there.
 */
import { packageVersion } from '../files.js';
import type { Route } from '../http/router.js';
import type { Collection, Field, Model } from '../mirror/model.js';

type Node = Readonly<Record<string, unknown>>;

/** Methods that OpenAPI 3.1 knows: SEARCH is described beside the GET it stands in for. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'POST', 'PATCH', 'PUT', 'DELETE', 'OPTIONS']);

export function describeApi(routes: readonly Route[], model: Model, url: string): Node {
  const collections = [...model.collections.values()].filter((collection) => !collection.system);
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    if (!METHODS.has(route.method) || route.path.startsWith('/graphql/ide')) continue;
    const expanded = route.path.startsWith('/items/:collection')
      ? collections.map((collection) => itemOperation(route, collection))
      : [plainOperation(route)];
    for (const each of expanded) {
      if (each) paths[each.path] = { ...paths[each.path], [route.method.toLowerCase()]: each.operation };
    }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Lateral',
      version: packageVersion,
      description:
        'Every list may be read with the method SEARCH too, with the parameters as an object "query" in the body: for queries too long for a URL.',
    },
    servers: [{ url }],
    security: [{ token: [] }, {}],
    tags: [...new Set(Object.keys(paths).map(tagOf))].map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      parameters: PARAMETERS,
      schemas: {
        ...Object.fromEntries(collections.map((collection) => [schemaName(collection), itemSchema(collection, model)])),
        Error: ERROR,
      },
      responses: { Error: { description: 'What went wrong.', content: json({ $ref: '#/components/schemas/Error' }) } },
    },
  };
}

interface Described {
  readonly path: string;
  readonly operation: Node;
}

const LIST_PARAMETERS = [
  'fields',
  'filter',
  'search',
  'sort',
  'limit',
  'offset',
  'page',
  'deep',
  'aggregate',
  'groupBy',
  'meta',
];
const ITEM_PARAMETERS = ['fields', 'deep'];

/** A singleton is one item at the path of a list, and cannot be made or deleted. */
function itemOperation(route: Route, collection: Collection): Described | null {
  const single = route.path.endsWith(':key');
  const { method } = route;
  if (collection.singleton && (single || method === 'POST' || method === 'DELETE')) return null;
  const path = `/items/${encodeURIComponent(collection.name)}${single ? '/{key}' : ''}`;
  const item = { $ref: `#/components/schemas/${schemaName(collection)}` };
  const many = !single && !collection.singleton;
  const shown = many && method === 'GET' ? { type: 'array', items: item } : item;
  const names = many && method === 'GET' ? LIST_PARAMETERS : ITEM_PARAMETERS;
  const body = many ? { oneOf: [item, { type: 'array', items: {} }, { type: 'object' }] } : item;
  const content =
    method === 'DELETE' ? null : { type: 'object', properties: { data: many && method !== 'GET' ? {} : shown } };
  const operation = {
    tags: ['items'],
    operationId: operationId(method, path),
    summary: `${VERBS[method] ?? method} ${collection.name}`,
    parameters: [
      ...(single ? [pathParameter('key')] : []),
      ...names.map((name) => ({ $ref: `#/components/parameters/${name}` })),
    ],
    ...(method === 'GET' || (single && method === 'DELETE')
      ? {}
      : { requestBody: { content: json(method === 'DELETE' ? {} : body) } }),
    responses: responses(content),
  };
  return { path, operation };
}

const VERBS: Readonly<Record<string, string>> = { GET: 'Read', POST: 'Create', PATCH: 'Update', DELETE: 'Delete' };

function plainOperation({ method, path: pattern }: Route): Described {
  const parameters = [...pattern.matchAll(/:(\w+)/g)].map((match) => match[1] as string);
  const path = pattern.replace(/:(\w+)/g, '{$1}');
  const operation = {
    tags: [tagOf(path)],
    operationId: operationId(method, path),
    summary: `${method} ${path}`,
    parameters: parameters.map(pathParameter),
    ...(method === 'GET' ? {} : { requestBody: { content: json({}) } }),
    responses: responses({}),
  };
  return { path, operation };
}

function responses(schema: Node | null): Node {
  const error = { $ref: '#/components/responses/Error' };
  const done = schema === null ? {} : { 200: { description: 'The result.', content: json(schema) } };
  return { ...done, 204: { description: 'Done; nothing to show.' }, default: error };
}

function json(schema: Node): Node {
  return { 'application/json': { schema } };
}

function pathParameter(name: string): Node {
  return { name, in: 'path', required: true, schema: { type: 'string' } };
}

function tagOf(path: string): string {
  return path.split('/')[1] ?? '';
}

function operationId(method: string, path: string): string {
  return `${method.toLowerCase()}${path.replace(/[^A-Za-z0-9]+/g, '_').replace(/_$/, '')}`;
}

/** Names of components may hold few characters: others are written as their numbers. */
function schemaName({ name }: Collection): string {
  const safe = name.replace(/[^A-Za-z0-9_-]/g, (each) => `.${each.codePointAt(0)?.toString(16)}.`);
  return `Items.${safe}`;
}

function itemSchema(collection: Collection, model: Model): Node {
  const properties = [...collection.fields.values()].flatMap((field) => {
    const schema = fieldSchema(field, model);
    return schema ? [[field.name, described(schema, field)]] : [];
  });
  return { type: 'object', properties: Object.fromEntries(properties) };
}

function described(schema: Node, field: Field): Node {
  const note = field.meta?.note ?? field.column?.comment;
  return typeof note === 'string' && note !== '' ? { ...schema, description: note } : schema;
}

function fieldSchema(field: Field, model: Model): Node | null {
  const { relation } = field;
  const related = (name: string): Node[] => {
    const target = model.collections.get(name);
    return target && !target.system ? [{ $ref: `#/components/schemas/${schemaName(target)}` }] : [];
  };
  switch (relation?.kind) {
    case 'one-to-many':
      return {
        type: 'array',
        items: { anyOf: [{ type: ['string', 'integer'] }, ...related(relation.manyCollection)] },
      };
    case 'many-to-one':
      return { anyOf: [valueSchema(field), ...related(relation.oneCollection)] };
    case 'many-to-any':
      return { anyOf: [valueSchema(field), ...relation.allowedCollections.flatMap(related)] };
    default:
      return field.column ? valueSchema(field) : null;
  }
}

function valueSchema({ type, column }: Field): Node {
  const orNull = (name: string): string | string[] => (column?.is_nullable === false ? name : [name, 'null']);
  if (column?.is_array) return { type: orNull('array') };
  switch (type) {
    case 'integer':
      return { type: orNull('integer') };
    case 'float':
      return { type: orNull('number') };
    case 'boolean':
      return { type: orNull('boolean') };
    case 'uuid':
      return { type: orNull('string'), format: 'uuid' };
    case 'date':
      return { type: orNull('string'), format: 'date' };
    case 'timestamp':
      return { type: orNull('string'), format: 'date-time' };
    case 'csv':
      return { type: orNull('array'), items: { type: 'string' } };
    case 'json':
    case 'unknown':
      return {};
    default:
      return type.startsWith('geometry') ? {} : { type: orNull('string') };
  }
}

const ERROR: Node = {
  type: 'object',
  required: ['errors'],
  properties: {
    errors: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          message: { type: 'string' },
          extensions: { type: 'object', properties: { code: { type: 'string' } } },
        },
      },
    },
  },
};

function parameter(name: string, schema: Node, description: string): Node {
  return { name, in: 'query', description, schema };
}

const PARAMETERS: Node = {
  fields: parameter('fields', { type: 'string' }, 'Fields to show, separated by commas; dots lead along relations.'),
  filter: parameter('filter', { type: 'string' }, 'Conditions, as JSON or in brackets.'),
  search: parameter('search', { type: 'string' }, 'A text to find.'),
  sort: parameter('sort', { type: 'string' }, 'Fields to sort by; a minus sign turns the order round.'),
  limit: parameter('limit', { type: 'integer', minimum: -1 }, 'Items to show; -1 for all.'),
  offset: parameter('offset', { type: 'integer', minimum: 0 }, 'Items to leave out first.'),
  page: parameter('page', { type: 'integer', minimum: 0 }, 'Pages of `limit` items, counted from 1.'),
  deep: parameter('deep', { type: 'string' }, 'Parameters of the relations below, as JSON or in brackets.'),
  aggregate: parameter('aggregate', { type: 'string' }, 'Functions over groups, as JSON or in brackets.'),
  groupBy: parameter('groupBy', { type: 'string' }, 'Fields to group by, separated by commas.'),
  meta: parameter('meta', { type: 'string' }, 'Counts beside the data: total_count, filter_count or *.'),
};
