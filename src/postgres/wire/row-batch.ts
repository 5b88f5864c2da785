/**
 * The cells of a batch of rows, each by itself or joined by a byte: what consists of thousands of small rows is handed on, and
 * written to its client, in a few pieces.
 */
import type { BatchMemory } from './response-memory.js';
import type { Decoder } from './wire-query.js';

/** Pieces in which cells are joined: the first of a batch, and the largest. */
const FIRST_PIECE_BYTES = 16_384;
const MAX_PIECE_BYTES = 262_144;

/** Up to which a loop copies faster than Buffer does, which makes an object for each copy. */
const MAX_LOOPED_BYTES = 96;

/** The byte that cells may be joined by, and how many come alone before those. */
export interface Joining {
  readonly separator: number;
  readonly apart: number;
}

export class RowBatch implements Decoder {
  /** Of this batch. */
  rows = 0;
  bytes = 0;
  #cells: Buffer[] = [];
  /** The piece that is being filled, and how far. */
  #piece: Buffer | null = null;
  #length = 0;
  #nextPiece = FIRST_PIECE_BYTES;
  /** Rows that are still to come alone. */
  #apart: number;

  /** `refuse` gets the reason where there is no memory for more. */
  constructor(
    private readonly memory: BatchMemory,
    private readonly joining: Joining | null,
    private readonly refuse: (reason: Error) => void,
  ) {
    this.#apart = joining?.apart ?? 0;
  }

  /** The body of a DataRow message with one cell. */
  row(message: Buffer, start: number, owned: boolean): void {
    const from = start + 6;
    const length = message.readInt32BE(start + 2);
    if (length < 0) return;
    const refused = this.memory.receive(length);
    if (refused) {
      this.refuse(refused);
      return;
    }
    this.rows++;
    this.bytes += length;
    if (owned || this.joining === null || this.#apart > 0) {
      if (this.#apart > 0) this.#apart--;
      this.#endPiece();
      const cell = message.subarray(from, from + length);
      this.#cells.push(owned ? cell : Buffer.from(cell));
    } else this.#join(message, from, length, this.joining.separator);
  }

  /** The cells, which are the caller's from now on. */
  take(): Buffer[] {
    this.#endPiece();
    const cells = this.#cells;
    this.#cells = [];
    this.rows = 0;
    this.bytes = 0;
    this.#nextPiece = FIRST_PIECE_BYTES;
    return cells;
  }

  /** The cells that were taken are handed on: their memory is free. */
  release(): void {
    this.memory.clear();
  }

  #join(message: Buffer, from: number, length: number, separator: number): void {
    if (this.#piece !== null && this.#length + 1 + length > this.#piece.length) this.#endPiece();
    if (this.#piece === null) {
      this.#piece = Buffer.allocUnsafeSlow(Math.max(this.#nextPiece, length));
      this.#nextPiece = Math.min(this.#nextPiece * 4, MAX_PIECE_BYTES);
    } else this.#piece[this.#length++] = separator;
    if (length > MAX_LOOPED_BYTES) this.#length += message.copy(this.#piece, this.#length, from, from + length);
    else {
      const piece = this.#piece;
      let to = this.#length;
      for (let at = from; at < from + length; at++) piece[to++] = message[at] as number;
      this.#length = to;
    }
  }

  #endPiece(): void {
    if (this.#piece !== null) this.#cells.push(this.#piece.subarray(0, this.#length));
    this.#piece = null;
    this.#length = 0;
  }
}
