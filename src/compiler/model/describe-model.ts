/** The model in the words of the API: collections, fields and relations as clients read them. */

import { listOf } from './columns.js';
import { keyNames, showsKey } from './item-key.js';
import { defaultMeta, FIELD_META, RELATION_META } from './metadata.js';
import {
  behaviourIn,
  type Collection,
  type Column,
  declaredType,
  type Field,
  type ForeignKey,
  type Model,
  type RelationMeta,
  type TableKind,
} from './model.js';

export interface FieldObject {
  readonly collection: string;
  readonly field: string;
  readonly type: string;
  /** The column, or null if the field is an alias. */
  readonly schema: Readonly<Record<string, unknown>> | null;
  /** Null without a metadata row. */
  readonly meta: Readonly<Record<string, unknown>> | null;
}

export interface CollectionObject {
  readonly collection: string;
  readonly meta: Readonly<Record<string, unknown>> | null;
  /** The table, or null if the collection is a folder. */
  readonly schema: {
    readonly schema: string;
    readonly name: string;
    readonly kind: TableKind;
    readonly comment: string | null;
    /** The columns of the key in their order; null without one. */
    readonly primary_key: readonly string[] | null;
  } | null;
}

export interface RelationObject {
  readonly collection: string;
  readonly field: string;
  readonly related_collection: string | null;
  readonly schema: Readonly<Record<string, unknown>> | null;
  readonly meta: Readonly<Record<string, unknown>>;
}

/** In the order of the metadata's `sort`, those without one as they come. */
export function describeFields(collection: Collection): FieldObject[] {
  const key = keyNamesOf(collection);
  return [...collection.fields.values()].map((field) => describeField(field, key));
}

/** The columns of the key in their order, where all of them may be seen: an item is named by their values, joined by `~`. */
export function keyNamesOf(collection: Collection): readonly string[] | null {
  return showsKey(collection) ? keyNames(collection) : null;
}

export function describeField(field: Field, key: readonly string[] | null): FieldObject {
  const { collection, name, column, meta, computed } = field;
  return {
    collection,
    field: name,
    type: computed ? 'alias' : declaredType(field),
    schema: column && !computed ? describeColumn(column, key?.includes(name) ? key : null) : null,
    meta: meta && Object.fromEntries(FIELD_PROPERTIES.map((property) => [property, meta[property] ?? null])),
  };
}

export function describeCollections(model: Model): CollectionObject[] {
  const objects = [...model.collections.values()].map((collection) => describeCollection(model, collection.name));
  const folders = [...model.folders.keys()].map((name) => describeCollection(model, name));
  return [...objects, ...folders]
    .filter((object) => object !== null)
    .sort((one, other) => (one.collection < other.collection ? -1 : 1));
}

/** Null when there is none of that name. */
export function describeCollection(model: Model, name: string): CollectionObject | null {
  const collection = model.collections.get(name);
  const meta = collection ? collection.meta : model.folders.get(name);
  if (meta === undefined) return null;
  const schema = collection && {
    schema: collection.schema,
    name: collection.table,
    kind: collection.kind,
    comment: collection.comment,
    primary_key: keyNamesOf(collection),
  };
  return { collection: name, meta, schema: schema ?? null };
}

/** Relations of the metadata, and foreign keys between collections that have no row there. */
export function describeRelations(model: Model): RelationObject[] {
  const described = model.relationRows.map((row) => describeRow(model, row));
  const named = new Set(described.map(({ collection, field }) => JSON.stringify([collection, field])));
  for (const collection of model.collections.values()) {
    for (const { column } of collection.fields.values()) {
      const key = column?.foreign_keys[0];
      if (!column || !key || named.has(JSON.stringify([collection.name, column.name]))) continue;
      if (key.collection === null || !model.collections.has(key.collection)) continue;
      described.push({
        collection: collection.name,
        field: column.name,
        related_collection: key.collection,
        schema: describeForeignKey(column, key),
        meta: impliedMeta(collection.name, column.name, key.collection),
      });
    }
  }
  return described;
}

function describeRow(model: Model, row: RelationMeta): RelationObject {
  const collection = String(row['many_collection']);
  const field = String(row['many_field']);
  const related_collection = typeof row['one_collection'] === 'string' ? row['one_collection'] : null;
  const many = model.collections.get(collection);
  const column = many?.fields.get(field)?.column;
  const key = column?.foreign_keys.find((each) => each.collection === related_collection);
  const allowed = row['one_allowed_collections'];
  return {
    collection,
    field,
    related_collection,
    schema: column && key ? describeForeignKey(column, key) : describeComposite(model, many, field),
    meta: { ...row, one_allowed_collections: allowed === null ? null : listOf(allowed) },
  };
}

/** Describes a reference of several columns. */
function describeComposite(model: Model, many: Collection | undefined, field: string): RelationObject['schema'] {
  const relation = many?.fields.get(field)?.relation;
  if (!many || relation?.kind !== 'many-to-one' || relation.columns.length === 1) return null;
  const one = model.collections.get(relation.oneCollection);
  const key = many.references.find(
    ({ collection, columns }) =>
      collection === relation.oneCollection &&
      columns.length === relation.columns.length &&
      columns.every((pair) =>
        relation.columns.some((held) => held.column === pair.column && held.referenced === pair.referenced),
      ),
  );
  if (!one || !key) return null;
  return {
    table: many.name,
    columns: relation.columns.map(({ column }) => column),
    foreign_key_schema: one.schema,
    foreign_key_table: one.table,
    foreign_key_columns: relation.columns.map(({ referenced }) => referenced),
    constraint_name: key.name,
    ...behaviourIn(key),
  };
}

/** The metadata of a foreign key without a row: clients read the sides of every relation there. No row has an id of null. */
function impliedMeta(many: string, field: string, one: string): RelationObject['meta'] {
  return {
    id: null,
    many_collection: many,
    many_field: field,
    one_collection: one,
    ...defaultMeta(RELATION_META),
  };
}

function describeForeignKey(column: Column, key: ForeignKey): RelationObject['schema'] {
  return {
    table: column.table,
    column: column.name,
    foreign_key_schema: key.schema,
    foreign_key_table: key.table,
    foreign_key_column: key.column,
    constraint_name: key.name,
    ...behaviourIn(key),
  };
}

const FIELD_PROPERTIES = ['id', 'collection', 'field', ...FIELD_META.keys()];

/** Written out: objects of one kind are made and written as JSON in a third of the time, and a large schema has ten thousand. */
function describeColumn(column: Column, key: readonly string[] | null): Readonly<Record<string, unknown>> {
  return {
    name: column.name,
    table: column.table,
    data_type: column.data_type,
    default_value: column.default_value,
    max_length: column.max_length,
    numeric_precision: column.numeric_precision,
    numeric_scale: column.numeric_scale,
    is_generated: column.is_generated,
    generation_expression: column.generation_expression,
    is_nullable: column.is_nullable,
    is_unique: column.is_unique,
    is_indexed: column.is_indexed,
    is_primary_key: column.is_primary_key,
    primary_key: key,
    has_auto_increment: column.has_auto_increment,
    foreign_key_column: column.foreign_key_column,
    foreign_key_table: column.foreign_key_table,
    choices: column.choices,
    comment: column.comment,
  };
}
