/** Query parameters that several operations take, as components of the document. */
import { EXPORT_FORMATS } from '../../request/ast.js';
import { RESOLUTIONS } from '../../request/on-conflict.js';
import { BOOLEAN, file, INTEGER, oneOf, type Schema, STRING } from './json-schema.js';

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
};

/** The parameters of reads of one item. */
export const ITEM_PARAMETERS = ['fields', 'alias', 'deep', 'backlink'] as const;
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
