/**
 * Items as a file. JSON and NDJSON forward the bytes that PostgreSQL wrote; the other formats have to read each item, one batch at a time.
 */
import { forbidden, invalidQuery } from '../../base/errors.js';
import { Digits, isObject, parseJson, writeJson } from '../../base/exact-json.js';
import { writeYaml } from '../../base/yaml.js';
import type { ExportFormat, Parsed } from '../../compiler/request/ast.js';
import { COMMA, joinCells } from '../../server/api/items/stream-items.js';
import type { CompiledRead } from '../../server/execute/reads/compiled-read.js';
import type { PreparedRead, Reads } from '../../server/execute/reads/reads.js';
import type { RequestClient } from '../../server/execute/stages.js';
import { contentDisposition, type Produce, type Reply } from '../../server/http/reply.js';
import { exportedFields } from './export-columns.js';

interface Export {
  readonly reply: Reply & { readonly body: Produce };
  /** The ending of the file's name, without a dot. */
  readonly extension: string;
}

export function exportItems(
  prepared: PreparedRead<Parsed>,
  name: ExportFormat,
  reads: Reads,
  client: RequestClient,
): Export {
  const { request } = prepared.query;
  const format: Format = name === 'geojson' ? featureFormat(prepared) : FORMATS[name];
  const produce: Produce = async (sink) => {
    let items = 0;
    const take = async (cells: readonly Buffer[], compiled: CompiledRead): Promise<boolean> => {
      const { columns } = exportedFields(compiled);
      if (items === 0) client.staged('execute');
      const piece = writeItems(format, cells, items === 0, columns);
      const whole = items === 0 ? Buffer.concat([Buffer.from(format.open(columns)), piece]) : piece;
      items += cells.length;
      return sink.write(whole);
    };
    const { columns } = exportedFields(await reads.stream(prepared, take, sink, format.separator));
    if (items === 0 && request.target.kind === 'item') throw forbidden();
    const opening = Buffer.from(format.open(columns));
    const closing = Buffer.from(format.close);
    const rest =
      items > 0 ? closing : format.empty === undefined ? Buffer.concat([opening, closing]) : Buffer.from(format.empty);
    if (rest.length > 0) await sink.write(rest);
  };
  const { type, extension } = format;
  const disposition = contentDisposition('attachment', `${request.collection}.${extension}`);
  return { reply: { status: 200, type, body: produce, headers: { 'Content-Disposition': disposition } }, extension };
}

/** The only geometry of the items, or the one that was named. */
function featureFormat({ query, compiled }: PreparedRead<Parsed>): Format {
  const { geometry } = query;
  const { geometryFields, keyField } = exportedFields(compiled);
  if (geometry !== undefined && !geometryFields.includes(geometry))
    throw invalidQuery(`"geometry": "${geometry}" is not a geometry field of the selected fields`);
  if (geometry === undefined && geometryFields.length !== 1)
    throw invalidQuery(
      geometryFields.length === 0
        ? 'An export as geojson needs a geometry field among the selected fields'
        : `An export as geojson needs "geometry": one of ${geometryFields.join(', ')}`,
    );
  return geojson(geometry ?? (geometryFields[0] as string), keyField);
}

/** Documents may be nested deeper than writers of other formats can follow. */
function writeItems(format: Format, ...batch: Parameters<Format['items']>): Buffer {
  try {
    return format.items(...batch);
  } catch (error) {
    if (error instanceof RangeError)
      throw invalidQuery(`A value is nested too deeply for an export as ${format.extension}`);
    throw error;
  }
}

interface Format {
  readonly type: string;
  readonly extension: string;
  readonly open: (columns: Columns) => string;
  /** The byte between two items, if they are not changed otherwise: then several may come as one cell. */
  readonly separator?: number;
  /** `first` says whether the batch holds the first item of the file. */
  readonly items: (cells: readonly Buffer[], first: boolean, columns: Columns) => Buffer;
  readonly close: string;
  /** The whole file without items, if it is not opening and closing. */
  readonly empty?: string;
}

type Columns = readonly (readonly string[])[];
type Item = Record<string, unknown>;

