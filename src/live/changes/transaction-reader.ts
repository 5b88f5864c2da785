/** Gathers what a transaction has changed, in bounded memory. */
import type { LoggedChange, LoggedTable, LogHandler } from '../../postgres/changes/pgoutput.js';
import type { ChangeReceiver } from './change-source.js';

/** Rows of a table in one transaction beyond which all of its rows may have changed. */
const MAX_ROWS = 1_000;

export class TransactionReader implements LogHandler {
  readonly #receiver: ChangeReceiver;
  readonly #isVisible: boolean;
  #xid = 0;
  /** When the first message of the transaction came that is not committed yet, by the clock of `performance`; null if there is none. */
  begunAt: number | null = null;
  #changes = new Map<LoggedTable, LoggedChange[] | null>();

  /** `isVisible`: whether others can see what a transaction has done when it is told. */
  constructor(receiver: ChangeReceiver, isVisible: boolean) {
    this.#receiver = receiver;
    this.#isVisible = isVisible;
  }

  wanted(table: LoggedTable): readonly boolean[] | null {
    return this.#receiver.wanted(table);
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
    if (action === 'truncate' || (rows && rows.length >= MAX_ROWS)) this.#changes.set(table, null);
    else if (rows) rows.push(change);
    else this.#changes.set(table, [change]);
  }

  commit(position: number, time: number): void {
    const changes = [...this.#changes].map(([table, rows]) => ({ table, rows }));
    this.#changes = new Map();
    this.begunAt = null;
    this.#receiver.committed({ xid: this.#xid, position, time, changes, isVisible: this.#isVisible });
  }
}
