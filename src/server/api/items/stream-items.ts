/** A long list of items as a stream: the bytes that PostgreSQL wrote are forwarded. */
import type { ExportFormat, Parsed } from '../../../compiler/request/ast.js';
import { hasOpening } from '../../execute/reads/compiled-read.js';
import type { PreparedRead, Reads } from '../../execute/reads/reads.js';
import type { RequestClient } from '../../execute/stages.js';
import { JSON_TYPE, type Produce, type Reply } from '../../http/reply.js';

/** Answers a read with a file. */
export type ExportItems = (
  prepared: PreparedRead<Parsed>,
  format: ExportFormat,
  reads: Reads,
  client: RequestClient,
) => Reply;

/** A list that may be large, in the envelope of every other list. */
export function streamItems(prepared: PreparedRead<Parsed>, reads: Reads, client: RequestClient): Reply {
  const { compiled } = prepared;
  const produce: Produce = async (sink) => {
    const [start, end] = prepared.query.bare ? BARE : ENVELOPE;
    let items = 0;
    let opened = false;
    const take = async (cells: readonly Buffer[]): Promise<boolean> => {
      if (!opened) client.staged('execute');
      const rows = hasOpening(compiled) && !opened ? cells.slice(1) : cells;
      const opening = opened ? undefined : hasOpening(compiled) ? cells[0] : start;
      opened = true;
      const piece = joinCells(rows, items === 0, opening);
      items += rows.length;
      return sink.write(piece);
    };
    await reads.stream(prepared, take, sink, COMMA);
    await sink.write(opened ? end : Buffer.concat([start, end]));
  };
  return { status: 200, type: JSON_TYPE, body: produce };
}

const ENVELOPE = [Buffer.from('{"data":['), Buffer.from(']}')] as const;
const BARE = [Buffer.from('['), Buffer.from(']')] as const;

export const COMMA = 0x2c;

/** The cells of a batch, with commas between them, after those already written. */
export function joinCells(cells: readonly Buffer[], first: boolean, opening: Buffer = NOTHING): Buffer {
  const size = cells.reduce((sum, cell) => sum + 1 + cell.length, opening.length);
  const joined = Buffer.allocUnsafe(size);
  let length = opening.copy(joined);
  for (const [position, cell] of cells.entries()) {
    if (position > 0 || !first) joined[length++] = COMMA;
    length += cell.copy(joined, length);
  }
  return joined.subarray(0, length);
}

const NOTHING = Buffer.alloc(0);
