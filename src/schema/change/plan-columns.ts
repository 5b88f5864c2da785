/** The steps that change a column to what a body asks for. */
import { isDeepStrictEqual } from 'node:util';
import { invalidPayload } from '../../base/errors.js';
import { type Collection, type Column, declaredType, type Field } from '../../mirror/model.js';
import type { ColumnDefault, ColumnType, Definition } from './ddl-statement.js';
import type { ColumnOptions, FieldChange } from './parse.js';
import { convertDefault, planDefault } from './plan-defaults.js';
import { constraintName } from './plan-names.js';
import { conversionOf, isSameColumn, newColumnType, presentType, resizedType } from './plan-types.js';

/** Clients send back whole objects: an option that equals the current state changes nothing. */
export function changeColumn(collection: Collection, field: Field, column: Column, change: FieldChange): Definition[] {
  checkKey(collection, column, change);
  const target = { table: collection.name, column: column.name };
  const steps: Definition[] = [];
  const { schema } = change;
  const type = newType(field, column, change);
  steps.push(...changeGeneration(column, change));
  steps.push(...stopIncrement(column, change));
  steps.push(...changeType(field, column, type, change));
  steps.push(...startIncrement(field, column, change));
  if (schema.is_nullable !== undefined && schema.is_nullable !== column.is_nullable && !column.is_primary_key)
    steps.push({ kind: 'set-nullable', ...target, nullable: schema.is_nullable });
  steps.push(...changeIndexes(column, change));
  if (schema.comment !== undefined && (schema.comment || null) !== column.comment)
    steps.push({ kind: 'comment-column', ...target, comment: schema.comment || null });
  return steps;
}

function checkKey(collection: Collection, column: Column, { schema }: FieldChange): void {
  if (schema.is_primary_key !== undefined && schema.is_primary_key !== column.is_primary_key)
    throw invalidPayload(`The primary key of "${collection.name}" cannot be changed`);
  if (column.is_primary_key && schema.is_nullable === true)
    throw invalidPayload(`The primary key "${column.name}" cannot be nullable`);
}

function changeGeneration(column: Column, { schema }: FieldChange): Definition[] {
  const { is_generated = column.is_generated, generation_expression: text } = schema;
  if (column.is_generated && !is_generated)
    return [{ kind: 'drop-expression', table: column.table, column: column.name }];
  const rewritten = typeof text === 'string' && text !== column.generation_expression;
  if (is_generated !== column.is_generated || rewritten)
    throw invalidPayload(
      `How the field "${column.name}" is generated cannot be changed: delete it and create it again`,
    );
  return [];
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

function changeType(field: Field, column: Column, type: ColumnType | null, change: FieldChange): Definition[] {
  const target = { table: column.table, column: column.name };
  const initial = newDefault(field, column, type, change);
  if (type === null) return initial === undefined ? [] : [{ kind: 'set-default', ...target, initial }];
  // PostgreSQL may be unable to cast the old default.
  const clears = initial !== undefined && column.default_expression !== null;
  const sequence = column.identity === null && type.type === 'bigInteger' ? sequenceOf(column) : null;
  return [
    ...(clears ? [{ kind: 'set-default', ...target, initial: null } as const] : []),
    { kind: 'change-type', ...target, type, conversion: conversionOf(column, type) },
    ...(initial ? [{ kind: 'set-default', ...target, initial } as const] : []),
    ...(sequence ? [{ kind: 'widen-sequence', ...sequence } as const] : []),
  ];
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

export function stopIncrement(column: Column, { schema }: Pick<FieldChange, 'schema'>): Definition[] {
  if (!column.has_auto_increment || schema.has_auto_increment !== false) return [];
  const target = { table: column.table, column: column.name };
  if (column.identity !== null) return [{ kind: 'drop-identity', ...target }];
  const sequence = sequenceOf(column);
  return [
    { kind: 'set-default', ...target, initial: null },
    ...(sequence ? [{ kind: 'drop-sequence', ...sequence } as const] : []),
  ];
}

function startIncrement(field: Field, column: Column, { schema, type }: FieldChange): Definition[] {
  if (column.has_auto_increment || schema.has_auto_increment !== true) return [];
  const newType = type ?? field.type;
  if (newType !== 'integer' && newType !== 'bigInteger')
    throw invalidPayload(`The field "${column.name}" must be an integer or a bigInteger to auto-increment`);
  if (schema.is_nullable === true)
    throw invalidPayload(`The field "${column.name}" is auto-incremented: it cannot be nullable`);
  const target = { table: column.table, column: column.name };
  return [
    ...(column.default_expression === null ? [] : [{ kind: 'set-default', ...target, initial: null } as const]),
    ...(column.is_nullable ? [{ kind: 'set-nullable', ...target, nullable: false } as const] : []),
    { kind: 'add-identity', ...target },
    { kind: 'advance-identity', ...target },
  ];
}

function changeIndexes(column: Column, { schema }: FieldChange): Definition[] {
  const { name, table } = column;
  const steps: Definition[] = [];
  if (schema.is_unique !== undefined && schema.is_unique !== column.is_unique && !column.is_primary_key) {
    steps.push(...(schema.is_unique ? [addIndex(table, [name], 'unique')] : dropIndexes(column, 'unique')));
  }
  if (schema.is_indexed !== undefined && schema.is_indexed !== column.is_indexed) {
    steps.push(...(schema.is_indexed ? [addIndex(table, [name], 'index')] : dropIndexes(column, 'index')));
  }
  return steps;
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

export function addIndex(table: string, columns: readonly string[], kind: 'unique' | 'index'): Definition {
  const name = constraintName(table, columns.join(','), kind);
  return { kind: kind === 'unique' ? 'add-unique' : 'create-index', table, columns, name };
}

export function dropIndexes({ table, indexes }: Column, kind: 'unique' | 'index'): Definition[] {
  return indexes
    .filter((index) => index.kind === kind)
    .map(({ name, constraint }) =>
      constraint ? { kind: 'drop-constraint', table, name } : { kind: 'drop-index', table, name },
    );
}

/** `public."Mixed Case_id_seq"` as its two names. */
export function sequenceOf({ sequence }: Column): { readonly schema: string; readonly name: string } | null {
  const parts = [...(sequence ?? '').matchAll(/"((?:[^"]|"")*)"|([^".]+)/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? '',
  );
  const [schema, name] = parts;
  return schema !== undefined && name !== undefined ? { schema, name } : null;
}
