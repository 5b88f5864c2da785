/**
 * Looks at every subscription again and again: tokens expire without anybody saying so, and proxies want to see signs of life.
 * Not at all of them in the same moment: at ten thousand, changes would wait for it.
 */

/** Milliseconds in which each is looked at once. */
const ROUND_MS = 500;
/** Milliseconds between two looks at some of them. */
const STEP_MS = 20;
/** Rounds between two signs of life. */
const BEAT_ROUNDS = 40;

export interface Swept {
  /** Of which round its signs of life come. */
  readonly phase: number;
}

export class Sweep<Each extends Swept> {
  readonly #all: ReadonlySet<Each>;
  readonly #look: (each: Each, beats: boolean) => void;
  #left: Iterator<Each> | null = null;
  #quota = 0;
  #rounds = 0;
  #timer: NodeJS.Timeout | null = null;
  /** When the round began. */
  #begun = 0;

  constructor(all: ReadonlySet<Each>, look: (each: Each, beats: boolean) => void) {
    this.#all = all;
    this.#look = look;
  }

  start(): void {
    this.#timer ??= setInterval(() => this.#step(), STEP_MS).unref();
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
    this.#left = null;
  }

  #step(): void {
    const now = performance.now();
    if (this.#left === null) {
      if (now - this.#begun < ROUND_MS) return;
      this.#begun = now;
      this.#rounds++;
      this.#left = this.#all.values();
      this.#quota = Math.max(Math.ceil((this.#all.size * STEP_MS) / ROUND_MS), 1);
    }
    for (let count = 0; count < this.#quota; count++) {
      const { value, done } = this.#left.next();
      if (done) {
        this.#left = null;
        return;
      }
      this.#look(value, (value.phase + this.#rounds) % BEAT_ROUNDS === 0);
    }
  }
}

/** For those that come one after the other. */
export function nextPhase(): number {
  phase = (phase + 1) % BEAT_ROUNDS;
  return phase;
}

let phase = 0;
