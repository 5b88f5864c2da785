/** Creating, changing and deleting fields: the column's definition and the metadata row. */
import { forbidden, invalidPayload } from '../../base/errors.js';
import { listOf } from '../../mirror/columns.js';
import { isPresentation } from '../../mirror/introspect.js';
import { isKey } from '../../mirror/item-key.js';
import { type Collection, declaredType, type Field, type Model } from '../../mirror/model.js';
import type { Protected } from '../../postgres/catalog/system-tables.js';
import type { ColumnDefinition, DdlStatement } from './ddl-statement.js';
import type { ColumnOptions, FieldChange, NewField } from './parse.js';
import type { Meta } from './parse-meta.js';
import { changeColumn, indexesAndComment } from './plan-columns.js';
import { checkGenerated, planDefault } from './plan-defaults.js';
import { checkNewName, isProtected, requireCollection, requireField } from './plan-names.js';
import { newColumnType, specialForType } from './plan-types.js';

export function planCreateField(collectionName: string, definition: NewField, model: Model): readonly DdlStatement[] {
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
export function defineColumn(definition: NewField, columns: readonly string[]): ColumnDefinition {
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
  const others = columns.filter((column) => column !== name);
  checkGenerated(name, text, others);
  return { text, columns: others };
}

function hasDefault(schema: ColumnOptions): boolean {
  return schema.default_value !== undefined && schema.default_value !== null;
}

export function planUpdateField(
  collectionName: string,
  change: FieldChange,
  model: Model,
  protectedTables: Protected,
): readonly DdlStatement[] {
  const collection = requireCollection(model, collectionName);
  const field = requireField(collection, change.field);
  if (isProtected(collection, field.name, protectedTables)) return changeProtected(collection, field, change);
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

export function planDeleteField(
  collectionName: string,
  fieldName: string,
  model: Model,
  protectedTables: Protected,
): readonly DdlStatement[] {
  const collection = requireCollection(model, collectionName);
  const field = requireField(collection, fieldName);
  if (isProtected(collection, field.name, protectedTables))
    throw forbidden('A field of the service cannot be deleted.');
  if (isKey(collection, field))
    throw invalidPayload(
      `The field "${field.name}" is the primary key of "${collection.name}": delete the collection instead`,
    );
  return deleteField(collection, field);
}

/** Also for fields that leave with the collection they refer to. */
export function deleteField(collection: Collection, field: Field): readonly DdlStatement[] {
  const steps: DdlStatement[] = [];
  if (field.column) {
    checkTable(collection);
    steps.push({ kind: 'drop-column', table: collection.name, column: field.name });
  }
  steps.push({ kind: 'forget-field', collection: collection.name, field: field.name });
  return steps;
}

/** The metadata row of a new field; null where there is nothing to say. */
export function rowOf({ type, meta }: NewField): Meta | null {
  checkFlags(meta);
  const requestedSpecial = typeof meta?.['special'] === 'string' ? meta['special'] : null;
  const special = specialForType(type, requestedSpecial ?? '');
  if (meta === null && special === null && type !== 'alias') return null;
  return { ...meta, special };
}

/** Flags unknown to us are hints for a form; one that promises what nobody keeps is worse than none. */
function checkFlags(meta: Meta | null): void {
  if (listOf(meta?.['special']).includes('encrypt'))
    throw invalidPayload(
      '"meta.special" cannot contain "encrypt", because values are not encrypted: use "hash" or "conceal"',
    );
}

export function saveField(collection: string, field: string, values: Meta): DdlStatement {
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
