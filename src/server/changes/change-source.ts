/** The changes of the database, as their readers get them. */

interface LoggedColumn {
  readonly name: string;
  /** Whether it is part of the replica identity: its former value is sent where it has changed. */
  readonly isKey: boolean;
}

export interface LoggedTable {
  readonly schema: string;
  readonly name: string;
  readonly columns: readonly LoggedColumn[];
  /** Whether all former values of a row are sent (replica identity full). */
  readonly isFull: boolean;
}

/** The values of the wanted columns, by their position in the table; undefined if they were not sent. */
export type LoggedRow = readonly (string | null | undefined)[];

export interface LoggedChange {
  readonly table: LoggedTable;
  readonly action: 'create' | 'update' | 'delete' | 'truncate';
  /** The former row, or null if an update keeps the key and PostgreSQL sends no other former values. */
  readonly before: LoggedRow | null;
  readonly after: LoggedRow | null;
}

/** The rows of one table that a transaction has changed. */
export interface TableChanges {
  readonly table: LoggedTable;
  /** The rows, or null if they are too many or not known. */
  readonly rows: readonly LoggedChange[] | null;
}

export interface Transaction {
  readonly xid: number;
  /** A position in the log, in bytes: everything that was committed before it has been reported. */
  readonly position: number;
  /** When it was committed, or its first statement ended, in milliseconds since 1970. */
  readonly time: number;
  readonly changes: readonly TableChanges[];
  /** Whether other transactions see its changes already. */
  readonly isVisible: boolean;
}

export interface TableName {
  readonly schema: string;
  readonly name: string;
}

/** A table whose rows a collection shows: itself, or what a view, a partitioned table or an ancestor stands for. */
export interface Source extends TableName {
  /** Why some of its changes are not reported; null if all are. */
  readonly unseen: string | null;
  /** Whether only inserts are reported. */
  readonly insertsOnly?: boolean;
}

/** The tables below each table and view that is served; names are schema.name. */
export type Sources = ReadonlyMap<string, readonly Source[]>;
