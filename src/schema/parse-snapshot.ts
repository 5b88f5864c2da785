/**
 * A schema as a document: collections, fields and relations with their metadata, to be kept in a repository and carried
 * from one installation to another. Read strictly, since what is not understood would be lost: every property is known,
 * every name belongs to something, nothing is said twice. Properties that are left out take their usual values.
 */
import { LineCounter, parseDocument } from 'yaml';
import { invalidPayload, invalidQuery } from '../errors.js';
import { FIELD_TYPES, type FieldType, FOREIGN_KEY_ACTIONS, type ForeignKeyAction } from '../mirror/model.js';
import { isOneOf, onlyOf } from '../narrow.js';
import type { Input } from '../request/parse-context.js';
import { requireObject } from '../request/write.js';
import { readTypeName } from '../sql/type-name.js';
import { COLLECTION_META, FIELD_META, type Meta, type Properties, RELATION_META, readMeta } from './parse-meta.js';

export const SNAPSHOT_VERSION = 1;
/** Of some collections: it says nothing of the others, so that these never differ from it. */
export const PARTIAL_VERSION = 2;

export interface Snapshot {
  readonly version: number;
  /** The version of the service that wrote it. */
  readonly lateral: string;
  readonly vendor: string;
  readonly collections: readonly CollectionEntry[];
  /** Columns in the order they have in their table, then alias fields. */
  readonly fields: readonly FieldEntry[];
  readonly relations: readonly RelationEntry[];
}

export interface CollectionEntry {
  readonly collection: string;
  /** Null where there is no row of metadata. */
  readonly meta: Meta | null;
  /** Null for a folder. */
  readonly schema: SnapshotTable | null;
}

export interface SnapshotTable {
  /** Only where it is not the first one that is served. */
  readonly schema?: string;
  /** Its name in the schema, only where that need not be the collection's. */
  readonly name?: string;
  readonly comment: string | null;
  /** Plain ones over several columns; those over one are properties of its field. */
  readonly indexes: readonly SnapshotIndex[];
}

export interface SnapshotIndex {
  readonly fields: readonly string[];
  readonly unique: boolean;
}

export interface FieldEntry {
  readonly collection: string;
  readonly field: string;
  readonly type: FieldType;
  readonly meta: Meta | null;
  /** Null for an alias field. */
  readonly schema: SnapshotColumn | null;
}

export interface SnapshotColumn {
  /** With its length or precision, as PostgreSQL prints it. */
  readonly data_type: string;
  /** Of an enum of the same schema, or a list of its values. */
  readonly enum_values: readonly string[] | null;
  /** A constant. */
  readonly default_value: unknown;
  /** Any other default, as SQL. */
  readonly default_expression: string | null;
  readonly generation_expression: string | null;
  readonly is_nullable: boolean;
  readonly is_unique: boolean;
  readonly is_indexed: boolean;
  readonly is_primary_key: boolean;
  readonly has_auto_increment: boolean;
  readonly comment: string | null;
}

export interface RelationEntry {
  readonly collection: string;
  readonly field: string;
  /** Null for many-to-any. */
  readonly related_collection: string | null;
  readonly meta: Meta | null;
  /** Null where there is no foreign key. */
  readonly schema: ReferenceEntry | null;
}

/** `column` only where it is not the key that is referred to. */
export interface ReferenceEntry {
  readonly on_delete: ForeignKeyAction;
  readonly on_update: ForeignKeyAction;
  readonly column?: string;
}

/** JSON or YAML, told apart by how it begins: an object of JSON is YAML too, but read much faster. */
export function parseDocumentText(text: string): unknown {
  try {
    if (/^\s*[{[]/.test(text)) return JSON.parse(text);
  } catch {
    throw invalidPayload('The document is not valid JSON');
  }
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, logLevel: 'error' });
  const [error] = document.errors;
  if (error) throw invalidPayload(`The document is not valid YAML at line ${lines.linePos(error.pos[0]).line}`);
  try {
    // Refers to an anchor so often that the document would grow without measure: refused by the library.
    return document.toJS({ maxAliasCount: 100 });
  } catch {
    throw invalidPayload('The document repeats its anchors too often');
  }
}

