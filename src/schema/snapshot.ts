/**
 * The model as a snapshot. What a table is goes in whole; what a name of a constraint or a number of a row is does not,
 * since it differs from one installation to another although their schema is the same.
 */

import { packageVersion } from '../files.js';
import type { MetadataRow } from '../mirror/catalog-document.js';
import { listOf } from '../mirror/columns.js';
import { behaviourIn, type Collection, type Column, type Field, type Model } from '../mirror/model.js';
import type { Protected } from '../postgres/system-tables.js';
import { complaintAbout } from '../sql/vet.js';
import { isJsonType, isPortableType, PLAIN_INDEX } from './apply-columns.js';
import { isPortableCollectionName, isPortableName } from './apply-names.js';
import type { DeclaredFunction } from './parse-function.js';
import { COLLECTION_META, FIELD_META, type Meta, type Properties, RELATION_META } from './parse-meta.js';
import {
  type CollectionEntry,
  enumKey,
  enumNameOf,
  type FieldEntry,
  type RelationEntry,
  SNAPSHOT_VERSION,
  type Snapshot,
  type SnapshotColumn,
  VENDOR,
} from './parse-snapshot.js';
import type { SnapshotForeignKey, SnapshotIndex, SnapshotTable } from './parse-table.js';
import { isProtected } from './plan-names.js';

/** What sql/snapshot.sql answers, by the names of collections. */
export interface Details {
  /** The types of columns as PostgreSQL prints them, by collection and column. */
  readonly types: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Plain ones over several columns, in a fixed order. */
  readonly indexes: readonly IndexDetail[];
  /** The values of enums, by `enumKey`. */
  readonly enums: ReadonlyMap<string, readonly string[]>;
  /** The columns of primary keys, by collection. */
  readonly primaryKeys: ReadonlyMap<string, readonly string[]>;
  /** Those over several columns, in a fixed order. */
  readonly foreignKeys: readonly ForeignKeyDetail[];
  /** Columns that PostgreSQL computes when they are read. */
  readonly virtual: readonly { readonly collection: string; readonly name: string }[];
  /** Keys WITHOUT OVERLAPS, and foreign keys NOT ENFORCED: in another database they would become plain ones. */
  readonly constraints: readonly ConstraintDetail[];
  /** Rows of service_functions. */
  readonly functions: readonly MetadataRow[];
}

export interface ForeignKeyDetail extends SnapshotForeignKey {
  readonly collection: string;
  readonly name: string;
  /** Whether it sets some of its columns to null, not all of them. */
  readonly some: boolean;
}

/** `type` is the letter of pg_constraint. */
interface ConstraintDetail {
  readonly collection: string;
  readonly name: string;
  readonly type: 'p' | 'u' | 'f';
}

interface IndexDetail extends SnapshotIndex {
  readonly collection: string;
  readonly name: string;
  readonly constraint: boolean;
}

/** What users added to a collection of the service is theirs to move. */
export function snapshotOf(model: Model, details: Details, protectedTables: Protected): Snapshot {
  const tables = [...model.collections.values()].filter((each) => isIncluded(each, details)).sort(byName);
  const owned = (collection: Collection): Field[] =>
    [...collection.fields.values()].filter(
      (field) => !isProtected(collection, field.name, protectedTables) && isPortableField(field, details),
    );
  return {
    version: SNAPSHOT_VERSION,
    lateral: packageVersion,
    vendor: VENDOR,
    collections: collectionsOf(model, tables, details, protectedTables),
    fields: tables.flatMap((collection) => fieldsOf(collection.name, owned(collection), details)),
    relations: tables.flatMap((collection) => relationsOf(model, owned(collection), details)),
    functions: details.functions.map(functionOf).sort(byName),
  };
}

/** One sentence for each thing that a snapshot cannot hold. */
export function omittedFromSnapshot(model: Model, details: Details): string[] {
  const own = [...model.collections.values()].filter(({ system }) => !system);
  const included = own.filter((each) => isIncluded(each, details));
  const excluded = own.filter((each) => isTable(each) && !isIncluded(each, details));
  return [
    ...excluded.map(
      ({ name }) =>
        `"${name}": it, or its key, has a name, a type or columns that cannot be created in another database`,
    ),
    ...included.flatMap(({ fields }) =>
      [...fields.values()].flatMap((field) => omittedOf(field, [...fields.values()], details)),
    ),
    ...included.flatMap(({ name, kind }) =>
      kind === 'partitioned' ? [`"${name}": its partitions; in another database it becomes one table`] : [],
    ),
    ...details.foreignKeys.flatMap((key) =>
      included.some(({ name }) => name === key.collection) && !isIncludedKey(key, model, details)
        ? [`"${key.collection}": its foreign key over ${key.fields.join(', ')}`]
        : [],
    ),
    ...details.constraints.map(({ collection, name, type }) =>
      type === 'f'
        ? `"${collection}": its foreign key ${name}, which is NOT ENFORCED`
        : `"${collection}": its key ${name}, which is WITHOUT OVERLAPS`,
    ),
    ...own.flatMap(({ name, kind }) =>
      isTable({ kind }) ? [] : [`"${name}": is a ${kind === 'view' ? 'view' : 'foreign table'}`],
    ),
    ...details.functions.map((row) => `"${row['name']}": the definition of the function; create it there by SQL`),
    ...[...model.refused].map(([name, reason]) => `"${name}": ${reason}`),
  ];
}

