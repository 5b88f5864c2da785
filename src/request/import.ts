/** Files to import, one row at a time: a JSON array, lines of JSON, or CSV with a header. Only the row at hand is in memory. */
import { Readable } from 'node:stream';
import { CsvError, parse as parseCsv } from 'csv-parse';
import { isObject, parseJson } from '../digits.js';
import { invalidPayload, unsupportedMediaType } from '../errors.js';
import { TimeSlice } from '../time-slices.js';
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

export async function* readRows(bytes: AsyncIterable<Buffer>, format: ImportFormat): AsyncGenerator<Input> {
  if (format === 'csv') {
    yield* readCsv(bytes);
    return;
  }
  let row = 0;
  for await (const text of format === 'json' ? jsonElements(bytes) : lines(bytes)) {
    row++;
    yield readRow(text, row);
  }
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

/** A table of PostgreSQL has no more columns. */
const MOST_COLUMNS = 1_600;

/** The longest row, in characters (in CSV: bytes): it is held in memory while it is read. */
const LONGEST_ROW = 16_777_216;

/** Empty cells are absent, so that columns get their defaults. */
async function* readCsv(bytes: AsyncIterable<Buffer>): AsyncGenerator<Input> {
  const parser = parseCsv({
    columns: checkHeader,
    bom: true,
    // Named, because to find out costs the parser several allocations per character of the first line.
    record_delimiter: ['\r\n', '\n', '\r'],
    skip_empty_lines: true,
    relax_column_count: false,
    max_record_size: LONGEST_ROW,
  });
  const source = Readable.from(inPieces(decode(bytes)));
  source.on('error', (error) => parser.destroy(error));
  source.pipe(parser);
  try {
    for await (const record of parser) yield withoutEmpty(record);
  } catch (error) {
    throw error instanceof CsvError ? invalidPayload(`The CSV cannot be read: ${error.message}`) : error;
  }
}

/** Bytes that the parser is given at a time: it reads all that it is given before others have their turn. */
const PIECE = 16_384;

/** As bytes again: a chunk may end inside a character. */
async function* inPieces(texts: AsyncIterable<string>): AsyncGenerator<Buffer> {
  const pace = new TimeSlice();
  for await (const text of texts) {
    const bytes = Buffer.from(text);
    for (let start = 0; start < bytes.length; start += PIECE) {
      yield bytes.subarray(start, start + PIECE);
      if (pace.isOver()) await pace.rest();
    }
  }
}

function withoutEmpty(record: Readonly<Record<string, string>>): Input {
  return Object.fromEntries(Object.entries(record).filter(([, value]) => value !== ''));
}

function checkHeader(header: string[]): string[] {
  if (header.length > MOST_COLUMNS) throw invalidPayload(`The CSV has more than ${MOST_COLUMNS} columns`);
  const seen = new Set<string>();
  for (const name of header) {
    if (seen.has(name)) throw invalidPayload(`The CSV names the column "${name}" twice`);
    seen.add(name);
  }
  return header;
}

function checkLength(length: number): void {
  if (length > LONGEST_ROW) throw invalidPayload(`A row is longer than ${LONGEST_ROW} characters`);
}

async function* decode(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  try {
    for await (const piece of bytes) yield decoder.decode(piece, { stream: true });
    yield decoder.decode();
  } catch (error) {
    if (error instanceof TypeError) throw invalidPayload('The file is not UTF-8');
    throw error;
  }
}

async function* lines(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let begun: string[] = [];
  let length = 0;
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
    for (const line of complete) if (line.trim() !== '') yield line;
  }
  const last = begun.join('');
  if (last.trim() !== '') yield last;
}

/** The elements of the outermost array, each as its text: brackets are counted outside of strings. */
async function* jsonElements(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let depth = 0;
  let inString = false;
  let escaped = false;
  let element = '';
  let finished = false;
  let elements = 0;
  for await (const text of decode(bytes)) {
    let start = 0;
    for (let position = 0; position < text.length; position++) {
      const character = text.charAt(position);
      if (inString) {
        if (escaped) escaped = false;
        else if (character === '\\') escaped = true;
        else if (character === '"') inString = false;
        continue;
      }
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
          yield element;
        }
        element = '';
      }
    }
    if (depth > 0) element += text.slice(start);
    checkLength(element.length);
  }
  if (!finished) throw invalidPayload('The file ends inside its JSON array');
}
