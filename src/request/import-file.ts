/** Files to import: a JSON array, lines of JSON, or CSV with a header. Only the rows of the piece at hand are in memory. */

import { invalidPayload, unsupportedMediaType } from '../base/errors.js';
import { isObject, parseJson } from '../base/exact-json.js';
import { TimeSlice } from '../base/time-slices.js';
import { CsvReader } from './csv.js';
import type { Input } from './parse-context.js';

export type ImportFormat = 'json' | 'ndjson' | 'csv';

const FORMATS: Readonly<Record<string, ImportFormat>> = {
  'application/json': 'json',
  'application/x-ndjson': 'ndjson',
  'application/ndjson': 'ndjson',
  'application/jsonl': 'ndjson',
  'text/csv': 'csv',
};

export function formatOf(mediaType: string): ImportFormat {
  const type = mediaType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  const format = FORMATS[type];
  if (!format) throw unsupportedMediaType(type, 'the import');
  return format;
}

/** The rows of a file, as many at a time as have arrived. */
export async function* readRows(bytes: AsyncIterable<Buffer>, format: ImportFormat): AsyncGenerator<readonly Input[]> {
  if (format === 'csv') {
    yield* readCsv(bytes);
    return;
  }
  let row = 0;
  for await (const texts of format === 'json' ? jsonElements(bytes) : lines(bytes))
    yield texts.map((text) => readRow(text, ++row));
}

function readRow(text: string, row: number): Input {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    throw invalidPayload(`Row ${row} is not valid JSON`);
  }
  if (!isObject(value)) throw invalidPayload(`Row ${row} is not an object`);
  return value;
}

/** The longest row, in characters: it is held in memory while it is read. */
const LONGEST_ROW = 16_777_216;

async function* readCsv(bytes: AsyncIterable<Buffer>): AsyncGenerator<readonly Input[]> {
  const reader = new CsvReader(checkLength);
  for await (const text of decode(bytes)) yield reader.read(text);
  yield reader.end();
}

function checkLength(length: number): void {
  if (length > LONGEST_ROW) throw invalidPayload(`A row is longer than ${LONGEST_ROW} characters`);
}

/** Bytes that are read before others may have their turn. */
const PIECE = 65_536;

async function* decode(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const pace = new TimeSlice();
  try {
    for await (const piece of bytes) {
      for (let start = 0; start < piece.length; start += PIECE) {
        yield decoder.decode(piece.subarray(start, start + PIECE), { stream: true });
        if (pace.isOver()) await pace.rest();
      }
    }
    yield decoder.decode();
  } catch (error) {
    if (error instanceof TypeError) throw invalidPayload('The file is not UTF-8');
    throw error;
  }
}

async function* lines(bytes: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  let begun: string[] = [];
  let length = 0;
  const isRow = (line: string): boolean => line.trim() !== '';
  for await (const text of decode(bytes)) {
    const pieces = text.split('\n');
    const [first = ''] = pieces;
    begun.push(first);
    length += first.length;
    checkLength(length);
    if (pieces.length === 1) continue;
    const complete = [begun.join(''), ...pieces.slice(1, -1)];
    begun = [pieces.at(-1) ?? ''];
    length = begun[0]?.length ?? 0;
    yield complete.filter(isRow);
  }
  yield [begun.join('')].filter(isRow);
}

/** The elements of the outermost array, each as its text: brackets are counted outside of strings. */
async function* jsonElements(bytes: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  let depth = 0;
  let inString = false;
  let escaped = false;
  let element = '';
  let finished = false;
  let elements = 0;
  for await (const text of decode(bytes)) {
    const complete: string[] = [];
    let start = 0;
    let [backslash, quote] = [text.indexOf('\\'), text.indexOf('"')];
    for (let position = 0; position < text.length; position++) {
      if (inString) {
        if (escaped) {
          escaped = false;
          continue;
        }
        // To the end of the string, or to what is escaped in it.
        if (backslash >= 0 && backslash < position) backslash = text.indexOf('\\', position);
        if (quote >= 0 && quote < position) quote = text.indexOf('"', position);
        escaped = backslash >= 0 && (quote < 0 || backslash < quote);
        inString = escaped || quote < 0;
        position = escaped ? backslash : quote < 0 ? text.length : quote;
        continue;
      }
      const character = text.charAt(position);
      if (character === ' ' || character === '\n' || /\s/.test(character)) continue;
      if (finished || (depth === 0 && character !== '[')) throw invalidPayload('The file must hold one JSON array');
      if (character === '}' && depth === 1) throw invalidPayload('The file must hold one JSON array');
      if (character === '"') inString = true;
      else if (character === '[' || character === '{') {
        depth++;
        if (depth === 1) start = position + 1;
      } else if (character === ']' || character === '}') depth--;
      if ((character === ',' && depth === 1) || depth === 0) {
        element += text.slice(start, position);
        checkLength(element.length);
        start = position + 1;
        finished = depth === 0;
        // Only an array without elements may be empty between its brackets.
        if (!finished || element.trim() !== '' || elements > 0) {
          elements++;
          complete.push(element);
        }
        element = '';
      }
    }
    if (depth > 0) element += text.slice(start);
    checkLength(element.length);
    yield complete;
  }
  if (!finished) throw invalidPayload('The file ends inside its JSON array');
}
