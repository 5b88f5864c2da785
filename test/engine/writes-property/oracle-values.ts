/** What may be written into a column, and what it becomes there. */
import { type ColumnType, keyTypeOf, type Table, type Value } from './model.js';

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
  }
}

export function keyFits(table: Table, key: unknown): key is string | number {
  if (typeof key !== 'string' && typeof key !== 'number') return false;
  try {
    coerce(keyTypeOf(table), key);
    return true;
  } catch {
    return false;
  }
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
