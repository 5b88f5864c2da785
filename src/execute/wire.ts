/**
 * A connection for reads, whose rows are handed on while they arrive: no promise, no object and no memory per row. The
 * driver opens it (it knows hosts, passwords and settings) and closes it; between the two the bytes are ours, because what
 * the driver costs per statement and per byte bounds what the service can do (bench/profile.md).
 */
import type { Socket } from 'node:net';
import type postgres from 'postgres';
import { readError, SYNC, writeStatement } from './messages.js';
import { openSocket, type Receiver, type Target } from './socket.js';

/** A statement to be run, told of its rows as they come. */
export interface Errand {
  readonly text: string;
  readonly parameters: readonly (string | null)[];
  /** Whether the connection keeps the statement for the next time. */
  readonly prepare: boolean;
  /**
   * A row of a cell, or of a number and a cell. A cell of at most LENT bytes is lent for the time of the call: its memory is
   * used again. A larger one is the receiver's.
   */
  row(number: number, cell: Buffer | null): void;
  /** Once, behind the last row. */
  end(error: Error | null): void;
}

const LENT = 32_768;

/** A cell for longer than the call that brought it. */
export function keep(cell: Buffer | null): Buffer | null {
  return cell !== null && cell.length <= LENT ? Buffer.from(cell) : cell;
}

export type Client = postgres.Sql;

/** Messages up to this size that arrive in pieces are put together in memory that is used again. */
const SCRATCH = 65_536;

/** Statements that a connection keeps: PostgreSQL holds the plan of each. */
const MOST_PREPARED = 200;

/** Opens a client of the driver that uses this socket. */
export type OpenClient = (socket: () => Promise<Socket>, onclose: () => void) => Client;

/** Statements of one transaction: they are answered in their order, and fail all or none. */
interface OnItsWay {
  readonly errands: readonly Errand[];
  readonly repeated: boolean;
  /** The statement whose answer arrives. */
  position: number;
}

export class Wire implements Receiver {
  /** The driver's hold on the connection: it may use it while no errand is on its way. */
  readonly client: Client;
  #socket: Socket | null = null;
  #ready = false;
  #opening: Promise<void> | null = null;
  readonly #waiting: (readonly Errand[])[] = [];
  readonly #sent: OnItsWay[] = [];
  readonly #names = new Map<string, string>();
  #forgotten: string[] = [];
  #made = 0;
  #error: Error | null = null;
  readonly #scratch = Buffer.allocUnsafeSlow(SCRATCH);
  /** A message of which a part has arrived. */
  #partial: Buffer | null = null;
  #present = 0;

  /** `onclose` is called when the connection is lost. */
  constructor(target: Target, open: OpenClient, onclose: () => void = () => {}) {
    const socket = async (): Promise<Socket> => {
      this.#socket = await openSocket(target, this);
      return this.#socket;
    };
    this.client = open(socket, () => {
      this.#lose();
      onclose();
    });
  }

  /** What is sent together is one transaction, which ends with it: it needs no other statement to begin or to commit. */
  run(...errands: readonly Errand[]): void {
    if (this.#ready) this.#send(errands, false);
    else {
      this.#waiting.push(errands);
      this.#opening ??= this.#open();
    }
  }

  async close(timeout: number): Promise<void> {
    await this.client.end({ timeout });
  }

  /** Bytes have arrived. */
  receive(chunk: Buffer, size: number): void {
    if (this.#sent.length === 0) {
      this.#socket?.emit('data', Buffer.from(chunk.subarray(0, size)));
      return;
    }
    let at = this.#partial === null ? 0 : this.#complete(chunk, size);
    while (size - at >= 5) {
      const end = at + 1 + chunk.readUInt32BE(at + 1);
      if (end > size) break;
      this.#handle(chunk, at, end, false);
      at = end;
    }
    if (at < size) this.#keep(chunk, at, size);
  }

  async #open(): Promise<void> {
    try {
      // The driver opens the connection for a statement, were it an empty one.
      await this.client.unsafe('');
      this.#ready = this.#socket !== null;
      if (!this.#ready) throw closed();
      for (const errands of this.#waiting.splice(0)) this.#send(errands, false);
    } catch (error) {
      for (const errand of this.#waiting.splice(0).flat()) errand.end(error as Error);
    } finally {
      this.#opening = null;
    }
  }

  /** The driver opens another connection when it is asked for one. */
  #lose(): void {
    this.#ready = false;
    this.#socket = null;
    this.#partial = null;
    this.#names.clear();
    this.#forgotten = [];
    const reason = this.#error ?? closed();
    this.#error = null;
    for (const errand of this.#sent.splice(0).flatMap(({ errands }) => errands)) errand.end(reason);
  }

  #send(errands: readonly Errand[], repeated: boolean): void {
    this.#sent.push({ errands, repeated, position: 0 });
    const messages = errands.map((errand) => this.#write(errand));
    messages.push(SYNC);
    this.#socket?.write(Buffer.concat(messages));
  }

  #write({ text, parameters, prepare }: Errand): Buffer {
    let name = prepare ? this.#names.get(text) : '';
    const isNew = name === undefined || name === '';
    if (name === undefined) name = this.#remember(text);
    const forgotten = this.#forgotten;
    if (forgotten.length > 0) this.#forgotten = [];
    return writeStatement({ name, text: isNew ? text : null, parameters, forgotten });
  }

  #remember(text: string): string {
    if (this.#names.size >= MOST_PREPARED) {
      const [oldest] = this.#names.keys();
      if (oldest !== undefined) this.#forget(oldest);
    }
    const name = `s${++this.#made}`;
    this.#names.set(text, name);
    return name;
  }

  #forget(text: string): void {
    const name = this.#names.get(text);
    if (name === undefined) return;
    this.#names.delete(text);
    this.#forgotten.push(name);
  }