/** With `force` a snapshot of another format or database is read as if it were ours. */
export function readSnapshot(value: unknown, force: boolean): Snapshot {
  const {
    version,
    lateral = '',
    vendor,
    collections,
    fields,
    relations,
    ...rest
  } = requireObject(value, 'The snapshot');
  refuseOthers(rest, 'The snapshot', 'version, lateral, vendor, collections, fields, relations');
  if (version !== SNAPSHOT_VERSION && version !== PARTIAL_VERSION && !force)
    throw invalidPayload(
      `The snapshot has version ${JSON.stringify(version)}, neither ${SNAPSHOT_VERSION} nor ${PARTIAL_VERSION} (of some collections)`,
    );
  if (vendor !== VENDOR && !force) throw invalidPayload(`The snapshot is not one of a ${VENDOR} database`);
  if (typeof lateral !== 'string') throw invalidPayload('"lateral" must be a string');
  const snapshot = {
    version: version === PARTIAL_VERSION ? PARTIAL_VERSION : SNAPSHOT_VERSION,
    lateral,
    vendor: VENDOR,
    collections: readList(collections, 'collections').map(readCollection),
    fields: readList(fields, 'fields').map(readField),
    relations: readList(relations, 'relations').map(readRelation),
  };
  refuseTwice(snapshot);
  return snapshot;
}

export const VENDOR = 'postgres';

/** A part of a snapshot: some collections with their fields and the relations that begin there. Null for all, or for none. */
export function selectCollections(
  snapshot: Snapshot,
  included: readonly string[] | null,
  excluded: readonly string[] | null,
): Snapshot {
  if (!included && !excluded) return snapshot;
  const known = new Set([...snapshot.collections, ...snapshot.fields].map(({ collection }) => collection));
  const unknown = [...(included ?? []), ...(excluded ?? [])].find((name) => !known.has(name));
  if (unknown !== undefined) throw invalidQuery(`The snapshot has no collection "${unknown}"`);
  const isSelected = ({ collection }: { readonly collection: string }): boolean =>
    (included?.includes(collection) ?? true) && !excluded?.includes(collection);
  return {
    ...snapshot,
    version: PARTIAL_VERSION,
    collections: snapshot.collections.filter(isSelected),
    fields: snapshot.fields.filter(isSelected),
    relations: snapshot.relations.filter(isSelected),
  };
}

export function readCollection(value: unknown, position = 0): CollectionEntry {
  const path = `collections[${position}]`;
  const { collection, meta, schema, ...rest } = requireObject(value, `"${path}"`);
  refuseOthers(rest, `"${path}"`, 'collection, meta, schema');
  const name = readName(collection, `${path}.collection`);
  return { collection: name, meta: wholeMeta(meta, COLLECTION_META, `${path}.meta`), schema: readTable(schema, path) };
}

export function readField(value: unknown, position = 0): FieldEntry {
  const path = `fields[${position}]`;
  const { collection, field, type, meta, schema, ...rest } = requireObject(value, `"${path}"`);
  refuseOthers(rest, `"${path}"`, 'collection, field, type, meta, schema');
  if (!isOneOf(FIELD_TYPES, type)) throw invalidPayload(`"${path}.type" must be one of ${FIELD_TYPES.join(', ')}`);
  const entry = {
    collection: readName(collection, `${path}.collection`),
    field: readName(field, `${path}.field`),
    type,
    meta: wholeMeta(meta, FIELD_META, `${path}.meta`),
  };
  if ((entry.type === 'alias') !== (schema === null || schema === undefined))
    throw invalidPayload(`"${path}.schema" is needed for every field but an alias`);
  if (entry.type === 'alias' && entry.meta === null) throw invalidPayload(`"${path}.meta" is needed for an alias`);
  return { ...entry, schema: entry.type === 'alias' ? null : readColumn(schema, `${path}.schema`) };
}

