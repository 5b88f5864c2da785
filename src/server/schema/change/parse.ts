/**
 * Schema changes as data: what a request body asks for, not yet checked against the database. One operation changes a
 * collection, a field or a relation; any number of them can run in one transaction.
 */

import { assertNever } from '../../../base/assert-never.js';
import { invalidPayload } from '../../../base/errors.js';
import { isOneOf } from '../../../base/narrow.js';
import {
  COLLECTION_META,
  FIELD_META,
  type Meta,
  type Properties,
  type Property,
  RELATION_META,
} from '../../../compiler/model/metadata.js';
import {
  DEFERRABLE,
  FIELD_TYPES,
  type FieldType,
  FOREIGN_KEY_ACTIONS,
  type ForeignKeyBehaviour,
} from '../../../compiler/model/model.js';
import type { Input } from '../../../compiler/request/parse-context.js';
import { requireObject } from '../../../compiler/request/write.js';

export type Operation =
  | CreateCollection
  | { readonly kind: 'update-collection'; readonly collection: string; readonly meta: Meta }
  | { readonly kind: 'delete-collection'; readonly collection: string }
  | { readonly kind: 'create-field'; readonly collection: string; readonly definition: NewField }
  | { readonly kind: 'update-field'; readonly collection: string; readonly definition: FieldChange }
  | { readonly kind: 'delete-field'; readonly collection: string; readonly field: string }
  | ({ readonly kind: 'create-relation' } & NewRelation)
  | ({ readonly kind: 'update-relation' } & RelationChange)
  | { readonly kind: 'delete-relation'; readonly collection: string; readonly field: string };

export interface CreateCollection {
  readonly kind: 'create-collection';
  readonly collection: string;
  /** Null writes no metadata row. */
  readonly meta: Meta | null;
  /** Null makes a folder. */
  readonly table: NewTable | null;
}

interface NewTable {
  readonly comment: string | null;
  /** The schema and the name of the table. By default these are the first served schema and the collection's name. */
  readonly schema?: string | undefined;
  readonly name?: string | undefined;
  readonly fields: readonly NewField[];
}

export interface FieldChange {
  readonly field: string;
  /** Null keeps the type. */
  readonly type: FieldType | null;
  /** Null writes no metadata row, unless the type of a new field needs one. */
  readonly meta: Meta | null;
  readonly schema: ColumnOptions;
}

export interface NewField extends FieldChange {
  readonly type: FieldType;
}

/** Absent options stay as they are. In a new column they have their default. */
export interface ColumnOptions {
  readonly is_primary_key?: boolean;
  readonly has_auto_increment?: boolean;
  readonly is_nullable?: boolean;
  readonly is_unique?: boolean;
  readonly is_indexed?: boolean;
  readonly is_generated?: boolean;
  readonly generation_expression?: string | null;
  /** A value of the column's type, or an expression as text. */
  readonly default_value?: unknown;
  readonly max_length?: number;
  readonly numeric_precision?: number;
  readonly numeric_scale?: number;
  readonly comment?: string | null;
}

export interface RelationChange {
  readonly collection: string;
  readonly field: string;
  readonly meta: Meta | null;
  /** Undefined keeps the foreign key as it is; null stands for a relation without one. */
  readonly schema: ForeignKeyOptions | null | undefined;
}

export interface NewRelation extends RelationChange {
  /** The other collection, or null if the relation is many-to-any. */
  readonly related: string | null;
}

export interface ForeignKeyOptions extends Partial<ForeignKeyBehaviour> {
  /** Where several columns hold the reference: these, and those that they refer to, the key where nothing is said. */
  readonly columns?: readonly string[];
  readonly foreign_key_columns?: readonly string[];
}

export function parseCollection(body: unknown): CreateCollection {
  const { collection, meta, schema, fields, ...rest } = requireObject(body, 'The body');
  refuseOthers(rest, 'collection, meta, schema, fields');
  const name = readNewName(collection, 'collection');
  if (/^(service_|pg_)/i.test(name))
    throw invalidPayload(`A collection cannot be called "${name}": the prefix is reserved`);
  if (fields !== undefined && fields !== null && !Array.isArray(fields))
    throw invalidPayload('"fields" must be a list');
  const parsedMeta = readMeta(meta, COLLECTION_META, 'meta') ?? null;
  if (schema === undefined || schema === null) {
    if (Array.isArray(fields) && fields.length > 0)
      throw invalidPayload('A folder has no fields: add "schema" to create a table');
    return { kind: 'create-collection', collection: name, meta: parsedMeta ?? {}, table: null };
  }
  const { comment, schema: schemaName, name: table } = requireObject(schema, '"schema"');
  const definitions = (fields ?? []).map((field, position) => parseField(field, `fields[${position}]`));
  return {
    kind: 'create-collection',
    collection: name,
    meta: parsedMeta,
    table: {
      comment: readText(comment, 'schema.comment') ?? null,
      schema: readText(schemaName, 'schema.schema') ?? undefined,
      name: readText(table, 'schema.name') ?? undefined,
      fields: definitions,
    },
  };
}

