/** Formats, parses and checks values. The Explorer reports a wrong value instead of sending it. */
import { type Field, isArray, isMoment, isNumber, isRange } from '../model';
import { isMomentText } from './moment';

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

export type Entered =
  /** `isEmpty`: nothing is typed, which stands for null in an item. */
  | { readonly value: unknown; readonly isEmpty?: true }
  /** `position` of the first wrong character, if it is known. */
  | { readonly error: string; readonly position?: number };

/** The value that the user entered. An empty input is null, except in a text field. */
export function readEntered(text: string, field: Field): Entered {
  const isText = field.type === 'string' || field.type === 'text';
  if (text === '' && !isText) return { value: null, isEmpty: true };
  if (isStructured(field)) return readJson(text, isArray(field));
  if (field.choices.length > 0) return readChoice(text, field);
  if (isText) return readText(text, field);
  const trimmed = text.trim();
  if (field.type === 'boolean') return { value: text === 'true' };
  if (isNumber(field)) return readNumber(trimmed, field);
  if (isMoment(field))
    return isMomentText(trimmed, field.type) ? { value: trimmed } : { error: `must be ${MOMENTS[field.type]}` };
  if (field.type === 'uuid' && !UUID.test(trimmed)) return { error: 'must be a UUID' };
  if (isRange(field) && !RANGE.test(trimmed)) return { error: 'must be a range such as [1,10)' };
  return { value: trimmed };
}

const UUID = /^\{?[\da-f]{4}(-?[\da-f]{4}){7}\}?$/i;
const RANGE = /^(empty|[[(][^,]*,[^,]*[\])])$/i;

const MOMENTS: Readonly<Record<string, string>> = {
  date: 'a date such as 2024-05-31',
  time: 'a time such as 14:30:00',
  dateTime: 'a date and time such as 2024-05-31 14:30:00',
  timestamp: 'a date and time such as 2024-05-31 14:30:00Z',
};

function readText(text: string, { column }: Field): Entered {
  const most = column?.max_length ?? null;
  const length = [...text].length;
  return most !== null && length > most
    ? { error: `has ${length} characters; at most ${most} are allowed` }
    : { value: text };
}

function readChoice(text: string, field: Field): Entered {
  const found = field.choices.find(({ value }) => String(value) === text);
  if (found) return { value: field.type === 'integer' ? Number(found.value) : found.value };
  const names = field.choices.slice(0, 10).map(({ value }) => String(value));
  return field.allowsOther ? { value: text } : { error: `must be one of ${names.join(', ')}` };
}

function readNumber(text: string, { type, column }: Field): Entered {
  if (type === 'integer' || type === 'bigInteger') {
    if (!/^[-+]?\d+$/.test(text)) return { error: 'must be a whole number' };
    const most = 2n ** BigInt((column?.numeric_precision ?? (type === 'integer' ? 32 : 64)) - 1);
    const number = BigInt(text.replace('+', ''));
    if (number < -most || number >= most) return { error: `must be from ${-most} to ${most - 1n}` };
    return { value: type === 'integer' ? Number(number) : String(number) };
  }
  const isSpecial = /^([-+]?infinity|nan)$/i.test(text);
  if (!isSpecial && !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text)) return { error: 'must be a number' };
  const { numeric_precision: digits = null, numeric_scale: scale = null } = column ?? {};
  const whole = /^[-+]?0*(\d*)/.exec(text)?.[1]?.length ?? 0;
  if (type === 'decimal' && digits !== null && scale !== null && whole > digits - scale)
    return { error: `has ${whole} digits before the point; at most ${digits - scale} are allowed` };
  return { value: type === 'float' && !isSpecial ? Number(text) : text };
}

/** JSON with the line and column of the first error. */
export function readJson(text: string, isList = false): Entered {
  try {
    const value: unknown = JSON.parse(text);
    return isList && !Array.isArray(value) ? { error: 'must be a list such as [1, 2]', position: 0 } : { value };
  } catch (error) {
    const { message, position } = placeOfError(error instanceof Error ? error.message : '', text);
    const before = text.slice(0, position).split('\n');
    return { error: `Line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}: ${message}`, position };
  }
}

/** Browsers name the position in their own ways: an offset, or a line and a column. An unexpected end is at the end. */
function placeOfError(message: string, text: string): { readonly message: string; readonly position: number } {
  const offset = /at position (\d+)/.exec(message)?.[1];
  const [, line, column] = /at line (\d+) column (\d+)/.exec(message) ?? [];
  const lines = text.split('\n');
  const start = lines.slice(0, Number(line) - 1).reduce((sum, each) => sum + each.length + 1, 0);
  const position =
    offset !== undefined ? Number(offset) : line !== undefined ? start + Number(column) - 1 : text.length;
  const plain = message
    .replace(/^JSON\.parse: /, '')
    .replace(/,? (in JSON )?at (position|line) .*$/s, '')
    .replace(/, (\.\.\.)?".*" is not valid JSON$/s, '');
  return { message: plain === '' ? 'is not JSON' : plain, position: Math.min(position, text.length) };
}

/** Types that are written as JSON. */
export function isStructured(field: Field): boolean {
  return field.type === 'json' || isArray(field);
}

export function isLong(field: Field): boolean {
  return field.type === 'text' || isStructured(field);
}

const COUNTS = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const EXACT = new Intl.NumberFormat('en');

export function exactCount(count: number): string {
  return EXACT.format(count);
}

export function shortCount(count: number): string {
  return count < 10_000 ? EXACT.format(count) : COUNTS.format(count);
}

/** Counted up to ten thousand; above that it is the planner's estimate. */
export function describeCount(count: number): string {
  return count <= 10_000 ? EXACT.format(count) : `about ${COUNTS.format(count)}`;
}
