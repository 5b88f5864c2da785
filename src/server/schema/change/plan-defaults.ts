/** Reads the default of a column from a body: a constant that fits the type, or an expression that is safe. */
import { invalidPayload } from '../../../base/errors.js';
import type { Column, Field } from '../../../compiler/model/model.js';
import { checkValue } from '../../../compiler/plan/write/column-value.js';
import { complaintAbout, readSqlText } from '../../../compiler/sql/vet.js';
import type { ColumnDefault, ColumnDefinition, ColumnType } from './ddl-statement.js';

export function planDefault(field: string, type: ColumnType, value: unknown): ColumnDefault | null {
  if (value === null || value === undefined) return null;
  switch (type.type) {
    case 'json':
      return { kind: 'constant', text: documentText(value) };
    case 'string':
    case 'text':
    case 'hash':
    case 'csv':
      return planText(field, type, value);
    case 'binary':
      return constant(field, type, value);
    case 'geometry':
    case 'geometry.Point':
    case 'geometry.LineString':
    case 'geometry.Polygon':
    case 'geometry.MultiPoint':
    case 'geometry.MultiLineString':
    case 'geometry.MultiPolygon':
      throw refusal(field, 'a geometry cannot have one');
    default:
      return typeof value === 'string' && readSqlText(value).kind === 'expression'
        ? planExpression(field, value)
        : constant(field, type, value);
  }
}

/** The constant that a column had under its former type. */
export function convertDefault(field: string, type: ColumnType, value: unknown): ColumnDefault {
  if (type.type === 'json') return { kind: 'constant', text: documentText(value) };
  const isText = type.type === 'string' || type.type === 'text' || type.type === 'hash' || type.type === 'csv';
  if (isText && typeof value === 'object') return constant(field, type, JSON.stringify(value));
  if (typeof value === 'boolean' && !isText && type.type !== 'boolean') return constant(field, type, value ? 1 : 0);
  if (typeof value === 'number' && type.type === 'boolean') return constant(field, type, value !== 0);
  return constant(field, type, value);
}

/** An expression without names of columns. */
function planExpression(field: string, text: string): ColumnDefault {
  const complaint = complaintAbout(text, []);
  if (complaint !== null)
    throw refusal(field, `it is neither a value of the type nor an allowed expression (${complaint})`);
  return { kind: 'expression', text };
}

/** `columns` are those of the table, which the expression may name. */
export function planGeneration(
  field: string,
  text: string,
  columns: readonly string[],
): NonNullable<ColumnDefinition['generated']> {
  const others = columns.filter((name) => name !== field);
  const complaint = complaintAbout(text, others);
  if (complaint !== null)
    throw invalidPayload(`The generation expression of the field "${field}" cannot be used: ${complaint}`);
  return { text, columns: others };
}

function planText(field: string, type: ColumnType, value: unknown): ColumnDefault {
  if (Array.isArray(value) && type.type === 'csv') return { kind: 'constant', text: value.map(String).join(',') };
  if (typeof value !== 'string') return constant(field, type, value);
  const reading = readSqlText(value);
  if (reading.kind === 'words') return constant(field, type, reading.text);
  if (reading.kind === 'expression' && complaintAbout(value, []) === null) return { kind: 'expression', text: value };
  throw refusal(field, "it is parsed as SQL that is not allowed; write a string as '...', with its quotes doubled");
}

const CODECS: Readonly<Record<string, string>> = {
  string: 'varchar',
  text: 'text',
  hash: 'varchar',
  csv: 'text',
  boolean: 'bool',
  integer: 'int4',
  bigInteger: 'int8',
  float: 'float8',
  decimal: 'numeric',
  date: 'date',
  dateTime: 'timestamp',
  time: 'time',
  timestamp: 'timestamptz',
  uuid: 'uuid',
  binary: 'bytea',
};

/** The rules are those for values of items. */
function constant(field: string, type: ColumnType, value: unknown): ColumnDefault {
  if (typeof value === 'object') throw refusal(field, 'it must be a single value');
  const column = {
    base_type: CODECS[type.type] ?? 'text',
    is_array: false,
    enum_values: null,
    max_length: type.length,
    numeric_precision: type.precision,
    numeric_scale: type.scale,
  } as unknown as Column;
  const plain = type.type === 'hash' || type.type === 'csv' ? 'text' : type.type;
  const checked = checkValue(
    { name: field, collection: null, type: plain, special: [], column } as unknown as Field,
    value,
    'schema.default_value',
  );
  return { kind: 'constant', text: String(checked) };
}

/** A text that holds an object or a list is that document; any other text is a JSON string. */
function documentText(value: unknown): string {
  if (typeof value === 'string' && /^\s*[[{]/.test(value)) {
    try {
      return JSON.stringify(JSON.parse(value));
    } catch {
      return JSON.stringify(value);
    }
  }
  return JSON.stringify(value);
}

function refusal(field: string, reason: string) {
  return invalidPayload(`The default of the field "${field}" cannot be used: ${reason}`);
}