/** Clients send back whole objects: names must match, `schema` is ignored. */
export function parseCollectionChange(body: unknown, name: string | null): Operation & { kind: 'update-collection' } {
  const { collection = name, meta, schema: _, fields: __, ...rest } = requireObject(body, 'The body');
  refuseOthers(rest, 'collection, meta');
  if (typeof collection !== 'string' || collection === '') throw invalidPayload('"collection" is required');
  if (name !== null && collection !== name) throw invalidPayload('A collection cannot be renamed');
  return { kind: 'update-collection', collection, meta: readMeta(meta, COLLECTION_META, 'meta') ?? {} };
}

/** `path` leads to the definition inside the body. */
export function parseField(body: unknown, path = 'The body'): NewField {
  const { field, type, meta, schema, collection: _, ...rest } = requireObject(body, path);
  refuseOthers(rest, 'field, type, meta, schema');
  const name = readNewName(field, 'field');
  if (type === undefined || type === null) throw invalidPayload(`"type" of the field "${name}" is required`);
  const alias = aliasKind(type);
  const parsedMeta = readMeta(meta, FIELD_META, 'meta') ?? null;
  return {
    field: name,
    type: readType(type),
    meta: alias === null ? parsedMeta : { special: alias, ...dropNull(parsedMeta ?? {}, 'special') },
    schema: readColumnOptions(schema),
  };
}

export function parseFieldChange(body: unknown, name: string | null): FieldChange {
  const { field = name, type, meta, schema, collection: _, ...rest } = requireObject(body, 'The body');
  refuseOthers(rest, 'field, type, meta, schema');
  if (typeof field !== 'string' || field === '') throw invalidPayload('"field" is required');
  if (name !== null && field !== name) throw invalidPayload('A field cannot be renamed');
  return {
    field,
    type: type === undefined || type === null ? null : readType(type),
    meta: readMeta(meta, FIELD_META, 'meta') ?? null,
    schema: readColumnOptions(schema),
  };
}

export function parseFieldChanges(body: unknown): FieldChange[] {
  if (!Array.isArray(body)) throw invalidPayload('The body must be a list of fields');
  const changes = body.map((entry) => parseFieldChange(entry, null));
  const names = new Set(changes.map(({ field }) => field));
  if (names.size < changes.length) throw invalidPayload('The list names a field twice');
  return changes;
}

export function parseRelation(body: unknown): NewRelation {
  const { collection, field, related_collection, schema, meta, ...rest } = requireObject(body, 'The body');
  refuseOthers(rest, 'collection, field, related_collection, schema, meta');
  if (typeof collection !== 'string' || collection === '') throw invalidPayload('"collection" is required');
  if (typeof field !== 'string' || field === '') throw invalidPayload('"field" is required');
  const related = related_collection ?? null;
  if (related !== null && typeof related !== 'string') throw invalidPayload('"related_collection" must be a string');
  const parsedMeta = readMeta(meta, RELATION_META, 'meta') ?? {};
  return { collection, field, related, schema: readForeignKey(schema), meta: parsedMeta };
}

export function parseRelationChange(body: unknown, end: { collection: string; field: string }): RelationChange {
  const {
    collection = end.collection,
    field = end.field,
    related_collection: _,
    schema,
    meta,
    ...rest
  } = requireObject(body, 'The body');
  refuseOthers(rest, 'schema, meta');
  if (collection !== end.collection || field !== end.field) throw invalidPayload('A relation cannot be moved');
  return { ...end, schema: readForeignKey(schema), meta: readMeta(meta, RELATION_META, 'meta') ?? null };
}

type Creation = Extract<Operation, { kind: 'create-collection' | 'create-field' | 'create-relation' }>;

