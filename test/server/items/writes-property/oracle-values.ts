/** What may be written into a column, and what it becomes there. */
import { type ColumnType, columnOf, joinKey, keyTypeOf, splitKey, type Table, type Value } from './model.js';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Throws where the value does not fit. */
export function coerce(type: ColumnType, value: unknown): Value {
  if (value === null) return null;
  if (typeof value === 'object') throw new Error('a column of one value');
  const text = String(value);
  switch (type) {
    case 'text':
      return text;
    case 'boolean':
      if (text !== 'true' && text !== 'false') throw new Error('neither true nor false');
      return text === 'true';
    case 'integer': {
      const number = /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
      if (!(Math.abs(number) <= 2_147_483_647)) throw new Error('no whole number that fits');
      return number;
    }
    case 'uuid':
      if (!UUID.test(text)) throw new Error('no UUID');
      return text;
    case 'date':
      if (!/^\d{4}-\d\d-\d\d$/.test(text)) throw new Error('no date');
      return text;
  }
}

/** Throws where it cannot be a key of the table. */
export function readKey(table: Table, key: unknown): Value {
  if (table.key.kind !== 'several') return coerce(keyTypeOf(table), key);
  return joinKey(readParts(table, key));
}

export function readParts(table: Table, key: unknown): Value[] {
  const texts = splitKey(table, key);
  if (!texts) throw new Error('not so many parts');
  return texts.map((text, position) => coerce(columnOf(table, table.parts[position] ?? '')?.type ?? 'text', text));
}

export function keyFits(table: Table, key: unknown): key is string | number {
  if (typeof key !== 'string' && typeof key !== 'number') return false;
  try {
    readKey(table, key);
    return true;
  } catch {
    return false;
  }
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
