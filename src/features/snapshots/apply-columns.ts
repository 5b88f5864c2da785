/** Columns as a snapshot describes them, in PostgreSQL's own types: how one is created, and how an existing one is changed. */
import { invalidPayload } from '../../base/errors.js';
import type { Column } from '../../compiler/model/model.js';
import { readTypeName, type TypeName } from '../../compiler/sql/type-name.js';
import { complaintAbout } from '../../compiler/sql/vet.js';
import type {
  ColumnDefault,
  ColumnDefinition,
  Definition,
  ExactType,
} from '../../server/schema/change/ddl-statement.js';
import { alterColumn } from '../../server/schema/change/plan-columns.js';
import { planGeneration } from '../../server/schema/change/plan-defaults.js';
import { conversionOf } from '../../server/schema/change/plan-types.js';
import type { FieldEntry, SnapshotColumn } from './parse-snapshot.js';

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
export function snapshotColumnDefinition(
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
    generated:
      schema.generation_expression === null ? null : planGeneration(field, schema.generation_expression, siblings),
  };
}

export function keyCannotChange(table: string): Error {
  return invalidPayload(`The primary key of "${table}" cannot be changed: delete the collection and create it again`);
}

/** `before` and `after` are of one field; `column` is the one in the database. */
export function changeSnapshotColumn(before: SnapshotColumn, after: ColumnField, column: Column): Definition[] {
  const { collection: table, field, schema } = after;
  if (schema.is_primary_key !== before.is_primary_key) throw keyCannotChange(table);
  if (schema.generation_expression !== null)
    throw invalidPayload(`The field "${table}.${field}" cannot become a generated one: delete it and create it again`);
  const keepsType = schema.data_type === before.data_type;
  const keepsDefault =
    JSON.stringify([schema.default_value, schema.default_expression]) ===
    JSON.stringify([before.default_value, before.default_expression]);
  const initial = initialOf(field, schema);
  return alterColumn(
    withPlainIndexes(column),
    { ...before, hasDefault: before.default_value !== null || before.default_expression !== null },
    {
      ...schema,
      dropsExpression: before.generation_expression !== null,
      type: keepsType
        ? null
        : {
            type: exactType(field, schema),
            conversion:
              after.type === 'unknown' || after.type === 'alias'
                ? 'through-text'
                : conversionOf(column, { type: after.type }),
            isBigint: schema.data_type === 'bigint',
          },
      initial: keepsType && keepsDefault ? undefined : initial,
    },
  );
}

/** Without the indexes that a snapshot does not hold. */
function withPlainIndexes(column: Column): Column {
  return { ...column, indexes: column.indexes.filter(({ method }) => method === PLAIN_INDEX) };
}

export const PLAIN_INDEX = 'btree';

/** Whether the column is generated before and after, so that it can be dropped and created again without losing values. */
export function isRegenerated(before: SnapshotColumn, after: SnapshotColumn): boolean {
  return (
    before.generation_expression !== null &&
    after.generation_expression !== null &&
    (before.generation_expression !== after.generation_expression || before.data_type !== after.data_type)
  );
}

/** Their values are OIDs, which differ between databases. */
const REGISTRY = /^_?reg(class|collation|config|dictionary|namespace|oper|operator|proc|procedure|role|type)$/;

function exactType(field: string, { data_type }: SnapshotColumn): ExactType {
  const name = readTypeName(data_type);
  if (!name) throw invalidPayload(`"${data_type}" of the field "${field}" is not the name of a type`);
  if (isRegistry(name))
    throw invalidPayload(`"${data_type}" of the field "${field}" contains catalog OIDs, which a snapshot cannot store`);
  return { type: 'exact', name };
}

/** Whether a column of the type can be created in another database. */
export function isPortableType(dataType: string): boolean {
  const name = readTypeName(dataType);
  return name !== null && !isRegistry(name);
}

function isRegistry({ names }: TypeName): boolean {
  return REGISTRY.test(names.at(-1) ?? '');
}

export function initialOf(
  field: string,
  { data_type, default_value: value, default_expression: text }: SnapshotColumn,
): ColumnDefault | null {
  if (text !== null) {
    const complaint = complaintAbout(text, []);
    if (complaint !== null) throw invalidPayload(`The default of the field "${field}" cannot be used: ${complaint}`);
    return { kind: 'expression', text };
  }
  if (value === null) return null;
  if (typeof value === 'number' && !isJsonType(data_type)) return { kind: 'expression', text: String(value) };
  return {
    kind: 'constant',
    text: typeof value === 'object' || isJsonType(data_type) ? JSON.stringify(value) : String(value),
  };
}
