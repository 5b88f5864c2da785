/** Collects the changes of a transaction in bounded memory. */
import type { LoggedChange, LoggedTable, LogHandler } from '../../postgres/changes/pgoutput.js';
import type { ChangeReceiver } from './change-source.js';

/** If a transaction changes more rows of a table, all of its rows count as changed. */
const MAX_ROWS = 1_000;

export class TransactionReader implements LogHandler {
  #xid = 0;
  /** When the first message of the current transaction arrived, by the clock of `performance`; null if there is none. */
  begunAt: number | null = null;
  #changes = new Map<LoggedTable, LoggedChange[] | null>();

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
}
