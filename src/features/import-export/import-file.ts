/**
 * Files to import: a JSON array, lines of JSON, or CSV with a header. Only the rows of the current piece are in memory.
 *
 * CSV follows RFC 4180, in pieces that may end anywhere: cells may be in quotes, a quote inside them is doubled, lines end with CRLF, LF or
 * CR, and empty lines are skipped. It is read by search and not by character if possible, because files are long.
 */

import { invalidPayload, unsupportedMediaType } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import { elementAt } from '../../base/narrow.js';
import { TimeSlice } from '../../base/time-slices.js';
import type { Input } from '../../compiler/request/parse-context.js';

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

/** A table of PostgreSQL has no more columns. */
const MOST_COLUMNS = 1_600;

const QUOTE = 0x22;
const COMMA = 0x2c;
const LF = 0x0a;
const CR = 0x0d;

/** Where the text read so far ends: before a cell, in a plain one, in one in quotes, or behind a quote in such a cell. */
type State = 'start' | 'plain' | 'quoted' | 'closed';

export class CsvReader {
  #names: readonly string[] | null = null;
  #cells: string[] = [];
  #cell = '';
  #state: State = 'start';
  /** Whether the last character ended a line as CR: an LF behind it belongs to it. */
  #afterCr = false;
  #line = 1;
  /** The index in the current piece at which the row begins. It is negative if the row began in an earlier piece. */
  #begun = 0;
  #rows: Record<string, string>[] = [];

  /** `checkLength` throws if a row is too long. */
  constructor(private readonly checkLength: (length: number) => void) {}

  /** The rows that are complete with this piece. Empty cells are absent, so that columns get their defaults. */
  read(text: string): Record<string, string>[] {
    this.#rows = [];
    if (text === '') return this.#rows;
    let at = this.#afterCr && text.charCodeAt(0) === LF ? 1 : 0;
    this.#afterCr = false;
    while (at < text.length) at = this.#step(text, at);
    this.checkLength(text.length - this.#begun);
    this.#begun -= text.length;
    return this.#rows;
  }

  /** The last row, if its line has no line break. */
  end(): Record<string, string>[] {
    this.#rows = [];
    if (this.#state === 'quoted') throw this.#invalid('a quote is not closed');
    if (this.#state !== 'start' || this.#cells.length > 0) this.#endLine();
    return this.#rows;
  }

  /** Continues from the state and returns the position of the next character. */
  #step(text: string, at: number): number {
    const code = text.charCodeAt(at);
    switch (this.#state) {
      case 'start':
        this.#state = code === QUOTE ? 'quoted' : 'plain';
        return code === QUOTE ? at + 1 : at;
      case 'plain':
        return this.#plain(text, at);
      case 'quoted':
        return this.#quoted(text, at);
      case 'closed':
        if (code === QUOTE) {
          this.#cell += '"';
          this.#state = 'quoted';
          return at + 1;
        }
        if (code !== COMMA && code !== LF && code !== CR)
          throw this.#invalid('there is a character after a closing quote');
        return this.#separate(text, at, code);
    }
  }

  #plain(text: string, start: number): number {
    let at = start;
    let code = 0;
    for (; at < text.length; at++) {
      code = text.charCodeAt(at);
      if (code === COMMA || code === LF || code === CR || code === QUOTE) break;
    }
    if (at > start) this.#cell = this.#cell === '' ? text.slice(start, at) : this.#cell + text.slice(start, at);
    if (at === text.length) return at;
    if (code === QUOTE) throw this.#invalid('there is a quote inside an unquoted cell');
    return this.#separate(text, at, code);
  }

  #quoted(text: string, start: number): number {
    const quoteAt = text.indexOf('"', start);
    const end = quoteAt < 0 ? text.length : quoteAt;
    const part = text.slice(start, end);
    this.#cell += part;
    for (let line = part.indexOf('\n'); line >= 0; line = part.indexOf('\n', line + 1)) this.#line++;
    if (quoteAt < 0) return end;
    this.#state = 'closed';
    return end + 1;
  }

  /** At a comma or at the end of a line. */
  #separate(text: string, at: number, code: number): number {
    if (code === COMMA) {
      this.#endCell();
      return at + 1;
    }
    this.#endLine();
    this.#afterCr = code === CR && at + 1 === text.length;
    this.#begun = code === CR && text.charCodeAt(at + 1) === LF ? at + 2 : at + 1;
    return this.#begun;
  }

  #endCell(): void {
    this.#cells.push(this.#cell);
    this.#cell = '';
    this.#state = 'start';
    const most = this.#names?.length ?? MOST_COLUMNS;
    if (this.#cells.length <= most) return;
    if (!this.#names) throw invalidPayload(`The CSV has more than ${MOST_COLUMNS} columns`);
    throw this.#invalid(`there are more cells than the ${most} of the header`);
  }

  #endLine(): void {
    // A cell in quotes is one, also where it is empty.
    const isEmpty = this.#cells.length === 0 && this.#cell === '' && this.#state === 'plain';
    if (!isEmpty) {
      this.#endCell();
      this.#endRow(this.#cells);
      this.#cells = [];
    }
    this.#state = 'start';
    this.#line++;
  }

  #endRow(cells: readonly string[]): void {
    if (!this.#names) {
      this.#names = checkHeader(cells);
      return;
    }
    if (cells.length < this.#names.length)
      throw this.#invalid(`there are ${cells.length} cells instead of the ${this.#names.length} of the header`);
    const row: Record<string, string> = {};
    for (let position = 0; position < cells.length; position++) {
      const cell = elementAt(cells, position);
      if (cell !== '') row[elementAt(this.#names, position)] = cell;
    }
    this.#rows.push(row);
  }

  #invalid(reason: string): Error {
    return invalidPayload(`The CSV cannot be read: ${reason} in line ${this.#line}`);
  }
}

function checkHeader(header: readonly string[]): readonly string[] {
  const seen = new Set<string>();
  for (const name of header) {
    if (seen.has(name)) throw invalidPayload(`The CSV names the column "${name}" twice`);
    // As a name of an object's property it would mean something else.
    if (name === '__proto__') throw invalidPayload('The CSV names a column "__proto__", which is no field');
    seen.add(name);
  }
  return header;
}
