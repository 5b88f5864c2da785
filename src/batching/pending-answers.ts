/** Those who wait for the answer of a read: what arrives is handed on, or settles a promise. */

import { copyBorrowed } from '../postgres/wire-query.js';
import type { ReadListener } from './shape-queue.js';

/** Hands on what arrives; a failure may be recovered from. */
export class RecoveringListener implements ReadListener {
  readonly #waiter: ReadListener;
  readonly onError: (error: unknown) => void;

  constructor(waiter: ReadListener, recover: (error: unknown) => void) {
    this.#waiter = waiter;
    this.onError = recover;
  }

  get aborted(): boolean {
    return this.#waiter.aborted;
  }

  get caller(): string {
    return this.#waiter.caller ?? '';
  }

  onResult(cell: Buffer | null): void {
    this.#waiter.onResult(cell);
  }
}

/** Settles a promise. */
export class PromiseListener implements ReadListener {
  readonly #asker: { readonly aborted: boolean };
  readonly #resolve: (cell: Buffer | null) => void;
  readonly onError: (error: unknown) => void;
  readonly caller: string;

  constructor(
    asker: { readonly aborted: boolean },
    caller: string,
    resolve: (cell: Buffer | null) => void,
    reject: (error: unknown) => void,
  ) {
    this.#asker = asker;
    this.caller = caller;
    this.#resolve = resolve;
    this.onError = reject;
  }

  get aborted(): boolean {
    return this.#asker.aborted;
  }

  onResult(cell: Buffer | null): void {
    this.#resolve(copyBorrowed(cell));
  }
}