function isTable({ kind }: Pick<Collection, 'kind'>): boolean {
  return kind === 'table' || kind === 'partitioned';
}

function isIncluded(collection: Collection, details: Details): boolean {
  const { name, fields } = collection;
  const isPortable = (column: string): boolean => {
    const field = fields.get(column);
    return field !== undefined && isPortableField(field, details);
  };
  if (!isTable(collection) || !isPortableCollectionName(name)) return false;
  if (details.constraints.some((each) => each.collection === name && each.type === 'p')) return false;
  const key = details.primaryKeys.get(name) ?? [];
  return (
    key.every(isPortable) &&
    [...fields.values()].some((field) => field.column !== null && isPortableField(field, details))
  );
}

function isIncludedKey(key: ForeignKeyDetail, model: Model, details: Details): boolean {
  const holds = (collection: string, names: readonly string[]): boolean => {
    const table = model.collections.get(collection);
    if (!table || !isIncluded(table, details)) return false;
    return names.every((name) => {
      const field = table.fields.get(name);
      return field !== undefined && isPortableField(field, details);
    });
  };
  return !key.some && holds(key.collection, key.fields) && holds(key.related_collection, key.related_fields);
}

function isPortableField({ collection, name, column }: Field, details: Details): boolean {
  if (!isPortableName(name)) return false;
  if (isVirtual(collection, name, details)) return false;
  const type = column && typeOf(collection, column, details);
  return (
    type === null ||
    (isPortableType(type) && (!valuesOf(type, details) || isPortableName(enumNameOf(type)?.name ?? '')))
  );
}

function isVirtual(collection: string, name: string, { virtual }: Details): boolean {
  return virtual.some((each) => each.collection === collection && each.name === name);
}

function valuesOf(type: string, { enums }: Details): readonly string[] | undefined {
  const name = enumNameOf(type);
  return name ? enums.get(enumKey(name)) : undefined;
}

function typeOf(collection: string, column: Column, { types }: Details): string {
  return types[collection]?.[column.name] ?? column.data_type;
}

/** What a snapshot leaves out of a field, since it could not be applied. */
function omittedOf(field: Field, siblings: readonly Field[], details: Details): string[] {
  const { collection, name, column } = field;
  if (isVirtual(collection, name, details)) return [`"${collection}.${name}": is a virtual generated column`];
  if (!isPortableField(field, details))
    return [`"${collection}.${name}": has a name or a type that cannot be created in another database`];
  if (!column)
    return listOf(field.meta?.['special']).includes('computed')
      ? [`"${collection}.${name}": the function that it is computed by; create it there by SQL`]
      : [];
  const refused = expressionsOf(column).filter((text) => !isIncludedExpression(text, siblings, details));
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
function isIncludedExpression(text: string, siblings: readonly Field[], details: Details): boolean {
  const plain = siblings.filter(
    (field) => field.column && !field.column.is_generated && isPortableField(field, details),
  );
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
  protectedTables: Protected,
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
        ...keyOf(name, details),
        indexes: indexesOf(fields, name, indexes, details),
        ...foreignKeysOf(name, model, details),
      },
    }));
  const folders = [...model.folders].map(([name, meta]) => ({
    collection: name,
    meta: metaOf(meta, COLLECTION_META),
    schema: null,
  }));
  const all = [...entries, ...folders.filter(({ collection }) => !protectedTables.isSystemTable(collection))];
  const groups = new Set(all.flatMap(({ collection, meta }) => (meta ? [collection] : [])));
  // A group that does not go along is none.
  const grouped = (meta: Meta | null): Meta | null =>
    meta && (groups.has(String(meta['group'])) ? meta : { ...meta, group: null });
  return all
    .map((entry) => ({ ...entry, meta: grouped(entry.meta) }))
    .sort((left, right) => compare(left.collection, right.collection));
}

/** Told by its field where it is one. */
function keyOf(collection: string, { primaryKeys }: Details): Pick<SnapshotTable, 'primary_key'> {
  const names = primaryKeys.get(collection) ?? [];
  return names.length === 1 ? {} : { primary_key: names };
}

