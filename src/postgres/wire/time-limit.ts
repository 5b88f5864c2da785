import { setTimeout as sleep } from 'node:timers/promises';

/** Fails where the answer takes too long. */
export async function within<Result>(answer: Promise<Result>, milliseconds: number): Promise<Result> {
  const done = new AbortController();
  const late = sleep(milliseconds, null, { signal: done.signal, ref: false }).then(
    () => Promise.reject(new Error(`there was no answer within ${milliseconds} ms`)),
    () => new Promise<never>(() => {}),
  );
  return Promise.race([answer, late]).finally(() => done.abort());
}
