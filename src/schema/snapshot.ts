/**
 * The model as a snapshot. What a table is goes in whole; what a name of a constraint or a number of a row is does not,
 * since it differs from one installation to another although their schema is the same.
 */
import { packageVersion } from '../files.js';
import { soleKey } from '../mirror/item-key.js';
import type { Collection, Column, Field, Model } from '../mirror/model.js';
import type { Protected } from '../postgres/system-tables.js';
import { complaintAbout } from '../sql/vet.js';
import { isJsonType, isMovableType, PLAIN_INDEX } from './apply-columns.js';
import { isMovable, isMovableField } from './apply-names.js';
import { COLLECTION_META, FIELD_META, type Meta, type Properties, RELATION_META } from './parse-meta.js';
import {
  type CollectionEntry,
  enumNameOf,
  type FieldEntry,
  type RelationEntry,
  SNAPSHOT_VERSION,
  type Snapshot,
  type SnapshotColumn,
  type SnapshotIndex,
  VENDOR,
} from './parse-snapshot.js';
import { isOurs } from './plan-names.js';

/** What sql/snapshot.sql answers, by the names of collections. */
export interface Details {
  /** The types of columns as PostgreSQL prints them, by collection and column. */
  readonly types: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Plain ones over several columns, in an order of their own. */
  readonly indexes: readonly IndexDetail[];
  readonly enums: Readonly<Record<string, readonly string[]>>;
}

export interface IndexDetail extends SnapshotIndex {
  readonly collection: string;
  readonly name: string;
  readonly constraint: boolean;
}

/** What users added to a collection of the service is theirs to move. */
export function snapshotOf(model: Model, details: Details, ours: Protected): Snapshot {
  const tables = [...model.collections.values()].filter((each) => isCarried(each, details)).sort(byName);
  const owned = (collection: Collection): Field[] =>
    [...collection.fields.values()].filter((field) => !isOurs(collection, field.name, ours) && isMoved(field, details));
  return {
    version: SNAPSHOT_VERSION,
    lateral: packageVersion,
    vendor: VENDOR,
    collections: collectionsOf(model, tables, details, ours),
    fields: tables.flatMap((collection) => fieldsOf(collection.name, owned(collection), details)),
    relations: tables.flatMap((collection) => relationsOf(model, owned(collection), details)),
  };
}

/** Tables, views and references that a snapshot cannot carry, in words. */
export function leftBehind(model: Model, details: Details): string[] {
  const carried = [...model.collections.values()].filter((each) => !each.system && isCarried(each, details));

  const views = [...model.collections.values()].filter(({ kind, system }) => kind === 'view' && !system);
  const unfit = [...model.collections.values()].filter(
    (each) => each.kind !== 'view' && !each.system && !isCarried(each, details),
  );
  return [
    ...unfit.map(
      ({ name }) => `"${name}": it, or its key, has a name, a type or columns that cannot be made elsewhere`,
    ),
    ...carried.flatMap(({ fields }) =>
      [...fields.values()].flatMap((field) => lossOf(field, [...fields.values()], details)),
    ),
    ...views.map(({ name }) => `"${name}": is a view`),
    ...[...model.refused].map(([name, reason]) => `"${name}": ${reason}`),
  ];
}

function isCarried(collection: Collection, details: Details): boolean {
  const key = soleKey(collection);
  const isPrimary = key?.column?.indexes.some(({ kind }) => kind === 'primary');
  return Boolean(key && isPrimary) && isMovable(collection.name) && key !== null && isMoved(key, details);
}

function isMoved({ collection, name, column }: Field, details: Details): boolean {
  if (!isMovableField(name)) return false;
  const type = column && typeOf(collection, column, details);
  return type === null || (isMovableType(type) && (!isEnum(type, details) || isMovableField(enumNameOf(type) ?? '')));
}

function isEnum(type: string, { enums }: Details): boolean {
  return Object.hasOwn(enums, enumNameOf(type) ?? '');
}

function typeOf(collection: string, column: Column, { types }: Details): string {
  return types[collection]?.[column.name] ?? column.data_type;
}

/** What a snapshot does not tell of a field, since it could not be applied. */
function lossOf(field: Field, siblings: readonly Field[], details: Details): string[] {
  const { collection, name, column } = field;
  if (!isMoved(field, details)) return [`"${collection}.${name}": has a name or a type that cannot be made elsewhere`];
  if (!column) return [];
  const refused = expressionsOf(column).filter((text) => !isCarriedExpression(text, siblings, details));
  const indexes = column.indexes.filter(({ kind, method }) => kind === 'index' && method !== PLAIN_INDEX);
  return [
    ...refused.map((text) => `"${collection}.${name}": its expression ${text} may not be applied`),
    ...indexes.map((index) => `"${collection}.${name}": its index ${index.name} is one of ${index.method}`),
  ];
}

function expressionsOf(column: Column): string[] {
  if (column.has_auto_increment) return [];
  const initial = column.default_value === column.default_expression ? column.default_expression : null;
  return [initial, column.generation_expression].filter((text) => text !== null);
}

/** A generated column may name others that go along, and are not generated themselves. */
function isCarriedExpression(text: string, siblings: readonly Field[], details: Details): boolean {
  const plain = siblings.filter((field) => field.column && !field.column.is_generated && isMoved(field, details));
  return (
    complaintAbout(
      text,
      plain.map(({ name }) => name),
    ) === null
  );
}