/** Collections first, then fields, then relations: an entry may refer to those before it. */
export function parseCreations(body: unknown): readonly Creation[] {
  const { collections, fields, relations, ...rest } = requireObject(body, 'The body');
  refuseOthers(rest, 'collections, fields, relations');
  const creations: Creation[] = [
    ...readEntries(collections, 'collections').map(parseCollection),
    ...readEntries(fields, 'fields').map((entry, position): Creation => {
      const { collection } = requireObject(entry, `fields[${position}]`);
      if (typeof collection !== 'string' || collection === '')
        throw invalidPayload(`"collection" of fields[${position}] is required`);
      return { kind: 'create-field', collection, definition: parseField(entry, `fields[${position}]`) };
    }),
    ...readEntries(relations, 'relations').map(
      (entry): Creation => ({ kind: 'create-relation', ...parseRelation(entry) }),
    ),
  ];
  if (creations.length === 0) throw invalidPayload('The body must have "collections", "fields" or "relations"');
  return creations;
}

function readEntries(entries: unknown, name: string): readonly unknown[] {
  if (entries === undefined || entries === null) return [];
  if (!Array.isArray(entries)) throw invalidPayload(`"${name}" must be a list`);
  return entries;
}

/** Kinds of alias fields that clients name instead of `alias`. */
const ALIAS_KINDS = ['o2m', 'o2o', 'm2m', 'm2a', 'o2a', 'files', 'translations'];

/** Words joined by single hyphens: such a name needs no quoting in a URL, a field path or a statement. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*$/;

export function readNewName(name: unknown, what: string): string {
  if (typeof name !== 'string' || name.trim() === '') throw invalidPayload(`"${what}" is required`);
  if (Buffer.byteLength(name) > 63) throw invalidPayload(`The name of a ${what} must have at most 63 bytes`);
  if (!NAME.test(name) || name.startsWith('__'))
    throw invalidPayload(
      `The name of a ${what} must consist of letters (a-z), digits, underscores and single hyphens, and begin with a letter or one underscore`,
    );
  return name;
}

function aliasKind(type: unknown): string | null {
  return typeof type === 'string' && ALIAS_KINDS.includes(type) ? type : null;
}

function readType(type: unknown): FieldType {
  if (aliasKind(type) !== null) return 'alias';
  if (!isOneOf(FIELD_TYPES, type))
    throw invalidPayload(`"type" must be one of ${FIELD_TYPES.filter((name) => name !== 'unknown').join(', ')}`);
  return type;
}

const FLAGS = [
  'is_primary_key',
  'has_auto_increment',
  'is_nullable',
  'is_unique',
  'is_indexed',
  'is_generated',
] as const;
/** The smallest and the largest value PostgreSQL allows. */
const SIZES = {
  max_length: [1, 10_485_760],
  numeric_precision: [1, 1_000],
  numeric_scale: [0, 1_000],
} as const;

/** Read-only properties (`name`, `table`, `data_type`, `foreign_key_*`) are ignored: clients send back what they read. */
function readColumnOptions(schema: unknown): ColumnOptions {
  if (schema === undefined || schema === null) return {};
  const input = requireObject(schema, '"schema"');
  const options: { -readonly [Name in keyof ColumnOptions]: ColumnOptions[Name] } = {};
  for (const name of FLAGS) {
    const value = input[name];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'boolean') throw invalidPayload(`"schema.${name}" must be true or false`);
    options[name] = value;
  }
  for (const name of ['max_length', 'numeric_precision', 'numeric_scale'] as const) {
    const value = input[name];
    if (value === undefined || value === null) continue;
    const number = typeof value === 'string' && /^\d{1,9}$/.test(value) ? Number(value) : value;
    const [least, most] = SIZES[name];
    if (typeof number !== 'number' || !Number.isInteger(number) || number < least || number > most)
      throw invalidPayload(`"schema.${name}" must be a whole number from ${least} to ${most}`);
    options[name] = number;
  }
  const comment = readText(input['comment'], 'schema.comment');
  if (comment !== undefined) options.comment = comment;
  const expression = readText(input['generation_expression'], 'schema.generation_expression');
  if (expression !== undefined) options.generation_expression = expression;
  if (input['default_value'] !== undefined) options.default_value = input['default_value'];
  return options;
}

