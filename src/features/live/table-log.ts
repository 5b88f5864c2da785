/** The changed rows of a table, by their keys, in the order of commits. It is bounded: subscribers that fall too far behind get a resync. */

import type { Collection } from '../../compiler/model/model.js';
import type { LoggedChange, LoggedTable, TableChanges } from '../../server/changes/change-source.js';
import { keyIn } from '../change-stream/change-watch.js';

export const CHANGES = ['create', 'update', 'delete'] as const;
export type Change = (typeof CHANGES)[number];

/** The changes of a row, joined to one. */
export interface RowChange {
  readonly change: Change;
  /** Another kind of change that is joined in it, for subscribers to that kind alone. */
  readonly also: Change | null;
  /** The last transaction that changed it. */
  readonly xid: number;
}

interface KeyChange {
  readonly key: string;
  readonly change: Change;
}

interface Entry extends KeyChange {
  readonly xid: number;
  /** When it was committed, in milliseconds since 1970 by the database's clock. */
  readonly time: number;
  /** When it arrived, by the clock of `performance`. */
  readonly at: number;
}

const MAX_ENTRIES = 10_000;

/** Whether a subscriber knows the changes of a transaction already. `time`: when it was committed. */
type IsKnown = (xid: number, time: number) => boolean;

export class TableLog<Reader> {
  readonly #key: readonly string[];
  readonly readers = new Set<Reader>();
  #entries: Entry[] = [];
  /** The offset of the first entry. */
  #first = 0;
  /** When entries were dropped last. */
  #droppedAt = Number.NEGATIVE_INFINITY;

  constructor(
    /** As schema.name. */
    readonly table: string,
    { key }: Collection,
  ) {
    this.#key = key.map(({ column, name }) => column?.name ?? name);
  }

  /** The offset after the last entry. */
  get end(): number {
    return this.#first + this.#entries.length;
  }

  /** The columns of the table that have to be read. */
  wanted(table: LoggedTable): readonly boolean[] {
    return table.columns.map(({ name }) => this.#key.includes(name));
  }

  add({ table, rows }: TableChanges, { xid, time }: Pick<Entry, 'xid' | 'time'>): void {
    const at = performance.now();
    for (const row of rows ?? [null]) {
      const entries = row && this.#entriesOf(row, table);
      if (entries === null) this.miss();
      else for (const entry of entries) this.#entries.push({ ...entry, xid, time, at });
    }
    const excess = this.#entries.length - MAX_ENTRIES;
    if (excess <= 0) return;
    this.#entries = this.#entries.slice(excess);
    this.#first += excess;
    this.#droppedAt = at;
  }

  /** Unknown rows have changed. */
  miss(): void {
    this.#first = this.end + 1;
    this.#entries = [];
    this.#droppedAt = performance.now();
  }

  /** The offset of the first change that arrived at this time or later. If the log does not reach back so far, it is before the log. */
  offsetAt(time: number): number {
    if (time <= this.#droppedAt) return this.#first - 1;
    const later = this.#entries.findIndex(({ at }) => at >= time);
    return later < 0 ? this.end : this.#first + later;
  }

  /** The entry at the offset, or null if there is none. */
  entryAt(offset: number): Entry | null {
    return this.#entries[offset - this.#first] ?? null;
  }

  /**
   * The change of each row since the offset, without those that are known already, in the order of the first change of each; null if the
   * log does not reach back so far.
   */
  since(offset: number, isKnown: IsKnown, end = this.end): ReadonlyMap<string, RowChange> | null {
    if (offset < this.#first) return null;
    const changes = new Map<string, RowChange | null>();
    for (const { key, change, xid, time } of this.#entries.slice(offset - this.#first, end - this.#first)) {
      if (isKnown(xid, time)) continue;
      const joined = joinChanges(changes.get(key) ?? null, change);
      changes.set(key, joined && { ...joined, xid });
    }
    return new Map([...changes].flatMap(([key, change]) => (change ? [[key, change]] : [])));
  }

  /** The offset of the first change since the given one, of a row that is not known already, with one of the keys. */
  find(offset: number, isKnown: IsKnown, keys: ReadonlySet<string>): number {
    for (let position = Math.max(offset, this.#first); position < this.end; position++) {
      const entry = this.entryAt(position);
      if (entry && keys.has(entry.key) && !isKnown(entry.xid, entry.time)) return position;
    }
    return this.end;
  }

  #entriesOf({ action, before, after }: LoggedChange, table: LoggedTable): KeyChange[] | null {
    if (action === 'truncate') return null;
    const columns = this.#key.map((name) => table.columns.findIndex((column) => column.name === name));
    const key = keyIn(after ?? before, columns);
    if (key === null) return null;
    const former = action === 'update' && before !== null ? keyIn(before, columns) : null;
    if (former === null || former === key) return [{ key, change: action }];
    return [
      { key: former, change: 'delete' },
      { key, change: 'create' },
    ];
  }
}

/** Returns null for a row that was created and deleted. */
function joinChanges(before: RowChange | null, change: Change): Omit<RowChange, 'xid'> | null {
  if (before?.change === 'create') return change === 'delete' ? null : { change: 'create', also: 'update' };
  if (before?.change === 'delete' && change === 'create') return { change: 'update', also: 'create' };
  return { change, also: change === 'update' ? (before?.also ?? null) : null };
}

/** The event that the change is for a subscriber to one kind of change, or to all of them; null if it is none. */
export function eventOf({ change, also }: RowChange, wanted: Change | null): Change | null {
  return wanted === null || wanted === change || wanted === also ? (wanted ?? change) : null;
}
