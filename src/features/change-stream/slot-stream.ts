/**
 * A temporary slot and the connection that reads the log of the database with it: PostgreSQL sends each transaction after its commit.
 * Both end together, so PostgreSQL keeps no log for a reader that has left.
 */

import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { within } from '../../base/time-limit.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { closed, unanswered } from '../../server/postgres/wire/connection-errors.js';
import type { ConnectionOptions, DriverClient } from '../../server/postgres/wire/connection-options.js';
import { positionOf } from '../../server/postgres/wire/log-position.js';
import { MessageReader } from '../../server/postgres/wire/message-reader.js';
import { Opening } from '../../server/postgres/wire/open-connection.js';
import {
  BACKEND_KEY_DATA,
  DATA_ROW,
  ERROR_RESPONSE,
  READY_FOR_QUERY,
  ROW_DESCRIPTION,
  readError,
  TERMINATE,
  writeText,
} from '../../server/postgres/wire/protocol.js';
import { RowDecoder } from '../../server/postgres/wire/row-decoder.js';
import { cancelStatement } from '../../server/postgres/wire/socket.js';
import { LogDecoder, type LogHandler, positionAt } from './log-decoder.js';
import { PUBLICATIONS, SERVER, SLOT_PREFIX, slotGone } from './publication.js';

/** Milliseconds for a command that waits for nobody. */
const COMMAND_TIMEOUT_MS = 10_000;

interface SlotOwner {
  /** More of the log has arrived. */
  advanced(): void;
  /** Called once, also after `stop`. */
  lost(error: Error): void;
}

export class SlotStream {
  readonly name = `${SLOT_PREFIX}${randomBytes(8).toString('hex')}`;
  readonly #connection: ReplicationConnection;
  /** In the log, in bytes: PostgreSQL keeps the log from here on. */
  restart = 0;
  /** In the log, in bytes: PostgreSQL sends transactions that are committed behind it. */
  consistent = 0;
  /** Bytes of log beyond which PostgreSQL gives the slot up (`max_slot_wal_keep_size`); negative if it never does. */
  serverLimit = -1;
  /** By the clock of `performance`. */
  createdAt = 0;
  isStarted = false;
  isOver = false;

  /** The server that it reads the log of. */
  server = '';

  constructor(
    private readonly database: Database,
    handler: LogHandler,
    owner: SlotOwner,
  ) {
    const { replication } = database;
    if (replication === null) throw new Error('the log cannot be read');
    const decoder = new LogDecoder(handler);
    this.#connection = new ReplicationConnection(replication, {
      take: (message) => decoder.take(message),
      advanced: () => owner.advanced(),
      lost: (error) => {
        this.isOver = true;
        owner.lost(error);
      },
    });
  }

  /** How far the log has arrived, in bytes: all that was committed before it has been passed on. */
  get received(): number {
    return this.#connection.received;
  }

  /** Waits for all transactions that write when it is called, so many milliseconds at most. */
  async create(timeoutMs: number): Promise<void> {
    const connection = this.#connection;
    await connection.open();
    // This also applies if the server does not learn that the client has left.
    await connection.query(`set lock_timeout = ${timeoutMs}`, COMMAND_TIMEOUT_MS);
    const [created] = await connection.query(
      `CREATE_REPLICATION_SLOT ${quoteIdentifier(this.name)} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT`,
      timeoutMs,
    );
    this.consistent = positionOf(String(created?.['consistent_point']));
    const [slot] = await connection.query(
      `select restart_lsn::text as restart, pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_slot_wal_keep_size'))::text as most, ${SERVER} as server
       from pg_catalog.pg_replication_slots where slot_name operator(pg_catalog.=) '${this.name}'`,
      COMMAND_TIMEOUT_MS,
    );
    this.restart = positionOf(String(slot?.['restart']));
    this.serverLimit = Number(slot?.['most']);
    this.server = String(slot?.['server']);
    this.createdAt = performance.now();
  }

  /** From here on the log arrives. */
  async start(): Promise<void> {
    const options = `proto_version '1', publication_names '${PUBLICATIONS.join(',')}'`;
    const command = `START_REPLICATION SLOT ${quoteIdentifier(this.name)} LOGICAL 0/0 (${options})`;
    await this.#connection.start(command, COMMAND_TIMEOUT_MS);
    this.isStarted = true;
    this.ask();
  }

  /** Asks how far the server has read the log. */
  ask(): void {
    this.#connection.ask();
  }

  fail(error: Error): void {
    this.#connection.fail(error);
  }

  stop(): Promise<void> {
    return this.#connection.stop();
  }

  /** Resolves when the slot no longer exists, at the latest after some seconds. */
  gone(): Promise<void> {
    return slotGone(this.database, this.name).catch(() => {});
  }
}

const COPY_BOTH_RESPONSE = 0x57;
const COPY_DATA = 0x64;
const COPY_DONE = 0x63;

/** The kinds of messages within the copied data. */
const LOG_DATA = 0x77;
const KEEP_ALIVE = 0x6b;
const STATUS = 0x72;

/** Milliseconds between two words to the server of how far the log was read; it ends connections that are silent for a minute. */
const STATUS_INTERVAL_MS = 1_000;

/** Milliseconds of silence after which the server is taken for gone: it is asked for an answer with each status. */
const MAX_SILENCE_MS = 10_000;

interface LogReader {
  /** The memory is borrowed for the time of the call. */
  take(message: Buffer): void;
  /** More of the log has arrived. */
  advanced(): void;
  /** Once, when the connection is lost or could not go on. */
  lost(error: Error): void;
}

