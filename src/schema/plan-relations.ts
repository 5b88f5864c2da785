/** Creating, changing and deleting relations: the foreign key of a column and what the metadata adds to it. */
import { forbidden, invalidPayload } from '../errors.js';
import { listOf } from '../mirror/columns.js';
import { isPresentation } from '../mirror/introspect.js';
import { singleKey } from '../mirror/item-key.js';
import type { Collection, Column, ForeignKey, Model } from '../mirror/model.js';
import type { Protected } from '../postgres/system-tables.js';
import type { DdlStatement, Definition } from './ddl-statement.js';
import { type ForeignKeyOptions, type NewRelation, type RelationChange, readNewName } from './parse.js';
import type { Meta } from './parse-meta.js';
import { constraintName, isProtected } from './plan-names.js';

export function planCreateRelation(
  relation: NewRelation,
  model: Model,
  protectedTables: Protected,
): readonly DdlStatement[] {
  const { many, column } = ownerOf(relation, model, protectedTables);
  if (singleKey(many)?.column === column)
    throw invalidPayload(`The field "${column.name}" is the primary key: it cannot be a relation`);
  if (rowsOf(relation, model).length > 0 || column.foreign_keys.length > 0)
    throw invalidPayload(`Field "${column.name}" in collection "${many.name}" already has a relation`);
  const meta = relation.meta ?? {};
  const steps: DdlStatement[] = [];
  if (relation.related === null) checkAny(meta, many, model);
  else {
    const one = model.collections.get(relation.related);
    if (!one) throw invalidPayload(`Collection "${relation.related}" doesn't exist`);
    checkList(meta, one);
    if (relation.schema !== null) steps.push(addForeignKey(column, one, relation.schema ?? {}));
  }
  checkListName(meta);
  checkDetails(meta, many);
  const ends = { many_collection: many.name, many_field: column.name, one_collection: relation.related };
  steps.push({ kind: 'add-relation', values: { ...meta, ...ends } });
  return steps;
}

export function planUpdateRelation(
  change: RelationChange,
  model: Model,
  protectedTables: Protected,
): readonly DdlStatement[] {
  const rows = rowsOf(change, model);
  const { many, column } = existingOwner(change, model, protectedTables, rows);
  const [row] = rows;
  const related = row ? (row['one_collection'] ?? null) : (column.foreign_keys[0]?.collection ?? null);
  const one = typeof related === 'string' ? model.collections.get(related) : undefined;
  const steps: DdlStatement[] = [];
  if (change.schema) {
    if (!one) throw invalidPayload('A relation to several collections has no foreign key');
    steps.push(...changeForeignKey(column, one, change.schema));
  }
  if (change.schema === null) steps.push(...column.foreign_keys.map((key) => dropForeignKey(column, key)));
  if (!change.meta) return steps;
  checkDetails(change.meta, many);
  // Clients send back whole objects: an unchanged name is not checked again.
  const renames = (change.meta['one_field'] ?? null) !== (row?.['one_field'] ?? null);
  if (renames) checkListName(change.meta);
  if (one && renames) checkList(change.meta, one);
  if (!one) checkAny({ ...row, ...change.meta }, many, model);
  if (row) steps.push({ kind: 'change-relation', collection: many.name, field: column.name, values: change.meta });
  else {
    const ends = { many_collection: many.name, many_field: column.name, one_collection: related };
    steps.push({ kind: 'add-relation', values: { ...change.meta, ...ends } });
  }
  return steps;
}

export function planDeleteRelation(
  collection: string,
  field: string,
  model: Model,
  protectedTables: Protected,
): readonly DdlStatement[] {
  const rows = rowsOf({ collection, field }, model);
  const steps: DdlStatement[] = [];
  if (rows.length > 0 && !model.collections.get(collection)?.fields.has(field))
    return [{ kind: 'forget-relation', collection, field }];
  const { column } = existingOwner({ collection, field }, model, protectedTables, rows);
  steps.push(...column.foreign_keys.map((key) => dropForeignKey(column, key)));
  if (rows.length > 0) steps.push({ kind: 'forget-relation', collection, field });
  return steps;
}

type RelationEnd = Pick<RelationChange, 'collection' | 'field'>;

interface RelationOwner {
  readonly many: Collection;
  readonly column: Column;
}

function rowsOf({ collection, field }: RelationEnd, model: Model): readonly Meta[] {
  return model.relationRows.filter((row) => row['many_collection'] === collection && row['many_field'] === field);
}

function ownerOf({ collection, field }: RelationEnd, model: Model, protectedTables: Protected): RelationOwner {
  const many = model.collections.get(collection);
  if (!many) throw invalidPayload(`Collection "${collection}" doesn't exist`);
  const column = many.fields.get(field)?.column;
  if (!column) throw invalidPayload(`Field "${field}" doesn't exist in collection "${collection}"`);
  if (isProtected(many, field, protectedTables)) throw forbidden('A relation of the service cannot be changed.');
  return { many, column };
}

function existingOwner(
  relation: RelationEnd,
  model: Model,
  protectedTables: Protected,
  rows: readonly Meta[],
): RelationOwner {
  const column = model.collections.get(relation.collection)?.fields.get(relation.field)?.column;
  if (!column || (rows.length === 0 && column.foreign_keys.length === 0)) throw forbidden();
  return ownerOf(relation, model, protectedTables);
}

type AddForeignKey = Extract<Definition, { kind: 'add-foreign-key' }>;

function addForeignKey({ table, name: column }: Column, one: Collection, options: ForeignKeyOptions): AddForeignKey {
  const key = singleKey(one);
  if (!key) throw invalidPayload(`"${one.name}" has no key of one column that "${column}" could refer to`);
  return {
    kind: 'add-foreign-key',
    table,
    columns: [column],
    name: constraintName(table, column, 'foreign'),
    target: one.name,
    key: [key.name],
    onDelete: options.on_delete ?? 'NO ACTION',
    onUpdate: options.on_update ?? 'NO ACTION',
  };
}

function dropForeignKey({ table }: Column, { name }: ForeignKey): Definition {
  return { kind: 'drop-constraint', table, name };
}

/** A constraint cannot change its actions: it is recreated under its name. */
function changeForeignKey(column: Column, one: Collection, options: ForeignKeyOptions): Definition[] {
  const key = column.foreign_keys.find(({ collection }) => collection === one.name);
  if (!key) return [addForeignKey(column, one, options)];
  const { on_delete = key.on_delete, on_update = key.on_update } = options;
  if (on_delete === key.on_delete && on_update === key.on_update) return [];
  const added = addForeignKey(column, one, { on_delete, on_update });
  return [dropForeignKey(column, key), { ...added, name: key.name, key: [key.column] }];
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
      throw invalidPayload(`"meta.${property}" names no field of "${many.name}"`);
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
