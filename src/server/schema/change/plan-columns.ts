/** The steps that change a column to what a body or a snapshot asks for. */
import { isDeepStrictEqual } from 'node:util';
import { invalidPayload } from '../../../base/errors.js';
import { type Collection, type Column, declaredType, type Field } from '../../../compiler/model/model.js';
import { constraintName } from '../../../compiler/sql/constraint-name.js';
import type { ColumnDefault, ColumnType, Conversion, Definition, ExactType } from './ddl-statement.js';
import type { ColumnOptions, FieldChange } from './parse.js';
import { convertDefault, planDefault } from './plan-defaults.js';
import { conversionOf, isSameColumn, newColumnType, presentType, resizedType } from './plan-types.js';

/** Clients send back whole objects: an option that equals the current state changes nothing. */
export function changeColumn(collection: Collection, field: Field, column: Column, change: FieldChange): Definition[] {
  const { schema } = change;
  checkKey(collection, column, change);
  const type = newType(field, column, change);
  const dropsExpression = stopsGeneration(column, change);
  const initial = newDefault(field, column, type, change);
  checkIncrement(field, column, change);
  return alterColumn(
    column,
    { ...column, hasDefault: column.default_expression !== null },
    {
      dropsExpression,
      type: type && { type, conversion: conversionOf(column, type), isBigint: type.type === 'bigInteger' },
      initial,
      has_auto_increment: schema.has_auto_increment,
      is_nullable: column.is_primary_key ? undefined : schema.is_nullable,
      is_unique: column.is_primary_key ? undefined : schema.is_unique,
      is_indexed: schema.is_indexed,
      comment: schema.comment === undefined ? undefined : schema.comment || null,
    },
  );
}

function checkKey(collection: Collection, column: Column, { schema }: FieldChange): void {
  if (schema.is_primary_key !== undefined && schema.is_primary_key !== column.is_primary_key)
    throw invalidPayload(`The primary key of "${collection.name}" cannot be changed`);
  if (column.is_primary_key && schema.is_nullable === true)
    throw invalidPayload(`The primary key "${column.name}" cannot be nullable`);
}

/** Null when the column keeps its type. */
function newType(field: Field, column: Column, change: FieldChange): ColumnType | null {
  const declared = declaredType(field);
  const type = change.type ?? declared;
  if (type === declared) return resizedType(column, change.schema);
  const wantedType = newColumnType(type, change.schema, column.name);
  if (isSameColumn(wantedType, column)) return resizedType(column, change.schema);
  return wantedType;
}

/** Whether the column keeps its values but is no longer generated. */
function stopsGeneration(column: Column, { schema }: FieldChange): boolean {
  const { is_generated = column.is_generated, generation_expression: text } = schema;
  if (column.is_generated && !is_generated) return true;
  const rewritten = typeof text === 'string' && text !== column.generation_expression;
  if (is_generated !== column.is_generated || rewritten)
    throw invalidPayload(
      `How the field "${column.name}" is generated cannot be changed: delete it and create it again`,
    );
  return false;
}

/** Undefined keeps the default; that of a sequence is not one of these. */
function newDefault(
  field: Field,
  column: Column,
  type: ColumnType | null,
  { schema }: FieldChange,
): ColumnDefault | null | undefined {
  const increments = schema.has_auto_increment ?? column.has_auto_increment;
  const { default_value: value } = schema;
  if (increments) return undefined;
  if (value !== undefined && !isDeepStrictEqual(value, column.default_value)) {
    if (column.is_generated) throw invalidPayload(`The generated field "${column.name}" takes no default`);
    return planDefault(column.name, type ?? presentType(field, column), value);
  }
  const isConstant = column.default_value !== null && column.default_value !== column.default_expression;
  return type && isConstant ? convertDefault(column.name, type, column.default_value) : undefined;
}

function checkIncrement(field: Field, column: Column, { schema, type }: FieldChange): void {
  if (column.has_auto_increment || schema.has_auto_increment !== true) return;
  const newType = type ?? field.type;
  if (newType !== 'integer' && newType !== 'bigInteger')
    throw invalidPayload(`The field "${column.name}" must be an integer or a bigInteger to auto-increment`);
  if (schema.is_nullable === true)
    throw invalidPayload(`The field "${column.name}" is auto-incremented: it cannot be nullable`);
}

/** The state of a column in the words of its description. */
type ColumnState = Pick<Column, 'has_auto_increment' | 'is_nullable' | 'is_unique' | 'is_indexed' | 'comment'>;

