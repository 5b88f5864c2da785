/**
 * The messages of PostgreSQL's logical decoding (plugin pgoutput, version 1 of its protocol): which rows of which tables a
 * transaction has changed. Only the wanted columns of a row are read.
 */

import type { LoggedChange, LoggedRow, LoggedTable } from '../../server/changes/change-source.js';

export interface LogHandler {
  /** Which columns of the table to read, by index; null if the table is not wanted. */
  wanted(table: LoggedTable): readonly boolean[] | null;
  begin(xid: number): void;
  change(change: LoggedChange): void;
  /** The position behind the transaction, in bytes, and when it was committed, in milliseconds since 1970. */
  commit(position: number, time: number): void;
}

const BEGIN = 0x42;
const COMMIT = 0x43;
const RELATION = 0x52;
const INSERT = 0x49;
const UPDATE = 0x55;
const DELETE = 0x44;
const TRUNCATE = 0x54;

const KEY_ROW = 0x4b;
const OLD_ROW = 0x4f;
const IS_NULL = 0x6e;
const IS_UNCHANGED = 0x75;

const IDENTITY_FULL = 0x66;

/** From 1970 to 2000, where PostgreSQL's clock begins. */
const EPOCH_MS = 946_684_800_000;

export class LogDecoder {
  readonly #tables = new Map<number, LoggedTable>();

  constructor(private readonly handler: LogHandler) {}

  /** One message. Messages of other kinds, such as types and origins, are not about rows. */
  take(message: Buffer): void {
    switch (message[0]) {
      case BEGIN:
        this.handler.begin(message.readUInt32BE(17));
        break;
      case COMMIT:
        this.handler.commit(positionAt(message, 10), timeAt(message, 18));
        break;
      case RELATION:
        this.#tables.set(message.readUInt32BE(1), readTable(message));
        break;
      case INSERT:
      case UPDATE:
      case DELETE:
        this.#change(message);
        break;
      case TRUNCATE:
        for (let left = message.readUInt32BE(1), at = 6; left > 0; left--, at += 4)
          this.#report(message.readUInt32BE(at), 'truncate');
        break;
    }
  }

  #report(id: number, action: LoggedChange['action']): void {
    const table = this.#tables.get(id);
    if (table && this.handler.wanted(table)) this.handler.change({ table, action, before: null, after: null });
  }

  #change(message: Buffer): void {
    const table = this.#tables.get(message.readUInt32BE(1));
    const wanted = table && this.handler.wanted(table);
    if (!table || !wanted) return;
    const row = new RowReader(message, 5, wanted);
    const kind = message[5];
    const before = kind === KEY_ROW || kind === OLD_ROW ? row.read() : null;
    const after = message[0] === DELETE ? null : row.read();
    const action = message[0] === INSERT ? 'create' : message[0] === DELETE ? 'delete' : 'update';
    this.handler.change({ table, action, before, after });
  }
}

class RowReader {
  constructor(
    private readonly message: Buffer,
    private at: number,
    private readonly wanted: readonly boolean[],
  ) {}

  /** One row, behind the byte that says which. */
  read(): LoggedRow {
    const message = this.message;
    const count = message.readUInt16BE(this.at + 1);
    let at = this.at + 3;
    const values: (string | null | undefined)[] = [];
    for (let position = 0; position < count; position++) {
      const kind = message[at++];
      if (kind === IS_NULL) values[position] = null;
      else if (kind !== IS_UNCHANGED) {
        const end = at + 4 + message.readUInt32BE(at);
        if (this.wanted[position]) values[position] = message.toString('utf8', at + 4, end);
        at = end;
      }
    }
    this.at = at;
    return values;
  }
}

function readTable(message: Buffer): LoggedTable {
  const [schema, afterSchema] = textAt(message, 5);
  const [name, afterName] = textAt(message, afterSchema);
  const isFull = message[afterName] === IDENTITY_FULL;
  let at = afterName + 3;
  const columns = Array.from({ length: message.readUInt16BE(afterName + 1) }, () => {
    const isKey = ((message[at] ?? 0) & 1) === 1;
    const [column, end] = textAt(message, at + 1);
    at = end + 8;
    return { name: column, isKey };
  });
  return { schema, name, columns, isFull };
}

function textAt(message: Buffer, start: number): [text: string, behind: number] {
  const end = message.indexOf(0, start);
  return [message.toString('utf8', start, end), end + 1];
}

/** Logs are shorter than the largest exact number. */
export function positionAt(message: Buffer, at: number): number {
  return message.readUInt32BE(at) * 2 ** 32 + message.readUInt32BE(at + 4);
}

function timeAt(message: Buffer, at: number): number {
  return Number(message.readBigInt64BE(at) / 1_000n) + EPOCH_MS;
}
