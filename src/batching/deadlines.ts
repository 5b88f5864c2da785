/** Says of what takes too long that it does. One timer watches all: to set and clear one for each would cost several times as much. */
import { performance } from 'node:perf_hooks';

export interface Deadline {
  readonly due: number;
  readonly miss: () => void;
}

export class Deadlines {
  readonly #time: number;
  /** The first is due first, since all have the same time. */
  readonly #watched = new Set<Deadline>();
  #timer: NodeJS.Timeout | null = null;

  /** In milliseconds. */
  constructor(time: number) {
    this.#time = time;
  }

  /** Calls `miss` after the time, unless the deadline is removed before. */
  add(miss: () => void): Deadline {
    const deadline = { due: performance.now() + this.#time, miss };
    this.#watched.add(deadline);
    if (this.#timer === null) this.#wake(this.#time);
    return deadline;
  }

  remove(deadline: Deadline): void {
    this.#watched.delete(deadline);
  }

  #check(): void {
    const now = performance.now();
    for (const deadline of this.#watched) {
      if (deadline.due > now) {
        this.#wake(deadline.due - now);
        return;
      }
      this.#watched.delete(deadline);
      deadline.miss();
    }
    this.#timer = null;
  }

  #wake(time: number): void {
    this.#timer = setTimeout(() => this.#check(), time).unref();
  }
}
