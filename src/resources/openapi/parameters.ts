/** Query parameters that several operations take, as components of the document. */
import { EXPORT_FORMATS } from '../../request/ast.js';
import { RESOLUTIONS } from '../../request/on-conflict.js';
import { BOOLEAN, INTEGER, oneOf, type Schema, STRING } from './json-schema.js';

export function queryParameter(name: string, schema: Schema, description: string): Schema {
  return { name, in: 'query', description, schema };
}

const QUERY: Readonly<Record<string, readonly [schema: Schema, description: string]>> = {
  fields: [STRING, 'Fields to show, separated by commas; dots lead along relations.'],
  alias: [STRING, 'Other names for fields, as JSON ({"newest": "comments"}) or in brackets.'],
  filter: [STRING, 'Conditions, as JSON or in brackets.'],
  search: [STRING, 'A text to find.'],
  sort: [STRING, 'Fields to sort by; a minus sign turns the order round.'],
  limit: [{ ...INTEGER, minimum: -1 }, 'Items to show; -1 for all.'],
  offset: [{ ...INTEGER, minimum: 0 }, 'Items to leave out first.'],
  page: [{ ...INTEGER, minimum: 0 }, 'Pages of `limit` items, counted from 1.'],
  cursor: [STRING, 'Where the page before ended (`meta.next_cursor`); empty for the first page.'],
  deep: [STRING, 'Parameters of the relations below, as JSON or in brackets.'],
  aggregate: [STRING, 'Functions over groups, as JSON or in brackets.'],
  groupBy: [STRING, 'Fields to group by, separated by commas.'],
  having: [STRING, 'Conditions on the results of `aggregate`, as JSON or in brackets.'],
  meta: [STRING, 'Counts next to the data: total_count, filter_count, * for both, or estimated_count.'],
  backlink: [BOOLEAN, 'Whether wildcards lead back along the relation they came by.'],
  export: [oneOf(...EXPORT_FORMATS), 'The items as a file of this format, without an envelope.'],
  geometry: [STRING, 'Of an export as geojson: the field that is the geometry of a feature.'],
};

/** Of what is shown of one item. */
export const ITEM_PARAMETERS = ['fields', 'alias', 'deep', 'backlink'] as const;
export const LIST_PARAMETERS = Object.keys(QUERY);

export const PARAMETERS: Schema = {
  ...Object.fromEntries(
    Object.entries(QUERY).map(([name, [schema, about]]) => [name, queryParameter(name, schema, about)]),
  ),
  on_conflict: queryParameter(
    'on_conflict',
    STRING,
    'Columns of a unique index, separated by commas, by which items that exist are found; the key where only `resolution` is given.',
  ),
  resolution: queryParameter(
    'resolution',
    oneOf(...RESOLUTIONS),
    'What becomes of items that exist: `merge` changes them, `ignore` leaves them alone and out of the answer.',
  ),
  idempotencyKey: {
    name: 'Idempotency-Key',
    in: 'header',
    description: 'Makes a repetition safe: the same request with the same key is carried out once.',
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  },
};

export function parameterRefs(names: readonly string[]): Schema[] {
  return names.map((name) => ({ $ref: `#/components/parameters/${name}` }));
}

export function pathParameter(name: string, schema: Schema = STRING): Schema {
  return { name, in: 'path', required: true, schema };
}
