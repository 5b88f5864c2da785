/** Promises that are waited for no longer than some milliseconds. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Fails if the answer takes longer, with an error that has the properties of `late`. */
export async function within<Result>(
  answer: Promise<Result>,
  milliseconds: number,
  late: { readonly message?: string; readonly code?: string } = {},
): Promise<Result> {
  const done = new AbortController();
  const timeout = sleep(milliseconds, null, { signal: done.signal, ref: false }).then(
    () => {
      throw Object.assign(new Error(`there was no answer within ${milliseconds} ms`), late);
    },
    () => new Promise<never>(() => {}),
  );
  return Promise.race([answer, timeout]).finally(() => done.abort());
}

/** Resolves when the work is done, or when the time has passed. Keeps the process alive until then. */
export async function atMost(milliseconds: number, work: Promise<unknown>): Promise<void> {
  const done = new AbortController();
  await Promise.race([work, sleep(milliseconds, null, { signal: done.signal }).catch(() => {})]).finally(() =>
    done.abort(),
  );
}
