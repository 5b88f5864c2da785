/**
 * The model as a snapshot. What a table is goes in whole; what a name of a constraint or a number of a row is does not,
 * since it differs from one installation to another although their structure is the same.
 */
import { packageVersion } from '../files.js';
import type { Collection, Column, Field, Model } from '../mirror/model.js';
import {
  type CollectionEntry,
  type ColumnEntry,
  enumNameOf,
  type FieldEntry,
  type IndexEntry,
  type RelationEntry,
  SNAPSHOT_VERSION,
  type Snapshot,
  VENDOR,
} from '../request/snapshot.js';
import { COLLECTION_META, FIELD_META, type Meta, type Properties, RELATION_META } from '../request/structure-meta.js';
import { isJsonType } from './apply-columns.js';
import { isMovable } from './apply-names.js';
import type { Protected } from './structure.js';
import { isOurs } from './structure-names.js';

/** What sql/snapshot.sql answers, by the names of collections. */
export interface Details {
  /** The types of columns as PostgreSQL prints them, by collection and column. */
  readonly types: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Plain ones over several columns, in an order of their own. */
  readonly indexes: readonly IndexDetail[];
  readonly enums: Readonly<Record<string, readonly string[]>>;
}

export interface IndexDetail extends IndexEntry {
  readonly collection: string;
  readonly name: string;
  readonly constraint: boolean;
}

/** What users added to a collection of the service is theirs to move. */
export function snapshotOf(model: Model, details: Details, ours: Protected): Snapshot {
  const tables = [...model.collections.values()].filter(isCarried).sort(byName);
  const owned = (collection: Collection): Field[] =>
    [...collection.fields.values()].filter(({ name }) => !isOurs(collection, name, ours));
  return {
    version: SNAPSHOT_VERSION,
    lateral: packageVersion,
    vendor: VENDOR,
    collections: collectionsOf(model, tables, details, ours),
    fields: tables.flatMap((collection) => fieldsOf(collection.name, owned(collection), details)),
    relations: tables.flatMap((collection) => relationsOf(model, owned(collection))),
  };
}

/** Tables, views and references that a snapshot cannot carry, in words. */
export function leftBehind(model: Model): string[] {
  const views = [...model.collections.values()].filter(({ kind, system }) => kind === 'view' && !system);
  const misnamed = [...model.collections.values()].filter(({ kind, name }) => kind !== 'view' && !isMovable(name));
  return [
    ...misnamed.map(({ name }) => `"${name}": has a name that cannot be given elsewhere`),
    ...views.map(({ name }) => `"${name}": is a view`),
    ...[...model.refused].map(([name, reason]) => `"${name}": ${reason}`),
  ];
}

function isCarried({ kind, name }: Collection): boolean {
  return kind !== 'view' && isMovable(name);
}

function collectionsOf(
  model: Model,
  tables: readonly Collection[],
  { indexes }: Details,
  ours: Protected,
): CollectionEntry[] {
  const entries = tables
    .filter(({ system }) => !system)
    .map(({ name, meta, comment }) => ({
      collection: name,
      meta: metaOf(meta, COLLECTION_META),
      schema: { comment, indexes: indexesOf(name, indexes) },
    }));
  const folders = [...model.folders].map(([name, meta]) => ({
    collection: name,
    meta: metaOf(meta, COLLECTION_META),
    schema: null,
  }));
  return [...entries, ...folders.filter(({ collection }) => !ours.isSystemTable(collection))].sort((left, right) =>
    compare(left.collection, right.collection),
  );
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
    schema: column && columnOf(column, details.types[collection]?.[name] ?? column.data_type, details),
  }));
}

/** Two that say the same are one. */
function indexesOf(collection: string, indexes: readonly IndexDetail[]): IndexEntry[] {
  const entries = indexes
    .filter((each) => each.collection === collection)
    .map(({ fields, unique }) => ({ fields, unique }));
  return [...new Map(entries.map((entry) => [JSON.stringify(entry), entry])).values()];
}

function columnOf(column: Column, data_type: string, { enums }: Details): ColumnEntry {
  const isJson = /^jsonb?$/.test(column.base_type) && !column.is_array;
  // The null of JSON is a value, and a text under a domain's name would not be known for JSON: both are told as SQL.
  const isUnclear =
    isJson && (column.default_value === null || (typeof column.default_value === 'string' && !isJsonType(data_type)));
  const isExpression = isUnclear || column.default_value === column.default_expression;
  const own = !column.has_auto_increment;
  return {
    data_type,
    enum_values: enums[enumNameOf(data_type) ?? ''] ?? null,
    default_value: own && !isExpression ? column.default_value : null,
    default_expression: own && isExpression ? column.default_expression : null,
    generation_expression: column.generation_expression,
    // A column that counts is made as one that identity fills, which is never null.
    is_nullable: own && column.is_nullable,
    is_unique: column.is_unique,
    is_indexed: column.is_indexed,
    is_primary_key: column.is_primary_key,
    has_auto_increment: column.has_auto_increment,
    comment: column.comment,
  };
}

function relationsOf(model: Model, fields: readonly Field[]): RelationEntry[] {
  return fields.flatMap(({ collection, name, column, relation }): RelationEntry[] => {
    if (!column || !relation || relation.kind === 'one-to-many') return [];
    const one = relation.kind === 'many-to-one' ? relation.oneCollection : null;
    const target = one === null ? undefined : model.collections.get(one);
    if (target && !isCarried(target)) return [];
    const reference = column.foreign_keys.find((each) => one !== null && each.collection === one);
    const beside = reference && reference.column !== target?.primaryKey.name ? { column: reference.column } : {};
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

/** Every property in the order of the list, so that two snapshots of one structure are the same text. */
function metaOf(row: Meta | null, properties: Properties): Meta | null {
  return row && Object.fromEntries([...properties.keys()].map((name) => [name, row[name] ?? null]));
}

function byName(left: { readonly name: string }, right: { readonly name: string }): number {
  return compare(left.name, right.name);
}

function compare(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
