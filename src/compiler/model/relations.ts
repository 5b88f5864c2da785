/**
 * Which fields lead to other collections. Foreign keys are relations by themselves; the rows of service_relations add
 * lists on the other side, order and junctions, and declare what the database does not know. A row that does not fit the
 * database is passed over: metadata must never keep the service from starting.
 */

import { elementAt } from '../../base/narrow.js';
import type { MetadataRow } from './catalog-document.js';
import { listOf, type TableFacts } from './columns.js';
import { areUnique } from './item-key.js';
import type { Column, ManyToAny, ManyToOne, OneToMany, OneToOne, Relation } from './model.js';

/** By collection, then by field. */
type RelationIndex = ReadonlyMap<string, ReadonlyMap<string, Relation>>;

interface RelationSource {
  /** Only collections that are served. */
  readonly tables: ReadonlyMap<string, TableFacts>;
  /** Frozen, oldest first. */
  readonly rows: readonly MetadataRow[];
  /** The columns that hold the reference of an alias field. */
  readonly columnsOf: (collection: string, field: string) => readonly string[];
  /** Alias fields that only lay out a form: they never become a list. */
  readonly isPresentation: (collection: string, field: string) => boolean;
  /** Alias fields that are declared to show one item, not a list. */
  readonly isSingle: (collection: string, field: string) => boolean;
}

export function relate(source: RelationSource): RelationIndex {
  const relations = new Map<string, Map<string, Relation>>();
  const attach = (collection: string, field: string, relation: Relation): void => {
    const fields = relations.get(collection) ?? new Map<string, Relation>();
    if (!fields.has(field)) fields.set(field, Object.freeze(relation));
    relations.set(collection, fields);
  };
  for (const row of source.rows) {
    const relation = manyToAny(row, source) ?? declaredManyToOne(row, source) ?? compositeManyToOne(row, source);
    if (!relation) continue;
    attach(relation.manyCollection, relation.manyField, relation);
    const otherSide = relation.kind === 'many-to-one' ? otherSideOf(relation, source) : null;
    if (otherSide) attach(otherSide.oneCollection, otherSide.oneField, otherSide);
  }
  for (const table of source.tables.values()) {
    for (const { column } of table.columns.values()) {
      const relation = column.foreign_keys[0] ? referencedManyToOne(column, source) : null;
      if (relation) attach(relation.manyCollection, relation.manyField, relation);
    }
  }
  return relations;
}

function manyToAny(row: MetadataRow, { tables }: RelationSource): ManyToAny | null {
  const many = tables.get(textOf(row['many_collection']) ?? '');
  const manyField = columnNameOf(many, row['many_field']);
  const collectionField = columnNameOf(many, row['one_collection_field']);
  if (!many || !manyField || !collectionField || textOf(row['one_collection'])) return null;
  // Items without a key cannot be referred to.
  const allowedCollections = listOf(row['one_allowed_collections']).filter((name) => tables.get(name)?.key.length);
  if (allowedCollections.length === 0) return null;
  return {
    kind: 'many-to-any',
    manyField,
    collectionField,
    allowedCollections: Object.freeze(allowedCollections),
    ...detailsOf(row, many),
  };
}

function declaredManyToOne(row: MetadataRow, { tables }: RelationSource): ManyToOne | null {
  const many = tables.get(textOf(row['many_collection']) ?? '');
  const one = tables.get(textOf(row['one_collection']) ?? '');
  const column = many?.columns.get(textOf(row['many_field']) ?? '')?.column;
  const key = one && column && referencedColumn(column, one);
  if (!many || !one || !column || !key || !areComparable(column, key)) return null;
  return manyToOne(column.name, one, [{ column: column.name, referenced: key.name }], detailsOf(row, many));
}

/** Over the columns that the alias field names: to those of a foreign key over the same ones, else to the key. */
function compositeManyToOne(row: MetadataRow, { tables, columnsOf }: RelationSource): ManyToOne | null {
  const many = tables.get(textOf(row['many_collection']) ?? '');
  const one = tables.get(textOf(row['one_collection']) ?? '');
  const manyField = textOf(row['many_field']);
  if (!many || !one || !manyField || isReserved(manyField) || many.columns.has(manyField)) return null;
  const names = columnsOf(many.name, manyField);
  const known = many.references.find(
    ({ collection, columns }) =>
      collection === one.name &&
      columns.length === names.length &&
      columns.every(({ column }) => names.includes(column)),
  );
  const implied = one.key.length === names.length ? one.key : [];
  const pairs =
    known?.columns ?? implied.map((referenced, position) => ({ column: names[position] ?? '', referenced }));
  const fits = pairs.every(({ column, referenced }) => {
    const [left, right] = [many.columns.get(column)?.column, one.columns.get(referenced)?.column];
    return left && right && areComparable(left, right);
  });
  if (!fits || pairs.length < 2) return null;
  // In the order of the key, so that the reference is shown as the key is.
  const order = ({ referenced }: { readonly referenced: string }): number => one.key.indexOf(referenced);
  const columns = [...pairs].sort((left, right) => order(left) - order(right));
  return manyToOne(manyField, one, columns, detailsOf(row, many));
}

