/** Values of a payload, checked against their columns and written as PostgreSQL reads them from JSON. */
import { failedValidation, invalidPayload } from '../../../base/errors.js';
import { Digits, isObject, parseJson, wholeDigits, writeJson, writtenJson } from '../../../base/exact-json.js';
import { sha256 } from '../../../base/sha256.js';
import { type Column, DATE_TYPES, type Field } from '../../model/model.js';
import { ownName } from '../../model/synonyms.js';
import { fits, isWithin, NOT_FINITE, NUMBER, RANGES, UUID_PATTERN } from '../../sql/codec.js';
import { type Composite, strayAttribute } from '../../sql/composite.js';
import { SHAPE, shapeText } from '../../sql/geojson.js';
import { elementBytes, hexOf, hstoreOf, hstoreOfText, VECTOR_TYPES, vectorOf } from '../../sql/literal.js';
import { isClock, isMoment, readMoment } from '../../sql/moment.js';

/**
 * Passwords and the like: replaced by their hash before the statement is sent. A class, so that no value of a payload is one. The
 * hash is no part of its JSON: two secrets of one text are the same.
 */
export class Secret {
  #hash: string | null = null;

  constructor(readonly text: string) {}

  /** Null until it was checked and hashed. */
  get hash(): string | null {
    return this.#hash;
  }

  set hash(hash: string | null) {
    this.#hash = hash;
  }
}

/** How secrets are shown. */
export const CONCEALED = '**********';

const TEXTS = new Set(['text', 'varchar', 'bpchar', 'citext', 'name']);
const PLAIN_NUMBER = /^(?:0|-?[1-9]\d*)$/;

/** `path` leads to the value inside the payload. Null passes here, even if the column refuses it. */
export function checkValue(field: Field, value: unknown, path: string): unknown {
  const column = field.column;
  if (!column) throw new Error(`the field "${field.name}" has no column`);
  if (value === null || value === undefined) return null;
  if (field.synonyms && typeof value === 'string')
    return checkSingle(ownName(field.synonyms, value), field, column, path);
  if (field.special.includes('hash'))
    return value instanceof Secret ? value : new Secret(scalarText(value, field, path));
  if (field.special.includes('digest')) return digest(scalarText(value, field, path), path);
  if (field.type === 'csv') return checkCsv(value, field, path);
  if (field.type === 'json') return checkJson(field.readsText ? documentOf(value) : value, column, path);
  if (field.type === 'binary') return checkBinary(value, path);
  if (field.type.startsWith('geometry')) return checkShape(value, path);
  if (column.is_array) return checkArray(value, field, column, path);
  return checkSingle(value, field, column, path);
}

/** A value that is not an array. Objects are values of composite types and hstore, as they are shown. */
function checkSingle(value: unknown, field: Field, column: Column, path: string): unknown {
  if (column.base_type === 'hstore') return checkPairs(value, field, path);
  return column.composite && isObject(value)
    ? checkComposite(value, column, column.composite, path)
    : checkScalar(value, field, column, path);
}

function checkComposite(value: object, column: Column, composite: Composite, path: string): unknown {
  const checked = checkJson(value, column, path);
  const unknownAttribute = strayAttribute(value, composite, path);
  if (unknownAttribute !== null) throw invalidPayload(unknownAttribute);
  return checked;
}

function checkPairs(value: unknown, field: Field, path: string): string {
  const pairs = isObject(value) ? hstoreOf(textsOf(value)) : hstoreOfText(scalarText(value, field, path));
  if (pairs === null) throw invalidValue(path, 'an object of strings');
  return pairs;
}

function textsOf(value: object): object {
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, textOfDigits(each)]));
}

function textOfDigits(value: unknown): unknown {
  return value instanceof Digits ? value.text : value;
}

/** The digest of a long random secret. Unlike a password by its hash, the secret can be found by its digest. */
function digest(text: string, path: string): string | null {
  // A header carries a token as one word.
  if (/\s/.test(text)) throw invalidValue(path, 'a string without spaces');
  return text === '' ? null : sha256(text);
}

function checkScalar(value: unknown, field: Field, column: Column, path: string): string | boolean {
  const type = column.base_type;
  const range = RANGES.get(type);
  // Most numbers are short, and written as PostgreSQL would write them.
  const number = range && typeof value === 'number' ? String(value) : value;
  if (range && typeof number === 'string' && number.length <= range.harmless && PLAIN_NUMBER.test(number))
    return number;
  const written = scalarText(value, field, path);
  const text = value instanceof Digits && (range || type === 'bool') ? (wholeDigits(written) ?? written) : written;
  if (type === 'bool') {
    if (/^(true|1)$/i.test(text)) return true;
    if (/^(false|0)$/i.test(text)) return false;
    throw invalidValue(path, 'true or false');
  }
  if (range) {
    if (typeof value === 'boolean' || !/^[+-]?\d{1,40}(\.0*)?$/.test(text)) throw invalidValue(path, 'a whole number');
    const digits = text.replace('+', '').replace(/\..*$/, '');
    if (!isWithin(range, digits)) throw failedValidation(field, 'out_of_range', path);
    return String(BigInt(digits));
  }
  if (type === 'numeric' || type === 'float4' || type === 'float8') {
    if (typeof value === 'string' && NOT_FINITE.test(text)) return text;
    if (typeof value === 'boolean' || !NUMBER.test(text)) throw invalidValue(path, 'a number');
    if (!isInRange(text, column)) throw failedValidation(field, 'out_of_range', path);
    return text;
  }
  if (type === 'uuid') {
    if (!UUID_PATTERN.test(text)) throw invalidValue(path, 'a UUID');
    return text.toLowerCase();
  }
  if (column.enum_values && !column.enum_values.includes(text))
    throw invalidValue(path, `one of ${column.enum_values.join(', ')}`);
  if (DATE_TYPES.has(field.type)) return checkMoment(text, field, path);
  if (field.type === 'time' && !isClock(text)) throw invalidValue(path, 'a time such as 13:45:00');
  if (column.max_length !== null && [...text].length > column.max_length)
    throw failedValidation(field, 'too_long', path);
  return text;
}

