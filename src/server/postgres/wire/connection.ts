/**
 * A connection, its state and its time limits: every statement is answered, if only by the error that the connection was lost.
 * Rows are passed on while they arrive: no promise, no object and no memory per row. The driver sends the first statements; from then
 * on the bytes are ours, because what the driver costs per statement and per byte bounds what the service can do (bench/profile.md),
 * and because it leaves statements unanswered when a connection breaks.
 */
import type { Socket } from 'node:net';
import { asError } from '../../../base/narrow.js';
import { atMost } from '../../../base/time-limit.js';
import { closed, isFatal, isOutdated, isReadOnly, isTaken, mixedUp, unanswered } from './connection-errors.js';
import type { ConnectionOptions, DriverClient } from './connection-options.js';
import { MessageReader } from './message-reader.js';
import { writeQueries } from './message-writer.js';
import { Opening } from './open-connection.js';
import {
  BACKEND_KEY_DATA,
  COMMAND_COMPLETE,
  DATA_ROW,
  ERROR_RESPONSE,
  NOTIFICATION_RESPONSE,
  PARSE_COMPLETE,
  PORTAL_SUSPENDED,
  PreparedStatements,
  READY_FOR_QUERY,
  ROW_DESCRIPTION,
  readNotification,
  SYNC,
  TERMINATE,
  TRANSACTION_FAILED,
  TRANSACTION_IDLE,
  writeFetch,
} from './protocol.js';
import { restoringStatements } from './restored-session.js';
import { cancelStatement, type Receiver } from './socket.js';
import { PROBE_TIMEOUT_MS, TRUSTED_IDLE_MS, type Watched } from './watchdog.js';
import {
  type BoundStatement,
  MAX_BORROWED_BYTES,
  readFailure,
  type SentQueries,
  skippableQuery,
  TransactionSettings,
  transactionQuery,
  type WireQuery,
} from './wire-query.js';

const ROLLBACK = transactionQuery('rollback');

export type ConnectionState = 'closed' | 'opening' | 'idle' | 'busy';

