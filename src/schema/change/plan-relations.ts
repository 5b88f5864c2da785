/** Creating, changing and deleting relations: the foreign key of a column and what the metadata adds to it. */
import { forbidden, invalidPayload } from '../../base/errors.js';
import { listOf } from '../../mirror/columns.js';
import { isPresentation } from '../../mirror/introspect.js';
import { singleKey } from '../../mirror/item-key.js';
import type { Meta } from '../../mirror/metadata.js';
import { behaviourIn, type Collection, type Column, type ForeignKeyBehaviour, type Model } from '../../mirror/model.js';
import type { DdlStatement, Definition } from './ddl-statement.js';
import { type ForeignKeyOptions, type NewRelation, type RelationChange, readNewName } from './parse.js';
import { constraintName, isProtected } from './plan-names.js';

export function planCreateRelation(relation: NewRelation, model: Model): readonly DdlStatement[] {
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

export function planUpdateRelation(change: RelationChange, model: Model): readonly DdlStatement[] {
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

export function planDeleteRelation(collection: string, field: string, model: Model): readonly DdlStatement[] {
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
