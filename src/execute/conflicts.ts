/** Requests that met others, or a structure that changed under them: which failures are worth another attempt, and when. */
import { serviceUnavailable, staleness } from '../errors.js';
import type { Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import type { PlannedWrite } from '../plan/write.js';

/** Of one request. */
export const ATTEMPTS = 10;

/** `explain` says what a failure means that is final. */
export async function attempt<Result>(
  mirror: Mirror,
  work: (model: Model) => Promise<Result>,
  explain: (error: unknown, model: Model) => unknown,
): Promise<Result> {
  for (let number = 1; ; number++) {
    const { model } = mirror;
    try {
      return await work(model);
    } catch (error) {
      const stale = staleness(error);
      if (!stale && !(isConflict(error) && number < ATTEMPTS)) throw explain(error, model);
      if (number === ATTEMPTS) throw serviceUnavailable('database', 'Its structure keeps changing');
      if (stale) await mirror.refresh(stale === 'certain');
      else await pause(number);
      // A structure that did not change is not to blame; the first time a prepared statement may be.
      if (stale && model === mirror.model && number > 1) throw explain(error, model);
    }
  }
}

/** Another request made the item that this one was about to make: seen again, it is there and will be changed. */
export class Conflict extends Error {}

export function isConflict(error: unknown): boolean {
  if (error instanceof Conflict) return true;
  return error instanceof Error && 'code' in error && (error.code === '40001' || error.code === '40P01');
}

/** A key collided that this request found missing, or took from a sequence while another request supplied it. */
export function isRace(error: unknown, { plan, input }: PlannedWrite): boolean {
  const failure = error as { code?: string; table_name?: string; detail?: string };
  if (failure.code !== '23505') return false;
  const [, column, key] = /^Key \("?(.*?)"?\)=\((.*)\) already exists/s.exec(failure.detail ?? '') ?? [];
  return plan.nodes.some(({ verb, collection }, position) => {
    if (collection.name !== failure.table_name && collection.kind !== 'partitioned') return false;
    if (column !== collection.primaryKey.name || verb === 'update') return false;
    return verb === 'upsert' || !input.nodes[position]?.some((row) => String(row.k) === key);
  });
}

export function pause(attempt: number): Promise<void> {
  const milliseconds = Math.min(20 * 2 ** attempt, 1_000) * (0.5 + Math.random());
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
