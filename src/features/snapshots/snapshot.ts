/**
 * The model as a snapshot. Names of constraints and numbers of rows are left out: they differ between installations with
 * the same schema.
 */
import { packageVersion } from '../../base/package-files.js';
import type { Steps } from '../../base/time-slices.js';
import type { MetadataRow } from '../../compiler/model/catalog-document.js';
import { listOf } from '../../compiler/model/columns.js';
import {
  COLLECTION_META,
  FIELD_META,
  type Meta,
  type Properties,
  RELATION_META,
} from '../../compiler/model/metadata.js';
import { behaviourIn, type Collection, type Column, type Field } from '../../compiler/model/model.js';
import { complaintAbout } from '../../compiler/sql/vet.js';
import { systemTables } from '../../server/postgres/catalog/system-tables.js';
import { isProtected } from '../../server/schema/change/plan-names.js';
import { isJsonType, PLAIN_INDEX } from './apply-columns.js';
import {
  type CollectionEntry,
  type DeclaredFunction,
  type FieldEntry,
  type RelationEntry,
  SNAPSHOT_VERSION,
  type Snapshot,
  type SnapshotColumn,
  type SnapshotIndex,
  type SnapshotTable,
  VENDOR,
} from './parse-snapshot.js';
import { isTable, type SnapshotScope } from './snapshot-scope.js';

/** Contains the fields that users added to collections of the service. */
export function* snapshotOf(scope: SnapshotScope): Steps<Snapshot> {
  const { model, details } = scope;
  const tables = [...model.collections.values()].filter((each) => scope.isIncluded(each)).sort(byName);
  const fields: FieldEntry[] = [];
  const relations: RelationEntry[] = [];
  for (const collection of tables) {
    const owned = [...collection.fields.values()].filter(
      (field) => !isProtected(collection, field.name) && scope.isPortable(field),
    );
    fields.push(...fieldsOf(collection.name, owned, scope));
    relations.push(...relationsOf(owned, scope));
    yield;
  }
  return {
    version: SNAPSHOT_VERSION,
    lateral: packageVersion,
    vendor: VENDOR,
    collections: yield* collectionsOf(tables, scope),
    fields,
    relations,
    functions: details.functions.map(functionOf).sort(byName),
  };
}

/** A thing that a snapshot cannot hold: a collection or a field, and what is left out of it. */
export interface Omission {
  readonly name: string;
  readonly reason: string;
}

/** `objects`: the omissions of sql/features/snapshots/objects.sql. */
export function omittedFromSnapshot(scope: SnapshotScope, objects: readonly Omission[]): Omission[] {
  const { model } = scope;
  const own = [...model.collections.values()].filter(({ system }) => !system);
  const included = own.filter((each) => scope.isIncluded(each));
  const excluded = own.filter((each) => isTable(each) && !scope.isIncluded(each));
  return [
    ...excluded.map(({ name }) => ({
      name,
      reason: 'it, or its key, has a name, a type or columns that cannot be created in another database',
    })),
    ...included.flatMap(({ fields }) => [...fields.values()].flatMap((field) => omittedOf(field, scope))),
    ...included.flatMap(({ name, kind }) =>
      kind === 'partitioned' ? [{ name, reason: 'its partitions; in another database it becomes one table' }] : [],
    ),
    ...own.flatMap(({ name, kind, meta }) =>
      kind === 'view' && meta ? [{ name, reason: 'the metadata of the view' }] : [],
    ),
    ...own.flatMap(({ name, kind }) =>
      isTable({ kind }) || kind === 'view' ? [] : [{ name, reason: 'is a foreign table' }],
    ),
    ...objects,
  ];
}

/** The parts of a field that a snapshot leaves out because they could not be applied. */
function omittedOf(field: Field, scope: SnapshotScope): Omission[] {
  const { collection, column } = field;
  const name = `${collection}.${field.name}`;
  if (scope.isVirtual(collection, field.name)) return [{ name, reason: 'is a virtual generated column' }];
  if (!scope.isPortable(field))
    return [{ name, reason: 'has a name or a type that cannot be created in another database' }];
  if (column?.has_auto_increment && column.is_nullable)
    return [{ name, reason: 'may be null although a sequence fills it; in another database it is NOT NULL' }];
  return !column && listOf(field.meta?.['special']).includes('computed')
    ? [{ name, reason: 'the function that it is computed by; create it there by SQL' }]
    : [];
}

/** A generated column may name others that go along, and are not generated themselves. */
function isIncludedExpression(text: string, siblings: readonly Field[], scope: SnapshotScope): boolean {
  const plain = siblings.filter((field) => field.column && !field.column.is_generated && scope.isPortable(field));
  return (
    complaintAbout(
      text,
      plain.map(({ name }) => name),
    ) === null
  );
}

