/**
 * A connection whose rows are handed on while they arrive: no promise, no object and no memory per row. For reads, and for a
 * write with its read-back. The driver opens it (it knows hosts, passwords and settings) and closes it; between the two the
 * bytes are ours, because what the driver costs per statement and per byte bounds what the service can do (bench/profile.md).
 */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type postgres from 'postgres';
import { readError, SYNC, writeClosings, writeStatement } from './messages.js';
import { Prepared } from './prepared.js';
import { failingSocket, openSocket, type Receiver, stopStatement, type Target } from './socket.js';
import { closed, isFatal, isOutdated, isTaken, mixedUp } from './wire-errors.js';

/** A statement to be run, told of its rows as they come. */
export interface Errand {
  readonly text: string;
  readonly parameters: readonly (string | null)[];
  /** Whether the connection keeps the statement for the next time. */
  readonly prepare: boolean;
  /** Of a row: a cell, or a number and a cell. Null where nobody looks at them. */
  readonly columns: 1 | 2 | null;
  /**
   * A row of a cell, or of a number and a cell. A cell of at most LENT bytes is lent until what has arrived with it is read and
   * the promises that were settled meanwhile have been heard: then its memory is used again. A larger one is the receiver's.
   */
  row(number: number, cell: Buffer | null): void;
  /** Once, behind the last row. `unsent` tells that the connection could not be opened. */
  end(error: Error | null, unsent: boolean): void;
  /** Whether nobody waits for it any more. A function: a getter would make a hidden class for each errand, and keep it alive. */
  isAbandoned?(): boolean;
}

/** Less than what is written to a client in pieces, later. */
const LENT = 65_535;

/** A cell for longer than it is lent. */
export function keep(cell: Buffer | null): Buffer | null {
  return cell !== null && cell.length <= LENT ? Buffer.from(cell) : cell;
}

export type Client = postgres.Sql;

/** Messages up to this size that arrive in pieces are put together in memory that is used again. */
const SCRATCH = 65_536;

/** Milliseconds between attempts to open a connection: the first pause, which is doubled each time, and the longest. */
const PAUSE = 50;
const LONGEST_PAUSE = 250;

/** Opens a client of the driver that uses this socket. */
export type OpenClient = (socket: () => Promise<Socket>, onclose: () => void) => Client;

/** Statements of one transaction: they are answered in their order, and fail all or none. */
interface OnItsWay {
  readonly errands: readonly Errand[];
  readonly repeated: boolean;
  /** The texts that the server is to keep from now on, and how many of them it has understood: behind a failure it hears nothing. */
  readonly introduced: readonly string[];
  understood: number;
  /** The statement whose answer arrives. */
  position: number;
}

export class Wire implements Receiver {
  readonly #target: Target;
  readonly #make: () => Client;
  readonly #onclose: () => void;
  #client: Client;
  #socket: Socket | null = null;
  #ready = false;
  #ended = false;
  #opening: Promise<void> | null = null;
  readonly #waiting: (readonly Errand[])[] = [];
  readonly #sent: OnItsWay[] = [];
  readonly #prepared: Prepared;
  /** Attempts to open it that have failed since the last success, and when the next may be made. */
  #failures = 0;
  #resting = 0;
  /** Ends the attempt that is being made. */
  #abandon: (reason: Error) => void = () => {};
  #error: Error | null = null;
  /** The one that is filled next, and the one whose cells are lent. */
  #scratch = Buffer.allocUnsafeSlow(SCRATCH);
  #lent = Buffer.allocUnsafeSlow(SCRATCH);
  /** What the server wants to hear from whoever asks it to stop a statement. */
  #key: Buffer | null = null;
  #stopping = false;
  /** A message of which a part has arrived. */
  #partial: Buffer | null = null;
  #present = 0;

