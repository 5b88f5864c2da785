/**
 * The scalar types of the service: which values the tests store, how they are written in SQL and in requests, how answers
 * show them, and how they compare. Values are plain JavaScript; a decimal is a bigint of thousandths, a time is a text with
 * milliseconds, a JSON value is boxed so that its null is not the NULL of SQL.
 */
import type { Draw } from './draw.js';
import { Decimal, type Expected } from './expected.js';
import { drawSpecial, isSpecial, type SpecialKind, writeSpecial } from './special-types.js';

export type KindName =
  | 'integer'
  | 'bigInteger'
  | 'decimal'
  | 'float'
  | 'boolean'
  | 'date'
  | 'dateTime'
  | 'timestamp'
  | 'time'
  | 'text'
  | 'string'
  | 'uuid'
  | 'json'
  | 'jsonb'
  | SpecialKind;

export interface Json {
  readonly json: unknown;
}

export type Value = number | bigint | string | boolean | Json | null;
export type Operand = string | number | boolean;

export const KINDS: readonly KindName[] = [
  'integer',
  'bigInteger',
  'decimal',
  'float',
  'boolean',
  'date',
  'dateTime',
  'timestamp',
  'time',
  'text',
  'string',
  'uuid',
  'json',
  'jsonb',
];

export const TEXTS = [
  '',
  'a',
  'A',
  'abc',
  'ABC',
  'Abc def',
  'aéb',
  'AÉB',
  'zürich',
  'ZÜRICH',
  '漢字',
  '😀 smile',
  '！wide',
  '100%',
  'b_c',
  'bxc',
  "o'clock",
  '"quoted"',
  'back\\slash',
  'comma,inside',
  ' lead',
  'tail ',
  'line\nbreak',
  'true',
  '5',
  '-1',
  '42.5',
  '[a]',
  '{"a":1}',
  '$1',
  '&x=1',
  '11111111-1111-4111-8111-111111111111',
] as const;
const DATES = ['1815-12-10', '1969-12-31', '1970-01-01', '1999-12-31', '2000-02-29', '2021-01-03', '2024-06-15'];
const TIMES = ['00:00:00.000', '09:05:07.000', '12:30:00.250', '23:59:59.000', '23:59:59.999'];
const UUIDS = [
  '00000000-0000-4000-8000-000000000000',
  '11111111-1111-4111-8111-111111111111',
  '9f3c1d2e-5b6a-4c7d-8e9f-0a1b2c3d4e5f',
  'ffffffff-ffff-4fff-bfff-ffffffffffff',
];

const POOLS: Readonly<
  Record<Exclude<KindName, 'json' | 'jsonb' | SpecialKind>, readonly Exclude<Value, Json | null>[]>
> = {
  integer: [-2147483648, -7, -1, 0, 1, 2, 3, 5, 42, 100, 2147483647],
  bigInteger: [-9223372036854775808n, -5n, 0n, 1n, 5n, 42n, 9007199254740993n, 9223372036854775807n],
  decimal: [-99999999999n, -1500n, -1n, 0n, 1n, 1000n, 1500n, 5000n, 42500n, 12345678901n],
  float: [-1000.25, -1, -0.25, 0, 0.5, 1, 1.25, 5, 42.5, 1048576],
  boolean: [true, false],
  date: DATES,
  dateTime: DATES.flatMap((date) => TIMES.map((time) => `${date}T${time}`)),
  timestamp: DATES.flatMap((date) => TIMES.map((time) => `${date}T${time}`)),
  time: TIMES,
  text: TEXTS,
  string: TEXTS,
  uuid: UUIDS,
};

export function isJson(kind: KindName): kind is 'json' | 'jsonb' {
  return kind === 'json' || kind === 'jsonb';
}

/** Whether values have neither an order nor operators that compare them. */
export function isBoxed(kind: KindName): kind is 'json' | 'jsonb' | SpecialKind {
  return isJson(kind) || isSpecial(kind);
}

export function isText(kind: KindName): boolean {
  return kind === 'text' || kind === 'string';
}

export function isNumber(kind: KindName): boolean {
  return kind === 'integer' || kind === 'bigInteger' || kind === 'decimal' || kind === 'float';
}

export function drawValue(kind: KindName, draw: Draw): Exclude<Value, null> {
  if (isSpecial(kind)) return drawSpecial(kind, draw);
  return isJson(kind) ? { json: drawJson(draw, 3) } : draw.pick(POOLS[kind]);
}

/** Keys of objects are few, so that paths find them. */
export const JSON_STEPS = ['a', 'b', 'k_1', 'ü'] as const;

export function drawJson(draw: Draw, depth: number): unknown {
  const form = draw.integer(0, depth > 0 ? 9 : 5);
  if (form <= 1) return draw.pick([0, 1, 2, -5, 2.5, 42, 100]);
  if (form <= 3) return draw.pick(['', 'x', 'X', '5', 'ünï', 'o"k', '100%', 'a_b']);
  if (form === 4) return draw.pick([true, false]);
  if (form === 5) return null;
  if (form <= 7) return draw.repeat(0, 3, () => drawJson(draw, depth - 1));
  return Object.fromEntries(draw.some(JSON_STEPS, 0, 3).map((key) => [key, drawJson(draw, depth - 1)]));
}