function* collectionsOf(tables: readonly Collection[], scope: SnapshotScope): Steps<CollectionEntry[]> {
  const { model } = scope;
  const entries: CollectionEntry[] = [];
  for (const { name, schema, table, meta, comment, system, fields } of tables) {
    if (system) continue;
    entries.push({
      collection: name,
      meta: metaOf(meta, COLLECTION_META),
      schema: {
        ...(schema === model.schema ? {} : { schema }),
        ...(schema === model.schema && typeof meta?.['table'] !== 'string' ? {} : { name: table }),
        comment,
        ...keyOf(name, scope),
        indexes: indexesOf({ name, fields }, scope),
        ...foreignKeysOf(name, scope),
      },
    });
    yield;
  }
  const folders = [...model.folders].map(([name, meta]) => ({
    collection: name,
    meta: metaOf(meta, COLLECTION_META),
    schema: null,
  }));
  const all = [...entries, ...folders.filter(({ collection }) => !systemTables().has(collection))];
  const groups = new Set(all.flatMap(({ collection, meta }) => (meta ? [collection] : [])));
  // A group that does not go along is none.
  const grouped = (meta: Meta | null): Meta | null =>
    meta && (groups.has(String(meta['group'])) ? meta : { ...meta, group: null });
  return all
    .map((entry) => ({ ...entry, meta: grouped(entry.meta) }))
    .sort((left, right) => compare(left.collection, right.collection));
}

/** Identified by its field if it is one. */
function keyOf(collection: string, scope: SnapshotScope): Pick<SnapshotTable, 'primary_key'> {
  const names = scope.primaryKeyOf(collection);
  return names.length === 1 ? {} : { primary_key: names };
}

/** Two that say the same are one. */
function foreignKeysOf(collection: string, scope: SnapshotScope): Pick<SnapshotTable, 'foreign_keys'> {
  const keys = scope
    .foreignKeysOf(collection)
    .filter((key) => scope.isIncludedKey(key))
    .map(({ collection: _, name: __, some: ___, ...key }) => key);
  return keys.length === 0 ? {} : { foreign_keys: distinct(keys) };
}

function distinct<Entry>(entries: readonly Entry[]): Entry[] {
  return [...new Map(entries.map((entry) => [JSON.stringify(entry), entry])).values()];
}

function fieldsOf(collection: string, fields: readonly Field[], scope: SnapshotScope): FieldEntry[] {
  const columns = fields.filter(({ column }) => column !== null);
  // An alias without a row of its own is only the other side of a relation.
  const aliases = fields.filter(({ column, meta }) => column === null && meta !== null).sort(byName);
  const key = scope.primaryKeyOf(collection);
  return [...columns, ...aliases].map(({ name, type, meta, column }) => ({
    collection,
    field: name,
    type,
    meta: metaOf(meta, FIELD_META),
    schema:
      column &&
      columnOf(column, fields, scope, {
        data_type: scope.typeOf(collection, column),
        is_primary_key: key.includes(name),
      }),
  }));
}

/** Two that say the same are one. */
function indexesOf(collection: Pick<Collection, 'name' | 'fields'>, scope: SnapshotScope): SnapshotIndex[] {
  return distinct(
    scope
      .indexesOf(collection.name)
      .filter(({ fields }) => scope.arePortable(collection, fields))
      .map(({ fields, unique }) => ({ fields, unique })),
  );
}

function columnOf(
  column: Column,
  siblings: readonly Field[],
  scope: SnapshotScope,
  { data_type, is_primary_key }: Pick<SnapshotColumn, 'data_type' | 'is_primary_key'>,
): SnapshotColumn {
  const isJson = /^jsonb?$/.test(column.base_type) && !column.is_array;
  // The null of JSON is a value, and a text under a domain's name would not be recognized as JSON: both are written as SQL.
  const isUnclear =
    isJson && (column.default_value === null || (typeof column.default_value === 'string' && !isJsonType(data_type)));
  const isExpression = isUnclear || column.default_value === column.default_expression;
  const own = !column.has_auto_increment && !scope.hasDomainDefault(column.table, column.name);
  const included = (text: string | null): string | null =>
    text !== null && isIncludedExpression(text, siblings, scope) ? text : null;
  return {
    data_type,
    enum_values: scope.valuesOf(data_type) ?? null,
    default_value: own && !isExpression ? column.default_value : null,
    default_expression: own && isExpression ? included(column.default_expression) : null,
    generation_expression: included(column.generation_expression),
    // A column that counts is made as one that identity fills, which is never null.
    is_nullable: !column.has_auto_increment && column.is_nullable,
    is_unique: column.is_unique,
    is_indexed: column.indexes.some(({ kind, method }) => kind === 'index' && method === PLAIN_INDEX),
    is_primary_key,
    has_auto_increment: column.has_auto_increment,
    comment: column.comment,
  };
}

function relationsOf(fields: readonly Field[], scope: SnapshotScope): RelationEntry[] {
  return fields.flatMap(({ collection, name, column, relation }): RelationEntry[] => {
    if (!relation || relation.kind === 'one-to-many' || relation.kind === 'one-to-one') return [];
    const one = relation.kind === 'many-to-one' ? relation.oneCollection : null;
    const target = one === null ? undefined : scope.model.collections.get(one);
    if (target && !scope.isIncluded(target)) return [];
    const reference = column?.foreign_keys.find(
      (each) => one !== null && each.collection === one && scope.isEnforced(collection, each.name),
    );
    const key = scope.primaryKeyOf(one ?? '');
    const otherColumn =
      reference && (key.length !== 1 || reference.column !== key[0]) ? { column: reference.column } : {};
    const schema = reference && { ...behaviourIn(reference), ...otherColumn };
    const meta = metaOf(relation.meta, RELATION_META);
    if (meta === null && !schema) return [];
    return [{ collection, field: name, related_collection: one, meta, schema: schema ?? null }];
  });
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
