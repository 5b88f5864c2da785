/** Transactions whose changes a read may not see yet, or which may never be reported. While there are any, answers are not kept. */

import type { LoggedTable } from '../../server/changes/change-source.js';
import { tableKey } from '../../server/changes/dependencies.js';

/** The transactions that are visible in a snapshot, and those that run. */
interface Snapshot {
  has(xid: number): boolean;
  readonly running: ReadonlySet<number>;
}

/** Milliseconds: transactions that end so soon keep hardly anything out. */
const SHORT_HOLD_MS = 1_000;

export class PendingCommits {
  /**
   * Transactions by the tables that they changed, which may not be visible to new reads yet, with the number of the first of their changes in
   * the journal.
   */
  readonly #unsettled = new Map<string, Map<number, number>>();
  /** Transactions that ran when the stream was opened: their changes may not be reported. Null before they are known. */
  #older: Set<number> | null = null;
  #isReported = false;
  #resetAt = 0;
  /** Since when older transactions keep every answer out, by the clock of `performance`; null if none does. */
  #heldSince: number | null = null;
  /** Names of these transactions for people; '' before they are known. */
  holders = '';

  /** From now on all changes are reported. */
  reset(): void {
    this.#isReported = true;
    this.#older = null;
    this.#resetAt = performance.now();
  }

  /** From now on changes are not reported. */
  lose(): void {
    this.#isReported = false;
    this.#older = null;
    this.#unsettled.clear();
    this.#hold(false);
  }

  add(table: LoggedTable, xid: number, since: number): void {
    const key = tableKey(table);
    const xids = this.#unsettled.get(key);
    if (xids === undefined) this.#unsettled.set(key, new Map([[xid, since]]));
    else if (!xids.has(xid)) xids.set(xid, since);
  }

  /** Whether every transaction that was reported and changed one of the tables is visible to a read that is sent now. */
  isSettled(tables: Iterable<string>): boolean {
    if (this.#older === null || this.#older.size > 0) return false;
    if (this.#unsettled.size === 0) return true;
    for (const table of tables) if (this.#unsettled.has(table)) return false;
    return true;
  }

  /** The number of the first change of one of the tables that a read may not see if it is sent now, or `end` if it sees all changes. */
  since(tables: Iterable<string>, end: number): number {
    let first = end;
    if (this.#unsettled.size > 0)
      for (const table of tables)
        for (const since of this.#unsettled.get(table)?.values() ?? []) first = Math.min(first, since);
    return first;
  }

  /** Whether it waits for transactions to become visible. */
  get isUnsettled(): boolean {
    return this.#unsettled.size > 0 || this.#older === null || this.#older.size > 0;
  }

  /** Whether it must learn which transactions ran when the stream was opened. */
  get awaitsRunning(): boolean {
    return this.#isReported && this.#older === null;
  }

  /** By a snapshot that was asked for at that time. */
  settle(known: Snapshot, askedAt: number): void {
    for (const [table, xids] of this.#unsettled) {
      for (const xid of xids.keys()) if (known.has(xid)) xids.delete(xid);
      if (xids.size === 0) this.#unsettled.delete(table);
    }
    if (this.#older === null) {
      if (this.#isReported && askedAt >= this.#resetAt) this.#older = new Set(known.running);
    } else for (const xid of this.#older) if (!known.running.has(xid)) this.#older.delete(xid);
    if (this.#older !== null) this.#hold(this.#older.size > 0);
  }

  /** Milliseconds for which older transactions have kept every answer out; 0 if none does. */
  get heldMs(): number {
    return this.#heldSince === null ? 0 : performance.now() - this.#heldSince;
  }

  /** Why no answer is kept, or null. */
  get obstacle(): string | null {
    if (this.heldMs <= SHORT_HOLD_MS) return null;
    const named = this.holders === '' ? '' : `: ${this.holders}`;
    return `no answer is kept until transactions have ended that were open before changes were reported${named}`;
  }

  /** The transactions that keep every answer out. */
  get older(): Iterable<number> {
    return this.#older ?? [];
  }

  #hold(isHeld: boolean): void {
    if (isHeld) this.#heldSince ??= this.#resetAt;
    else {
      this.#heldSince = null;
      this.holders = '';
    }
  }
}
