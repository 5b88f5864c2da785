/** How values are written for PostgreSQL, by the base type of the column they meet. */

import { forbidden, invalidQuery, type ServiceError } from '../../base/errors.js';
import { wholeDigits } from '../../base/exact-json.js';
import { ipVersion } from '../../base/ip-address.js';
import { type Composite, strayAttribute } from './composite.js';
import { SHAPE, shapeText } from './geojson.js';
import { jsonKey, recordKey } from './key-literal.js';
import { elementBytes, hexOf, hstoreOf, hstoreOfText, VECTOR_TYPES, vectorOf } from './literal.js';
import { readMoment } from './moment.js';

/** A list, an object, or a number with more digits than JavaScript holds: its JSON. */
interface JsonText {
  readonly json: string;
  /** As a URL gave it: types that have neither lists nor objects take it as it is. */
  readonly text?: string;
}

export type Scalar = string | number | boolean | JsonText;

/**
 * The catalog's name of a type (`int4`, `uuid`, ...); types not named here travel as text. `array` and
 * `record` stand for arrays and composite types, whose values travel as JSON that PostgreSQL takes apart. `json-key` and
 * `record-key` stand for keys that are shown as JSON.
 */
export type Codec = string;

/** Codecs of lists whose elements have a form of their own. */
const ELEMENT_CODECS: ReadonlySet<Codec> = new Set(['_bytea', '_hstore', ...VECTOR_TYPES]);

/** The codec of an array by its type. */
export function arrayCodec(type: string): Codec {
  return ELEMENT_CODECS.has(type) ? type : 'array';
}

function isListCodec(codec: Codec): boolean {
  return codec === 'array' || ELEMENT_CODECS.has(codec);
}

/** Whether values travel as JSON, from which PostgreSQL makes a value as it does in a write. */
export function isDocumentCodec(codec: Codec): boolean {
  return codec === 'record' || isListCodec(codec);
}

/** Where a value came from: decides which error a value that does not fit its column becomes. */
export interface Origin {
  readonly field: string;
  readonly use: 'key' | 'filter' | 'argument';
  /** The composite type of the value, or of an array's elements. */
  readonly composite?: Composite | null;
  /** The operator of the filter, where its values are not those of the field. */
  readonly operator?: string;
  /** For a field that holds names of collections: the table's name by each other name of the collection. */
  readonly synonyms?: Readonly<Record<string, string>>;
}

/** For each type of whole numbers: its largest values, and the number of digits that always fits. */
export const RANGES: ReadonlyMap<Codec, Range> = new Map([
  ['int2', { limit: 2n ** 15n, harmless: 4 }],
  ['int4', { limit: 2n ** 31n, harmless: 9 }],
  ['int8', { limit: 2n ** 63n, harmless: 18 }],
]);

interface Range {
  readonly limit: bigint;
  readonly harmless: number;
}

export const DATE_CODECS: ReadonlySet<Codec> = new Set(['date', 'timestamp', 'timestamptz']);
const FRACTIONS: ReadonlySet<Codec> = new Set(['float4', 'float8', 'numeric']);
export const NUMBER_CODECS: ReadonlySet<Codec> = new Set([...RANGES.keys(), ...FRACTIONS]);

export const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
export const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?$/i;
export const NOT_FINITE = /^(NaN|[+-]?Infinity)$/i;

export function encode(codec: Codec, input: Scalar | null, origin: Origin): string | null {
  if (input === null) return null;
  // Most keys are whole numbers.
  if (typeof input === 'string' && RANGES.has(codec) && fits(codec, input)) return input;
  const value = typeof input === 'object' && input.text !== undefined ? read(codec, input.json, input.text) : input;
  switch (codec) {
    case 'bool':
      return boolOf(typeof value === 'object' ? wholeDigits(value.json) : value, origin);
    case 'json':
    case 'jsonb':
      return jsonOf(value);
    case 'array':
      checkList(value, origin);
      checkAttributes(value, origin);
      return `{"v":${jsonOf(value)}}`;
    case 'record':
      checkAttributes(value, origin);
      return `{"v":${jsonOf(value)}}`;
    case 'geojson':
      return geoJsonOf(value, origin);
    case 'range':
    case 'multirange':
    case 'network':
    case 'ltree':
      return specialText(codec, value, origin);
    case '_bytea':
      return listOf(value, origin, { read: bytesOf, wanted: 'base64' });
    case '_hstore':
      return listOf(value, origin, { read: pairsOf, wanted: 'a list of objects of strings' });
    case 'oidvector':
    case 'int2vector':
      return vectorIn(value, origin);
    case 'json-key':
      return typeof value === 'object' ? value.json : jsonKey(String(value));
    case 'record-key':
      return recordKeyOf(value, origin);
    case 'hstore': {
      const pairs = pairsOf(typeof value === 'object' ? JSON.parse(value.json) : String(value));
      if (pairs === null) throw misfit(origin, 'it must be an object of strings');
      return pairs;
    }
  }
  const text = textOf(codec, value, origin);
  if (origin.synonyms !== undefined && Object.hasOwn(origin.synonyms, text)) return origin.synonyms[text] ?? text;
  if (NUMBER_CODECS.has(codec) && typeof value === 'boolean') throw misfit(origin, 'it must be a number');
  if (codec === 'bytea') {
    const bytes = hexOf(text);
    if (bytes === null) throw misfit(origin, 'it must be base64');
    return bytes;
  }
  if (FRACTIONS.has(codec) && NOT_FINITE.test(text)) return text;
  if (!fits(codec, text)) throw misfit(origin, complaint(codec));
  return text;
}