/** Two that say the same are one. */
function foreignKeysOf(collection: string, model: Model, details: Details): Pick<SnapshotTable, 'foreign_keys'> {
  const keys = details.foreignKeys
    .filter((key) => key.collection === collection && isIncludedKey(key, model, details))
    .map(({ collection: _, name: __, some: ___, ...key }) => key);
  return keys.length === 0 ? {} : { foreign_keys: distinct(keys) };
}

function distinct<Entry>(entries: readonly Entry[]): Entry[] {
  return [...new Map(entries.map((entry) => [JSON.stringify(entry), entry])).values()];
}

function fieldsOf(collection: string, fields: readonly Field[], details: Details): FieldEntry[] {
  const columns = fields.filter(({ column }) => column !== null);
  // An alias without a row of its own is nothing but the other side of a relation.
  const aliases = fields.filter(({ column, meta }) => column === null && meta !== null).sort(byName);
  const isPrimary = (name: string): boolean => details.primaryKeys.get(collection)?.includes(name) ?? false;
  return [...columns, ...aliases].map(({ name, type, meta, column }) => ({
    collection,
    field: name,
    type,
    meta: metaOf(meta, FIELD_META),
    schema: column && columnOf(column, typeOf(collection, column, details), fields, details, isPrimary(name)),
  }));
}

/** Two that say the same are one. */
function indexesOf(
  fields: Collection['fields'],
  collection: string,
  indexes: readonly IndexDetail[],
  details: Details,
): SnapshotIndex[] {
  const isPortable = (name: string): boolean => {
    const field = fields.get(name);
    return field !== undefined && isPortableField(field, details);
  };
  return distinct(
    indexes
      .filter((each) => each.collection === collection && each.fields.every(isPortable))
      .map(({ fields, unique }) => ({ fields, unique })),
  );
}

function columnOf(
  column: Column,
  data_type: string,
  siblings: readonly Field[],
  details: Details,
  is_primary_key: boolean,
): SnapshotColumn {
  const isJson = /^jsonb?$/.test(column.base_type) && !column.is_array;
  // The null of JSON is a value, and a text under a domain's name would not be recognized as JSON: both are written as SQL.
  const isUnclear =
    isJson && (column.default_value === null || (typeof column.default_value === 'string' && !isJsonType(data_type)));
  const isExpression = isUnclear || column.default_value === column.default_expression;
  const own = !column.has_auto_increment;
  const included = (text: string | null): string | null =>
    text !== null && isIncludedExpression(text, siblings, details) ? text : null;
  return {
    data_type,
    enum_values: valuesOf(data_type, details) ?? null,
    default_value: own && !isExpression ? column.default_value : null,
    default_expression: own && isExpression ? included(column.default_expression) : null,
    generation_expression: included(column.generation_expression),
    // A column that counts is made as one that identity fills, which is never null.
    is_nullable: own && column.is_nullable,
    is_unique: column.is_unique,
    is_indexed: column.indexes.some(({ kind, method }) => kind === 'index' && method === PLAIN_INDEX),
    is_primary_key,
    has_auto_increment: column.has_auto_increment,
    comment: column.comment,
  };
}

function relationsOf(model: Model, fields: readonly Field[], details: Details): RelationEntry[] {
  return fields.flatMap(({ collection, name, column, relation }): RelationEntry[] => {
    if (!relation || relation.kind === 'one-to-many' || relation.kind === 'one-to-one') return [];
    const one = relation.kind === 'many-to-one' ? relation.oneCollection : null;
    const target = one === null ? undefined : model.collections.get(one);
    if (target && !isIncluded(target, details)) return [];
    const reference = column?.foreign_keys.find(
      (each) => one !== null && each.collection === one && isEnforced(collection, each.name, details),
    );
    const key = details.primaryKeys.get(one ?? '') ?? [];
    const otherColumn =
      reference && (key.length !== 1 || reference.column !== key[0]) ? { column: reference.column } : {};
    const schema = reference && { ...behaviourIn(reference), ...otherColumn };
    const meta = metaOf(relation.meta, RELATION_META);
    if (meta === null && !schema) return [];
    return [{ collection, field: name, related_collection: one, meta, schema: schema ?? null }];
  });
}

function isEnforced(collection: string, name: string, { constraints }: Details): boolean {
  return !constraints.some((each) => each.collection === collection && each.name === name);
}

function functionOf({ name, schema, function: called, arguments: names, note }: MetadataRow): DeclaredFunction {
  return {
    name: String(name),
    schema: typeof schema === 'string' ? schema : null,
    function: typeof called === 'string' ? called : null,
    arguments: Array.isArray(names) ? names.map(String) : null,
    note: typeof note === 'string' ? note : null,
  };
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
