/**
 * Retries a request if that helps: after a deadlock or a race, on the new model if the schema has changed before the
 * notification arrived, and, for a read, after an administrator has ended the connection.
 */
import { type ServiceError, serviceUnavailable } from '../../base/errors.js';
import { isRaised, staleness } from '../../base/sqlstate.js';
import type { Model } from '../../compiler/model/model.js';
import type { Mirror } from '../postgres/catalog/watch.js';
import { Conflict, isConflict, isMoved, isTermination, pause } from '../postgres/pools/conflicts.js';

const MAX_ATTEMPTS = 10;

/** Attempts that a function of the database may ask for by an error code: it may ask forever. */
const MAX_RAISED_ATTEMPTS = 4;

interface RetryOptions {
  /** The error as the caller may see it. */
  readonly asError: (error: unknown, model: Model) => unknown;
  /** The version of the model that the attempt was compiled for, if that may not be the latest. */
  readonly version?: () => number;
  /** False once a part of the answer was sent. */
  readonly mayRepeat?: () => boolean;
  /** Whether a connection that an administrator has ended is worth a second attempt: nothing was changed by a read. */
  readonly afterTermination?: boolean;
  /** For a read, with several servers: whether a server is available again after the connection was lost. */
  readonly recovers?: (error: unknown) => Promise<boolean>;
  /** Called if a key collides again. */
  readonly onCollision?: (conflict: Conflict) => Promise<void>;
}

export async function retry<Result>(
  mirror: Mirror,
  work: (model: Model, attempt: number) => Promise<Result>,
  { asError, version, mayRepeat, afterTermination = false, recovers, onCollision }: RetryOptions,
): Promise<Result> {
  let previous: Conflict | null = null;
  let collisions = 0;
  for (let attempt = 1; ; attempt++) {
    const { model } = mirror;
    try {
      return await work(model, attempt);
    } catch (error) {
      const conflict = error instanceof Conflict ? error : null;
      collisions = conflict?.isSame(previous) ? collisions + 1 : 1;
      previous = conflict;
      if (conflict && collisions === conflict.last) throw asError(conflict.cause, model);
      const stale = staleness(error);
      const isWorthIt =
        stale ||
        isConflict(error) ||
        (attempt === 1 && ((afterTermination && isTermination(error)) || (await recovers?.(error))));
      if (!isWorthIt || mayRepeat?.() === false) throw asError(error, model);
      if (attempt === MAX_RAISED_ATTEMPTS && isRaised(error)) throw asError(error, model);
      if (attempt === MAX_ATTEMPTS) throw exhausted(stale !== null || isMoved(error));
      if (stale) await mirror.refresh(stale === 'certain');
      else await pause(attempt);
      if (conflict && attempt > 1)
        await onCollision?.(conflict).catch((failure: unknown) => {
          throw asError(failure, model);
        });
      // A schema that did not change is not the reason; the first time a prepared statement may be.
      const isUnchanged = mirror.model.version === (version?.() ?? model.version);
      if (stale && isUnchanged && (stale === 'possible' || attempt > 1)) throw asError(error, model);
    }
  }
}

function exhausted(isSchema: boolean): ServiceError {
  const reason = isSchema ? 'Its schema keeps changing' : 'Too many requests change the same items';
  return serviceUnavailable('database', reason);
}
