/**
 * What anybody changes in the database, transaction by transaction, read from PostgreSQL's log. A stream that is lost is opened again;
 * what happened meanwhile is not known, so then everything may have changed.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '../narrow.js';
import type { Observer } from '../observe.js';
import type { Database } from '../postgres/database.js';
import { LogDecoder, type LoggedChange, type LoggedTable, type LogHandler, positionOf } from '../postgres/pgoutput.js';
import {
  logObstacle,
  PUBLICATIONS,
  publish,
  SLOT_PREFIX,
  type Source,
  slotGone,
  type TableName,
  unpublish,
} from '../postgres/publication.js';
import { ReplicationConnection } from '../postgres/replication.js';
import { within } from '../postgres/time-limit.js';
import { quoteIdentifier } from '../sql/fragment.js';

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5_000;

/** Milliseconds for a command; a slot waits for all transactions that write when it is asked for. */
const COMMAND_TIMEOUT_MS = 10_000;
const SLOT_TIMEOUT_MS = 60_000;
/** Milliseconds that an attempt may take to end. */
const CLOSE_TIMEOUT_MS = 5_000;

/** Rows of a table in one transaction beyond which all of its rows may have changed. */
const MAX_ROWS = 1_000;

/** The rows of one table that a transaction has changed. */
export interface TableChanges {
  readonly table: LoggedTable;
  /** Null where they are too many, or nobody knows which. */
  readonly rows: readonly LoggedChange[] | null;
}

export interface Transaction {
  readonly xid: number;
  /** Behind it in the log, in bytes. */
  readonly position: number;
  /** When it was committed, in milliseconds since 1970. */
  readonly time: number;
  readonly changes: readonly TableChanges[];
}

export interface ChangeListener {
  /** Which columns of a table are to be read, by position; null where nobody wants to know of the table. */
  wanted(table: LoggedTable): readonly boolean[] | null;
  /** Also where nothing has changed that anybody wants to know of. */
  committed(transaction: Transaction): void;
  /** From now on every change is told; what there was before may have been missed. */
  resynced(sources: ReadonlyMap<string, readonly Source[]>): void;
  /** Changes are not told any more, until it is resynced. */
  lost(): void;
}

/** `closed`: nobody wants to know. */
export type StreamState = 'closed' | 'opening' | 'open' | 'lost';

export class ChangeStream {
  readonly #database: Database;
  readonly #tables: () => readonly TableName[];
  readonly #listener: ChangeListener;
  readonly #observe: Observer;
  #connection: ReplicationConnection | null = null;
  /** The slot of the attempt that runs, or of the last one. */
  #slot = '';
  #running: Promise<void> = Promise.resolve();
  #stopping: AbortController | null = null;
  #publishing: Promise<void> = Promise.resolve();
  state: StreamState = 'closed';
  /** Why it could not be opened, or was lost. */
  failure: Error | null = null;
  /** How far the log was read, in bytes. */
  position = 0;

  constructor(database: Database, tables: () => readonly TableName[], listener: ChangeListener, observe: Observer) {
    this.#database = database;
    this.#tables = tables;
    this.#listener = listener;
    this.#observe = observe;
  }

