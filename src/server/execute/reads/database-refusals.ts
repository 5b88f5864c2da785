/** The words with which PostgreSQL refuses a statement: for the log and for administrators. */

import { ErrorWithLogDetail, raisedError, ServiceError } from '../../../base/errors.js';
import type { Observer } from '../../../base/observe.js';
import type { Identity } from '../../access/identity.js';

/** After this number of different refusals no more are logged. */
const MAX_LOGGED_REFUSALS = 1_000;

/**
 * The database's own words when it refuses, such as the table whose right is missing. They go to the log, once, and to administrators;
 * other callers get the error without them.
 */
export class DatabaseRefusals {
  readonly #logged = new Set<string>();

  constructor(
    private readonly observe: Observer,
    private readonly raisedStatuses: boolean,
  ) {}

  /** The error as the caller may see it. */
  to(caller: Pick<Identity, 'administrator'>, error: unknown): unknown {
    if (this.raisedStatuses && error instanceof ServiceError && error.raised) return raisedError(error.raised, error);
    if (!(error instanceof ErrorWithLogDetail)) return error;
    const { code, message, extensions, detail } = error;
    if (!this.#logged.has(detail) && this.#logged.size < MAX_LOGGED_REFUSALS) {
      this.#logged.add(detail);
      this.observe({ kind: 'database-refused', detail });
    }
    if (!caller.administrator) return error;
    return new ServiceError(code, `${message} The database says: ${detail}.`, { ...extensions, detail });
  }
}
