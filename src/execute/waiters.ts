/** Those who wait for the answer of a read: what arrives is handed on, or settles a promise. */

import { keep } from './errand.js';
import type { Waiter } from './queue.js';

/** Hands on what arrives; a failure may be recovered from. */
export class Answer implements Waiter {
  readonly #waiter: Waiter;
  readonly fail: (error: unknown) => void;

  constructor(waiter: Waiter, recover: (error: unknown) => void) {
    this.#waiter = waiter;
    this.fail = recover;
  }

  get aborted(): boolean {
    return this.#waiter.aborted;
  }

  get caller(): string {
    return this.#waiter.caller ?? '';
  }

  take(cell: Buffer | null): void {
    this.#waiter.take(cell);
  }
}

/** Settles a promise. */
export class Promised implements Waiter {
  readonly #asker: { readonly aborted: boolean };
  readonly #resolve: (cell: Buffer | null) => void;
  readonly fail: (error: unknown) => void;
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
    this.fail = reject;
  }

  get aborted(): boolean {
    return this.#asker.aborted;
  }

  take(cell: Buffer | null): void {
    this.#resolve(keep(cell));
  }
}