  open(): void {
    if (this.#stopping !== null) return;
    this.#stopping = new AbortController();
    this.state = 'opening';
    const { signal } = this.#stopping;
    // Each attempt holds a connection and a slot: the former one has to let go of its own.
    this.#running = this.#running.then(() => this.#run(signal));
  }

  /** Its publication goes with the last stream. */
  async close(): Promise<void> {
    if (this.#stopping === null) return;
    this.#stopping.abort();
    this.#stopping = null;
    this.state = 'closed';
    await this.#connection?.stop();
    await within(this.#running, CLOSE_TIMEOUT_MS).catch(() => {});
    // Its own slot would be taken for that of another reader.
    await slotGone(this.#database, this.#slot).catch(() => {});
    if (this.#stopping === null) await unpublish(this.#database).catch(() => {});
  }

  /** The tables that are served may be others. */
  tablesChanged(): void {
    if (this.state !== 'open') return;
    this.#publishing = this.#publishing.then(async () => {
      try {
        const { sources } = await publish(this.#database, this.#tables());
        if (this.state === 'open') this.#listener.resynced(sources);
      } catch (error) {
        this.#connection?.fail(asError(error));
      }
    });
  }

  async #run(stopping: AbortSignal): Promise<void> {
    for (let attempt = 0; !stopping.aborted; attempt++) {
      try {
        const opened = performance.now();
        const { lost } = await this.#open(stopping);
        this.failure = await lost;
        if (performance.now() - opened > MAX_PAUSE_MS) attempt = 0;
      } catch (error) {
        this.failure = asError(error);
      }
      if (stopping.aborted) return;
      const wasOpen = this.state === 'open';
      this.state = 'lost';
      if (wasOpen) this.#listener.lost();
      if (wasOpen || attempt === 0) this.#observe({ kind: 'changes-lost', error: this.failure });
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS) * (0.5 + Math.random() / 2);
      await sleep(pause, null, { signal: stopping, ref: false }).catch(() => {});
    }
  }

  /** Resolves when it is open, with a promise of why it is not any more. */
  async #open(stopping: AbortSignal): Promise<{ readonly lost: Promise<Error> }> {
    const { replication } = this.#database;
    const obstacle = await logObstacle(this.#database);
    if (obstacle !== null || replication === null) throw new Error(obstacle ?? 'the log cannot be read');
    await publish(this.#database, this.#tables());
    let fail: (error: Error) => void = () => {};
    const lost = new Promise<Error>((resolve) => {
      fail = resolve;
    });
    const decoder = new LogDecoder(new TransactionReader(this.#listener, (transaction) => this.#take(transaction)));
    const connection = new ReplicationConnection(replication, { take: (message) => decoder.take(message), lost: fail });
    this.#connection = connection;
    this.#slot = `${SLOT_PREFIX}${randomBytes(8).toString('hex')}`;
    const slot = quoteIdentifier(this.#slot);
    try {
      if (stopping.aborted) throw new Error('the stream was closed');
      await connection.open();
      // Also where the server cannot be told that nobody waits any more.
      await connection.query(`set lock_timeout = ${SLOT_TIMEOUT_MS}`, COMMAND_TIMEOUT_MS);
      const [created] = await connection.query(
        `CREATE_REPLICATION_SLOT ${slot} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT`,
        SLOT_TIMEOUT_MS,
      );
      const options = `proto_version '1', publication_names '${PUBLICATIONS.join(',')}'`;
      await connection.start(`START_REPLICATION SLOT ${slot} LOGICAL 0/0 (${options})`, COMMAND_TIMEOUT_MS);
      // Whoever read the log last may have dropped the publication before the slot was there.
      const { sources, isChanged } = await publish(this.#database, this.#tables());
      if (isChanged) throw new Error('the publication was changed while the log was opened');
      if (stopping.aborted) throw new Error('the stream was closed');
      this.position = Math.max(this.position, positionOf(String(created?.['consistent_point'])));
      this.state = 'open';
      this.failure = null;
      this.#listener.resynced(sources);
    } catch (error) {
      await connection.stop();
      await slotGone(this.#database, this.#slot).catch(() => {});
      throw error;
    }
    return { lost };
  }

  #take(transaction: Transaction): void {
    this.position = Math.max(this.position, transaction.position);
    this.#listener.committed(transaction);
  }
}

/** Gathers what a transaction has changed, in bounded memory. */
class TransactionReader implements LogHandler {
  readonly #listener: Pick<ChangeListener, 'wanted'>;
  readonly #onCommit: (transaction: Transaction) => void;
  #xid = 0;
  #changes = new Map<LoggedTable, LoggedChange[] | null>();

  constructor(listener: Pick<ChangeListener, 'wanted'>, onCommit: (transaction: Transaction) => void) {
    this.#listener = listener;
    this.#onCommit = onCommit;
  }

  wanted(table: LoggedTable): readonly boolean[] | null {
    return this.#listener.wanted(table);
  }

  begin(xid: number): void {
    this.#xid = xid;
    this.#changes = new Map();
  }

  change(change: LoggedChange): void {
    const { table, action } = change;
    const rows = this.#changes.get(table);
    if (rows === null) return;
    if (action === 'truncate' || (rows && rows.length >= MAX_ROWS)) this.#changes.set(table, null);
    else if (rows) rows.push(change);
    else this.#changes.set(table, [change]);
  }

  commit(position: number, time: number): void {
    const changes = [...this.#changes].map(([table, rows]) => ({ table, rows }));
    this.#changes = new Map();
    this.#onCommit({ xid: this.#xid, position, time, changes });
  }
}
