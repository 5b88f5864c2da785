/**
 * An operation on the schema × the model → the steps that carry it out: for collections, then fields, then relations.
 * Pure: the model is the one the steps will meet.
 */
import { assertNever } from '../../../base/assert-never.js';
import { forbidden, forbiddenCollection, invalidPayload } from '../../../base/errors.js';
import { listOf } from '../../../compiler/model/columns.js';
import { isPresentation } from '../../../compiler/model/introspect.js';
import { isKey, singleKey } from '../../../compiler/model/item-key.js';
import type { Meta } from '../../../compiler/model/metadata.js';
import {
  behaviourIn,
  type Collection,
  type Column,
  declaredType,
  type Field,
  type ForeignKeyBehaviour,
  type Model,
} from '../../../compiler/model/model.js';
import { constraintName } from '../../../compiler/sql/constraint-name.js';
import type { ColumnDefinition, DdlStatement, Definition, QualifiedName } from './ddl-statement.js';
import {
  type ColumnOptions,
  type CreateCollection,
  type FieldChange,
  type ForeignKeyOptions,
  type NewField,
  type NewRelation,
  type Operation,
  type RelationChange,
  readNewName,
} from './parse.js';
import { changeColumn, indexesAndComment } from './plan-columns.js';
import { planDefault, planGeneration } from './plan-defaults.js';
import {
  checkNewName,
  isProtected,
  namingMetaOf,
  qualifiedNameOf,
  requireCollection,
  requireField,
} from './plan-names.js';
import { newColumnType, specialForType } from './plan-types.js';

export function planSchemaOperation(operation: Operation, model: Model): readonly DdlStatement[] {
  switch (operation.kind) {
    case 'create-collection':
      return planCreateCollection(operation, model);
    case 'update-collection':
      return planUpdateCollection(operation.collection, operation.meta, model);
    case 'delete-collection':
      return planDeleteCollection(operation.collection, model);
    case 'create-field':
      return planCreateField(operation.collection, operation.definition, model);
    case 'update-field':
      return planUpdateField(operation.collection, operation.definition, model);
    case 'delete-field':
      return planDeleteField(operation.collection, operation.field, model);
    case 'create-relation':
      return planCreateRelation(operation, model);
    case 'update-relation':
      return planUpdateRelation(operation, model);
    case 'delete-relation':
      return planDeleteRelation(operation.collection, operation.field, model);
    default:
      return assertNever(operation);
  }
}