/** Undefined keeps what the column has. */
interface ColumnChange extends Readonly<{ [Name in keyof ColumnState]: ColumnState[Name] | undefined }> {
  /** A generated column keeps its values. */
  readonly dropsExpression: boolean;
  readonly type: {
    readonly type: ColumnType | ExactType;
    readonly conversion: Conversion;
    readonly isBigint: boolean;
  } | null;
  readonly initial: ColumnDefault | null | undefined;
}

/** The steps from the present state of a column to the wanted one. */
export function alterColumn(
  column: Column,
  present: ColumnState & { readonly hasDefault: boolean },
  change: ColumnChange,
): Definition[] {
  const target = { table: column.table, column: column.name };
  const steps: Definition[] = [];
  const { type, has_auto_increment: increments = present.has_auto_increment } = change;
  const starts = increments && !present.has_auto_increment;
  const initial = !starts ? change.initial : present.hasDefault ? null : undefined;
  if (change.dropsExpression) steps.push({ kind: 'drop-expression', ...target });
  if (!increments && present.has_auto_increment) steps.push(...stopIncrement(column));
  if (type) {
    // PostgreSQL may be unable to cast the old default.
    if (initial !== undefined && present.hasDefault) steps.push({ kind: 'set-default', ...target, initial: null });
    steps.push({ kind: 'change-type', ...target, type: type.type, conversion: type.conversion });
    if (initial) steps.push({ kind: 'set-default', ...target, initial });
    // The sequence of a serial column does not follow its type by itself.
    const sequence = increments && type.isBigint && column.identity === null ? sequenceOf(column) : null;
    if (sequence) steps.push({ kind: 'widen-sequence', ...sequence });
  } else if (initial !== undefined) steps.push({ kind: 'set-default', ...target, initial });
  const nullable = starts ? false : change.is_nullable;
  if (nullable !== undefined && nullable !== present.is_nullable)
    steps.push({ kind: 'set-nullable', ...target, nullable });
  if (starts) steps.push({ kind: 'add-identity', ...target }, { kind: 'advance-identity', ...target });
  for (const [flag, kind] of INDEX_FLAGS) {
    const wanted = change[flag] ?? present[flag];
    if (wanted !== present[flag])
      steps.push(...(wanted ? [addIndex(column.table, [column.name], kind)] : dropIndexes(column, kind)));
  }
  if (change.comment !== undefined && change.comment !== present.comment)
    steps.push({ kind: 'comment-column', ...target, comment: change.comment });
  return steps;
}

const INDEX_FLAGS = [
  ['is_unique', 'unique'],
  ['is_indexed', 'index'],
] as const;

function stopIncrement(column: Column): Definition[] {
  const target = { table: column.table, column: column.name };
  if (column.identity !== null) return [{ kind: 'drop-identity', ...target }];
  const sequence = sequenceOf(column);
  return [
    { kind: 'set-default', ...target, initial: null },
    ...(sequence ? [{ kind: 'drop-sequence', ...sequence } as const] : []),
  ];
}

function dropIndexes({ table, indexes }: Column, kind: 'unique' | 'index'): Definition[] {
  return indexes
    .filter((index) => index.kind === kind)
    .map(({ name, constraint }) =>
      constraint ? { kind: 'drop-constraint', table, name } : { kind: 'drop-index', table, name },
    );
}

/** `public."Mixed Case_id_seq"` as its two names. */
function sequenceOf({ sequence }: Column): { readonly schema: string; readonly name: string } | null {
  const parts = [...(sequence ?? '').matchAll(/"((?:[^"]|"")*)"|([^".]+)/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? '',
  );
  const [schema, name] = parts;
  return schema !== undefined && name !== undefined ? { schema, name } : null;
}

/** The parts of a new column that its definition cannot hold. `isPart`: of a composite primary key. */
export function indexesAndComment(
  table: string,
  column: string,
  schema: Pick<ColumnOptions, 'is_unique' | 'is_primary_key' | 'is_indexed' | 'comment'>,
  isPart: boolean,
): Definition[] {
  const { comment } = schema;
  return [
    ...(schema.is_unique && (isPart || !schema.is_primary_key) ? [addIndex(table, [column], 'unique')] : []),
    ...(schema.is_indexed ? [addIndex(table, [column], 'index')] : []),
    ...(comment ? [{ kind: 'comment-column', table, column, comment } as const] : []),
  ];
}

export function addIndex(
  table: string,
  columns: readonly string[],
  kind: 'unique' | 'index',
): Extract<Definition, { kind: 'add-unique' | 'create-index' }> {
  const name = constraintName(table, columns.join(','), kind);
  return { kind: kind === 'unique' ? 'add-unique' : 'create-index', table, columns, name };
}
