/**
 * Columns as a snapshot describes them: exactly, in PostgreSQL's own types. What makes one, and what turns the one that is
 * there into the one that is wanted.
 */
import { invalidPayload } from '../errors.js';
import type { Column } from '../mirror/model.js';
import { readTypeName, type TypeName } from '../sql/type-name.js';
import { complaintAbout } from '../sql/vet.js';
import type { ColumnDefinition, Definition, ExactType, Initial } from './ddl-statement.js';
import type { FieldEntry, SnapshotColumn } from './parse-snapshot.js';
import { dropIndexes, sequenceOf, stopIncrement } from './plan-columns.js';
import { checkGenerated } from './plan-defaults.js';
import { constraintName } from './plan-names.js';
import { conversionOf } from './plan-types.js';

export interface ColumnField extends FieldEntry {
  readonly schema: SnapshotColumn;
}

export function isColumn(field: FieldEntry): field is ColumnField {
  return field.schema !== null;
}

export function isJsonType(dataType: string): boolean {
  return /^jsonb?$/i.test(dataType);
}

/** `siblings`: the columns that a generated one may name; `key`: those of a primary key of several. */
export function defineExactly(
  { field, schema }: ColumnField,
  siblings: readonly string[],
  key: readonly string[] = [],
): ColumnDefinition {
  return {
    name: field,
    type: exactType(field, schema),
    autoIncrement: schema.has_auto_increment,
    primaryKey: schema.is_primary_key && key.length === 0,
    nullable: schema.is_nullable,
    initial: initialOf(field, schema),
    generated: generationOf(field, schema, siblings),
  };
}

/** The parts of a new column that its definition cannot hold. */
export function furnishExactly(
  { collection: table, field: column, schema }: ColumnField,
  key: readonly string[] = [],
): Definition[] {
  const place = { table, column };
  const isKey = schema.is_primary_key && key.length === 0;
  return [
    ...(schema.is_unique && !isKey ? [addUnique(table, column)] : []),
    ...(schema.is_indexed ? [addIndex(table, column)] : []),
    ...(schema.comment === null ? [] : [{ kind: 'comment-column', ...place, comment: schema.comment } as const]),
  ];
}

export function changedKey(table: string): Error {
  return invalidPayload(`The primary key of "${table}" cannot be changed: delete the collection and create it anew`);
}

/** `before` and `after` are of one field; `column` is how the database knows it. */
export function changeExactly(before: SnapshotColumn, after: ColumnField, column: Column): Definition[] {
  const { collection: table, field, schema } = after;
  const place = { table, column: field };
  if (schema.is_primary_key !== before.is_primary_key) throw changedKey(table);
  if (schema.generation_expression !== null)
    throw invalidPayload(`The field "${table}.${field}" cannot become a generated one: delete it and create it anew`);
  const steps: Definition[] = [];
  if (before.generation_expression !== null) steps.push({ kind: 'drop-expression', ...place });
  steps.push(...stopIncrement(column, { schema: { has_auto_increment: schema.has_auto_increment } }));
  steps.push(...changeTypeAndDefault(before, after, column));
  if (schema.is_nullable !== before.is_nullable)
    steps.push({ kind: 'set-nullable', ...place, nullable: schema.is_nullable });
  if (schema.has_auto_increment && !before.has_auto_increment)
    steps.push({ kind: 'add-identity', ...place }, { kind: 'advance-identity', ...place });
  if (schema.is_unique !== before.is_unique)
    steps.push(...(schema.is_unique ? [addUnique(table, field)] : dropIndexes(column, 'unique')));
  if (schema.is_indexed !== before.is_indexed)
    steps.push(...(schema.is_indexed ? [addIndex(table, field)] : dropIndexes(withPlainIndexes(column), 'index')));
  if (schema.comment !== before.comment) steps.push({ kind: 'comment-column', ...place, comment: schema.comment });
  return steps;
}

