/**
 * Tries a write again where that helps: after a deadlock or a race, and on the new model where the structure has changed.
 * What is left is an error in the words of the payload.
 */
import { invalidPayload, type ServiceError, serviceUnavailable } from '../errors.js';
import type { Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import { Conflict, isConflict, isMoved, pause } from '../postgres/conflicts.js';
import { fromWrite, staleness } from '../sqlstate.js';
import { isRepeated } from './idempotency.js';
import { namesOf } from './written.js';

/** Of one request. */
export const ATTEMPTS = 10;

/**
 * The same key collides so often where nobody else is to blame: two spellings of one key in the payload, a row that policies of
 * the database hide, a trigger that chooses the key. It is a value that has to be unique and is not.
 */
const SAME_KEY = 3;

/** `told` makes an error what its receiver may know; `repair` is called where the same key collides again. */
export async function attempt<Result>(
  mirror: Mirror,
  work: (model: Model) => Promise<Result>,
  told: (error: unknown) => unknown,
  repair: (conflict: Conflict) => Promise<void>,
): Promise<Result> {
  let before: Conflict | null = null;
  let same = 0;
  for (let count = 1; ; count++) {
    const { model } = mirror;
    try {
      return await work(model);
    } catch (error) {
      const conflict = error instanceof Conflict ? error : null;
      same = conflict?.isSame(before) ? same + 1 : 1;
      before = conflict;
      if (conflict && same === SAME_KEY) throw finalError(conflict.cause, model);
      const stale = staleness(error);
      if (!(stale || isConflict(error))) throw told(finalError(error, model));
      if (count === ATTEMPTS) throw stale || isMoved(error) ? changing() : told(finalError(error, model));
      if (stale) await mirror.refresh(stale === 'certain');
      else await pause(count);
      if (conflict && count > 1) await repair(conflict);
      // A structure that did not change is not to blame; the first time a prepared statement may be.
      if (stale && model === mirror.model && count > 1) throw told(finalError(error, model));
    }
  }
}

function changing(): ServiceError {
  return serviceUnavailable('database', 'Its structure keeps changing');
}

function finalError(error: unknown, model: Model): unknown {
  if (isRepeated(error)) return error;
  // The stack ends before the limit on levels where the items in between have much to say.
  if (error instanceof RangeError) return invalidPayload('The payload nests too deep');
  if (isConflict(error)) return serviceUnavailable('database', 'Too many requests change the same items');
  return fromWrite(error, namesOf(model));
}
