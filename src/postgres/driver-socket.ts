/**
 * The way from PostgreSQL's socket to the driver. Node would make a buffer for every piece that arrives, and the driver would
 * copy the pieces of a large message together. Here all pieces are read into one buffer that stays, and the driver gets
 * whole messages: each byte is copied once. Rows of a stream can be joined on the way, so that the driver handles a few
 * large ones instead of thousands.
 */
import type { Socket } from 'node:net';
import type { BatchMemory } from './response-memory.js';
import { openSocket, reportHangUp, type Target } from './socket.js';

export async function openDriverSocket(target: Target, joiner: Joiner): Promise<Socket> {
  const give = (bytes: Buffer): boolean => socket.emit('data', bytes);
  const messages = new Messages(joiner, give, (refused) => socket.destroy(refused));
  const socket: Socket = await openSocket(target, {
    buffer: SHARED,
    receive: (chunk, size) => messages.take(chunk.subarray(0, size)),
  });
  if (!target.target_session_attrs) reportHangUp(socket);
  return socket;
}

/** All sockets read into it: what has arrived is copied out before anything else is read. */
const SHARED = Buffer.allocUnsafeSlow(262_144);

/** Type and length. */
const HEADER_BYTES = 5;
/** The head of a row with one cell: also the number of its cells and the length of the first. */
const ROW_HEADER_BYTES = 11;
const DATA_ROW = 0x44;

/** Joins the rows of a statement while it is told to, and counts what they take. */
export class Joiner {
  readonly memory: BatchMemory;
  /** Why there is no memory for what arrives: it ends the connection. */
  refused: Error | null = null;
  /** How many rows have come since the last call of `begin`. */
  rows = 0;
  #separator: number | null = null;
  #apart = 0;

  constructor(memory: BatchMemory) {
    this.memory = memory;
  }

  /** From now on cells come joined by the byte; the first rows, as many as `apart` says, come alone. */
  begin(separator: number, apart: number): void {
    this.rows = 0;
    this.#separator = separator;
    this.#apart = apart;
  }

  end(): void {
    this.#separator = null;
  }

  get active(): boolean {
    return this.#separator !== null;
  }

  /**
   * Makes rows that follow each other one, in place; answers how long the messages are then. Nothing is made per row: views
   * would cost more than the bytes they move.
   */
  join(bytes: Buffer): number {
    const separator = this.#separator as number;
    let length = 0;
    let row = -1;
    for (let start = 0; start < bytes.length; ) {
      const end = start + 1 + numberAt(bytes, start + 1);
      const isRow = bytes[start] === DATA_ROW;
      if (isRow) this.rows++;
      const isJoined = isRow && this.rows > this.#apart && hasOneCell(bytes, start);
      if (isJoined && row >= 0) {
        bytes[length++] = separator;
        bytes.copyWithin(length, start + ROW_HEADER_BYTES, end);
        length += end - start - ROW_HEADER_BYTES;
      } else {
        if (row >= 0) closeRow(bytes, row, length);
        row = isJoined ? length : -1;
        bytes.copyWithin(length, start, end);
        length += end - start;
      }
      start = end;
    }
    if (row >= 0) closeRow(bytes, row, length);
    return length;
  }
}

/** Four bytes as a number; the methods of Buffer check what need not be checked here. */
function numberAt(bytes: Buffer, position: number): number {
  return (
    (((bytes[position] as number) << 24) |
      ((bytes[position + 1] as number) << 16) |
      ((bytes[position + 2] as number) << 8) |
      (bytes[position + 3] as number)) >>>
    0
  );
}

function closeRow(bytes: Buffer, row: number, end: number): void {
  bytes.writeUInt32BE(end - row - 1, row + 1);
  bytes.writeUInt32BE(end - row - ROW_HEADER_BYTES, row + HEADER_BYTES + 2);
}

/** And it is not null. */
function hasOneCell(bytes: Buffer, row: number): boolean {
  return (
    bytes[row + HEADER_BYTES] === 0 &&
    bytes[row + HEADER_BYTES + 1] === 1 &&
    (bytes[row + HEADER_BYTES + 2] as number) < 0x80
  );
}

/** Cuts what arrives into whole messages. */
class Messages {
  readonly #joiner: Joiner;
  readonly #give: (bytes: Buffer) => void;
  readonly #end: (refused: Error) => void;
  /** Of a message that has begun: what is known of its head; then all of it. */
  readonly #head = Buffer.alloc(HEADER_BYTES);
  #known = 0;
  #whole: Buffer | null = null;

  constructor(joiner: Joiner, give: (bytes: Buffer) => void, end: (refused: Error) => void) {
    this.#joiner = joiner;
    this.#give = give;
    this.#end = end;
  }

  /** The bytes are used again behind the call. */
  take(bytes: Buffer): void {
    this.#joiner.refused ??= this.#joiner.memory.receive(bytes.length);
    if (this.#joiner.refused) {
      this.#end(this.#joiner.refused);
      return;
    }
    let start = this.#known > 0 ? this.#complete(bytes, 0) : 0;
    const first = start;
    while (start + HEADER_BYTES <= bytes.length) {
      const end = start + 1 + numberAt(bytes, start + 1);
      if (end > bytes.length) break;
      start = end;
    }
    if (start > first) {
      const messages = bytes.subarray(first, start);
      this.#give(Buffer.from(this.#joiner.active ? messages.subarray(0, this.#joiner.join(messages)) : messages));
    }
    if (start < bytes.length) this.#complete(bytes, start);
  }

  /** Takes the bytes into the message that has begun, and gives it when that is all of it. Answers where it ends. */
  #complete(bytes: Buffer, start: number): number {
    let position = start;
    while (this.#known < HEADER_BYTES && position < bytes.length)
      this.#head[this.#known++] = bytes[position++] as number;
    if (this.#known < HEADER_BYTES) return position;
    if (this.#whole === null) {
      this.#whole = Buffer.allocUnsafe(1 + this.#head.readUInt32BE(1));
      this.#head.copy(this.#whole);
    }
    const copied = bytes.copy(this.#whole, this.#known, position);
    this.#known += copied;
    if (this.#known === this.#whole.length) {
      const whole = this.#whole;
      this.#whole = null;
      this.#known = 0;
      if (this.#joiner.active) this.#joiner.join(whole);
      this.#give(whole);
    }
    return position + copied;
  }
}
