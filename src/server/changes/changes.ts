/**
 * The stream of committed changes, as the cache of reads, live queries and programs use it. A feature opens it. A service without one answers
 * requests all the same.
 */
import { serviceUnavailable } from '../../base/errors.js';
import type { LogPosition } from '../postgres/pools/sessions.js';
import type { LoggedTable, Sources, Transaction } from './change-source.js';

/** Gets committed transactions, in the order of their commits, with the rows that they have changed. */
export interface ChangeListener {
  /** The columns of a table that have to be read, by position; null if the changes of the table are not needed. */
  wanted(table: LoggedTable): readonly boolean[] | null;
  /** The transaction has changed rows. These may be rows that only other listeners want. */
  committed(transaction: Transaction): void;
  /** A committed transaction that changes these tables arrives in several parts. It is reported when all parts have arrived. */
  arriving?(xid: number, tables: Iterable<LoggedTable>): void;
  /** From now on every change is reported; earlier ones may have been missed. */
  resynced(sources: Sources): void;
  /** Changes are not reported until it is resynced. */
  lost?(): void;
  /** Until it is resynced, changes of some tables may not be reported. */
  refreshing?(): void;
  /** Commits became visible after reads had stopped waiting for them: these reads lack changes that were reported already. */
  late?(): void;
  /** The subscriptions of its clients. */
  readonly subscriptions?: number;
}

/** A committed change of an item, by whatever program. `resync`: changes of the collection, or of all, may have been missed. */
export interface ChangeEvent {
  /** The collection, or null if changes of all collections may have been missed. */
  readonly collection: string | null;
  readonly action: 'create' | 'update' | 'delete' | 'resync';
  readonly key: string | null;
}

export interface Changes {
  readonly stream: ChangeStream;
  readonly visibility: CommitVisibility;
  /** The listener gets what arrives from now on. */
  add(listener: ChangeListener): void;
  remove(listener: ChangeListener): void;
  /** Opens the stream, and keeps it open until the listener releases it. Throws if there is none. */
  hold(listener: ChangeListener): Promise<void>;
  release(listener: ChangeListener): void;
  /** Waits a short time for a stream that is held to open. Throws if there is none. */
  opened(): Promise<void>;
  /** The reason why no changes are reported, or null. */
  obstacle(): Promise<string | null>;
  /** Reports each change that is committed from now on. Rejects if PostgreSQL does not report changes. */
  watch(listener: (event: ChangeEvent) => void): Promise<void>;
  /** A second call waits for the same end. */
  stop(): Promise<void>;
}

interface ChangeStream {
  /** `closed`: there are no subscriptions. */
  readonly state: 'closed' | 'opening' | 'open' | 'lost';
  /** A position in the log, in bytes: everything that was committed before it has been reported. */
  readonly position: number;
  /** Resolves when everything that was committed before the call has been reported, with a position up to which this holds. */
  caughtUp(): Promise<LogPosition>;
  /** The tables that are served may have changed. */
  tablesChanged(): void;
}

/** The transactions that are visible in a snapshot. */
export interface Known {
  /** Whether the transaction is visible. */
  has(xid: number): boolean;
  /** Whether the transaction began to write after the snapshot: in the log, no later transaction is visible in it. */
  isBefore(xid: number): boolean;
  /** Open transactions with writes, as listed by the snapshot: only those that began before a transaction that has ended. */
  readonly running: ReadonlySet<number>;
}

/** The transactions that were committed before a point in time. */
export interface CommittedBefore extends Pick<Known, 'isBefore'> {
  /** `time`: when the transaction was committed. */
  has(xid: number, time: number): boolean;
}

export interface CommitVisibility {
  /** Returns null if the database does not answer. */
  knownNow(): Promise<Known | null>;
  /** The transactions that were committed before this call; null if the database does not answer. */
  committedBefore(): Promise<CommittedBefore | null>;
  /** Like `knownNow`, but `running` has all open transactions: a transaction ends before the snapshot is taken. */
  runningNow(): Promise<Known | null>;
  /** Calls at the same time share one answer. */
  surelyKnownNow(): Promise<Known>;
  /** Resolves when all commits that were reported before are visible; also if the database does not answer, or it takes too long. */
  wait(): Promise<void>;
}

/** For a service without the feature. */
export async function noChanges(): Promise<never> {
  throw serviceUnavailable('live', 'There are no live queries: the service has no stream of changes');
}
