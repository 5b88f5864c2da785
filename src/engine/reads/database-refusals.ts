/**
 * What the database says of itself when it refuses: the table whose right is missing, the view that was never filled. It goes to
 * the log, once, and to administrators; everybody else gets the error without it.
 */
import type { Identity } from '../../access/identity.js';
import { ServiceError, Undisclosed } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';

/** After so many different ones the log has had enough. */
const MAX_LOGGED_REFUSALS = 1_000;

export class DatabaseRefusals {
  readonly #observe: Observer;
  readonly #logged = new Set<string>();

  constructor(observe: Observer) {
    this.#observe = observe;
  }

  /** The error as the caller may see it. */
  to(caller: Pick<Identity, 'administrator'>, error: unknown): unknown {
    if (!(error instanceof Undisclosed)) return error;
    const { code, message, extensions, detail } = error;
    if (!this.#logged.has(detail) && this.#logged.size < MAX_LOGGED_REFUSALS) {
      this.#logged.add(detail);
      this.#observe({ kind: 'database-refused', detail });
    }
    if (!caller.administrator) return error;
    return new ServiceError(code, `${message} The database says: ${detail}.`, { ...extensions, detail });
  }
}