export class Connection implements Receiver, Watched {
  readonly #openings: Opening;
  #client: DriverClient | null = null;
  #socket: Socket | null = null;
  #ready = false;
  #ended = false;
  #opening: Promise<void> | null = null;
  readonly #waiting: (readonly WireQuery[])[] = [];
  readonly #sent: SentQueries[] = [];
  readonly #prepared: PreparedStatements;
  readonly #settings: TransactionSettings | null;
  #restoring: readonly BoundStatement[] | null = null;
  #error: Error | null = null;
  readonly #reader = new MessageReader((message, start, end, owned) => this.#handle(message, start, end, owned), {
    admit: (type, length) => this.#admit(type, length),
    release: (length) => this.options.memory.release(length),
  });
  /** The key of the backend, for a CancelRequest. */
  #key: Buffer | null = null;
  #stopping = false;
  /** Whether a transaction is open, or has failed, as the server said last. */
  #status = TRANSACTION_IDLE;
  /** Whether it is to be asked for a sign of life before it is used. */
  #doubtful = false;
  /** The findings of the last check: how many were answered, which was in flight, and since when. */
  #answered = 0;
  #seen = 0;
  #seenFirst: SentQueries | undefined;
  #seenPosition = 0;
  #since = 0;
  /** The statements that PostgreSQL was asked to stop, because they took too long together. */
  #stopped: SentQueries | null = null;

  constructor(private readonly options: ConnectionOptions) {
    this.#openings = new Opening(options);
    this.#prepared = new PreparedStatements(options.scope, options.pooler === 'transaction');
    this.#settings = options.pooler === 'transaction' ? new TransactionSettings(options.settings) : null;
  }

  /** Messages that are sent together are one transaction: it needs no other statement to begin or to commit. */
  run(...queries: readonly WireQuery[]): void {
    if (this.#ready && !this.#stopping && !this.#doubtful) this.#send(queries, false);
    else {
      this.#waiting.push(queries);
      this.#advance();
    }
  }

  get isOpen(): boolean {
    return this.#ready;
  }

  /** Whether all of its transactions run in one session: settings of the session hold for each of them. */
  get keepsSession(): boolean {
    return this.#settings === null;
  }

  /** The statements after a function that may have changed the session. */
  get restoring(): readonly BoundStatement[] {
    this.#restoring ??= restoringStatements(this.options);
    return this.#restoring;
  }

  get isOpening(): boolean {
    return this.#opening !== null;
  }

  get state(): ConnectionState {
    if (!this.#ready) return this.#opening ? 'opening' : 'closed';
    return this.#sent.length > 0 ? 'busy' : 'idle';
  }

  /** Whether nothing is on its way and no transaction is open: the next one may use it. */
  get isClean(): boolean {
    return this.#sent.length === 0 && this.#waiting.length === 0 && this.#status === TRANSACTION_IDLE;
  }

  /** Whether the open transaction can only be undone. */
  get hasFailed(): boolean {
    return this.#status === TRANSACTION_FAILED;
  }

  get isDoubtful(): boolean {
    return this.#ready && this.#doubtful;
  }

  doubt(): void {
    this.#doubtful = true;
  }

  check(now: number): void {
    const [first] = this.#sent;
    if (
      this.#answered !== this.#seen ||
      first !== this.#seenFirst ||
      (first && first.position !== this.#seenPosition)
    ) {
      this.#seen = this.#answered;
      this.#seenFirst = first;
      this.#seenPosition = first?.position ?? 0;
      this.#since = now;
      return;
    }
    const time = now - this.#since;
    if (first === undefined) this.#doubtful ||= time >= TRUSTED_IDLE_MS;
    else if (time >= (first.queries.length === 0 ? PROBE_TIMEOUT_MS : this.options.limits.statement)) {
      this.options.watchdog.timedOut++;
      this.options.watchdog.doubtAll();
      this.destroy(unanswered());
    } else if (first.queries.length > 1 && time >= this.options.limits.together && this.#stopped !== first) {
      this.#stopped = first;
      this.#stop();
    }
  }

  /** Cancels the running statement if all its clients have left. */
  stopAbandoned(): void {
    if (this.#sent[0]?.queries[0]?.isAbandoned?.()) this.#stop();
  }

  /** Cancels the running statement. Later statements wait, so that they are not cancelled instead. */
  #stop(): void {
    const socket = this.#socket;
    if (this.#stopping || this.#key === null || socket === null) return;
    this.#stopping = true;
    void cancelStatement(this.options.target(), socket, this.#key).finally(() => {
      if (this.#socket === socket) this.#stopping = false;
      this.#advance();
    });
  }

  /** Requests up to `maxRows` more rows of the suspended portal. */
  fetch(maxRows: number): void {
    this.#socket?.write(writeFetch(maxRows));
  }

  /** Stops reading: PostgreSQL waits when the buffers of the network are full. */
  pause(): void {
    this.#socket?.pause();
  }

  resume(): void {
    this.#socket?.resume();
  }

  /** Ends the portal that is suspended, and its transaction with it. */
  closePortal(): void {
    this.#sync(this.#sent[0]);
  }

  /** The process of the server behind the connection, or that of a pooler; null while there is none. */
  get processId(): number | null {
    return this.#key?.readInt32BE(0) ?? null;
  }

  /** Asks the server to stop the statement that runs; resolves when the server has received it, or cannot be reached. */
  async cancel(): Promise<void> {
    if (this.#socket && this.#key) await cancelStatement(this.options.target(), this.#socket, this.#key);
  }

  /** Ends it at once; pending statements fail with the reason. */
  destroy(reason: Error = closed()): void {
    const socket = this.#socket;
    this.#error = reason;
    this.#lose();
    socket?.destroy();
  }

  /** Ends it when what is on its way is answered, at the latest after so many milliseconds. */
  async close(grace: number): Promise<void> {
    this.#ended = true;
    const socket = this.#socket;
    if (this.#ready && socket) {
      const closed = new Promise((resolve) => socket.once('close', resolve));
      if (this.#sent.length === 0) socket.end(TERMINATE);
      await atMost(grace, closed);
    }
    this.destroy();
  }

  /** Bytes have arrived. */
  receive(chunk: Buffer, size: number): void {
    this.#reader.take(chunk, size);
  }

  /** Sends the waiting statements as soon as possible. */
  #advance(): void {
    if (this.#stopping || this.#waiting.length === 0) return;
    if (!this.#ready) this.#opening ??= this.#open();
    else if (!this.#doubtful) for (const queries of this.#waiting.splice(0)) this.#send(queries, false);
    else if (this.#sent.every(({ queries }) => queries.length > 0)) this.#probe();
  }

  /** Asks for a sign of life. */
  #probe(): void {
    this.#sent.push({
      queries: [],
      repeated: false,
      introduced: [],
      understood: 0,
      position: 0,
      failed: -1,
      isSynced: true,
    });
    this.#socket?.write(SYNC);
  }

  async #open(): Promise<void> {
    try {
      await this.#openings.open({
        receiver: this,
        isEnded: () => this.#ended,
        attach: (socket) => {
          this.#reader.reset();
          this.#socket = socket;
        },
        begin: (client) => {
          this.#client = client;
        },
        isOpening: (socket) => this.#socket === socket && !this.#ready,
        close: (socket) => {
          if (this.#socket === socket && this.#ready) this.#lose();
        },
      });
    } catch (error) {
      const socket = this.#socket;
      this.#opening = null;
      const waiting = this.#waiting.splice(0).flat();
      this.#lose();
      socket?.destroy();
      for (const query of waiting) query.end(asError(error), true);
      return;
    }
    this.#ready = true;
    this.#doubtful = false;
    this.options.watchdog.add(this);
    this.#opening = null;
    this.#advance();
  }

  /** The driver is let go too: it may go on trying, or keep what is left of the connection. */
  #lose(): void {
    const { watchdog, onclose } = this.options;
    if (this.#ready && !this.#ended) watchdog.lost++;
    watchdog.remove(this);
    void this.#client?.end().catch(() => {});
    this.#client = null;
    this.#ready = this.#stopping = false;
    this.#socket = this.#key = null;
    this.#status = TRANSACTION_IDLE;
    this.#reader.reset();
    this.#prepared.clear();
    this.#settings?.reset();
    const reason = this.#error ?? closed();
    this.#error = null;
    if (onclose) this.#ended = true;
    onclose?.();
    for (const [position, { queries }] of this.#sent.splice(0).entries()) {
      // The reason applies to the first; to those behind it only if it ended the connection.
      for (const query of queries) query.end(position === 0 || isFatal(reason) ? reason : closed(), false);
    }
    if (!this.#ended) this.#advance();
    else for (const query of this.#waiting.splice(0).flat()) query.end(reason, true);
  }

  #send(requested: readonly WireQuery[], repeated: boolean): void {
    const queries = this.#settings?.apply(requested) ?? requested;
    const introduced: string[] = [];
    let message: Buffer;
    try {
      message = writeQueries(queries, this.#prepared, introduced);
    } catch (error) {
      for (const text of introduced) this.#prepared.forget(text);
      for (const query of queries) query.end(asError(error), false);
      return;
    }
    const isSynced = !queries.at(-1)?.portal;
    this.#sent.push({ queries, repeated, introduced, understood: 0, position: 0, failed: -1, isSynced });
    this.#socket?.write(message);
  }

  #handle(message: Buffer, start: number, end: number, owned: boolean): void {
    if (!this.#ready) {
      this.#handOn(message, start, end);
      return;
    }
    const first = this.#sent[0];
    switch (message[start]) {
      case DATA_ROW:
        if (first) this.#row(first, message, start + 5, owned);
        break;
      case ROW_DESCRIPTION:
        first?.queries[first.position]?.decoder?.describe?.(message, start + 5);
        break;
      case PARSE_COMPLETE:
        if (first) first.understood++;
        break;
      case COMMAND_COMPLETE:
        if (first && ++first.position === first.queries.length) this.#sync(first);
        break;
      case PORTAL_SUSPENDED:
        if (this.#error === null) first?.queries[first.position]?.portal?.suspended();
        else this.#sync(first);
        break;
      case NOTIFICATION_RESPONSE:
        this.options.onnotify?.(...readNotification(message, start + 5));
        break;
      case ERROR_RESPONSE:
        this.#error = readFailure(message, start + 5, end, first);
        if (first) first.failed = first.position;
        if (isReadOnly(this.#error)) this.options.choice?.suspect();
        this.#sync(first);
        break;
      case READY_FOR_QUERY:
        this.#status = message[start + 5] ?? 0;
        if (first) this.#end();
        break;
    }
  }

  /** Behind a portal that is done the server waits for it. */
  #sync(sent: SentQueries | undefined): void {
    if (sent === undefined || sent.isSynced) return;
    sent.isSynced = true;
    this.#socket?.write(SYNC);
  }

  /** An answer for which there is no memory fails its statement, unless it may be left out; a lost connection takes none. */
  #admit(type: number, length: number): boolean {
    if (this.#socket === null) return false;
    const refused = this.options.memory.take(length);
    if (refused === null) return true;
    const skippable = skippableQuery(this.#sent[0]);
    if (type === DATA_ROW && skippable) skippable.row(0, null);
    else if (type === DATA_ROW) this.#refuse(refused);
    else this.destroy(refused);
    return false;
  }

  #refuse(refused: Error): void {
    if (this.#error !== null) return;
    this.#error = refused;
    const [first] = this.#sent;
    if (first) first.failed = first.position;
  }

  /** The message goes to the login, then to the driver, while the connection is opened. */
  #handOn(message: Buffer, start: number, end: number): void {
    if (message[start] === BACKEND_KEY_DATA) this.#key = Buffer.from(message.subarray(start + 5, end));
    this.#socket?.emit('data', Buffer.from(message.subarray(start, end)));
  }

  #row({ queries, position }: SentQueries, message: Buffer, start: number, owned: boolean): void {
    const query = queries[position];
    if (query?.decoder) {
      query.decoder.row(message, start, owned);
      return;
    }
    if (query?.isSetting) return;
    const columns = message.readInt16BE(start);
    if (columns !== (query?.columns ?? columns)) {
      this.destroy(mixedUp());
      return;
    }
    let at = start + 2;
    let number = 0;
    const hasLinks = query?.hasLinks === true;
    if (columns > (hasLinks ? 2 : 1)) {
      const end = at + 4 + message.readInt32BE(at);
      for (at += 4; at < end; at++) number = number * 10 + (message[at] as number) - 48;
    }
    let links: string | null | undefined;
    if (hasLinks) {
      const bytes = message.readInt32BE(at);
      links = bytes < 0 ? null : message.toString('latin1', at + 4, at + 4 + bytes);
      at += 4 + Math.max(0, bytes);
    }
    const length = message.readInt32BE(at);
    at += 4;
    let cell = length < 0 ? null : message.subarray(at, at + length);
    if (cell !== null && length > MAX_BORROWED_BYTES && !owned) cell = Buffer.from(cell);
    query?.row(number, cell, links);
  }

  #end(): void {
    // The answer belongs to another statement: nothing on this connection can be trusted.
    if (this.#error !== null && isTaken(this.#error)) {
      this.destroy(mixedUp());
      return;
    }
    const sent = this.#sent.shift();
    if (sent === undefined) return;
    const { queries, repeated, introduced, understood } = sent;
    const error = this.#error;
    this.#error = null;
    this.#answered++;
    if (this.#status === TRANSACTION_FAILED && queries[0]?.isUndone) this.#send([ROLLBACK], false);
    // The statement behind it runs now.
    if (this.#sent.length > 0) this.stopAbandoned();
    else if (this.#ended) this.#socket?.end(TERMINATE);
    if (this.#doubtful) {
      this.#doubtful = false;
      this.#advance();
    }
    if (error === null) {
      for (const query of queries) query.end(null, false);
      return;
    }
    for (const text of introduced.slice(understood)) this.#prepared.forget(text);
    const isForgotten = isOutdated(error);
    if (isForgotten) for (const { text } of queries) this.#prepared.outdate(text);
    // A statement that the server has forgotten, or whose plan is outdated, did not run.
    if (isForgotten && !repeated && this.#status === TRANSACTION_IDLE) this.#send(queries, true);
    else for (const [position, query] of queries.entries()) query.end(error, false, position === sent.failed);
  }
}
