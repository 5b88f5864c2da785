/** How values are written for PostgreSQL, by the base type of the column they meet. */
import { forbidden, invalidQuery, type ServiceError } from '../errors.js';
import { readMoment } from './moment.js';

export type Scalar = string | number | boolean;

/** The catalog's name of a type (`int4`, `uuid`, ...); types not named here travel as text. */
export type Codec = string;

/** Where a value came from: decides which error a value that does not fit its column becomes. */
export interface Origin {
  readonly field: string;
  readonly use: 'key' | 'filter';
}

/** Of the types of whole numbers: what is too large, and how many digits never are. */
export const RANGES: ReadonlyMap<Codec, Range> = new Map([
  ['int2', { limit: 2n ** 15n, harmless: 4 }],
  ['int4', { limit: 2n ** 31n, harmless: 9 }],
  ['int8', { limit: 2n ** 63n, harmless: 18 }],
]);

interface Range {
  readonly limit: bigint;
  readonly harmless: number;
}

const MOMENTS: ReadonlySet<Codec> = new Set(['date', 'timestamp', 'timestamptz']);

/** Numbers beyond these cannot be read by PostgreSQL. */
const LARGEST: ReadonlyMap<string, number> = new Map([
  ['float4', 3.4e38],
  ['float8', Number.MAX_VALUE],
  ['numeric', Number.POSITIVE_INFINITY],
]);

export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
export const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?$/i;

export function encode(codec: Codec, value: Scalar | null, origin: Origin): string | null {
  if (value === null) return null;
  if (codec === 'bool') {
    if (value === true || value === 'true' || value === 1 || value === '1') return 'true';
    if (value === false || value === 'false' || value === 0 || value === '0') return 'false';
    throw misfit(origin, 'it needs true or false');
  }
  const text = MOMENTS.has(codec) ? readMoment(String(value)) : String(value);
  const isNumber = RANGES.has(codec) || codec === 'float4' || codec === 'float8' || codec === 'numeric';
  if (isNumber && typeof value === 'boolean') throw misfit(origin, 'it needs a number');
  if (!fits(codec, text)) throw misfit(origin, complaint(codec));
  return text;
}

/** Whether a text can be read as a value of the type, as far as that is known without asking PostgreSQL. */
export function fits(codec: Codec, text: string): boolean {
  const range = RANGES.get(codec);
  if (range) return /^[+-]?\d{1,20}$/.test(text) && isWithin(range, text);
  const largest = LARGEST.get(codec);
  if (largest !== undefined) return NUMBER.test(text) && Math.abs(Number(text)) <= largest && !vanishes(codec, text);
  if (codec === 'uuid') return UUID.test(text);
  return !text.includes('\0');
}

/** Whether the digits of a whole number make one of the type. */
export function isWithin({ limit, harmless }: Range, digits: string): boolean {
  if (digits.length <= harmless) return true;
  const number = BigInt(digits.replace('+', ''));
  return number >= -limit && number < limit;
}

/** What a double would round to zero PostgreSQL refuses to read. */
function vanishes(codec: Codec, text: string): boolean {
  if (codec === 'numeric' || !/^[^e]*[1-9]/i.test(text)) return false;
  return (codec === 'float4' ? Math.fround(Number(text)) : Number(text)) === 0;
}

function complaint(codec: Codec): string {
  if (RANGES.has(codec)) return `it needs a whole number in the range of ${codec}`;
  if (codec === 'uuid') return 'it needs a UUID';
  return codec === 'float4' || codec === 'float8' || codec === 'numeric'
    ? 'it needs a number'
    : 'a text cannot hold a NUL character';
}

export type Pattern = 'contains' | 'starts' | 'ends';

/** A pattern of `like` in which the value stands for itself. */
export function pattern(kind: Pattern, value: string): string {
  const escaped = value.replace(/[\\%_]/g, '\\$&');
  return `${kind === 'starts' ? '' : '%'}${escaped}${kind === 'ends' ? '' : '%'}`;
}

export function arrayLiteral(entries: readonly (string | null)[]): string {
  let literal = '{';
  for (let position = 0; position < entries.length; position++) {
    if (position > 0) literal += ',';
    const entry = entries[position] as string | null;
    literal += entry === null ? 'NULL' : `"${isPlain(entry) ? entry : entry.replace(/["\\]/g, '\\$&')}"`;
  }
  return `${literal}}`;
}

function isPlain(text: string): boolean {
  return !text.includes('"') && !text.includes('\\');
}

/** A key that cannot exist is a missing item (403, as for every missing item); elsewhere the query is wrong. */
function misfit(origin: Origin, reason: string): ServiceError {
  return origin.use === 'key' ? forbidden() : invalidQuery(`Invalid value for field "${origin.field}": ${reason}`);
}
