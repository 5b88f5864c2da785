/** Creating, changing and deleting collections: the table with all its fields, and everything that is said about it. */
import { forbidden, forbiddenCollection, invalidPayload } from '../../base/errors.js';
import { isKey } from '../../mirror/item-key.js';
import type { Collection, Field, Model } from '../../mirror/model.js';
import type { Protected } from '../../postgres/catalog/system-tables.js';
import type { DdlStatement, QualifiedName } from './ddl-statement.js';
import type { CreateCollection, NewField } from './parse.js';
import type { Meta } from './parse-meta.js';
import { indexesAndComment } from './plan-columns.js';
import { defineColumn, deleteField, rowOf, saveField } from './plan-fields.js';
import { checkNewName, isProtected, namingMetaOf, qualifiedNameOf } from './plan-names.js';

export function planCreateCollection(
  { collection, meta, table }: CreateCollection,
  model: Model,
): readonly DdlStatement[] {
  checkNewName(collection);
  if (model.collections.has(collection) || model.refused.has(collection) || model.folders.has(collection))
    throw invalidPayload(`Collection "${collection}" already exists`);
  const steps: DdlStatement[] = [];
  // In the first schema a table has the name of its collection: what clients send back of another one does not count.
  const elsewhere = table?.schema !== undefined && table.schema !== model.schema;
  const qualifiedName = table && elsewhere ? qualifiedNameOf(collection, table, model) : null;
  const namingMeta = namingMetaOf(collection, qualifiedName, model);
  if (table) steps.push(...createTable(collection, qualifiedName, withKey(table.fields)));
  if (table?.comment) steps.push({ kind: 'comment-table', table: collection, comment: table.comment });
  if (meta || namingMeta) steps.push({ kind: 'save-collection', collection, values: { ...meta, ...namingMeta } });
  return steps;
}

export function planUpdateCollection(name: string, meta: Meta, model: Model): readonly DdlStatement[] {
  if (model.collections.get(name)?.system) throw forbidden('A collection of the service cannot be changed.');
  // A view that only lacks the name of its key is refused until that is set.
  if (!model.collections.has(name) && !model.folders.has(name) && !model.refused.has(name))
    throw forbiddenCollection(name);
  return [{ kind: 'save-collection', collection: name, values: meta }];
}

export function planDeleteCollection(name: string, model: Model, protectedTables: Protected): readonly DdlStatement[] {
  if (model.folders.has(name)) return [{ kind: 'forget-collection', collection: name }];
  const collection = model.collections.get(name);
  if (!collection) throw forbiddenCollection(name);
  if (collection.system) throw forbidden('A collection of the service cannot be deleted.');
  const steps: DdlStatement[] = [];
  for (const { owner, field } of referrers(collection, model)) {
    if (isProtected(owner, field.name, protectedTables)) throw forbidden(`A field of "${owner.name}" refers to it.`);
    if (isKey(owner, field))
      throw invalidPayload(`The primary key of "${owner.name}" refers to it: delete that collection first`);
    steps.push(...deleteField(owner, field));
  }
  steps.push({ kind: 'drop-table', table: name, view: collection.kind === 'view' });
  steps.push({ kind: 'forget-collection', collection: name });
  return steps;
}

const DEFAULT_KEY: NewField = Object.freeze({
  field: 'id',
  type: 'integer',
  meta: Object.freeze({ interface: 'input', readonly: true, hidden: true }),
  schema: Object.freeze({ is_primary_key: true, has_auto_increment: true }),
});

/** A column that increments by itself is the key where none is named; without one an `id` is put in front. */
function withKey(fields: readonly NewField[]): readonly NewField[] {
  const keys = fields.filter(({ schema }) => schema.is_primary_key);
  if (keys.some(({ type }) => type === 'alias')) throw invalidPayload('An alias field cannot be the primary key');
  if (keys.length > 0) return fields;
  const counter = fields.find(({ schema }) => schema.has_auto_increment);
  if (!counter) return [DEFAULT_KEY, ...fields];
  return fields.map((field) =>
    field === counter ? { ...field, schema: { ...field.schema, is_primary_key: true } } : field,
  );
}

function createTable(table: string, qualifiedName: QualifiedName | null, fields: readonly NewField[]): DdlStatement[] {
  const names = new Set<string>();
  for (const { field } of fields) {
    checkNewName(field);
    if (names.has(field)) throw invalidPayload(`The field "${field}" is named twice`);
    names.add(field);
  }
  const real = fields.filter(({ type }) => type !== 'alias');
  const plain = real.filter(({ schema }) => !schema.generation_expression).map(({ field }) => field);
  const columns = real.map((field) => defineColumn(field, plain));
  const key = columns.flatMap(({ name, primaryKey }) => (primaryKey ? [name] : []));
  const isSeveral = key.length > 1;
  return [
    {
      kind: 'create-table',
      table,
      qualifiedName: qualifiedName,
      columns: isSeveral ? columns.map((column) => ({ ...column, primaryKey: false })) : columns,
      key: isSeveral ? key : [],
    },
    ...real.flatMap(({ field, schema }) => indexesAndComment(table, field, schema, isSeveral)),
    ...rows(table, fields),
  ];
}

/** In the order of the body, each group counted by itself. */
function rows(table: string, fields: readonly NewField[]): DdlStatement[] {
  const positions = new Map<unknown, number>();
  return fields.flatMap((field) => {
    const values = rowOf(field);
    const group = values?.['group'] ?? null;
    const sort = (positions.get(group) ?? 0) + 1;
    positions.set(group, sort);
    return values ? [saveField(table, field.field, { sort, ...values })] : [];
  });
}

interface Referrer {
  readonly owner: Collection;
  readonly field: Field;
}

/** The fields of other collections that lead here, over a relation or a foreign key, and the lists that showed this one's items. */
function referrers(collection: Collection, model: Model): readonly Referrer[] {
  const references: Referrer[] = [];
  for (const owner of model.collections.values()) {
    if (owner === collection) continue;
    for (const field of owner.fields.values()) {
      if (leadsTo(field, collection)) references.push({ owner: owner, field });
    }
  }
  return references;
}

function leadsTo({ relation, column }: Field, { name }: Collection): boolean {
  if (relation?.kind === 'many-to-one' && relation.oneCollection === name) return true;
  const isOtherSide = relation?.kind === 'one-to-many' || relation?.kind === 'one-to-one';
  if (isOtherSide && relation.manyCollection === name) return true;
  return column?.foreign_keys.some((key) => key.collection === name) ?? false;
}
