/** A file to import as rows of texts. Small files are held in memory, so that columns can be mapped and rows corrected. */
import type { Collection } from '../model';
import { parseCsv, writeCsv } from './csv';
import { readEntered } from './values';

export interface ImportRow {
  /** From 1, as in the file. */
  readonly number: number;
  /** In the order of the columns. A cell of a JSON file is a text of JSON. */
  readonly cells: readonly string[];
  readonly isLeftOut: boolean;
}

export interface ImportFile {
  readonly source: Blob;
  /** The media type of the body. */
  readonly type: string;
  readonly columns: readonly string[];
  readonly rows: readonly ImportRow[];
  /** Whether all rows are in memory. */
  readonly isWhole: boolean;
  readonly isJson: boolean;
}

const TYPES: Readonly<Record<string, string>> = {
  csv: 'text/csv',
  json: 'application/json',
  ndjson: 'application/x-ndjson',
  jsonl: 'application/x-ndjson',
};

export const SMALL_BYTES = 10_000_000;

export async function readImport(file: File): Promise<ImportFile> {
  const type = TYPES[file.name.split('.').at(-1)?.toLowerCase() ?? ''];
  if (type === undefined) throw new Error('The file must end in .csv, .json or .ndjson.');
  const isJson = type !== 'text/csv';
  if (file.size > SMALL_BYTES) return { source: file, type, columns: [], rows: [], isWhole: false, isJson };
  const text = await file.text();
  const { header, rows } = isJson ? jsonTable(text, type === 'application/json') : parseCsv(text);
  if (header.length === 0) throw new Error('The file is empty.');
  return {
    source: file,
    type: isJson ? 'application/x-ndjson' : type,
    columns: header,
    rows: rows.map((cells, at) => ({
      number: at + 1,
      cells: header.map((_, column) => cells[column] ?? ''),
      isLeftOut: false,
    })),
    isWhole: true,
    isJson,
  };
}

/** Absent keys are empty cells. */
function jsonTable(text: string, isList: boolean): { header: string[]; rows: string[][] } {
  const lines = isList ? [text] : text.split('\n').filter((line) => line.trim() !== '');
  const values = lines.flatMap((line, at): unknown[] => {
    try {
      const value: unknown = JSON.parse(line);
      if (isList && !Array.isArray(value)) throw new Error('must be a list of objects');
      return isList ? (value as unknown[]) : [value];
    } catch (error) {
      throw new Error(
        `${isList ? 'The file' : `Line ${at + 1}`} is not JSON: ${error instanceof Error ? error.message : ''}`,
      );
    }
  });
  const objects = values.map((value, at) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new Error(`Row ${at + 1} is not an object.`);
    return value as Readonly<Record<string, unknown>>;
  });
  const header = [...new Set(objects.flatMap((object) => Object.keys(object)))];
  const rows = objects.map((object) => header.map((name) => (name in object ? JSON.stringify(object[name]) : '')));
  return { header, rows };
}

/** A field with the name of the column, if case, spaces and underscores are ignored. */
export function suggestedField(column: string, { fields }: Collection): string | null {
  if (fields.has(column)) return column;
  const plain = (name: string): string => name.toLowerCase().replace(/[\s_-]+/g, '');
  return [...fields.keys()].find((name) => plain(name) === plain(column)) ?? null;
}

/** The rows that are not left out, with the names of fields. */
export function mappedBody(
  { isJson, type }: ImportFile,
  mapping: readonly (string | null)[],
  rows: readonly ImportRow[],
): Blob {
  const used = mapping.flatMap((name, at) => (name === null ? [] : [{ name, at }]));
  const kept = rows.filter(({ isLeftOut }) => !isLeftOut);
  const text = isJson
    ? kept.map(({ cells }) => jsonLine(used, cells)).join('\n')
    : writeCsv({
        header: used.map(({ name }) => name),
        rows: kept.map(({ cells }) => used.map(({ at }) => cells[at] ?? '')),
      });
  return new Blob([text], { type });
}

/** Cells are texts of JSON already. A corrected cell that is not JSON is a string. */
function jsonLine(used: readonly { readonly name: string; readonly at: number }[], cells: readonly string[]): string {
  const entries = used.flatMap(({ name, at }) => {
    const cell = cells[at] ?? '';
    return cell === '' ? [] : [`${JSON.stringify(name)}:${isJsonText(cell) ? cell : JSON.stringify(cell)}`];
  });
  return `{${entries.join(',')}}`;
}

function isJsonText(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export const MOST_CHECKED = 1_000;

export interface Mistake {
  /** The number of the row. */
  readonly row: number;
  /** The position of the cell in the row. */
  readonly at: number;
  readonly cell: string;
}

/** The cells that are not values of their fields. */
export function mistakesIn(
  rows: readonly ImportRow[],
  mapping: readonly (string | null)[],
  { fields }: Collection,
): readonly Mistake[] {
  const mistakes: Mistake[] = [];
  for (const { number: row, cells, isLeftOut } of rows.slice(0, MOST_CHECKED)) {
    if (isLeftOut) continue;
    for (const [at, name] of mapping.entries()) {
      const field = name === null ? undefined : fields.get(name);
      const cell = cells[at] ?? '';
      if (!field?.column || field.relation || cell === '') continue;
      if ('error' in readEntered(plainText(cell), field)) mistakes.push({ row, at, cell });
    }
  }
  return mistakes;
}

/** A string of a JSON file without its quotes. */
function plainText(cell: string): string {
  return /^".*"$/s.test(cell) && isJsonText(cell) ? String(JSON.parse(cell)) : cell;
}