/** Of the indexes that are no constraints those that a snapshot tells of. */
function withPlainIndexes(column: Column): Column {
  return { ...column, indexes: column.indexes.filter(({ method }) => method === PLAIN_INDEX) };
}

export const PLAIN_INDEX = 'btree';

/** Whether the column holds what its expression says and nothing of its own, so that it may be dropped and made anew. */
export function isRegenerated(before: SnapshotColumn, after: SnapshotColumn): boolean {
  return (
    before.generation_expression !== null &&
    after.generation_expression !== null &&
    (before.generation_expression !== after.generation_expression || before.data_type !== after.data_type)
  );
}

function changeTypeAndDefault(before: SnapshotColumn, after: ColumnField, column: Column): Definition[] {
  const { schema } = after;
  const place = { table: after.collection, column: after.field };
  const initial = initialOf(after.field, schema);
  const moved = schema.data_type !== before.data_type;
  const had = before.default_value !== null || before.default_expression !== null;
  const same =
    JSON.stringify([schema.default_value, schema.default_expression]) ===
    JSON.stringify([before.default_value, before.default_expression]);
  if (!moved) return same ? [] : [{ kind: 'set-default', ...place, initial }];
  const type = exactType(after.field, schema);
  const conversion =
    after.type === 'unknown' || after.type === 'alias' ? 'through-text' : conversionOf(column, { type: after.type });
  // The sequence of a serial column does not follow its type by itself.
  const counts = schema.has_auto_increment && column.identity === null && schema.data_type === 'bigint';
  const sequence = counts ? sequenceOf(column) : null;
  return [
    // A default that PostgreSQL cannot cast by itself would stand in the way.
    ...(had ? [{ kind: 'set-default', ...place, initial: null } as const] : []),
    { kind: 'change-type', ...place, type, conversion },
    ...(initial ? [{ kind: 'set-default', ...place, initial } as const] : []),
    ...(sequence ? [{ kind: 'widen-sequence', ...sequence } as const] : []),
  ];
}

/** Their values are numbers of PostgreSQL's own catalogs, which another database does not share. */
const REGISTRY = /^_?reg(class|collation|config|dictionary|namespace|oper|operator|proc|procedure|role|type)$/;

function exactType(field: string, { data_type }: SnapshotColumn): ExactType {
  const name = readTypeName(data_type);
  if (!name) throw invalidPayload(`"${data_type}" of the field "${field}" is not the name of a type`);
  if (isRegistry(name))
    throw invalidPayload(`"${data_type}" of the field "${field}" refers to what the database may not have tomorrow`);
  return { type: 'exact', name };
}

/** Whether a column of the type could be made elsewhere. */
export function isMovableType(dataType: string): boolean {
  const name = readTypeName(dataType);
  return name !== null && !isRegistry(name);
}

function isRegistry({ names }: TypeName): boolean {
  return REGISTRY.test(names.at(-1) ?? '');
}

function initialOf(
  field: string,
  { data_type, default_value: value, default_expression: text }: SnapshotColumn,
): Initial | null {
  if (text !== null) {
    const complaint = complaintAbout(text, []);
    if (complaint !== null) throw invalidPayload(`The default of the field "${field}" cannot be used: ${complaint}`);
    return { kind: 'expression', text };
  }
  if (value === null) return null;
  return {
    kind: 'constant',
    text: typeof value === 'object' || isJsonType(data_type) ? JSON.stringify(value) : String(value),
  };
}

function generationOf(field: string, { generation_expression: text }: SnapshotColumn, siblings: readonly string[]) {
  if (text === null) return null;
  const columns = siblings.filter((name) => name !== field);
  checkGenerated(field, text, columns);
  return { text, columns };
}

function addUnique(table: string, column: string): Definition {
  return { kind: 'add-unique', table, column, name: constraintName(table, column, 'unique') };
}

function addIndex(table: string, column: string): Definition {
  return { kind: 'create-index', table, column, name: constraintName(table, column, 'index') };
}
