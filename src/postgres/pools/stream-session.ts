/**
 * A connection whose user reads the rows of one statement batch by batch: through a portal, which PostgreSQL suspends after as
 * many rows as an Execute message asked for.
 */
import { serviceUnavailable } from '../../base/errors.js';
import { connectionLost } from '../wire/connection-errors.js';
import type { BoundStatement, Decoder } from '../wire/wire-query.js';
import { Session } from './sessions.js';

interface StreamStatement extends BoundStatement {
  readonly decoder: Decoder;
}

export class StreamSession extends Session {
  /** Since when what was read waits for the reader; null when it does not. */
  stalledSince: number | null = null;
  #isCancelled = false;
  /** The callback for the next result. */
  #settle: ((isSuspended: boolean) => void) | null = null;
  /** Rejects where the statement fails, also while its portal is suspended. */
  #failure: Promise<never> = new Promise(() => {});
  #fail: (error: Error) => void = () => {};

  /** A request to cancel may arrive late, and would stop the next statement. */
  override get isClean(): boolean {
    return super.isClean && !this.#isCancelled;
  }

  /** For how many milliseconds the reader has taken nothing. */
  stalled(now: number): number {
    return this.stalledSince === null ? 0 : now - this.stalledSince;
  }

  /** Others wait for a connection, and this one waits for its reader. */
  breakOff(): void {
    const reason = 'The stream was read too slowly while others waited for a connection';
    this.refuse(serviceUnavailable('database', reason));
  }

  /** Ends the statement, and the connection, for this reason. */
  refuse(reason: Error): void {
    this.#fail(reason);
    this.connection.destroy(reason);
  }

  /** Runs the statement for at most so many rows; answers whether there may be more. */
  execute({ text, parameters, prepare, decoder }: StreamStatement, maxRows: number): Promise<boolean> {
    this.#failure = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.#failure.catch(() => {});
    return this.#answer(() => {
      this.count();
      this.connection.run({
        text,
        parameters,
        prepare,
        decoder,
        columns: null,
        portal: { maxRows, suspended: () => this.#settle?.(true) },
        row: () => {},
        end: (error) => {
          if (error === null) this.#settle?.(false);
          else this.#fail(error);
        },
      });
    });
  }

  /** At most so many rows more; answers whether there may be others behind them. */
  fetch(maxRows: number): Promise<boolean> {
    return this.#answer(() => this.connection.fetch(maxRows));
  }

  /** Ends the statement, of which no more rows are wanted. */
  async closePortal(): Promise<void> {
    await this.#answer(() => this.connection.closePortal());
  }

  /** What becomes of the work, at the latest when the statement fails or the connection is lost. */
  whileOpen<Result>(work: Promise<Result>): Promise<Result> {
    return Promise.race([work, this.#failure]);
  }

  /** Asks PostgreSQL to stop the statement; resolves when the server has received it, or cannot be reached. */
  cancel(): Promise<void> {
    this.#isCancelled = true;
    return this.connection.cancel();
  }

  #answer(send: () => void): Promise<boolean> {
    if (this.lost) this.#fail(connectionLost());
    const answer = new Promise<boolean>((resolve) => {
      this.#settle = resolve;
    });
    if (!this.lost) send();
    return this.whileOpen(answer);
  }
}
