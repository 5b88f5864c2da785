/** Values as people read and write them in a grid. */
import { type Field, isArray, isNumber } from '../model';

/** One line of text; null is shown by the grid itself. */
export function showValue(value: unknown, field: Field | null): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'object') return JSON.stringify(value);
  if (field?.type === 'timestamp' && typeof value === 'string') return value.replace('T', ' ').replace(/\.000Z$/, 'Z');
  if (field?.type === 'dateTime' && typeof value === 'string') return value.replace('T', ' ');
  return String(value);
}

/** What an editor begins with. */
export function editText(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value, null, 2) : String(value);
}

export type Entered = { readonly value: unknown } | { readonly error: string };

/**
 * The value that a text stands for. An empty text of a field that is no text is no value. What does not fit is sent as it is: the
 * service knows the type better, and says what is wrong.
 */
export function readEntered(text: string, field: Field): Entered {
  const isText = field.type === 'string' || field.type === 'text';
  if (text === '' && !isText) return { value: null };
  if (isStructured(field)) {
    try {
      return { value: JSON.parse(text) };
    } catch {
      return { error: 'must be JSON' };
    }
  }
  if (field.type === 'boolean') return { value: text === 'true' };
  if (isNumber(field) && field.type !== 'bigInteger' && field.type !== 'decimal' && /^-?\d+(\.\d+)?$/.test(text.trim()))
    return { value: Number(text) };
  return { value: isText ? text : text.trim() };
}

/** Written as JSON. */
function isStructured(field: Field): boolean {
  return field.type === 'json' || isArray(field);
}

export function isLong(field: Field): boolean {
  return field.type === 'text' || isStructured(field);
}

const COUNTS = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const EXACT = new Intl.NumberFormat('en');

export function shortCount(count: number): string {
  return count < 10_000 ? EXACT.format(count) : COUNTS.format(count);
}

/** Up to ten thousand it was counted, above that PostgreSQL's planner was asked. */
export function describeCount(count: number): string {
  return count <= 10_000 ? EXACT.format(count) : `about ${COUNTS.format(count)}`;
}