const FORMATS: Readonly<Record<Exclude<ExportFormat, 'geojson'>, Format>> = {
  json: {
    type: 'application/json; charset=utf-8',
    extension: 'json',
    open: () => '[',
    separator: COMMA,
    items: (cells, first) => joinCells(cells, first),
    close: ']',
  },
  ndjson: {
    type: 'application/x-ndjson; charset=utf-8',
    extension: 'ndjson',
    open: () => '',
    items: (cells) => Buffer.concat(cells.flatMap((cell) => [oneLine(cell), NEW_LINE])),
    close: '',
  },
  csv: csv(''),
  csv_utf8: csv('\uFEFF'),
  xml: {
    type: 'text/xml; charset=utf-8',
    extension: 'xml',
    open: () => '<?xml version="1.0" encoding="UTF-8"?>\n<data>\n',
    items: (cells) => Buffer.from(cells.map((cell) => `${element('item', read(cell), '  ')}\n`).join('')),
    close: '</data>\n',
  },
  yaml: {
    type: 'text/yaml; charset=utf-8',
    extension: 'yaml',
    open: () => '',
    items: (cells) => Buffer.from(cells.map((cell) => writeYaml([read(cell)])).join('')),
    close: '',
    empty: '[]\n',
  },
};

/** A FeatureCollection (RFC 7946): each item is a feature, its other fields are properties. */
function geojson(geometry: string, key: string | null): Format {
  const feature = (item: Item): string => {
    const { [geometry]: shape, ...properties } = item;
    // A shape that GeoJSON has no type for is a string: it stays a property.
    const isShape = shape === null || typeof shape === 'object';
    return writeJson({
      type: 'Feature',
      ...(key !== null && item[key] !== null && { id: item[key] }),
      geometry: isShape ? shape : null,
      properties: isShape ? properties : item,
    });
  };
  return {
    type: 'application/geo+json; charset=utf-8',
    extension: 'geojson',
    open: () => '{"type":"FeatureCollection","features":[',
    items: (cells, first) =>
      joinCells(
        cells.map((cell) => Buffer.from(feature(read(cell)))),
        first,
      ),
    close: ']}',
  };
}

const NEW_LINE = Buffer.from('\n');

/** PostgreSQL breaks lines between the elements of a list; inside strings they are escaped. */
function oneLine(cell: Buffer): Buffer {
  for (let position = cell.indexOf(10); position >= 0; position = cell.indexOf(10, position + 1)) cell[position] = 32;
  return cell;
}

function read(cell: Buffer): Item {
  const item = parseJson(cell.toString());
  return isObject(item) ? item : {};
}

function csv(mark: string): Format {
  return {
    type: 'text/csv; charset=utf-8',
    extension: 'csv',
    open: (columns) => `${mark}${columns.map((path) => csvCell(path.join('.'))).join(',')}\n`,
    items: (cells, _, columns) => {
      const lines = cells.map((cell) => {
        const item = read(cell);
        return `${columns.map((path) => csvCell(valueAt(item, path))).join(',')}\n`;
      });
      return Buffer.from(lines.join(''));
    },
    close: '',
  };
}

function valueAt(item: unknown, path: readonly string[]): unknown {
  let value = item;
  for (const step of path) value = isObject(value) ? value[step] : null;
  return value;
}

function csvCell(value: unknown): string {
  if (value === null || value === undefined) return '';
  const text = typeof value === 'object' && !(value instanceof Digits) ? writeJson(value) : String(value);
  return /[",\r\n]/.test(text) || /^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function element(name: string, value: unknown, indent: string): string {
  const tag = /^[A-Za-z_][\w.-]*$/.test(name) ? name : 'field';
  const attribute = tag === name ? '' : ` name="${escapeXml(name)}"`;
  if (value === null || value === undefined) return `${indent}<${tag}${attribute}/>`;
  if (typeof value !== 'object' || value instanceof Digits)
    return `${indent}<${tag}${attribute}>${escapeXml(String(value))}</${tag}>`;
  const children = Array.isArray(value)
    ? value.map((each) => element('item', each, `${indent}  `))
    : Object.entries(value).map(([key, each]) => element(key, each, `${indent}  `));
  if (children.length === 0) return `${indent}<${tag}${attribute}/>`;
  return `${indent}<${tag}${attribute}>\n${children.join('\n')}\n${indent}</${tag}>`;
}

const XML_NAMES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Control characters cannot be written in XML 1.0 at all. */
function escapeXml(text: string): string {
  return text
    .replace(/(?![\t\n\r])\p{Cc}|[\ufffe\uffff]/gu, '\ufffd')
    .replace(/[&<>"]/g, (each) => XML_NAMES[each] ?? each);
}