function boolOf(value: string | number | boolean | null, origin: Origin): string {
  if (value === true || value === 'true' || value === 1 || value === '1') return 'true';
  if (value === false || value === 'false' || value === 0 || value === '0') return 'false';
  throw misfit(origin, 'it must be true or false');
}

/** A JSON text of a URL, as the type takes it: `{}` is also how PostgreSQL writes an empty array. */
function read(codec: Codec, json: string, text: string): Scalar {
  const isDocument = codec === 'json' || codec === 'jsonb';
  const isList = isListCodec(codec) && json.startsWith('[');
  const isRecord = codec === 'record' && json.startsWith('{');
  return isDocument || isList || isRecord ? { json } : text;
}

/** As PostgreSQL writes arrays, with their bounds where these are not the usual ones. */
const ARRAY = /^(?:(?:\[[+-]?\d{1,9}(?::[+-]?\d{1,9})?\])+=)?\{/;

/** As JSON, or as PostgreSQL writes arrays. */
function checkList(value: Scalar, origin: Origin): void {
  const isList = typeof value === 'object' ? value.json.startsWith('[') : ARRAY.test(String(value));
  if (!isList) throw misfit(origin, 'it must be a list');
}

function checkAttributes(value: Scalar, origin: Origin): void {
  if (!origin.composite || typeof value !== 'object') return;
  const stray = strayAttribute(JSON.parse(value.json), origin.composite, origin.field);
  if (stray !== null) throw misfit(origin, stray);
}

function jsonOf(value: Scalar): string {
  return typeof value === 'object' ? value.json : JSON.stringify(value);
}

function recordKeyOf(value: Scalar, origin: Origin): string {
  const text = typeof value === 'object' ? value.json : String(value);
  const key = origin.composite ? recordKey(text, origin.composite) : text;
  if (key === null) throw misfit(origin, 'it has an attribute that its type does not have');
  return key;
}

function geoJsonOf(value: Scalar, origin: Origin): string {
  const text = shapeText(typeof value === 'object' ? value.json : String(value));
  if (text === null) throw misfit(origin, `it must be ${SHAPE}`);
  return text;
}

/** Types with a text format that is checked here, so that the message can name the field. */
function specialText(codec: 'range' | 'multirange' | 'network' | 'ltree', value: Scalar, origin: Origin): string {
  const text = textOf(codec, value, origin).trim();
  if (codec === 'network') {
    if (!isNetwork(text)) throw misfit(origin, 'it must be an address or a network such as 10.1.0.0/16');
    return text;
  }
  if (codec === 'ltree') {
    if (!isTreePath(text)) throw misfit(origin, 'it must be a path of labels such as Top.Science');
    return text;
  }
  const read = codec === 'range' ? rangeOf(text) : multirangeOf(text);
  if (read === null)
    throw misfit(origin, `it must be a ${codec} such as ${codec === 'range' ? '[1,5)' : '{[1,5),[8,9]}'}`);
  return read;
}

/** How an element of a list is written, and what it has to be. */
interface ElementCodec {
  /** The text of the element, or null for a value that is none. */
  readonly read: (value: unknown) => string | null;
  readonly wanted: string;
}

/** A list whose elements PostgreSQL cannot read as they are shown. A text in the notation of PostgreSQL stays as it is. */
function listOf(value: Scalar, origin: Origin, { read: readElement, wanted }: ElementCodec): string {
  checkList(value, origin);
  const written = (each: unknown): unknown => {
    if (Array.isArray(each)) return each.map(written);
    if (each === null) return null;
    const text = readElement(each);
    if (text === null) throw misfit(origin, `it must be ${wanted}`);
    return text;
  };
  const list: unknown = JSON.parse(jsonOf(value));
  return `{"v":${JSON.stringify(Array.isArray(list) ? written(list) : list)}}`;
}

function vectorIn(value: Scalar, origin: Origin): string {
  checkList(value, origin);
  const list: unknown = JSON.parse(jsonOf(value));
  const vector = Array.isArray(list) ? vectorOf(list) : null;
  if (vector === null) throw misfit(origin, 'it must be a list of whole numbers');
  return `{"v":${JSON.stringify(vector)}}`;
}

function bytesOf(value: unknown): string | null {
  return typeof value === 'string' ? elementBytes(value) : null;
}

function pairsOf(value: unknown): string | null {
  return typeof value === 'string' ? hstoreOfText(value) : hstoreOf(value);
}

function textOf(codec: Codec, value: Scalar, origin: Origin): string {
  if (typeof value !== 'object') return DATE_CODECS.has(codec) ? readMoment(String(value)) : String(value);
  if (!/^[-\d]/.test(value.json)) throw misfit(origin, 'it cannot be a list or an object');
  return RANGES.has(codec) ? (wholeDigits(value.json) ?? value.json) : value.json;
}

/** Whether a string can be read as a value of the type, as far as that is known without asking PostgreSQL. */
export function fits(codec: Codec, text: string): boolean {
  const range = RANGES.get(codec);
  if (range) return /^[+-]?\d{1,20}$/.test(text) && isWithin(range, text);
  if (FRACTIONS.has(codec)) return NUMBER.test(text) && (codec === 'numeric' || isRepresentable(codec, text));
  if (codec === 'uuid') return UUID_PATTERN.test(text);
  return !text.includes('\0');
}

/** Whether the digits of a whole number make one of the type. */
export function isWithin({ limit, harmless }: Range, digits: string): boolean {
  if (digits.length <= harmless) return true;
  const number = BigInt(digits.replace('+', ''));
  return number >= -limit && number < limit;
}

/** PostgreSQL refuses to read what a float would round to zero or to infinity. */
function isRepresentable(codec: Codec, text: string): boolean {
  const number = codec === 'float4' ? Math.fround(Number(text)) : Number(text);
  return Number.isFinite(number) && (number !== 0 || !/^[^e]*[1-9]/i.test(text));
}

function complaint(codec: Codec): string {
  if (RANGES.has(codec)) return `it must be a whole number in the range of ${codec}`;
  if (codec === 'uuid') return 'it must be a UUID';
  return FRACTIONS.has(codec) ? 'it must be a number' : 'a string cannot contain a NUL character';
}

export type Pattern = 'contains' | 'starts' | 'ends';

/** A pattern of `like` in which the value stands for itself. */
export function pattern(kind: Pattern, value: string): string {
  const escaped = value.replace(/[\\%_]/g, '\\$&');
  return `${kind === 'starts' ? '' : '%'}${escaped}${kind === 'ends' ? '' : '%'}`;
}

/** A key that cannot exist is a missing item (403, as for every missing item); elsewhere the query is wrong. */
function misfit(origin: Origin, reason: string): ServiceError {
  if (origin.use === 'key') return forbidden();
  const location = origin.use === 'argument' ? 'argument' : 'field';
  const operator = origin.operator === undefined ? '' : `"_${origin.operator}" of `;
  return invalidQuery(`Invalid value for ${operator}${location} "${origin.field}": ${reason}`);
}

/** Texts in the notation of a PostgreSQL type: ranges, networks and paths of a tree. PostgreSQL reads their content. */
const BOUND = String.raw`(?:"(?:[^"\\]|\\.|"")*"|[^"\\,()\[\]]*)`;
const RANGE = String.raw`(?:empty|[[(]\s*${BOUND}\s*,\s*${BOUND}\s*[\])])`;
const ONE_RANGE = new RegExp(`^${RANGE}$`, 'is');
const MANY_RANGES = new RegExp(String.raw`^\{\s*(?:${RANGE}\s*(?:,\s*${RANGE}\s*)*)?\}$`, 'is');

/** Returns null if it is no range, or has a NUL character. */
function rangeOf(text: string): string | null {
  return ONE_RANGE.test(text) && !text.includes('\0') ? text : null;
}

/** A range stands for the multirange that holds it alone. */
function multirangeOf(text: string): string | null {
  if (rangeOf(text) !== null) return /^empty$/i.test(text) ? '{}' : `{${text}}`;
  return MANY_RANGES.test(text) && !text.includes('\0') ? text : null;
}

/** An address, or one with the length of its network. */
function isNetwork(text: string): boolean {
  const [address = '', length, ...rest] = text.split('/');
  const version = ipVersion(address);
  if (version === 0 || rest.length > 0) return false;
  return length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= (version === 4 ? 32 : 128));
}

/** Labels with dots between them. */
function isTreePath(text: string): boolean {
  return /^[\p{L}\p{N}_-]+(?:\.[\p{L}\p{N}_-]+)*$/u.test(text);
}
