/** Calls back for what takes too long. One timer watches all: to set and clear one for each would cost several times as much. */
import { performance } from 'node:perf_hooks';

export interface Deadline {
  readonly dueAt: number;
  readonly onMissed: () => void;
}

export class Deadlines {
  readonly #timeoutMs: number;
  /** The first is due first, since all have the same time. */
  readonly #watched = new Set<Deadline>();
  #timer: NodeJS.Timeout | null = null;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /** Calls `onMissed` after the timeout, unless the deadline is removed before. */
  add(onMissed: () => void): Deadline {
    const deadline = { dueAt: performance.now() + this.#timeoutMs, onMissed };
    this.#watched.add(deadline);
    if (this.#timer === null) this.#wake(this.#timeoutMs);
    return deadline;
  }

  remove(deadline: Deadline): void {
    this.#watched.delete(deadline);
  }

  #check(): void {
    const now = performance.now();
    for (const deadline of this.#watched) {
      if (deadline.dueAt > now) {
        this.#wake(deadline.dueAt - now);
        return;
      }
      this.#watched.delete(deadline);
      deadline.onMissed();
    }
    this.#timer = null;
  }

  #wake(ms: number): void {
    this.#timer = setTimeout(() => this.#check(), ms).unref();
  }
}
