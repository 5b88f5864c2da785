/** The words of JSON Schema and OpenAPI that the description of the API is written in, and the parameters that several operations take. */
import { EXPORT_FORMATS } from '../../../compiler/request/ast.js';
import { RESOLUTIONS } from '../../../compiler/request/on-conflict.js';
export interface Schema {
  readonly [word: string]: unknown;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: boolean | readonly string[];
  /** The schema of a parameter or a media type. */
  readonly schema?: Schema;
}

export const STRING: Schema = { type: 'string' };
export const INTEGER: Schema = { type: 'integer' };
export const BOOLEAN: Schema = { type: 'boolean' };
export const UUID: Schema = { type: 'string', format: 'uuid' };
export const EMAIL: Schema = { type: 'string', format: 'email' };
/** An object whose properties are not known beforehand. */
export const RECORD: Schema = { type: 'object', additionalProperties: true };
/** The key of an item. */
export const KEY: Schema = { type: ['string', 'integer'] };

/** How a client gets its tokens: in the body, the refresh token as a cookie, or a session as a cookie. */
export const MODES = ['json', 'cookie', 'session'] as const;
export const MODE: Schema = oneOf(...MODES);

export function object(properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema {
  return { type: 'object', properties, ...(required.length > 0 && { required }) };
}

export function list(items: Schema): Schema {
  return { type: 'array', items };
}

export function either(...schemas: readonly Schema[]): Schema {
  return { anyOf: schemas };
}

export function oneOf(...values: readonly string[]): Schema {
  return { type: 'string', enum: values };
}

export function orNull(schema: Schema): Schema {
  return typeof schema['type'] === 'string'
    ? { ...schema, type: [schema['type'], 'null'] }
    : either(schema, { type: 'null' });
}

export function ref(name: string): Schema {
  return { $ref: componentPath(name) };
}

export function componentPath(name: string): string {
  return `#/components/schemas/${name}`;
}

/** The schema in the envelope of every answer. */
export function data(schema: Schema): Schema {
  return object({ data: schema }, ['data']);
}

export function json(schema: Schema): Schema {
  return { 'application/json': { schema } };
}

export function described(schema: Schema, description: unknown): Schema {
  return typeof description === 'string' && description !== '' ? { ...schema, description } : schema;
}

/** A successful answer of an operation. */
export interface Answer {
  readonly status: 200 | 204 | 206 | 302 | 412;
  readonly description: string;
  readonly content?: Schema;
}

export const ok = (schema: Schema): Answer => ({ status: 200, description: 'The result.', content: json(schema) });
export const done: Answer = { status: 204, description: 'Done; no content.' };
export const failedPrecondition: Answer = {
  status: 412,
  description: 'The item has changed, or exists already.',
  content: json(ref('Error')),
};
export const empty: Answer = { status: 200, description: 'Done; the body is empty.' };

/** A form with one file. */
export const FORM: Schema = { schema: object({ file: { type: 'string', format: 'binary' } }, ['file']) };

/** An answer with the given media types; by default it is text. */
export function file(types: readonly string[], schema: Schema = STRING): Answer {
  const content = Object.fromEntries(types.map((type) => [type, { schema }]));
  return { status: 200, description: 'The result.', content };
}

export const TEXT: Answer = file(['text/plain']);

export function responses(answers: readonly Answer[]): Schema {
  const entries = answers.map(({ status, ...answer }) => [status, answer]);
  return { ...Object.fromEntries(entries), default: { $ref: '#/components/responses/Error' } };
}

export function queryParameter(name: string, schema: Schema, description: string): Schema {
  return { name, in: 'query', description, schema };
}

const QUERY: Readonly<Record<string, readonly [schema: Schema, description: string]>> = {
  fields: [STRING, 'Fields to return, separated by commas; dots follow relations.'],
  alias: [STRING, 'Other names for fields, as JSON ({"newest": "comments"}) or in brackets.'],
  filter: [STRING, 'Conditions, as JSON or in brackets.'],
  search: [STRING, 'Search term.'],
  sort: [STRING, 'Fields to sort by; a leading minus sign sorts descending.'],
  limit: [{ ...INTEGER, minimum: -1 }, 'Maximum number of items; -1 for all.'],
  offset: [{ ...INTEGER, minimum: 0 }, 'Number of items to skip.'],
  page: [{ ...INTEGER, minimum: 0 }, 'Page number, from 1; a page has `limit` items.'],
  cursor: [STRING, '`meta.next_cursor` of the previous page; empty for the first page.'],
  deep: [STRING, 'Parameters of nested relations, as JSON or in brackets.'],
  aggregate: [STRING, 'Aggregate functions, as JSON or in brackets.'],
  groupBy: [STRING, 'Fields to group by, separated by commas.'],
  having: [STRING, 'Conditions on the results of `aggregate`, as JSON or in brackets.'],
  meta: [STRING, 'Counts to return: total_count, filter_count, * for both, or estimated_count.'],
  backlink: [BOOLEAN, 'Whether wildcards expand the relation back to the parent.'],
  export: [oneOf(...EXPORT_FORMATS), 'Return a file of this format, without an envelope.'],
  geometry: [STRING, 'For an export as geojson: the geometry field.'],
  envelope: [BOOLEAN, 'false returns the data alone, without `{"data": ...}`.'],
};

/** The parameters of reads of one item. */
export const ITEM_PARAMETERS = ['fields', 'alias', 'deep', 'backlink', 'envelope'] as const;
export const LIST_PARAMETERS = Object.keys(QUERY);

export const PARAMETERS: Schema = {
  ...Object.fromEntries(
    Object.entries(QUERY).map(([name, [schema, about]]) => [name, queryParameter(name, schema, about)]),
  ),
  on_conflict: queryParameter(
    'on_conflict',
    STRING,
    'Columns of a unique index, separated by commas, that identify existing items; the key if only `resolution` is set.',
  ),
  resolution: queryParameter(
    'resolution',
    oneOf(...RESOLUTIONS),
    'How existing items are handled: `merge` updates them, `ignore` keeps them and leaves them out of the response.',
  ),
  version: queryParameter(
    'version',
    STRING,
    'Key of a content version: items that have it are shown with its changes. `main` and `published` are the items as they are.',
  ),
  ifMatch: {
    name: 'If-Match',
    in: 'header',
    description: 'Entity tags, or `*`: the request is 412 unless the item has one of them.',
    schema: STRING,
  },
  ifNoneMatch: {
    name: 'If-None-Match',
    in: 'header',
    description: '`*`: the request is 412 if the item exists.',
    schema: { type: 'string', enum: ['*'] },
  },
  idempotencyKey: {
    name: 'Idempotency-Key',
    in: 'header',
    description: 'Makes retries safe: requests with the same key are executed once.',
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  },
};

/** Exports other than JSON. */
export const EXPORT_MEDIA = file([
  'text/csv',
  'text/xml',
  'text/yaml',
  'application/x-ndjson',
  'application/geo+json',
]).content;

export function parameterRefs(names: readonly string[]): Schema[] {
  return names.map((name) => ({ $ref: `#/components/parameters/${name}` }));
}

export function pathParameter(name: string, schema: Schema = STRING): Schema {
  return { name, in: 'path', required: true, schema };
}
