/**
 * Long work in slices: a loop over many entries pauses after each slice, so that waiting requests have their turn.
 */
import { nextTurn, now } from './host.js';

const SLICE_MS = 10;

const ENTRIES_PER_CLOCK_CHECK = 64;

export class TimeSlice {
  #start = now();

  isOver(): boolean {
    return now() - this.#start > SLICE_MS;
  }

  async rest(): Promise<void> {
    await nextTurn();
    this.#start = now();
  }
}

/** Does the work for each entry; a short list is done at once. */
export async function forEachInSlices<Entry>(
  list: readonly Entry[],
  work: (entry: Entry, position: number) => void,
): Promise<void> {
  const slice = new TimeSlice();
  let position = 0;
  for (const entry of list) {
    work(entry, position++);
    if (position % ENTRIES_PER_CLOCK_CHECK === 0 && slice.isOver()) await slice.rest();
  }
}

/** Runs one work after the other. */
type Sequence = <Result>(work: () => Promise<Result>) => Promise<Result>;

export function createSequence(): Sequence {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const result = last.then(work);
    last = result.catch(() => {});
    return result;
  };
}

/** Work that takes much memory and one processor does not end sooner if several do it at once. */
export const oneByOne: Sequence = createSequence();

/** Work that may pause at each `yield`, so that others have their turn. */
export type Steps<Result> = Generator<undefined, Result, undefined>;

export function runSteps<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** Pauses at the end of a slice. */
export async function runInSlices<Result>(steps: Steps<Result>): Promise<Result> {
  const slice = new TimeSlice();
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    if (slice.isOver()) await slice.rest();
  }
}

/** Goes on until a slice has passed, or the work is done. */
export function advance<Result>(steps: Steps<Result>): IteratorResult<undefined, Result> {
  const until = now() + SLICE_MS / 2;
  let result = steps.next();
  while (!result.done && now() < until) result = steps.next();
  return result;
}

/** `map` with a pause after each entry. */
export function* mapSteps<Entry, Result>(
  list: readonly Entry[],
  work: (entry: Entry, position: number) => Result,
): Steps<Result[]> {
  const results: Result[] = [];
  for (const [position, entry] of list.entries()) {
    results.push(work(entry, position));
    yield;
  }
  return results;
}

/** `flatMap` with a pause after each entry. */
export function* flatMapSteps<Entry, Result>(
  list: readonly Entry[],
  work: (entry: Entry) => readonly Result[],
): Steps<Result[]> {
  const results: Result[] = [];
  for (const entry of list) {
    results.push(...work(entry));
    yield;
  }
  return results;
}

/** Work without a place to pause. */
// biome-ignore lint/correctness/useYield: it has none.
export function* oneStep<Result>(work: () => Result): Steps<Result> {
  return work();
}