export function readRelation(value: unknown, position = 0): RelationEntry {
  const path = `relations[${position}]`;
  const { collection, field, related_collection = null, meta, schema, ...rest } = requireObject(value, `"${path}"`);
  refuseOthers(rest, `"${path}"`, 'collection, field, related_collection, meta, schema');
  const related = related_collection === null ? null : readName(related_collection, `${path}.related_collection`);
  const entry = {
    collection: readName(collection, `${path}.collection`),
    field: readName(field, `${path}.field`),
    related_collection: related,
    meta: wholeMeta(meta, RELATION_META, `${path}.meta`),
    schema: schema === undefined || schema === null ? null : readReference(schema, `${path}.schema`),
  };
  if (entry.meta === null && entry.schema === null)
    throw invalidPayload(`"${path}" needs "meta", a foreign key in "schema", or both`);
  if (related === null && entry.schema !== null)
    throw invalidPayload(`"${path}.schema" is a foreign key: "related_collection" must say where it leads`);
  return entry;
}

/** Everything a row of metadata holds, with the usual values for what was not said. */
function wholeMeta(value: unknown, properties: Properties, path: string): Meta | null {
  const given = readMeta(value, properties, path);
  if (given === undefined) return null;
  return Object.fromEntries(
    [...properties.keys()].map((name) => [name, name in given ? given[name] : (USUAL[name] ?? null)]),
  );
}

/** Defaults of the metadata tables that are not null. */
const USUAL: Readonly<Record<string, unknown>> = {
  hidden: false,
  singleton: false,
  archive_app_filter: true,
  accountability: 'all',
  collapse: 'open',
  versioning: false,
  status: 'active',
  readonly: false,
  required: false,
  searchable: true,
  width: 'full',
  one_deselect_action: 'nullify',
};

function readTable(value: unknown, path: string): CollectionEntry['schema'] {
  if (value === undefined || value === null) return null;
  const { schema, name, comment, indexes = [], ...rest } = requireObject(value, `"${path}.schema"`);
  refuseOthers(rest, `"${path}.schema"`, 'schema, name, comment, indexes');
  const list = readList(indexes, `${path}.schema.indexes`).map((each) => readIndex(each, `${path}.schema.indexes`));
  return {
    ...(schema == null ? {} : { schema: readName(schema, `${path}.schema.schema`) }),
    ...(name == null ? {} : { name: readName(name, `${path}.schema.name`) }),
    comment: readText(comment, `${path}.schema.comment`) || null,
    indexes: list,
  };
}

function readIndex(value: unknown, path: string): SnapshotIndex {
  const { fields, unique, ...rest } = requireObject(value, `"${path}"`);
  refuseOthers(rest, `"${path}"`, 'fields, unique');
  const names = readList(fields, `${path}.fields`).map((name) => readName(name, `${path}.fields`));
  if (names.length < 2 || new Set(names).size < names.length)
    throw invalidPayload(`"${path}.fields" must name several fields, each once`);
  return { fields: names, unique: readFlag(unique, false, `${path}.unique`) };
}

/** The name of the type that a column has or lists, where it may be an enum of the same schema. */
export function enumNameOf(dataType: string): string | null {
  const { names = [], modifiers = [] } = readTypeName(dataType) ?? {};
  return modifiers.length === 0 ? onlyOf(names) : null;
}

const FLAGS = ['is_unique', 'is_indexed', 'is_primary_key', 'has_auto_increment'] as const;
const COLUMN_PROPERTIES = [
  'data_type',
  'enum_values',
  'default_value',
  'default_expression',
  'generation_expression',
  'is_nullable',
  ...FLAGS,
  'comment',
];

