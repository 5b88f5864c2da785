/** Sources of changes, and what they report: transactions, which `TransactionReader` collects in bounded memory. */

import type { LoggedChange, LoggedTable, Sources, Transaction } from '../../server/changes/change-source.js';
import type { LogPosition } from '../../server/postgres/pools/sessions.js';
import type { LogHandler } from './log-decoder.js';

export type LiveMode = 'auto' | 'logical' | 'triggers' | 'off';

export interface ChangeReceiver {
  /** The columns of a table that have to be read, by position; null if the changes of the table are not needed. */
  wanted(table: LoggedTable): readonly boolean[] | null;
  /** Also called if none of the changes are needed. */
  committed(transaction: Transaction): void;
  /** A committed transaction that changes these tables arrives in several parts. It is reported when all parts have arrived. */
  arriving(xid: number, tables: Iterable<LoggedTable>): void;
}

export interface SourceEvents extends ChangeReceiver {
  /** The set of tables whose changes are reported may have changed. */
  tablesChanged(): void;
  /** Called once, when changes stop arriving. */
  lost(error: Error): void;
}

export interface Opened {
  readonly sources: Sources;
  /** A position in the log, in bytes: everything that is committed after it is reported. */
  readonly position: number;
}

/** The WAL that the server keeps for the stream, and the lag of the stream. */
export interface LogFigures {
  /** Bytes of log that PostgreSQL keeps for the stream, and how many it may keep. */
  readonly walKept: number;
  readonly walLimit: number;
  readonly lagMs: number;
  /** Slots that were replaced by newer ones so far. */
  readonly replacements: number;
  /** Why the slot could not be replaced the last time, or null. */
  readonly failure: Error | null;
}

export interface ChangeSource {
  /** As LIVE names it. */
  readonly kind: 'logical' | 'triggers';
  /** For /server/health: how changes arrive. */
  readonly about: string;
  /** Absent if the source does not read the log. */
  readonly figures?: LogFigures;
  /** Why it cannot be used, or null. */
  obstacle(): Promise<string | null>;
  /** Resolves when every change from now on is reported. If it fails, nothing is left open. */
  open(events: SourceEvents, stopping: AbortSignal): Promise<Opened>;
  /**
   * Resolves when every change that was committed before the call has been reported, with a position in the log up to which this
   * holds. Rejects if that takes too long, or the source is lost.
   */
  caughtUp(): Promise<LogPosition>;
  /** Adapts an open source to the tables that are served. */
  refresh(): Promise<Sources>;
  /** Ends it, whether it is open already or not. */
  fail(error: Error): void;
  close(): Promise<void>;
  /** Called after it was closed: removes what was made only for it. */
  release(): Promise<void>;
}

/** If a transaction changes more than this number of rows of a table, all rows of the table count as changed. */
const MAX_ROWS = 1_000;

/** Milliseconds after which the tables of a transaction count as changed before its commit arrives. Most commits arrive with their rows. */
const ARRIVING_MS = 50;

export class TransactionReader implements LogHandler {
  #xid = 0;
  /** When the first message of the current transaction arrived, by the clock of `performance`; null if there is none. */
  begunAt: number | null = null;
  #changes = new Map<LoggedTable, LoggedChange[] | null>();
  #check: NodeJS.Timeout | null = null;

  /** `isVisible`: whether a transaction is visible to others when it is reported. */
  constructor(
    private readonly receiver: ChangeReceiver,
    private readonly isVisible: boolean,
  ) {}

  wanted(table: LoggedTable): readonly boolean[] | null {
    return this.receiver.wanted(table);
  }

  begin(xid: number): void {
    this.#xid = xid;
    this.begunAt = performance.now();
    this.#changes = new Map();
  }

  change(change: LoggedChange): void {
    const { table, action } = change;
    const rows = this.#changes.get(table);
    if (rows === null) return;
    if (rows === undefined && !this.isVisible) this.#awaitCommit(ARRIVING_MS);
    if (action === 'truncate' || (rows && rows.length >= MAX_ROWS)) this.#changes.set(table, null);
    else if (rows) rows.push(change);
    else this.#changes.set(table, [change]);
  }

  commit(position: number, time: number): void {
    const changes = [...this.#changes].map(([table, rows]) => ({ table, rows }));
    this.#changes = new Map();
    this.begunAt = null;
    this.receiver.committed({ xid: this.#xid, position, time, changes, isVisible: this.isVisible });
  }

  #awaitCommit(ms: number): void {
    this.#check ??= setTimeout(() => this.#checkArriving(), ms).unref();
  }

  #checkArriving(): void {
    this.#check = null;
    const left = this.begunAt === null ? 0 : this.begunAt + ARRIVING_MS - performance.now();
    if (left > 0) {
      this.#awaitCommit(left);
      return;
    }
    if (this.begunAt !== null) this.receiver.arriving(this.#xid, this.#changes.keys());
  }
}
