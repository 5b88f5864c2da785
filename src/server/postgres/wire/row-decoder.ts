/** Rows of internal statements, as objects: the columns by their names, values of the common types as JavaScript has them. */
import { parseOwnJson } from '../../../base/narrow.js';

interface Column {
  readonly name: string;
  readonly decode: (text: string) => unknown;
}

const asNumber = (text: string): unknown => Number(text);
const asDate = (text: string): unknown => new Date(text);
const asText = (text: string): unknown => text;

/** By the numbers that PostgreSQL gives its types; values of all others stay texts. */
const DECODERS: Readonly<Record<number, (text: string) => unknown>> = {
  16: (text) => text === 't',
  17: (text) => Buffer.from(text.slice(2), 'hex'),
  21: asNumber,
  23: asNumber,
  26: asNumber,
  700: asNumber,
  701: asNumber,
  114: parseOwnJson,
  3802: parseOwnJson,
  1082: asDate,
  1114: asDate,
  1184: asDate,
};

/** Keeps the first cell of the last row, as the bytes PostgreSQL wrote: a large one in the memory in which it arrived. */
export class CellDecoder {
  cell: Buffer | null = null;

  row(message: Buffer, start: number, owned: boolean): void {
    const length = message.readInt32BE(start + 2);
    const cell = length < 0 ? null : message.subarray(start + 6, start + 6 + length);
    this.cell = cell === null || owned ? cell : Buffer.from(cell);
  }
}

export class RowDecoder<Row> {
  readonly rows: Row[] = [];
  #columns: readonly Column[] = [];

  /** The body of a RowDescription message. */
  describe(message: Buffer, start: number): void {
    let at = start + 2;
    this.#columns = Array.from({ length: message.readInt16BE(start) }, () => {
      const end = message.indexOf(0, at);
      const name = message.toString('utf8', at, end);
      const type = message.readUInt32BE(end + 7);
      at = end + 19;
      return { name, decode: DECODERS[type] ?? asText };
    });
  }

  /** The body of a DataRow message. */
  row(message: Buffer, start: number): void {
    let at = start + 2;
    const row: Record<string, unknown> = {};
    for (const { name, decode } of this.#columns) {
      const length = message.readInt32BE(at);
      at += 4;
      row[name] = length < 0 ? null : decode(message.toString('utf8', at, at + length));
      at += Math.max(length, 0);
    }
    this.rows.push(row as Row);
  }
}
