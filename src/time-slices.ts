/**
 * Long work in slices: whoever works through much pauses when a slice is over, so that requests that came meanwhile have their
 * turn.
 */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds after which others have their turn. */
const SLICE = 10;

/** Entries between two looks at the clock. */
const STRIDE = 64;

export class TimeSlice {
  #start = performance.now();

  isOver(): boolean {
    return performance.now() - this.#start > SLICE;
  }

  async rest(): Promise<void> {
    await nextTurn();
    this.#start = performance.now();
  }
}

/** Does the work for each entry; a short list is done at once. */
export async function forEachInSlices<Entry>(
  list: readonly Entry[],
  work: (entry: Entry, position: number) => void,
): Promise<void> {
  const pace = new TimeSlice();
  for (let position = 0; position < list.length; position++) {
    work(list[position] as Entry, position);
    if ((position + 1) % STRIDE === 0 && pace.isOver()) await pace.rest();
  }
}

let last: Promise<unknown> = Promise.resolve();

/** One such work after the other: what takes much memory and one processor is not done sooner when several do it at once. */
export function oneByOne<Result>(work: () => Promise<Result>): Promise<Result> {
  const result = last.then(work);
  last = result.catch(() => {});
  return result;
}

/** Milliseconds: the longest pause after large work. */
const LONGEST_PAUSE = 250;

let turn: Promise<void> = Promise.resolve();

/**
 * For work that cannot be done in slices: one at a time, and after each the loop is left to the others for as long as it took. Else
 * several that arrive together would keep everybody waiting for as long as all of them take.
 */
export async function inTurn<Result>(work: () => Result): Promise<Result> {
  const before = turn;
  let done = (): void => {};
  turn = new Promise((resolve) => {
    done = resolve;
  });
  await before;
  await nextTurn();
  const start = performance.now();
  try {
    return work();
  } finally {
    const took = performance.now() - start;
    if (took < 1) done();
    else void sleep(Math.min(took, LONGEST_PAUSE)).then(done);
  }
}
