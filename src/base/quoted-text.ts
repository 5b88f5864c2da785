/**
 * The texts that an error of PostgreSQL quotes, in any language. They say whether the request sent what could not be read: if not, a policy,
 * trigger or view of the database failed on a value of its own.
 */
import { isObject } from './exact-json.js';
import { propertiesOf } from './narrow.js';

const QUOTED = /["„“”«»‹›‘’「」『』]([^"„“”«»‹›‘’「」『』]+)["“”«»‹›’」』]/g;

export function quotedTexts(message: string): string[] {
  return [...message.matchAll(QUOTED)].map(([, text = '']) => text);
}

/** A pair of quotation marks with nothing in between, or the context of a JSON document that is empty. */
const EMPTY = /: *["„“”«»‹›‘’「」『』]["“”«»‹›’」』]/;
const EMPTY_DOCUMENT = /^[^\n"]*\d\s*[:：] *(\n|$)/;

/** Errors about a text that cannot be read as a value of its type. */
const READING: ReadonlySet<string> = new Set(['22P02', '22007', '22008', '22023']);

/** The source files of PostgreSQL about settings. */
const SETTINGS_FILE = /^guc/;

/** Shorter texts may be part of any other text by chance. */
const SHORTEST_PART = 2;

/** Whether the error is about a text that is neither in the values of the failed statement nor made from them. */
export function isAboutUnsent(error: Error, sent: readonly (string | null)[]): boolean {
  const { code, file, detail, where } = propertiesOf(error);
  const isSetting = code === '42704' && SETTINGS_FILE.test(String(file));
  if (!isSetting && !READING.has(String(code))) return false;
  const quoted = quotedTexts(`${error.message}\n${detail ?? ''}`).map(comparable);
  const isEmpty = EMPTY.test(error.message) || (quoted.length === 0 && EMPTY_DOCUMENT.test(String(where ?? '-')));
  if (quoted.length === 0 && !isEmpty) return false;
  const texts = sent.flatMap((each) => (each === null ? [] : [each, ...leavesOf(each)]));
  if (isEmpty) return !texts.includes('');
  const known = texts.map(comparable);
  const isMadeOf = (text: string, part: string): boolean =>
    !isSetting && part.length >= SHORTEST_PART && text.includes(part);
  return !quoted.some((text) => known.some((each) => each.includes(text) || isMadeOf(text, each)));
}

/** Without spaces, and in small letters: PostgreSQL quotes the words of a date as it has read them. */
function comparable(text: string): string {
  return text.replace(/\s+/g, '').toLowerCase();
}

/** The texts and numbers of a JSON document. */
function leavesOf(text: string): string[] {
  if (!/^\s*[[{]/.test(text)) return [];
  try {
    return jsonLeaves(JSON.parse(text));
  } catch {
    return [];
  }
}

/** The texts and numbers in a value of JSON. */
export function jsonLeaves(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(jsonLeaves);
  if (isObject(value)) return Object.values(value).flatMap(jsonLeaves);
  return typeof value === 'string' || typeof value === 'number' ? [String(value)] : [];
}