  #handle(message: Buffer, start: number, end: number, owned: boolean): void {
    switch (message[start]) {
      case ROW:
        this.#row(message, start + 5, owned);
        break;
      case COMPLETE:
        (this.#sent[0] as OnItsWay).position++;
        break;
      case ERROR:
        this.#error = readError(message, start + 5, end);
        break;
      case READY:
        this.#end();
        break;
    }
  }

  #row(message: Buffer, start: number, owned: boolean): void {
    const columns = message.readInt16BE(start);
    let at = start + 2;
    let number = 0;
    if (columns > 1) {
      const end = at + 4 + message.readInt32BE(at);
      for (at += 4; at < end; at++) number = number * 10 + (message[at] as number) - 48;
    }
    const length = message.readInt32BE(at);
    at += 4;
    let cell = length < 0 ? null : message.subarray(at, at + length);
    if (cell !== null && length > LENT && !owned) cell = Buffer.from(cell);
    const { errands, position } = this.#sent[0] as OnItsWay;
    errands[position]?.row(number, cell);
  }

  #end(): void {
    const { errands, repeated } = this.#sent.shift() as OnItsWay;
    const error = this.#error;
    this.#error = null;
    if (error === null) {
      for (const errand of errands) errand.end(null);
      return;
    }
    for (const { text } of errands) this.#forget(text);
    // Of a statement that the server does not know any more, or planned for what is no more, nothing was run.
    if (isOutdated(error) && !repeated) this.#send(errands, true);
    else for (const errand of errands) errand.end(error);
  }

  /** Keeps the beginning of a message whose rest is on its way. */
  #keep(chunk: Buffer, at: number, size: number): void {
    const present = size - at;
    const length = present < 5 ? 5 : 1 + chunk.readUInt32BE(at + 1);
    this.#partial = length <= SCRATCH ? this.#scratch.subarray(0, length) : Buffer.allocUnsafeSlow(length);
    this.#present = chunk.copy(this.#partial, 0, at, size);
  }

  /** Answers where in the chunk the next message begins. */
  #complete(chunk: Buffer, size: number): number {
    let at = 0;
    let partial = this.#partial as Buffer;
    while (at < size) {
      const taken = chunk.copy(partial, this.#present, at, Math.min(size, at + partial.length - this.#present));
      at += taken;
      this.#present += taken;
      if (this.#present < partial.length) return at;
      const length = 1 + partial.readUInt32BE(1);
      if (length === partial.length) {
        this.#partial = null;
        this.#handle(partial, 0, length, partial.buffer !== this.#scratch.buffer);
        return at;
      }
      // Only the head of the message had arrived.
      const whole = length <= SCRATCH ? this.#scratch.subarray(0, length) : Buffer.allocUnsafeSlow(length);
      partial.copy(whole, 0, 0, 5);
      partial = whole;
      this.#partial = whole;
    }
    return at;
  }
}

const ROW = 0x44;
const COMPLETE = 0x43;
const ERROR = 0x45;
const READY = 0x5a;

function isOutdated(error: Error): boolean {
  const code = 'code' in error ? error.code : '';
  return code === '26000' || (code === '0A000' && error.message.startsWith('cached plan'));
}

function closed(): Error {
  return Object.assign(new Error('The connection was closed'), { code: 'CONNECTION_CLOSED' });
}
