/**
 * The rows of a table that were changed, by their keys, in the order of commits. It is bounded: who falls too far behind cannot be
 * told each change any more, and has to begin anew.
 */
import type { Collection } from '../../mirror/model.js';
import type { LoggedChange, LoggedRow, LoggedTable } from '../../postgres/changes/pgoutput.js';
import { joinKey } from '../../sql/key-text.js';
import type { TableChanges } from '../changes/change-source.js';

export const CHANGES = ['create', 'update', 'delete'] as const;
export type Change = (typeof CHANGES)[number];

/** What has become of a row. */
export interface RowChange {
  readonly change: Change;
  /** Of the last transaction that has changed it. */
  readonly xid: number;
}

interface KeyChange {
  readonly key: string;
  readonly change: Change;
}

interface Entry extends KeyChange {
  readonly xid: number;
  /** When it came, by the clock of `performance`. */
  readonly at: number;
}

const MAX_ENTRIES = 10_000;

export class TableLog {
  readonly #key: readonly string[];
  /** How many want to be told. */
  readers = 0;
  #entries: Entry[] = [];
  /** The position of the first entry. */
  #first = 0;

  constructor({ key }: Collection) {
    this.#key = key.map(({ column, name }) => column?.name ?? name);
  }

  /** Behind the last entry. */
  get end(): number {
    return this.#first + this.#entries.length;
  }

  /** Which columns of the table have to be read. */
  wanted(table: LoggedTable): readonly boolean[] {
    return table.columns.map(({ name }) => this.#key.includes(name));
  }

  add({ table, rows }: TableChanges, xid: number): void {
    const at = performance.now();
    for (const row of rows ?? [null]) {
      const entries = row && this.#entriesOf(row, table);
      if (entries === null) this.miss();
      else for (const entry of entries) this.#entries.push({ ...entry, xid, at });
    }
    const excess = this.#entries.length - MAX_ENTRIES;
    if (excess <= 0) return;
    this.#entries = this.#entries.slice(excess);
    this.#first += excess;
  }

  /** Something has changed, and nobody knows what. */
  miss(): void {
    this.#first = this.end + 1;
    this.#entries = [];
  }

  /** The entry at the position; null where there is none. */
  entryAt(position: number): Entry | null {
    return this.#entries[position - this.#first] ?? null;
  }

  /** What has become of each row since then, without what is known already; null where that is not known any more. */
  since(position: number, isKnown: (xid: number) => boolean): ReadonlyMap<string, RowChange> | null {
    if (position < this.#first) return null;
    const changes = new Map<string, RowChange>();
    for (const { key, change, xid } of this.#entries.slice(position - this.#first)) {
      if (isKnown(xid)) continue;
      const joined = joinChanges(changes.get(key)?.change, change);
      if (joined === null) changes.delete(key);
      else changes.set(key, { change: joined, xid });
    }
    return changes;
  }

  #entriesOf({ action, before, after }: LoggedChange, table: LoggedTable): KeyChange[] | null {
    if (action === 'truncate') return null;
    const positions = this.#key.map((name) => table.columns.findIndex((column) => column.name === name));
    const key = keyIn(after ?? before, positions);
    if (key === null) return null;
    const former = action === 'update' && before !== null ? keyIn(before, positions) : null;
    if (former === null || former === key) return [{ key, change: action }];
    return [
      { key: former, change: 'delete' },
      { key, change: 'create' },
    ];
  }
}

/** Null for a row that came and went. */
function joinChanges(before: Change | undefined, change: Change): Change | null {
  if (before === 'create') return change === 'delete' ? null : 'create';
  return before === 'delete' && change === 'create' ? 'update' : change;
}

function keyIn(row: LoggedRow | null, positions: readonly number[]): string | null {
  const parts: string[] = [];
  for (const position of positions) {
    const part = row?.[position];
    if (part === undefined || part === null) return null;
    parts.push(part);
  }
  if (parts.length === 0) return null;
  return parts.length === 1 ? (parts[0] ?? null) : joinKey(parts);
}
