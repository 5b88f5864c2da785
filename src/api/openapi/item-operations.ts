/** Collections in the document: the schema of their items and the operations on them, for the user's and the service's collections. */
import type { Route } from '../../http/router.js';
import { keyNamesOf } from '../../mirror/describe-model.js';
import { singleKey } from '../../mirror/item-key.js';
import { type Collection, type Field, isRequired, type Model } from '../../mirror/model.js';
import { shownName } from '../../mirror/synonyms.js';
import { COMPONENTS } from './components.js';
import {
  type Answer,
  BOOLEAN,
  data,
  described,
  done,
  either,
  FORM,
  INTEGER,
  json,
  KEY,
  list,
  object,
  ok,
  orNull,
  ref,
  responses,
  type Schema,
  STRING,
  UUID,
} from './json-schema.js';
import { EXPORT_MEDIA, ITEM_PARAMETERS, LIST_PARAMETERS, parameterRefs, pathParameter } from './parameters.js';

/** Names of components by collection: letters, digits and underscores, which every generator of clients can write. */
export type ComponentNames = ReadonlyMap<string, string>;

export function nameSchemas(collections: Iterable<Collection>, { synonyms }: Model): ComponentNames {
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

export function titled(name: string): string {
  const words = name.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
  return words.map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join('');
}

export interface Described {
  readonly path: string;
  readonly operation: Schema;
}

export interface Resource {
  readonly collection: Collection;
  /** The path of the list. */
  readonly path: string;
  readonly tags: readonly string[];
  readonly names: ComponentNames;
}

const VERBS: Readonly<Record<string, string>> = { GET: 'Read', POST: 'Create', PATCH: 'Update', DELETE: 'Delete' };

/** A singleton is one item at the path of a list, and cannot be made or deleted. */
export function describeOperation(
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
  const { parameters, body, answers } = OPERATIONS[`${kind} ${method}`]?.(item, newItem(collection, item)) ?? UNKNOWN;
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
const OPERATIONS: Readonly<Record<string, (item: Schema, made: Schema) => Parts>> = {
  'many GET': (item) => {
    const content = object({ data: list(item), meta: ref('Meta') }, ['data']);
    const answer = { ...ok(content), content: { ...json(content), ...EXPORT_MEDIA } };
    return { parameters: [...LIST_PARAMETERS, 'version'], body: null, answers: [answer] };
  },
  'many POST': (item, made) => ({
    parameters: [...ITEM_PARAMETERS, ...CONFLICTS, 'idempotencyKey'],
    body: either(made, list(made)),
    answers: [ok(data(either(item, list(item)))), done],
  }),
  'many PATCH': (item) => ({
    parameters: [...ITEM_PARAMETERS, 'idempotencyKey'],
    body: either(
      list(item),
      object({ keys: ref('Keys'), data: item }, ['keys', 'data']),
      object({ query: ref('Query'), data: item }, ['query', 'data']),
    ),
    answers: [ok(data(list(item))), done],
  }),
  'many DELETE': () => ({
    parameters: ['idempotencyKey'],
    body: either(ref('Keys'), object({ keys: ref('Keys') }, ['keys']), object({ query: ref('Query') }, ['query'])),
    answers: [done],
  }),
  'one GET': (item) => ({ parameters: [...ITEM_PARAMETERS, 'version'], body: null, answers: [ok(data(item))] }),
  'one PATCH': (item) => ({
    parameters: [...ITEM_PARAMETERS, 'idempotencyKey'],
    body: item,
    answers: [ok(data(item)), done],
  }),
  'one DELETE': () => ({ parameters: ['idempotencyKey'], body: null, answers: [done] }),
};

/** Only a new item has required fields: answers have the selected fields, and updates the changed ones. */
function newItem({ fields }: Collection, item: Schema): Schema {
  const required = [...fields.values()].filter(isRequired).map(({ name }) => name);
  return required.length > 0 ? { allOf: [item, { required }] } : item;
}

export function itemSchema(collection: Collection, model: Model, names: ComponentNames): Schema {
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
export function fieldsSchema({ fields }: Collection): Schema {
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

export function valueSchema(field: Field): Schema {
  const schema = typeSchema(field);
  return field.column?.is_nullable === false || schema['type'] === undefined ? schema : orNull(schema);
}

/** A value that may be any JSON has an empty schema. */
function typeSchema({ type, column }: Field): Schema {
  if (column?.is_array) return { type: 'array' };
  switch (type) {
    case 'integer':
      return INTEGER;
    case 'float':
      return { type: 'number' };
    case 'boolean':
      return BOOLEAN;
    case 'uuid':
      return UUID;
    case 'date':
      return { type: 'string', format: 'date' };
    case 'timestamp':
      return { type: 'string', format: 'date-time' };
    case 'csv':
      return list(STRING);
    case 'json':
    case 'unknown':
      return {};
    default:
      return type.startsWith('geometry') ? {} : STRING;
  }
}
