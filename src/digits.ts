/**
 * JSON whose numbers keep their digits. A JavaScript number holds about 15 of them; PostgreSQL's numeric and JSON types hold all.
 * Numbers that would lose some are read as `Digits`, which hold their text until it becomes part of a parameter; all others are
 * plain numbers. Most texts have none: whether to look closer is decided by one search.
 */
import { randomUUID } from 'node:crypto';

export class Digits {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }

  /** The mark is for `writtenJson` alone: whoever else asks, as the error texts of GraphQL do, is shown the digits. */
  toJSON(): string {
    if (!writing) return this.text;
    writing.mark ??= makeMark();
    writing.hasLongExponent ||= LONG_EXPONENT.test(this.text);
    return writing.mark + this.text;
  }
}

/** Neither null, nor a list, nor a number that is held as its digits. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === 'object' && !Array.isArray(value) && !(value instanceof Digits);
}

interface Writing {
  /** Null as long as no number with digits was met. */
  mark: string | null;
  hasLongExponent: boolean;
}

/** The text that is being written, which takes one call of `JSON.stringify`. */
let writing: Writing | null = null;

/**
 * Before the text of a number that stands in quotes on its way through JSON. Each text has its own, and none leaves this file: a string
 * that begins with a known mark would become JSON of the sender's choice.
 */
function makeMark(): string {
  return `digits ${randomUUID()} `;
}

const LONG_EXPONENT = /[eE][+-]?0*[1-9]\d{3}/;

/** A number of 16 characters or more, with an exponent, with a fraction that ends with a zero, or a negative zero. */
const SUSPECT = /(?:^|[\s:,[])-?(?:\d[\d.]{15}|\d[\d.]*[eE]|\d+\.\d*0(?![\d.])|(?<=-)0(?![\d.]))/;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/** Throws what `JSON.parse` throws. */
export function parseJson(text: string): unknown {
  return SUSPECT.test(text) ? parseDigits(text) : JSON.parse(text);
}

/** What `JSON.stringify` writes, with the digits of numbers in their places. */
export function writeJson(value: unknown): string {
  return writtenJson(value).text;
}

export interface WrittenJson {
  readonly text: string;
  /** Whether a number has an exponent of more than three digits: PostgreSQL would write all of its zeros. */
  readonly hasLongExponent: boolean;
}

export function writtenJson(value: unknown): WrittenJson {
  const state: Writing = { mark: null, hasLongExponent: false };
  writing = state;
  try {
    const text = JSON.stringify(value);
    const { mark, hasLongExponent } = state;
    return { text: mark === null ? text : text.replace(new RegExp(`"${mark}([^"]*)"`, 'g'), '$1'), hasLongExponent };
  } finally {
    writing = null;
  }
}

/** A number where it says the same as the text, else its digits. */
export function readNumber(text: string): number | Digits {
  return isExact(text) ? Number(text) : new Digits(text);
}

/** The digits of a whole number, however JSON wrote it (`5.0`, `1.0e5`); null where it is none. */
export function wholeDigits(text: string): string | null {
  const [, sign = '', whole, fraction = '', exponent = '0'] = (text.length <= LONGEST_WHOLE && PARTS.exec(text)) || [];
  if (whole === undefined) return null;
  const shift = Number(exponent) - fraction.length;
  const digits = whole + fraction;
  if (shift >= 0) return String(BigInt(sign + digits + '0'.repeat(shift)));
  return /^0*$/.test(digits.slice(shift)) ? String(BigInt(`${sign}${digits.slice(0, shift) || '0'}`)) : null;
}

const LONGEST_WHOLE = 400;
const PARTS = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d{1,3}))?$/i;

function parseDigits(text: string): unknown {
  const mark = makeMark();
  let rewritten = '';
  let taken = 0;
  let position = 0;
  while (position < text.length) {
    const code = text.charCodeAt(position);
    if (code === QUOTE) {
      position = behindString(text, position);
      continue;
    }
    if (code !== MINUS && !(code >= ZERO && code <= NINE)) {
      position++;
      continue;
    }
    NUMBER.lastIndex = position;
    const token = NUMBER.exec(text)?.[0] ?? '';
    if (token !== '' && !isExact(token)) {
      rewritten += `${text.slice(taken, position)}"${mark}${token}"`;
      taken = position + token.length;
    }
    position += Math.max(token.length, 1);
  }
  return JSON.parse(rewritten + text.slice(taken), (_, value: unknown) =>
    typeof value === 'string' && value.startsWith(mark) ? new Digits(value.slice(mark.length)) : value,
  );
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;

function behindString(text: string, start: number): number {
  for (let position = start + 1; position < text.length; position++) {
    const code = text.charCodeAt(position);
    if (code === QUOTE) return position + 1;
    if (code === BACKSLASH) position++;
  }
  return text.length;
}

function isExact(token: string): boolean {
  const [mantissa = ''] = token.split(/[eE]/);
  if (mantissa === '-0' || (mantissa.includes('.') && mantissa.endsWith('0'))) return false;
  const significant = mantissa.replace(/^-|\./g, '').replace(/^0+/, '');
  const number = Number(token);
  if (Math.abs(number) > Number.MAX_SAFE_INTEGER) return false;
  return significant.length > 15 ? String(number) === token : number !== 0 || significant === '';
}
