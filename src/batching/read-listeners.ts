/** Listeners for the result of a read: one hands it on and may recover from a failure, one settles a promise. */
import { copyBorrowed } from '../postgres/wire-query.js';
import type { ReadListener } from './shape-queue.js';

/** Hands on what arrives; a failure may be recovered from. */
export class RecoveringListener implements ReadListener {
  readonly #listener: ReadListener;
  readonly onError: (error: unknown) => void;

  constructor(listener: ReadListener, recover: (error: unknown) => void) {
    this.#listener = listener;
    this.onError = recover;
  }

  get aborted(): boolean {
    return this.#listener.aborted;
  }

  get caller(): string {
    return this.#listener.caller ?? '';
  }

  onResult(cell: Buffer | null): void {
    this.#listener.onResult(cell);
  }
}

/** Settles a promise. */
export class PromiseListener implements ReadListener {
  readonly #request: { readonly aborted: boolean };
  readonly #resolve: (cell: Buffer | null) => void;
  readonly onError: (error: unknown) => void;
  readonly caller: string;

  constructor(
    request: { readonly aborted: boolean },
    caller: string,
    resolve: (cell: Buffer | null) => void,
    reject: (error: unknown) => void,
  ) {
    this.#request = request;
    this.caller = caller;
    this.#resolve = resolve;
    this.onError = reject;
  }

  get aborted(): boolean {
    return this.#request.aborted;
  }

  onResult(cell: Buffer | null): void {
    this.#resolve(copyBorrowed(cell));
  }
}