interface Waiting {
  readonly decoder: RowDecoder<Record<string, unknown>>;
  readonly resolve: (rows: Record<string, unknown>[]) => void;
  readonly reject: (error: Error) => void;
}

/**
 * Reports what it has received (`write`), and never a `flush` position. PostgreSQL takes every reader that reports one for a candidate
 * of `synchronous_standby_names`, and then acknowledges commits because of it that no standby has. The price is that the slot does
 * not advance: its owner has to replace it.
 */
export class ReplicationConnection {
  readonly #messages = new MessageReader((message, start, end) => this.#handle(message, start, end), {
    admit: () => this.#socket !== null,
    release: () => {},
  });
  #client: DriverClient | null = null;
  #socket: Socket | null = null;
  #isReady = false;
  #isOver = false;
  #waiting: Waiting | null = null;
  #error: Error | null = null;
  /** The numbers that a CancelRequest must carry. */
  #key: Buffer | null = null;
  #timer: NodeJS.Timeout | null = null;
  /** How far the log has arrived, in bytes. */
  received = 0;
  #heardAt = 0;

  constructor(
    private readonly options: ConnectionOptions,
    private readonly reader: LogReader,
  ) {}

  async open(): Promise<void> {
    await new Opening(this.options).open({
      receiver: { receive: (chunk, size) => this.#messages.take(chunk, size) },
      isEnded: () => this.#isOver,
      attach: (socket) => {
        this.#messages.reset();
        this.#socket = socket;
      },
      begin: (client) => {
        this.#client = client;
      },
      isOpening: (socket) => this.#socket === socket && !this.#isReady,
      close: (socket) => {
        if (this.#socket === socket) this.#lose(closed());
      },
    });
    this.#isReady = true;
  }

  /** A statement, or a command of replication, within so many milliseconds. Values cannot be sent apart from it. */
  async query(text: string, timeoutMs: number): Promise<Record<string, unknown>[]> {
    const answer = new Promise<Record<string, unknown>[]>((resolve, reject) => {
      if (this.#socket === null) return reject(closed());
      this.#waiting = { decoder: new RowDecoder(), resolve, reject };
      this.#socket.write(writeText(text));
    });
    return within(answer, timeoutMs);
  }

  /** From here on the log arrives. */
  async start(command: string, timeoutMs: number): Promise<void> {
    await this.query(command, timeoutMs);
    this.#heardAt = performance.now();
    this.#timer = setInterval(() => this.#beat(), STATUS_INTERVAL_MS).unref();
  }

  /** Cancels the running command too: while it waits for transactions, the server does not notice that the client has left. */
  async stop(): Promise<void> {
    if (this.#waiting && this.#socket && this.#key)
      await cancelStatement(this.options.target(), this.#socket, this.#key);
    this.close();
  }

  /** Ends it for a reason of its user. */
  fail(error: Error): void {
    this.#lose(error);
  }

  /** The slot ends with it. */
  close(): void {
    if (this.#isOver) return;
    this.#socket?.write(TERMINATE);
    this.#lose(closed());
  }

  #lose(error: Error): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#timer) clearInterval(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    void this.#client?.end().catch(() => {});
    socket?.destroySoon();
    this.#waiting?.reject(error);
    this.#waiting = null;
    this.reader.lost(error);
  }

  #beat(): void {
    if (performance.now() - this.#heardAt > MAX_SILENCE_MS) this.#lose(unanswered());
    else this.#report(true);
  }

  #handle(message: Buffer, start: number, end: number): void {
    if (!this.#isReady) {
      if (message[start] === BACKEND_KEY_DATA) this.#key = Buffer.from(message.subarray(start + 5, end));
      this.#socket?.emit('data', Buffer.from(message.subarray(start, end)));
      return;
    }
    switch (message[start]) {
      case COPY_DATA:
        this.#copied(message.subarray(start + 5, end));
        break;
      case ROW_DESCRIPTION:
        this.#waiting?.decoder.describe(message, start + 5);
        break;
      case DATA_ROW:
        this.#waiting?.decoder.row(message, start + 5);
        break;
      case ERROR_RESPONSE:
        this.#error = readError(message, start + 5, end);
        // While the log is read nobody waits for an answer.
        if (this.#waiting === null) this.#lose(this.#error);
        break;
      case COPY_BOTH_RESPONSE:
      case READY_FOR_QUERY:
        this.#settle();
        break;
      case COPY_DONE:
        this.#lose(closed());
        break;
    }
  }

  #settle(): void {
    const waiting = this.#waiting;
    const error = this.#error;
    this.#waiting = this.#error = null;
    if (error) waiting?.reject(error);
    else waiting?.resolve(waiting.decoder.rows);
  }

  #copied(data: Buffer): void {
    this.#heardAt = performance.now();
    if (data[0] === LOG_DATA) {
      this.received = Math.max(this.received, positionAt(data, 1));
      this.reader.take(data.subarray(25));
      this.reader.advanced();
    } else if (data[0] === KEEP_ALIVE) {
      this.received = Math.max(this.received, positionAt(data, 1));
      if (data[17] === 1) this.#report(false);
      this.reader.advanced();
    }
  }

  /** Asks how far the server has read the log. */
  ask(): void {
    this.#report(true);
  }

  /** The positions are write, flush and apply, of which only the first is set. */
  #report(asksForAnswer: boolean): void {
    const message = Buffer.alloc(5 + 34);
    message[0] = COPY_DATA;
    message.writeInt32BE(message.length - 1, 1);
    message[5] = STATUS;
    message.writeUInt32BE(Math.floor(this.received / 2 ** 32), 6);
    message.writeUInt32BE(this.received % 2 ** 32, 10);
    message[38] = asksForAnswer ? 1 : 0;
    this.#socket?.write(message);
  }
}