/** As PostgreSQL reads it. */
export function writeValue(kind: KindName, value: Value): string | null {
  if (value === null) return null;
  if (typeof value === 'object') return isSpecial(kind) ? writeSpecial(kind, value) : JSON.stringify(value.json);
  if (kind === 'decimal') return decimalText(value as bigint);
  return kind === 'timestamp' ? `${value}Z` : String(value);
}

/** One of the ways in which a request may say the value. */
export function drawOperand(kind: KindName, value: Exclude<Value, null>, draw: Draw): Operand {
  const plainly = draw.chance(50);
  switch (kind) {
    case 'integer':
    case 'float':
      return plainly ? (value as number) : String(value);
    case 'bigInteger': {
      const isSafe = Math.abs(Number(value)) <= Number.MAX_SAFE_INTEGER;
      return plainly && isSafe ? Number(value) : String(value);
    }
    case 'decimal':
      return plainly ? Number(decimalText(value as bigint)) : decimalText(value as bigint);
    case 'boolean':
      return plainly ? (value as boolean) : String(value);
    case 'dateTime':
      return plainly ? String(value) : String(value).replace('T', ' ');
    case 'timestamp':
      return plainly ? `${value}Z` : shifted(String(value));
    case 'uuid':
      return plainly ? String(value) : String(value).toUpperCase();
    case 'time':
      return plainly ? String(value) : String(value).replace(/\.?0*$/, (zeros) => (zeros.startsWith('.') ? '' : zeros));
    default:
      return String(value);
  }
}

/** The same instant, as a clock two hours ahead shows it. */
function shifted(instant: string): string {
  return new Date(Date.parse(`${instant}Z`) + 7_200_000).toISOString().replace('Z', '+02:00');
}

/** What a request says, as a value: the other direction of `drawOperand`. */
export function readOperand(kind: KindName, operand: unknown): Exclude<Value, null> {
  const text = String(operand);
  switch (kind) {
    case 'integer':
    case 'float':
      return Number(text);
    case 'bigInteger':
      return BigInt(text);
    case 'decimal':
      return readDecimal(text);
    case 'boolean':
      return text === 'true';
    case 'date':
      return moment(text)?.slice(0, 10) ?? text;
    case 'dateTime':
    case 'timestamp':
      return (
        moment(text) ??
        new Date(text.includes('Z') || text.includes('+') ? text : `${text}Z`).toISOString().slice(0, -1)
      );
    case 'time':
      return text.includes('.') ? text : `${text}.000`;
    case 'uuid':
      return text.toLowerCase();
    default:
      return text;
  }
}

/** `$NOW` and `$NOW(-1 day)`; stored times are far enough from now for the tests to take their time. */
function moment(text: string): string | null {
  const match = /^\$NOW(?:\(([+-]\d+) (hours?|days?)\))?$/.exec(text);
  if (!match) return null;
  const milliseconds = Number(match[1] ?? 0) * (match[2]?.startsWith('hour') ? 3_600_000 : 86_400_000);
  return new Date(Date.now() + milliseconds).toISOString().slice(0, -1);
}

export function readDecimal(text: string): bigint {
  const [, sign, whole, fraction = ''] = /^(-?)(\d+)(?:\.(\d{1,3})0*)?$/.exec(text) ?? [];
  if (whole === undefined) throw new Error(`"${text}" has more digits than the tests use`);
  const thousandths = BigInt(whole) * 1000n + BigInt(fraction.padEnd(3, '0'));
  return sign === '-' ? -thousandths : thousandths;
}

export function decimalText(thousandths: bigint): string {
  const digits = (thousandths < 0n ? -thousandths : thousandths).toString().padStart(4, '0');
  return `${thousandths < 0n ? '-' : ''}${digits.slice(0, -3)}.${digits.slice(-3)}`;
}

export function showValue(kind: KindName, value: Value): Expected {
  if (value === null) return null;
  if (typeof value === 'object') return value.json as Expected;
  switch (kind) {
    case 'bigInteger':
      return String(value);
    case 'decimal':
      return new Decimal(value as bigint, 1000n, 'text');
    case 'dateTime':
      return String(value).replace('.000', '');
    case 'timestamp':
      return `${value}Z`;
    case 'time':
      return String(value)
        .replace(/\.?0*$/, (zeros) => (zeros.startsWith('.') ? '' : zeros))
        .replace(/(\.\d*?)0+$/, '$1');
    default:
      return value as Expected;
  }
}

/** Both of one kind, neither null. Texts compare by code points. */
export function compareValues(left: Exclude<Value, null>, right: Exclude<Value, null>): number {
  if (typeof left === 'string' && typeof right === 'string')
    return Buffer.compare(Buffer.from(left), Buffer.from(right));
  if (typeof left === 'object' || typeof right === 'object') throw new Error('JSON values have no order');
  return left < right ? -1 : left > right ? 1 : 0;
}