function readColumn(value: unknown, path: string): SnapshotColumn {
  const given = requireObject(value, `"${path}"`);
  for (const name of Object.keys(given)) {
    if (!COLUMN_PROPERTIES.includes(name))
      throw invalidPayload(`"${path}.${name}" is not allowed: there are ${COLUMN_PROPERTIES.join(', ')}`);
  }
  const dataType = readText(given['data_type'], `${path}.data_type`);
  if (dataType === null) throw invalidPayload(`"${path}.data_type" is required`);
  const counts = readFlag(given['has_auto_increment'], false, `${path}.has_auto_increment`);
  const isKey = readFlag(given['is_primary_key'], false, `${path}.is_primary_key`);
  const column = {
    data_type: dataType,
    enum_values: readEnum(given['enum_values'], dataType, path),
    default_value: given['default_value'] ?? null,
    default_expression: readText(given['default_expression'], `${path}.default_expression`),
    generation_expression: readText(given['generation_expression'], `${path}.generation_expression`),
    is_nullable: readFlag(given['is_nullable'], !isKey && !counts, `${path}.is_nullable`),
    is_unique: readFlag(given['is_unique'], isKey, `${path}.is_unique`),
    is_indexed: readFlag(given['is_indexed'], false, `${path}.is_indexed`),
    is_primary_key: isKey,
    has_auto_increment: counts,
    comment: readText(given['comment'], `${path}.comment`) || null,
  };
  const sources = [
    column.default_value !== null,
    column.default_expression !== null,
    column.generation_expression !== null,
    column.has_auto_increment,
  ];
  if (sources.filter(Boolean).length > 1)
    throw invalidPayload(`"${path}" can have one source of values: a default, an expression or a sequence`);
  if (counts && column.is_nullable) throw invalidPayload(`"${path}": a field that increments by itself is not null`);
  if (isKey && (column.is_nullable || !column.is_unique))
    throw invalidPayload(`"${path}": a primary key is unique and not null`);
  return column;
}

function readEnum(value: unknown, dataType: string, path: string): readonly string[] | null {
  if (value === undefined || value === null) return null;
  const values = readList(value, `${path}.enum_values`).map((each) =>
    each === '' ? '' : readName(each, `${path}.enum_values`),
  );
  if (values.length === 0 || new Set(values).size < values.length || enumNameOf(dataType) === null)
    throw invalidPayload(`"${path}.enum_values" must list the values of an enum, each once`);
  return values;
}

function readReference(value: unknown, path: string): ReferenceEntry {
  const { on_delete = 'NO ACTION', on_update = 'NO ACTION', column, ...rest } = requireObject(value, `"${path}"`);
  refuseOthers(rest, `"${path}"`, 'on_delete, on_update, column');
  const actionOf = (action: unknown): ForeignKeyAction => {
    if (!isOneOf(FOREIGN_KEY_ACTIONS, action))
      throw invalidPayload(`"${path}" takes the actions ${FOREIGN_KEY_ACTIONS.join(', ')}`);
    return action;
  };
  return {
    on_delete: actionOf(on_delete),
    on_update: actionOf(on_update),
    ...(column == null ? {} : { column: readName(column, `${path}.column`) }),
  };
}

function refuseTwice({ collections, fields, relations }: Snapshot): void {
  const sections: readonly (readonly { collection: string; field?: string }[])[] = [collections, fields, relations];
  for (const entries of sections) {
    const seen = new Set<string>();
    for (const { collection, field } of entries) {
      const name = JSON.stringify([collection, field]);
      if (seen.has(name))
        throw invalidPayload(`The snapshot names ${field === undefined ? collection : `${collection}.${field}`} twice`);
      seen.add(name);
    }
  }
}

function readList(value: unknown, name: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw invalidPayload(`"${name}" must be a list`);
}

function readName(value: unknown, path: string): string {
  if (typeof value !== 'string' || !/^[^\0]+$/.test(value)) throw invalidPayload(`"${path}" must be a name`);
  if (Buffer.byteLength(value) <= 63) return value;
  throw invalidPayload(`"${path}" is longer than 63 bytes`);
}

function readFlag(value: unknown, initial: boolean, path: string): boolean {
  if (value === undefined || value === null) return initial;
  if (typeof value === 'boolean') return value;
  throw invalidPayload(`"${path}" must be true or false`);
}

function readText(value: unknown, path: string): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== 'string' || value.includes('\0')) throw invalidPayload(`"${path}" must be a string`);
  return value;
}

function refuseOthers(rest: Input, name: string, known: string): void {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`${name} has an unknown property "${unknown}": it takes ${known}`);
}