function readForeignKey(schema: unknown): ForeignKeyOptions | null | undefined {
  if (schema === undefined || schema === null) return schema;
  const input = requireObject(schema, '"schema"');
  const oneOf = <Value>(name: string, values: readonly Value[]): Record<string, Value> => {
    const value = input[name];
    if (value === undefined || value === null) return {};
    if (!isOneOf(values, value)) throw invalidPayload(`"schema.${name}" must be one of ${values.join(', ')}`);
    return { [name]: value };
  };
  const names = (name: string): Record<string, readonly string[]> => {
    const value = input[name];
    if (value === undefined || value === null) return {};
    const isList = Array.isArray(value) && value.every((each) => typeof each === 'string');
    if (!isList || value.length < 2 || new Set(value).size < value.length)
      throw invalidPayload(`"schema.${name}" must be a list of several columns, each once`);
    return { [name]: value };
  };
  return {
    ...oneOf('on_delete', FOREIGN_KEY_ACTIONS),
    ...oneOf('on_update', FOREIGN_KEY_ACTIONS),
    ...oneOf('match', ['FULL']),
    ...oneOf('deferrable', DEFERRABLE),
    ...names('columns'),
    ...names('foreign_key_columns'),
  };
}

function readText(value: unknown, path: string): string | null | undefined {
  if (value === undefined || value === null) return value;
  if (typeof value !== 'string' || value.includes('\0')) throw invalidPayload(`"${path}" must be a string`);
  return value;
}

function refuseOthers(rest: Input, known: string): void {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed: the body takes ${known}`);
}

function dropNull(meta: Meta, name: string): Meta {
  const { [name]: value, ...rest } = meta;
  return value === null || value === undefined ? rest : meta;
}

/** Names of the object itself: clients send them back with what they read. */
const IGNORED: ReadonlySet<string> = new Set([
  'id',
  'collection',
  'field',
  'many_collection',
  'many_field',
  'one_collection',
  'system',
]);

/** Unknown properties are refused, so that a typo does not silently drop a setting. */
export function readMeta(input: unknown, properties: Properties, path: string): Meta | undefined {
  if (input === undefined || input === null) return undefined;
  const meta: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(requireObject(input, `"${path}"`))) {
    const property = properties.get(name);
    if (property) {
      if (value !== undefined) meta[name] = readProperty(value, property, `${path}.${name}`);
    } else if (!IGNORED.has(name)) {
      throw invalidPayload(`"${path}.${name}" is not allowed: use one of ${[...properties.keys()].join(', ')}`);
    }
  }
  return meta;
}

const MAX_NAME_LENGTH = 255;
const MAX_INTEGER = 2_147_483_647;

function readProperty(value: unknown, { kind, nullable }: Property, path: string): unknown {
  if (value === null) {
    if (nullable) return null;
    throw invalidPayload(`"${path}" cannot be null`);
  }
  if (typeof kind !== 'string') {
    if (typeof value === 'string' && kind.includes(value)) return value;
    throw invalidPayload(`"${path}" must be one of ${kind.join(', ')}`);
  }
  switch (kind) {
    case 'boolean':
      if (typeof value !== 'boolean') throw invalidPayload(`"${path}" must be true or false`);
      return value;
    case 'integer':
      if (typeof value !== 'number' || !Number.isInteger(value) || Math.abs(value) > MAX_INTEGER)
        throw invalidPayload(`"${path}" must be a whole number`);
      return value;
    case 'name':
    case 'text':
      if (typeof value !== 'string') throw invalidPayload(`"${path}" must be a string`);
      if (kind === 'name' && [...value].length > MAX_NAME_LENGTH)
        throw invalidPayload(`"${path}" must have at most ${MAX_NAME_LENGTH} characters`);
      return requireStorable(value, path);
    case 'list':
      return readList(value, path);
    case 'array':
      if (!Array.isArray(value)) throw invalidPayload(`"${path}" must be a list`);
      return requireStorable(value, path);
    case 'json':
      return requireStorable(value, path);
    default:
      return assertNever(kind);
  }
}

/** Stored as text: an empty list becomes null. */
function readList(value: unknown, path: string): string | null {
  const entries = typeof value === 'string' ? value.split(',') : value;
  const isEntry = (entry: unknown): entry is string => typeof entry === 'string' && !entry.includes(',');
  if (!Array.isArray(entries) || !entries.every(isEntry))
    throw invalidPayload(`"${path}" must be a list of strings without commas`);
  const names = entries.map((entry) => entry.trim()).filter((entry) => entry !== '');
  return names.length === 0 ? null : requireStorable(names.join(','), path);
}

/** PostgreSQL stores no NUL character, and no unpaired surrogate in JSON. */
function requireStorable<Value>(value: Value, path: string): Value {
  const text = JSON.stringify(value);
  if (/(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/i.test(text))
    throw invalidPayload(`"${path}" contains characters that cannot be stored`);
  return value;
}
