/** Types of the service as columns: which column a type makes, which flags it needs, how values pass from one to another. */
import { invalidPayload } from '../../../base/errors.js';
import { listOf } from '../../../compiler/model/columns.js';
import {
  type Column,
  DATE_TYPES,
  declaredType,
  type Field,
  type FieldType,
  NUMBER_TYPES,
} from '../../../compiler/model/model.js';
import { DATE_CODECS, NUMBER_CODECS } from '../../../compiler/sql/codec.js';
import type { ColumnType, Conversion } from './ddl-statement.js';
import type { ColumnOptions } from './parse.js';

const DEFAULT_LENGTH = 255;
const DEFAULT_PRECISION = 10;
const DEFAULT_SCALE = 5;

export function newColumnType(type: FieldType, options: ColumnOptions, field: string): ColumnType {
  if (type === 'alias' || type === 'unknown')
    throw invalidPayload(`The field "${field}" cannot have the type "${type}"`);
  const sized = type === 'string' || type === 'hash';
  const precise = type === 'decimal';
  const precision = precise ? (options.numeric_precision ?? DEFAULT_PRECISION) : null;
  const scale = precise ? (options.numeric_scale ?? Math.min(DEFAULT_SCALE, precision ?? DEFAULT_PRECISION)) : null;
  if (precision !== null && scale !== null && scale > precision)
    throw invalidPayload(`The scale of the field "${field}" cannot be larger than its precision`);
  return { type, length: sized ? (options.max_length ?? DEFAULT_LENGTH) : null, precision, scale, padded: false };
}

/** The type of an existing column with the size that the options set, or null if they change nothing. */
export function resizedType(column: Column, options: ColumnOptions): ColumnType | null {
  const { max_length: length, numeric_precision: precision, numeric_scale: scale } = options;
  const plain = { length: null, precision: null, scale: null, padded: false };
  if (column.base_schema !== 'pg_catalog') return null;
  if (column.base_type === 'varchar' || column.base_type === 'bpchar') {
    if (length === undefined || length === column.max_length) return null;
    return { ...plain, type: 'string', length, padded: column.base_type === 'bpchar' };
  }
  if (column.base_type !== 'numeric') return null;
  const newSize = { precision: precision ?? column.numeric_precision, scale: scale ?? column.numeric_scale };
  if (newSize.precision === column.numeric_precision && newSize.scale === column.numeric_scale) return null;
  return newColumnType(
    'decimal',
    { numeric_precision: newSize.precision ?? DEFAULT_PRECISION, numeric_scale: newSize.scale ?? DEFAULT_SCALE },
    column.name,
  );
}

/** The type that a column has: what its values, a default for one, have to fit. */
export function presentType(field: Field, column: Column): ColumnType {
  const type = declaredType(field);
  return {
    type: type === 'alias' || type === 'unknown' ? 'text' : type,
    length: column.max_length,
    precision: column.base_type === 'numeric' ? column.numeric_precision : null,
    scale: column.base_type === 'numeric' ? column.numeric_scale : null,
    padded: false,
  };
}

/** A column of these types needs one of the flags: without it, the field would read back as another type. The last one is added. */
const NEEDED_FLAGS: ReadonlyMap<FieldType, readonly string[]> = new Map([
  ['csv', ['cast-csv', 'csv']],
  ['hash', ['hash']],
]);
/** Flags that make a column read back as another type than its own. */
const TYPE_FLAGS: ReadonlyMap<string, readonly FieldType[]> = new Map([
  ['cast-csv', ['csv']],
  ['csv', ['csv']],
  ['hash', ['hash']],
  ['cast-json', ['json']],
  ['uuid', ['uuid', 'string', 'text']],
  ['file', ['uuid', 'string', 'text']],
  ['cast-timestamp', ['timestamp']],
  ['cast-datetime', ['dateTime']],
]);

/** The flags of a field that has the type. Flags of other types are removed. */
export function specialForType(type: FieldType, special: unknown): string | null {
  const flags = listOf(special).filter((flag) => TYPE_FLAGS.get(flag)?.includes(type) ?? true);
  const needed = NEEDED_FLAGS.get(type) ?? [];
  if (!needed.some((flag) => flags.includes(flag))) flags.unshift(...needed.slice(-1));
  return flags.join(',') || null;
}

/** Columns that hold texts: another type of text only changes the flags and perhaps the length. */
const FAMILY: Readonly<Partial<Record<FieldType, string>>> = {
  string: 'varchar',
  hash: 'varchar',
  text: 'text',
  csv: 'text',
};

export function isSameColumn(type: ColumnType, column: Column): boolean {
  return column.base_schema === 'pg_catalog' && FAMILY[type.type] === column.base_type && type.type !== 'hash';
}

const DOCUMENTS = new Set(['json', 'jsonb']);
const TEXTS = new Set(['text', 'varchar', 'bpchar']);

/** Where PostgreSQL has no cast, values pass through their text: an empty column can become anything. */
export function conversionOf(column: Column, { type }: Pick<ColumnType, 'type'>): Conversion {
  const from = column.base_schema === 'pg_catalog' && !column.is_array ? column.base_type : '';
  const isNumber = NUMBER_TYPES.has(type);
  if (NUMBER_CODECS.has(from) && type === 'boolean') return 'number-to-boolean';
  if (from === 'bool' && isNumber) return 'boolean-to-number';
  if (TEXTS.has(from)) return 'cast';
  if (NUMBER_CODECS.has(from) && isNumber) return 'cast';
  if (DATE_CODECS.has(from) && (DATE_TYPES.has(type) || (type === 'time' && from !== 'date'))) return 'cast';
  if (DOCUMENTS.has(from) && type === 'json') return 'cast';
  return 'through-text';
}