function collectionsOf(
  model: Model,
  tables: readonly Collection[],
  details: Details,
  ours: Protected,
): CollectionEntry[] {
  const { indexes } = details;
  const entries = tables
    .filter(({ system }) => !system)
    .map(({ name, schema, table, meta, comment, fields }) => ({
      collection: name,
      meta: metaOf(meta, COLLECTION_META),
      schema: {
        ...(schema === model.schema ? {} : { schema }),
        ...(schema === model.schema && typeof meta?.['table'] !== 'string' ? {} : { name: table }),
        comment,
        indexes: indexesOf(fields, name, indexes, details),
      },
    }));
  const folders = [...model.folders].map(([name, meta]) => ({
    collection: name,
    meta: metaOf(meta, COLLECTION_META),
    schema: null,
  }));
  const all = [...entries, ...folders.filter(({ collection }) => !ours.isSystemTable(collection))];
  const groups = new Set(all.flatMap(({ collection, meta }) => (meta ? [collection] : [])));
  // A group that does not go along is none.
  const grouped = (meta: Meta | null): Meta | null =>
    meta && (groups.has(String(meta['group'])) ? meta : { ...meta, group: null });
  return all
    .map((entry) => ({ ...entry, meta: grouped(entry.meta) }))
    .sort((left, right) => compare(left.collection, right.collection));
}

function fieldsOf(collection: string, fields: readonly Field[], details: Details): FieldEntry[] {
  const columns = fields.filter(({ column }) => column !== null);
  // An alias without a row of its own is nothing but the other side of a relation.
  const aliases = fields.filter(({ column, meta }) => column === null && meta !== null).sort(byName);
  return [...columns, ...aliases].map(({ name, type, meta, column }) => ({
    collection,
    field: name,
    type,
    meta: metaOf(meta, FIELD_META),
    schema: column && columnOf(column, typeOf(collection, column, details), fields, details),
  }));
}

/** Two that say the same are one. */
function indexesOf(
  fields: Collection['fields'],
  collection: string,
  indexes: readonly IndexDetail[],
  details: Details,
): SnapshotIndex[] {
  const moves = (name: string): boolean => {
    const field = fields.get(name);
    return field !== undefined && isMoved(field, details);
  };
  const entries = indexes
    .filter((each) => each.collection === collection && each.fields.every(moves))
    .map(({ fields, unique }) => ({ fields, unique }));
  return [...new Map(entries.map((entry) => [JSON.stringify(entry), entry])).values()];
}

function columnOf(column: Column, data_type: string, siblings: readonly Field[], details: Details): SnapshotColumn {
  const { enums } = details;
  const isJson = /^jsonb?$/.test(column.base_type) && !column.is_array;
  // The null of JSON is a value, and a text under a domain's name would not be known for JSON: both are told as SQL.
  const isUnclear =
    isJson && (column.default_value === null || (typeof column.default_value === 'string' && !isJsonType(data_type)));
  const isExpression = isUnclear || column.default_value === column.default_expression;
  const own = !column.has_auto_increment;
  const carried = (text: string | null): string | null =>
    text !== null && isCarriedExpression(text, siblings, details) ? text : null;
  return {
    data_type,
    enum_values: enums[enumNameOf(data_type) ?? ''] ?? null,
    default_value: own && !isExpression ? column.default_value : null,
    default_expression: own && isExpression ? carried(column.default_expression) : null,
    generation_expression: carried(column.generation_expression),
    // A column that counts is made as one that identity fills, which is never null.
    is_nullable: own && column.is_nullable,
    is_unique: column.is_unique,
    is_indexed: column.indexes.some(({ kind, method }) => kind === 'index' && method === PLAIN_INDEX),
    is_primary_key: column.is_primary_key,
    has_auto_increment: column.has_auto_increment,
    comment: column.comment,
  };
}

function relationsOf(model: Model, fields: readonly Field[], details: Details): RelationEntry[] {
  return fields.flatMap(({ collection, name, column, relation }): RelationEntry[] => {
    if (!column || !relation || relation.kind === 'one-to-many' || relation.kind === 'one-to-one') return [];
    const one = relation.kind === 'many-to-one' ? relation.oneCollection : null;
    const target = one === null ? undefined : model.collections.get(one);
    if (target && !isCarried(target, details)) return [];
    const reference = column.foreign_keys.find((each) => one !== null && each.collection === one);
    const beside =
      reference && reference.column !== (target && soleKey(target)?.name) ? { column: reference.column } : {};
    const schema = reference && { on_delete: reference.on_delete, on_update: reference.on_update, ...beside };
    return [
      {
        collection,
        field: name,
        related_collection: one,
        meta: metaOf(relation.meta, RELATION_META),
        schema: schema ?? null,
      },
    ];
  });
}

/** Every property in the order of the list, so that two snapshots of one schema are the same text. */
function metaOf(row: Meta | null, properties: Properties): Meta | null {
  return row && Object.fromEntries([...properties.keys()].map((name) => [name, row[name] ?? null]));
}

function byName(left: { readonly name: string }, right: { readonly name: string }): number {
  return compare(left.name, right.name);
}

function compare(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