function planCreateCollection({ collection, meta, table }: CreateCollection, model: Model): readonly DdlStatement[] {
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

function planUpdateCollection(name: string, meta: Meta, model: Model): readonly DdlStatement[] {
  if (model.collections.get(name)?.system) throw forbidden('A collection of the service cannot be changed.');
  // A view that only lacks the name of its key is refused until that is set.
  if (!model.collections.has(name) && !model.folders.has(name) && !model.refused.has(name))
    throw forbiddenCollection(name);
  return [{ kind: 'save-collection', collection: name, values: meta }];
}

function planDeleteCollection(name: string, model: Model): readonly DdlStatement[] {
  if (model.folders.has(name)) return [{ kind: 'forget-collection', collection: name }];
  const collection = model.collections.get(name);
  if (!collection) throw forbiddenCollection(name);
  if (collection.system) throw forbidden('A collection of the service cannot be deleted.');
  const steps: DdlStatement[] = [];
  for (const { owner, field } of referrers(collection, model)) {
    if (isProtected(owner, field.name)) throw forbidden(`A field of "${owner.name}" refers to it.`);
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

function planCreateField(collectionName: string, definition: NewField, model: Model): readonly DdlStatement[] {
  const collection = requireCollection(model, collectionName);
  const { field } = definition;
  checkNewName(field);
  const existing = collection.fields.get(field);
  if (existing && !awaits(existing, definition))
    throw invalidPayload(`Field "${field}" already exists in collection "${collection.name}"`);
  const steps: DdlStatement[] = [];
  if (definition.type !== 'alias') {
    checkTable(collection);
    if (definition.schema.is_primary_key && collection.key.length > 0)
      throw invalidPayload(
        `The collection "${collection.name}" already has a key: a composite key must be defined when the collection is created`,
      );
    const column = defineColumn(
      definition,
      [...collection.fields.values()].flatMap(({ column }) => column?.name ?? []),
    );
    steps.push(
      { kind: 'add-column', table: collection.name, column },
      ...indexesAndComment(collection.name, field, definition.schema, false),
    );
  }
  const values = rowOf(definition);
  if (values) steps.push(saveField(collection.name, field, { sort: nextSort(collection, values), ...values }));
  return steps;
}

/** A list that a relation has named (`one_field`) is there before its metadata row is. */
function awaits({ column, meta }: Field, definition: NewField): boolean {
  const isList = definition.type === 'alias' && !isPresentation(listOf(definition.meta?.['special']));
  return column === null && meta === null && isList;
}

/** `columns` may be named by a generated one. */
function defineColumn(definition: NewField, columns: readonly string[]): ColumnDefinition {
  const { field: name, schema } = definition;
  const type = newColumnType(definition.type, schema, name);
  const autoIncrement = schema.has_auto_increment === true;
  const primaryKey = schema.is_primary_key === true;
  if (autoIncrement && type.type !== 'integer' && type.type !== 'bigInteger')
    throw invalidPayload(`The field "${name}" must be an integer or a bigInteger to auto-increment`);
  if (primaryKey && schema.is_nullable === true && !autoIncrement)
    throw invalidPayload(`The primary key "${name}" cannot be nullable`);
  const generated = generationOf(name, schema, columns);
  if (generated && (autoIncrement || primaryKey || hasDefault(schema)))
    throw invalidPayload(`The generated field "${name}" takes no default and is no key`);
  return {
    name,
    type,
    autoIncrement,
    primaryKey,
    nullable: primaryKey || autoIncrement ? false : (schema.is_nullable ?? true),
    initial: autoIncrement ? null : planDefault(name, type, schema.default_value),
    generated,
  };
}

function generationOf(name: string, schema: ColumnOptions, columns: readonly string[]): ColumnDefinition['generated'] {
  const text = schema.generation_expression ?? null;
  if (text === null || schema.is_generated === false) {
    if (schema.is_generated) throw invalidPayload(`The generated field "${name}" needs a "generation_expression"`);
    return null;
  }
  return planGeneration(name, text, columns);
}

function hasDefault(schema: ColumnOptions): boolean {
  return schema.default_value !== undefined && schema.default_value !== null;
}

function planUpdateField(collectionName: string, change: FieldChange, model: Model): readonly DdlStatement[] {
  const collection = requireCollection(model, collectionName);
  const field = requireField(collection, change.field);
  if (isProtected(collection, field.name)) return changeProtected(collection, field, change);
  checkFlags(change.meta);
  const type = change.type ?? declaredType(field);
  if ((type === 'alias') !== (field.type === 'alias')) throw invalidPayload('Alias type cannot be changed');
  const steps: DdlStatement[] = [];
  if (field.column) {
    const definitions = changeColumn(collection, field, field.column, change);
    if (definitions.length > 0) checkTable(collection);
    steps.push(...definitions);
  }
  const special =
    type === declaredType(field)
      ? {}
      : { special: specialForType(type, change.meta?.['special'] ?? field.special.join(',')) };
  const values = { ...change.meta, ...special };
  const changed = change.meta !== null || (special.special ?? null) !== (field.special.join(',') || null);
  if (Object.keys(values).length > 0 && changed) steps.push(saveField(collection.name, field.name, values));
  return steps;
}

/** Only the index of a system field can be changed. */
function changeProtected(collection: Collection, field: Field, change: FieldChange): readonly DdlStatement[] {
  const { is_indexed, ...others } = change.schema;
  const otherChanges =
    Object.keys(others).length + (change.type === null ? 0 : 1) + Object.keys(change.meta ?? {}).length;
  if (otherChanges > 0 || is_indexed === undefined || !field.column)
    throw invalidPayload(`Only "schema.is_indexed" of the system field "${field.name}" can be changed`);
  return changeColumn(collection, field, field.column, { ...change, schema: { is_indexed } });
}

function planDeleteField(collectionName: string, fieldName: string, model: Model): readonly DdlStatement[] {
  const collection = requireCollection(model, collectionName);
  const field = requireField(collection, fieldName);
  if (isProtected(collection, field.name)) throw forbidden('A field of the service cannot be deleted.');
  if (isKey(collection, field))
    throw invalidPayload(
      `The field "${field.name}" is the primary key of "${collection.name}": delete the collection instead`,
    );
  return deleteField(collection, field);
}

/** Also for fields that leave with the collection they refer to. */
function deleteField(collection: Collection, field: Field): readonly DdlStatement[] {
  const steps: DdlStatement[] = [];
  if (field.column) {
    checkTable(collection);
    steps.push({ kind: 'drop-column', table: collection.name, column: field.name });
  }
  steps.push({ kind: 'forget-field', collection: collection.name, field: field.name });
  return steps;
}

/** The metadata row of a new field, or null if there is nothing to say. */
function rowOf({ type, meta }: NewField): Meta | null {
  checkFlags(meta);
  const requestedSpecial = typeof meta?.['special'] === 'string' ? meta['special'] : null;
  const special = specialForType(type, requestedSpecial ?? '');
  if (meta === null && special === null && type !== 'alias') return null;
  return { ...meta, special };
}

/** Unknown flags are hints for a form. "encrypt" is refused, because it would promise a protection that does not exist. */
function checkFlags(meta: Meta | null): void {
  if (listOf(meta?.['special']).includes('encrypt'))
    throw invalidPayload(
      '"meta.special" cannot contain "encrypt", because values are not encrypted: use "hash" or "conceal"',
    );
}

function saveField(collection: string, field: string, values: Meta): DdlStatement {
  return { kind: 'save-field', collection, field, values };
}

/** Behind the others of its group. */
function nextSort(collection: Collection, { group = null }: Meta): number {
  const sorts = [...collection.fields.values()]
    .filter(({ meta }) => meta !== null && (meta['group'] ?? null) === group)
    .map(({ meta }) => (typeof meta?.['sort'] === 'number' ? meta['sort'] : 0));
  return Math.max(0, ...sorts) + 1;
}

function checkTable(collection: Collection): void {
  if (collection.kind === 'view')
    throw invalidPayload(`"${collection.name}" is a view: its columns come from its query`);
}

function planCreateRelation(relation: NewRelation, model: Model): readonly DdlStatement[] {
  const owner = ownerOf(relation, model, relation.schema?.columns);
  const { many, field, columns } = owner;
  const [column] = columns;
  if (!owner.isAlias && singleKey(many)?.column === column)
    throw invalidPayload(`The field "${field}" is the primary key: it cannot be a relation`);
  if (rowsOf(relation, model).length > 0 || (!owner.isAlias && owner.keys.length > 0))
    throw invalidPayload(`Field "${field}" in collection "${many.name}" already has a relation`);
  const meta = relation.meta ?? {};
  const steps: DdlStatement[] = [];
  if (relation.related === null) {
    if (owner.isAlias) throw invalidPayload('A relation with several columns needs a "related_collection"');
    checkAny(meta, many, model);
  } else {
    const one = model.collections.get(relation.related);
    if (!one) throw invalidPayload(`Collection "${relation.related}" doesn't exist`);
    checkList(meta, one);
    // Columns may have their foreign key before a field stands for them.
    if (relation.schema !== null) steps.push(...changeForeignKey(owner, one, relation.schema ?? {}));
  }
  checkListName(meta);
  checkDetails(meta, many);
  if (owner.isAlias) {
    const options = { columns: columns.map(({ name }) => name) };
    const values = { special: 'm2o', interface: 'select-dropdown-m2o', options };
    steps.push({ kind: 'save-field', collection: many.name, field, values });
  }
  const place = { many_collection: many.name, many_field: field, one_collection: relation.related };
  steps.push({ kind: 'add-relation', values: { ...meta, ...place } });
  return steps;
}

function planUpdateRelation(change: RelationChange, model: Model): readonly DdlStatement[] {
  const rows = rowsOf(change, model);
  const owner = existingOwner(change, model, rows);
  const { many, field } = owner;
  const [row] = rows;
  const related = row ? (row['one_collection'] ?? null) : (owner.keys[0]?.collection ?? null);
  const one = typeof related === 'string' ? model.collections.get(related) : undefined;
  const steps: DdlStatement[] = [];
  if (change.schema) {
    if (!one) throw invalidPayload('A relation to several collections has no foreign key');
    const { columns: said = [] } = change.schema;
    if (said.length > 0 && !areSame(said, owner.columns))
      throw invalidPayload('"schema.columns" cannot be changed: delete the relation and create another one');
    steps.push(...changeForeignKey(owner, one, change.schema));
  }
  if (change.schema === null) steps.push(...owner.keys.map((key) => dropForeignKey(owner, key)));
  if (!change.meta) return steps;
  checkDetails(change.meta, many);
  // Clients send back whole objects: an unchanged name is not checked again.
  const renames = (change.meta['one_field'] ?? null) !== (row?.['one_field'] ?? null);
  if (renames) checkListName(change.meta);
  if (one && renames) checkList(change.meta, one);
  if (!one) checkAny({ ...row, ...change.meta }, many, model);
  if (row) steps.push({ kind: 'change-relation', collection: many.name, field, values: change.meta });
  else {
    const place = { many_collection: many.name, many_field: field, one_collection: related };
    steps.push({ kind: 'add-relation', values: { ...change.meta, ...place } });
  }
  return steps;
}

function planDeleteRelation(collection: string, field: string, model: Model): readonly DdlStatement[] {
  const rows = rowsOf({ collection, field }, model);
  const steps: DdlStatement[] = [];
  if (rows.length > 0 && !model.collections.get(collection)?.fields.has(field))
    return [{ kind: 'forget-relation', collection, field }];
  const owner = existingOwner({ collection, field }, model, rows);
  steps.push(...owner.keys.map((key) => dropForeignKey(owner, key)));
  if (rows.length > 0) steps.push({ kind: 'forget-relation', collection, field });
  if (owner.isAlias) steps.push({ kind: 'drop-field-row', collection, field });
  return steps;
}

type RelationEnd = Pick<RelationChange, 'collection' | 'field'>;

/** The field of a relation, and what holds the reference: its own column, or several that an alias field stands for. */
interface RelationOwner {
  readonly many: Collection;
  readonly field: string;
  readonly isAlias: boolean;
  readonly columns: readonly Column[];
  readonly keys: readonly Reference[];
}

/** A foreign key over the columns: those that they refer to, in the same order. */
interface Reference extends ForeignKeyBehaviour {
  readonly name: string;
  readonly collection: string | null;
  readonly referenced: readonly string[];
}

function rowsOf({ collection, field }: RelationEnd, model: Model): readonly Meta[] {
  return model.relationRows.filter((row) => row['many_collection'] === collection && row['many_field'] === field);
}

function ownerOf({ collection, field }: RelationEnd, model: Model, named: readonly string[] = []): RelationOwner {
  const many = model.collections.get(collection);
  if (!many) throw invalidPayload(`Collection "${collection}" doesn't exist`);
  if (isProtected(many, field)) throw forbidden('A relation of the service cannot be changed.');
  const known = many.fields.get(field);
  const referenceColumns =
    known?.relation?.kind === 'many-to-one' ? known.relation.columns.map(({ column }) => column) : named;
  if (known?.column) {
    if (named.length > 0)
      throw invalidPayload(`"${field}" is a column: with "schema.columns" the field must be a new alias field`);
    const keys = known.column.foreign_keys.map(({ column, ...key }) => ({ ...key, referenced: [column] }));
    return { many, field, isAlias: false, columns: [known.column], keys };
  }
  if (referenceColumns.length === 0)
    throw invalidPayload(`Field "${field}" doesn't exist in collection "${collection}"`);
  if (!known) readNewName(field, 'field');
  if (known && known.relation?.kind !== 'many-to-one' && (known.relation || isPresentation(known.special)))
    throw invalidPayload(`Field "${field}" already exists in collection "${collection}"`);
  const columns = referenceColumns.map((name) => {
    const column = many.fields.get(name)?.computed ? null : many.fields.get(name)?.column;
    if (!column) throw invalidPayload(`"schema.columns": "${collection}" has no column "${name}"`);
    return column;
  });
  const keys = many.references
    .filter(({ columns: pairs }) =>
      areSame(
        pairs.map(({ column }) => column),
        columns,
      ),
    )
    .map(({ columns: pairs, ...key }) => ({
      ...key,
      referenced: columns.map(({ name }) => pairs.find(({ column }) => column === name)?.referenced ?? ''),
    }));
  return { many, field, isAlias: true, columns, keys };
}

function areSame(names: readonly string[], columns: readonly Column[]): boolean {
  return names.length === columns.length && columns.every(({ name }) => names.includes(name));
}

function existingOwner(place: RelationEnd, model: Model, rows: readonly Meta[]): RelationOwner {
  const field = model.collections.get(place.collection)?.fields.get(place.field);
  const isHeld = field?.relation?.kind === 'many-to-one' || (field?.column && rows.length > 0);
  if (!isHeld && !field?.column?.foreign_keys.length) throw forbidden();
  return ownerOf(place, model);
}

type AddForeignKey = Extract<Definition, { kind: 'add-foreign-key' }>;

function addForeignKey({ many, columns }: RelationOwner, one: Collection, options: ForeignKeyOptions): AddForeignKey {
  const names = columns.map(({ name }) => name);
  const key = options.foreign_key_columns ?? one.key.map(({ name }) => name);
  if (key.length !== names.length)
    throw invalidPayload(
      names.length === 1
        ? `"${one.name}" has no single-column key that "${names.join()}" can reference`
        : `"${one.name}" has no key of ${names.length} columns: name the referenced columns in "schema.foreign_key_columns"`,
    );
  const unknown = key.find((name) => !one.fields.get(name)?.column);
  if (unknown !== undefined)
    throw invalidPayload(`"schema.foreign_key_columns": "${one.name}" has no column "${unknown}"`);
  const { on_delete = 'NO ACTION', on_update = 'NO ACTION' } = options;
  return {
    kind: 'add-foreign-key',
    table: many.name,
    columns: names,
    name: constraintName(many.name, names.join('_'), 'foreign'),
    target: one.name,
    key,
    behaviour: behaviourIn({ ...options, on_delete, on_update }),
  };
}

function dropForeignKey({ many }: RelationOwner, { name }: Reference): Definition {
  return { kind: 'drop-constraint', table: many.name, name };
}

/** A constraint cannot change what it does: it is recreated under its name. */
function changeForeignKey(owner: RelationOwner, one: Collection, options: ForeignKeyOptions): Definition[] {
  const key = owner.keys.find(({ collection }) => collection === one.name);
  if (!key) return [addForeignKey(owner, one, options)];
  const behaviour = behaviourIn({ ...key, ...options });
  if (JSON.stringify(behaviour) === JSON.stringify(behaviourIn(key))) return [];
  const added = addForeignKey(owner, one, { ...behaviour, foreign_key_columns: key.referenced });
  return [dropForeignKey(owner, key), { ...added, name: key.name }];
}

/** The name of the list on the other side is one of a new field. */
function checkListName({ one_field: name }: Meta): void {
  if (typeof name === 'string') readNewName(name, 'field');
}

/** An alias field may wait for its relation; a column, a list of another relation or a part of a form is something else. */
function checkList({ one_field: name }: Meta, one: Collection): void {
  const field = typeof name === 'string' ? one.fields.get(name) : undefined;
  if (field && (field.column || field.relation || isPresentation(field.special)))
    throw invalidPayload(`Field "${field.name}" already exists in collection "${one.name}"`);
}

/**
 * The columns of a junction may be made one by one, each with its relation: `junction_field` may name one that comes later, and leads
 * on once it is there.
 */
function checkDetails(meta: Meta, many: Collection): void {
  const { junction_field: junction } = meta;
  if (typeof junction === 'string' && !many.fields.has(junction)) readNewName(junction, 'field');
  for (const property of ['sort_field', 'one_collection_field']) {
    const name = meta[property];
    if (typeof name === 'string' && !many.fields.get(name)?.column)
      throw invalidPayload(`"meta.${property}" is not a field of "${many.name}"`);
  }
}

function checkAny(meta: Meta, many: Collection, model: Model): void {
  if (typeof meta['one_collection_field'] !== 'string')
    throw invalidPayload(
      'A relation needs a "related_collection", or "meta.one_collection_field" for several collections',
    );
  const allowed = listOf(meta['one_allowed_collections']);
  if (allowed.length === 0) throw invalidPayload('"meta.one_allowed_collections" must name the collections');
  const unknown = allowed.find((name) => !model.collections.has(name));
  if (unknown !== undefined) throw invalidPayload(`Collection "${unknown}" doesn't exist`);
  checkDetails(meta, many);
}
