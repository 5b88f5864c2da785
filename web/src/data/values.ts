/** Formats and parses values in a grid. */
import { type Field, isArray, isNumber } from '../model';

/** One line of text; the grid itself shows null. */
export function showValue(value: unknown, field: Field | null): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'object') return JSON.stringify(value);
  if (field?.type === 'timestamp' && typeof value === 'string') return value.replace('T', ' ').replace(/\.000Z$/, 'Z');
  if (field?.type === 'dateTime' && typeof value === 'string') return value.replace('T', ' ');
  return String(value);
}

/** The text with which an editor begins. */
export function editText(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value, null, 2) : String(value);
}

export type Entered = { readonly value: unknown } | { readonly error: string };

/**
 * The value of a text. In a field that is not a text, an empty text is null. An invalid text is sent unchanged, because the service knows
 * the type and explains the error.
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

/** Types that are written as JSON. */
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

/** Counted up to ten thousand; above that it is the planner's estimate. */
export function describeCount(count: number): string {
  return count <= 10_000 ? EXACT.format(count) : `about ${COUNTS.format(count)}`;
}