/** The one that a foreign key names; where there is none, the key. */
function referencedColumn(column: Column, one: TableFacts): Column | undefined {
  const reference = column.foreign_keys.find(({ collection }) => collection === one.name);
  return reference ? one.columns.get(reference.column)?.column : keyOf(one);
}

function referencedManyToOne(column: Column, { tables }: RelationSource): ManyToOne | null {
  const [reference] = column.foreign_keys;
  const one = tables.get(reference?.collection ?? '');
  if (!one || !reference || !one.columns.has(reference.column)) return null;
  return manyToOne(column.name, one, [{ column: column.name, referenced: reference.column }], {
    manyCollection: column.table,
    oneField: null,
    junctionField: null,
    sortField: null,
    deselectAction: 'nullify',
    meta: null,
  });
}

/** `columns` hold the reference, and `field` shows it. */
function manyToOne(
  field: string,
  { name }: TableFacts,
  columns: ManyToOne['columns'],
  details: RelationDetails,
): ManyToOne {
  return {
    kind: 'many-to-one',
    manyField: field,
    oneCollection: name,
    referenced: columns[0]?.referenced ?? '',
    columns: Object.freeze(columns),
    ...details,
  };
}

/** A list; one item where that is declared and the database keeps to it: without the unique index there may be several. */
function otherSideOf(relation: ManyToOne, source: RelationSource): OneToMany | OneToOne | null {
  const { tables, isPresentation, isSingle } = source;
  const { manyCollection, manyField, oneCollection, oneField } = relation;
  if (!oneField || isReserved(oneField) || isPresentation(oneCollection, oneField)) return null;
  if (tables.get(oneCollection)?.columns.has(oneField)) return null;
  const many = tables.get(manyCollection);
  const names = relation.columns.map(({ column }) => column);
  const isUnique = many?.columns.get(manyField)?.column.is_unique ?? (many !== undefined && areUnique(many, names));
  const kind = isUnique && isSingle(oneCollection, oneField) ? 'one-to-one' : 'one-to-many';
  return { ...relation, kind, oneField };
}

/** Names that begin like this are those of our own in compiled statements. */
export function isReserved(name: string): boolean {
  return name.startsWith('%');
}

type RelationDetails = Omit<ManyToOne, 'kind' | 'manyField' | 'oneCollection' | 'referenced' | 'columns'>;

function detailsOf(row: MetadataRow, many: TableFacts): RelationDetails {
  return {
    manyCollection: many.name,
    oneField: textOf(row['one_field']),
    junctionField: columnNameOf(many, row['junction_field']),
    sortField: columnNameOf(many, row['sort_field']),
    deselectAction: row['one_deselect_action'] === 'delete' ? 'delete' : 'nullify',
    meta: row,
  };
}

function keyOf(table: TableFacts): Column | undefined {
  return table.key.length === 1 ? table.columns.get(elementAt(table.key, 0))?.column : undefined;
}

/** Whether PostgreSQL has an equality for them: a declared relation has no foreign key that would vouch for it. */
function areComparable(left: Column, right: Column): boolean {
  return comparisonClassOf(left) === comparisonClassOf(right);
}

const COMPARISON_CLASSES: Readonly<Record<string, string>> = {
  int2: 'number',
  int4: 'number',
  int8: 'number',
  numeric: 'number',
  float4: 'number',
  float8: 'number',
  varchar: 'text',
  bpchar: 'text',
  text: 'text',
  name: 'text',
};

function comparisonClassOf({ base_schema, base_type }: Column): string {
  const shared = base_schema === 'pg_catalog' ? COMPARISON_CLASSES[base_type] : undefined;
  return shared ?? `${base_schema}.${base_type}`;
}

function columnNameOf(table: TableFacts | undefined, name: unknown): string | null {
  return table?.columns.get(textOf(name) ?? '')?.column.name ?? null;
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}
