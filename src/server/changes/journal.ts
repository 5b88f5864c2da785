/** The last changes of rows, in their order: an answer that arrives is compared with those that its read may not have seen. */
import type { LoggedChange, TableChanges } from './change-source.js';
import { tableKey } from './dependencies.js';

export interface JournalEntry {
  /** As schema.name. */
  readonly table: string;
  /** The changed row, or null if any row may have changed. */
  readonly change: LoggedChange | null;
}

/** Changes that are kept at least. */
const MAX_CHANGES = 1_000;

export class Journal {
  #entries: JournalEntry[] = [];
  #dropped = 0;

  /** The number of the next change. */
  get end(): number {
    return this.#dropped + this.#entries.length;
  }

  add({ table, rows }: TableChanges): void {
    const name = tableKey(table);
    if (rows === null || rows.length > MAX_CHANGES) this.#entries.push({ table: name, change: null });
    else for (const change of rows) this.#entries.push({ table: name, change });
    if (this.#entries.length <= 2 * MAX_CHANGES) return;
    const surplus = this.#entries.length - MAX_CHANGES;
    this.#entries.splice(0, surplus);
    this.#dropped += surplus;
  }

  /** The changes from the given number on, or null if some of them are not kept. */
  since(number: number): readonly JournalEntry[] | null {
    if (number < this.#dropped) return null;
    return number === this.end ? NONE : this.#entries.slice(number - this.#dropped);
  }
}

const NONE: readonly JournalEntry[] = [];