  /** `scope` says in which schemas names are looked up. `onclose` is called when the connection is lost, or could not be opened. */
  constructor(target: Target, open: OpenClient, scope: string, onclose: () => void = () => {}) {
    this.#target = target;
    this.#prepared = new Prepared(scope);
    this.#onclose = onclose;
    this.#make = () => {
      const isCurrent = (): boolean => this.#client === client;
      const client = open(
        () => this.#connect(isCurrent),
        () => {
          if (isCurrent()) this.#lose();
        },
      );
      return client;
    };
    this.#client = this.#make();
  }

  /** The driver's hold on the connection: it may use it while no errand is on its way. */
  get client(): Client {
    return this.#client;
  }

  /** What is sent together is one transaction, which ends with it: it needs no other statement to begin or to commit. */
  run(...errands: readonly Errand[]): void {
    if (this.#ready && !this.#stopping) this.#send(errands, false);
    else {
      this.#waiting.push(errands);
      if (!this.#stopping) this.#opening ??= this.#open();
    }
  }

  get isOpen(): boolean {
    return this.#ready;
  }

  get isOpening(): boolean {
    return this.#opening !== null;
  }

  /** Stops the statement that runs, if nobody waits for it any more. What comes meanwhile waits, lest it be stopped instead. */
  stopAbandoned(): void {
    if (this.#stopping || this.#key === null || !this.#sent[0]?.errands[0]?.isAbandoned?.()) return;
    this.#stopping = true;
    void stopStatement(this.#target, this.#socket as Socket, this.#key).finally(() => {
      this.#stopping = false;
      if (this.#ready) this.#sendWaiting();
      else if (this.#waiting.length > 0) this.#opening ??= this.#open();
    });
  }

  async close(timeout: number): Promise<void> {
    this.#ended = true;
    await this.#client.end({ timeout });
  }

  /** Bytes have arrived. */
  receive(chunk: Buffer, size: number): void {
    let at = this.#partial === null ? 0 : this.#complete(chunk, size);
    while (this.#sent.length > 0 && size - at >= 5) {
      const end = at + 1 + chunk.readUInt32BE(at + 1);
      if (end > size) break;
      this.#handle(chunk, at, end, false);
      at = end;
    }
    if (this.#sent.length === 0) at = this.#handOn(chunk, at, size);
    if (at < size) this.#keep(chunk, at, size);
  }

  /** Gives the driver whole messages alone: the rest of one may arrive when the bytes are ours. Answers where they end. */
  #handOn(chunk: Buffer, start: number, size: number): number {
    let at = start;
    while (size - at >= 5) {
      const end = at + 1 + chunk.readUInt32BE(at + 1);
      if (end > size) break;
      if (chunk[at] === KEY) this.#key = Buffer.from(chunk.subarray(at + 5, end));
      at = end;
    }
    if (at > start) this.#socket?.emit('data', Buffer.from(chunk.subarray(start, at)));
    return at;
  }

  /** For the driver. */
  async #connect(isCurrent: () => boolean): Promise<Socket> {
    try {
      const socket = await openSocket(this.#target, this);
      if (!isCurrent()) {
        socket.destroy();
        throw closed();
      }
      this.#partial = null;
      this.#socket = socket;
      // The driver would try again, at once and without an end, where a server hangs up before it has answered; but it does
      // so itself where the server is not of the kind that is wanted.
      if (!this.#target.target_session_attrs)
        socket.once('close', (hadError) => {
          if (this.#ready || !isCurrent()) return;
          this.#abandon(closed());
          if (!hadError) socket.emit('error', closed());
        });
      return socket;
    } catch (error) {
      this.#abandon(error as Error);
      return failingSocket(error as Error);
    }
  }

  async #open(): Promise<void> {
    try {
      const rest = this.#resting - performance.now();
      if (rest > 0) await sleep(rest);
      if (this.#ended) throw closed();
      const abandoned = new Promise<never>((_, reject) => {
        this.#abandon = reject;
      });
      // The driver opens the connection for a statement, were it an empty one.
      await Promise.race([this.#client.unsafe(''), abandoned]);
      this.#ready = this.#socket !== null;
      if (!this.#ready) throw closed();
      this.#failures = 0;
    } catch (error) {
      this.#renew();
      this.#opening = null;
      for (const errand of this.#waiting.splice(0).flat()) errand.end(error as Error, true);
      return;
    }
    this.#opening = null;
    this.#sendWaiting();
  }

  #sendWaiting(): void {
    for (const errands of this.#waiting.splice(0)) this.#send(errands, false);
  }

  /** After an attempt that failed the driver may go on trying, or send on the next connection what is left of the last. */
  #renew(): void {
    const former = this.#client;
    this.#resting = performance.now() + Math.min(PAUSE * 2 ** this.#failures++, LONGEST_PAUSE);
    this.#lose();
    if (this.#ended) return;
    this.#client = this.#make();
    void former.end({ timeout: 0 }).catch(() => {});
  }

  /** The driver opens another connection when it is asked for one. */
  #lose(): void {
    this.#onclose();
    this.#ready = false;
    this.#socket = null;
    this.#partial = null;
    this.#key = null;
    this.#prepared.clear();
    const reason = this.#error ?? closed();
    this.#error = null;
    for (const [position, { errands }] of this.#sent.splice(0).entries()) {
      // What was wrong with the first is not wrong with those behind it, unless it ended the connection.
      for (const errand of errands) errand.end(position === 0 || isFatal(reason) ? reason : closed(), false);
    }
  }

  #send(errands: readonly Errand[], repeated: boolean): void {
    const introduced: string[] = [];
    let message: Buffer;
    try {
      message = this.#write(errands, introduced);
    } catch (error) {
      for (const text of introduced) this.#prepared.forget(text);
      for (const errand of errands) errand.end(error as Error, false);
      return;
    }
    this.#sent.push({ errands, repeated, introduced, understood: 0, position: 0 });
    this.#socket?.write(message);
  }

  /** Adds to `introduced` the texts that the server has not seen. */
  #write(errands: readonly Errand[], introduced: string[]): Buffer {
    const messages: Buffer[] = [];
    for (const { text, parameters, prepare } of errands) {
      let name = prepare ? this.#prepared.nameOf(text) : '';
      const isNew = name === undefined || name === '';
      if (isNew) introduced.push(text);
      if (name === undefined) name = this.#prepared.remember(text);
      messages.push(writeStatement({ name, text: isNew ? text : null, parameters }));
    }
    messages.push(SYNC);
    // In front of all others: behind a statement that fails nothing is heard.
    if (this.#prepared.forgotten.size > 0) {
      messages.unshift(writeClosings(this.#prepared.forgotten));
      this.#prepared.haveClosed();
    }
    return Buffer.concat(messages);
  }

  #handle(message: Buffer, start: number, end: number, owned: boolean): void {
    if (this.#sent.length === 0) {
      this.#handOn(message, start, end);
      return;
    }
    switch (message[start]) {
      case ROW:
        this.#row(message, start + 5, owned);
        break;
      case PARSED:
        (this.#sent[0] as OnItsWay).understood++;
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
    const { errands, position } = this.#sent[0] as OnItsWay;
    const columns = message.readInt16BE(start);
    const expected = errands[position]?.columns;
    if (columns !== (expected ?? columns)) {
      this.#distrust();
      return;
    }
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
    errands[position]?.row(number, cell);
  }

  /** What arrives is not the answer to what was sent: nothing on this connection can be believed any more. */
  #distrust(): void {
    const socket = this.#socket;
    this.#error = mixedUp();
    this.#renew();
    socket?.destroy();
  }

  #end(): void {
    if (this.#error !== null && isTaken(this.#error)) {
      this.#distrust();
      return;
    }
    const { errands, repeated, introduced, understood } = this.#sent.shift() as OnItsWay;
    const error = this.#error;
    this.#error = null;
    // What was sent behind it runs now.
    if (this.#sent.length > 0) this.stopAbandoned();
    if (error === null) {
      for (const errand of errands) errand.end(null, false);
      return;
    }
    for (const text of introduced.slice(understood)) this.#prepared.forget(text);
    // Of a statement that the server does not know any more, or planned for what is no more, nothing was run.
    if (isOutdated(error) && !repeated) {
      for (const { text } of errands) this.#prepared.forget(text);
      this.#send(errands, true);
    } else for (const errand of errands) errand.end(error, false);
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
        const owned = partial.buffer !== this.#scratch.buffer;
        this.#partial = null;
        [this.#scratch, this.#lent] = [this.#lent, this.#scratch];
        this.#handle(partial, 0, length, owned);
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

const KEY = 0x4b;
const PARSED = 0x31;
const ROW = 0x44;
const COMPLETE = 0x43;
const ERROR = 0x45;
const READY = 0x5a;
