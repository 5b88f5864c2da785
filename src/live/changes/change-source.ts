/** Ways in which the changes of others arrive, and what they tell. */
import type { LoggedChange, LoggedTable } from '../../postgres/changes/pgoutput.js';
import type { Source } from '../../postgres/changes/publication.js';

/** The rows of one table that a transaction has changed. */
export interface TableChanges {
  readonly table: LoggedTable;
  /** Null where they are too many, or nobody knows which. */
  readonly rows: readonly LoggedChange[] | null;
}

export interface Transaction {
  readonly xid: number;
  /** In the log, in bytes: all that was committed before it has been told. */
  readonly position: number;
  /** When it was committed, or its first statement was done, in milliseconds since 1970. */
  readonly time: number;
  readonly changes: readonly TableChanges[];
  /** Whether others can see already what it has done. */
  readonly isVisible: boolean;
}

/** Of each table and view that is served, as schema.name, the tables below it. */
export type Sources = ReadonlyMap<string, readonly Source[]>;

export interface ChangeReceiver {
  /** Which columns of a table are to be read, by position; null where nobody wants to know of the table. */
  wanted(table: LoggedTable): readonly boolean[] | null;
  /** Also where nothing has changed that anybody wants to know of. */
  committed(transaction: Transaction): void;
}

export interface SourceEvents extends ChangeReceiver {
  /** Other tables may be seen now. */
  tablesChanged(): void;
  /** Once, when changes are not told any more. */
  lost(error: Error): void;
}

export interface Opened {
  readonly sources: Sources;
  /** In the log, in bytes: all that is committed behind it is told. */
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
  /** Why changes cannot be had this way; null where they can. */
  obstacle(): Promise<string | null>;
  /** Resolves when every change from now on is told. One that fails leaves nothing open. */
  open(events: SourceEvents, stopping: AbortSignal): Promise<Opened>;
  /** Brings it in step with the tables that are served, while it is open. */
  refresh(): Promise<Sources>;
  /** Ends it, open or not yet, for a reason of its user. */
  fail(error: Error): void;
  close(): Promise<void>;
  /** After it was closed: takes away what was only made for it. */
  release(): Promise<void>;
}
