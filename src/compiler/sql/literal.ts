/** Values with a text format of PostgreSQL: arrays, vectors, bytes, pairs of an hstore. */
import { hexOfBase64 } from '../../base/host.js';

export function arrayLiteral(entries: readonly (string | null)[]): string {
  let literal = '{';
  for (let position = 0; position < entries.length; position++) {
    if (position > 0) literal += ',';
    const entry = entries[position] ?? null;
    literal += entry === null ? 'NULL' : quoted(entry);
  }
  return `${literal}}`;
}

/** Types that are shown as arrays, and read only as a text of numbers with spaces in between. */
export const VECTOR_TYPES: readonly string[] = ['oidvector', 'int2vector'];

/** Returns null if an entry is no whole number. */
export function vectorOf(entries: readonly unknown[]): string | null {
  const texts = entries.map((entry) => (typeof entry === 'object' ? '' : String(entry)));
  return texts.every((text) => /^[+-]?\d{1,10}$/.test(text)) ? texts.join(' ') : null;
}

/** Decodes base64, in either of its alphabets, or returns null for other text. */
export function hexOf(base64: string): string | null {
  const digits = base64.replace(/={1,2}$/, '');
  if (!/^[A-Za-z0-9+/_-]*$/.test(digits) || digits.length % 4 === 1) return null;
  return `\\x${hexOfBase64(digits)}`;
}

/** Arrays of more than one dimension show their elements in hexadecimal digits. */
export function elementBytes(text: string): string | null {
  return /^\\x(?:[0-9a-f]{2})*$/i.test(text) ? text : hexOf(text);
}

/** Accepts an object whose values are texts, numbers, booleans or null, and returns null for anything else. */
export function hstoreOf(value: unknown): string | null {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return null;
  const pairs = Object.entries(value);
  if (pairs.some(([key, each]) => key.includes('\0') || !isText(each))) return null;
  return pairs
    .map(([key, each]) => `${quoted(key)}=>${each === null || each === undefined ? 'NULL' : quoted(String(each))}`)
    .join(',');
}

const WORD = String.raw`(?:"(?:[^"\\\0]|\\[^\0])*"|[^\s"\\=,>\0]+)`;
const PAIRS = new RegExp(
  String.raw`^[ \t\r\n]*(?:${WORD}[ \t\r\n]*=>[ \t\r\n]*${WORD}[ \t\r\n]*(?:,[ \t\r\n]*(?=\S)|$))*$`,
);

/**
 * Accepts the JSON text of such an object, or pairs as PostgreSQL writes them. Wrong texts are found here, because hstore has no error code
 * of its own for them.
 */
export function hstoreOfText(text: string): string | null {
  if (!/^\s*\{/.test(text)) return PAIRS.test(text) ? text : null;
  try {
    return hstoreOf(JSON.parse(text));
  } catch {
    return null;
  }
}

function isText(value: unknown): boolean {
  return value === null || value === undefined || (typeof value !== 'object' && !String(value).includes('\0'));
}

function quoted(text: string): string {
  const isPlain = !text.includes('"') && !text.includes('\\');
  return `"${isPlain ? text : text.replace(/["\\]/g, '\\$&')}"`;
}