function scalarText(value: unknown, field: Field, path: string): string {
  if (typeof value === 'object' && !(value instanceof Digits)) {
    throw invalidValue(path, TEXTS.has(field.column?.base_type ?? '') ? 'a string' : 'a single value');
  }
  const text = String(value);
  if (text.includes('\0') || !text.isWellFormed())
    throw invalidValue(path, 'a string without NUL characters and unpaired surrogates');
  return text;
}

/** The elements are values of the type that the array's is named after. */
function checkArray(value: unknown, field: Field, column: Column, path: string): unknown {
  if (!Array.isArray(value)) throw invalidValue(path, 'a list');
  if (VECTOR_TYPES.includes(column.base_type)) {
    const vector = vectorOf(value.map(textOfDigits));
    if (vector === null) throw invalidValue(path, 'a list of whole numbers');
    return vector;
  }
  const element = { ...column, base_type: column.base_type.replace(/^_/, ''), is_array: false, max_length: null };
  const isDocument = element.base_type === 'json' || element.base_type === 'jsonb';
  return value.map((each, position) => {
    const location = `${path}.${position}`;
    if (each === null) return null;
    if (isDocument) return checkJson(each, element, location);
    if (element.base_type === 'bytea' && !Array.isArray(each)) return checkBinary(each, location, elementBytes);
    return Array.isArray(each)
      ? checkArray(each, field, column, location)
      : checkSingle(each, field, element, location);
  });
}

/** The document that a text holds. A text that is not JSON is a string. */
function documentOf(value: unknown): unknown {
  if (typeof value !== 'string') return value;
  try {
    return parseJson(value);
  } catch {
    return value;
  }
}

/** `jsonb` stores texts, which cannot hold NUL; `json` stores the document as it was written. */
function checkJson(value: unknown, column: Column, path: string): unknown {
  try {
    const { text, hasLongExponent } = writtenJson(value);
    if (hasLongExponent) throw invalidValue(path, 'a JSON value whose numbers have exponents of at most three digits');
    if (!/\\u0000|\\ud[89a-f]/i.test(text) || column.base_type !== 'jsonb') return value;
  } catch (error) {
    throw error instanceof RangeError ? invalidValue(path, 'a JSON value with fewer levels of nesting') : error;
  }
  throw invalidValue(path, 'a JSON value without NUL characters and unpaired surrogates');
}

/** `column` describes an element if the value is one of an array. */
function isInRange(text: string, { base_type, numeric_precision, numeric_scale }: Column): boolean {
  if (base_type !== 'numeric') return fits(base_type, text);
  return numeric_precision === null || integerDigits(text) <= numeric_precision - (numeric_scale ?? 0);
}

/** The digits before the point, of a number other than zero. */
function integerDigits(text: string): number {
  const [, whole = '', exponent] = /^[+-]?0*(\d*)[^e]*(e.*)?$/i.exec(text) ?? [];
  if (exponent === undefined) return whole.length;
  const number = Math.abs(Number(text));
  return number < 1 ? 0 : Math.floor(Math.log10(number)) + 1;
}

/** A day that the month does not have is refused here, where the field is known. */
function checkMoment(text: string, field: Field, path: string): string {
  const moment = readMoment(text);
  if (isMoment(moment)) return moment;
  throw invalidPayload(`Invalid ${field.type === 'date' ? 'Date' : 'DateTime'} format in field "${path}"`);
}

/** An object, its text as a file of CSV holds it, or EWKT. */
function checkShape(value: unknown, path: string): string {
  const text = shapeText(typeof value === 'string' ? value : writeJson(value));
  if (text === null) throw invalidValue(path, SHAPE);
  return text;
}

function checkCsv(value: unknown, field: Field, path: string): string {
  if (Array.isArray(value)) return value.map((entry) => scalarText(entry, field, path)).join(',');
  return scalarText(value, field, path);
}

function checkBinary(value: unknown, path: string, read = hexOf): string {
  const bytes = typeof value === 'string' ? read(value) : null;
  if (bytes === null) throw invalidValue(path, 'base64');
  return bytes;
}

function invalidValue(path: string, wanted: string): Error {
  return invalidPayload(`The value of "${path}" must be ${wanted}`);
}
