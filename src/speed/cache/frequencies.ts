/**
 * How often reads come, as far as it decides which of them stay in memory: a count-min sketch for those that are not in memory, and a
 * counter in each entry for the others. All of them are halved again and again, so that what is no longer read leaves.
 */
import { performance } from 'node:perf_hooks';

/** A power of two. */
const WIDTH = 65_536;
const ROWS = 4;
const MOST = 255;
/** The counters are halved after so many uses, and at least once in so many milliseconds. */
const USES_PER_AGE = 10 * WIDTH;
const AGE_MS = 60_000;

/** Something that counts its own uses. */
interface Counted {
  uses: number;
  age: number;
}

export class Frequencies {
  readonly #counts = new Uint8Array(ROWS * WIDTH);
  #age = 0;
  #agedAt = performance.now();
  #uses = 0;

  /** A read comes that is not in memory. Returns how often it came. */
  add(hash: number, now: number): number {
    if (++this.#uses >= USES_PER_AGE || now - this.#agedAt > AGE_MS) this.#halve(now);
    let least = MOST;
    for (let row = 0; row < ROWS; row++) least = Math.min(least, this.#counts[placeOf(hash, row)] ?? 0);
    if (least === MOST) return MOST;
    for (let row = 0; row < ROWS; row++) {
      const place = placeOf(hash, row);
      if (this.#counts[place] === least) this.#counts[place] = least + 1;
    }
    return least + 1;
  }

  /** It is used once more. */
  used(entry: Counted): void {
    this.#uses++;
    const uses = this.usesOf(entry);
    if (uses < MOST) entry.uses = uses + 1;
  }

  /** An entry with this hash leaves: when its read comes again, it counts as used as often as before. */
  raise(hash: number, entry: Counted): void {
    const uses = this.usesOf(entry);
    for (let row = 0; row < ROWS; row++) {
      const place = placeOf(hash, row);
      if ((this.#counts[place] ?? 0) < uses) this.#counts[place] = uses;
    }
  }

  /** It was used so often before it was in memory. */
  begin(entry: Counted, uses: number): void {
    entry.uses = uses;
    entry.age = this.#age;
  }

  /** How often it was used lately. */
  usesOf(entry: Counted): number {
    if (entry.age !== this.#age) {
      entry.uses >>= Math.min(this.#age - entry.age, 8);
      entry.age = this.#age;
    }
    return entry.uses;
  }

  /** The count that a frequent read can still exceed. */
  most(uses: number): number {
    return Math.min(uses, MOST - 1);
  }

  #halve(now: number): void {
    this.#age++;
    this.#agedAt = now;
    this.#uses = 0;
    const counts = this.#counts;
    for (let place = 0; place < counts.length; place++) counts[place] = (counts[place] ?? 0) >> 1;
  }
}

function placeOf(hash: number, row: number): number {
  const mixed = Math.imul(hash ^ (row * 0x9e3779b9), 0x85ebca6b);
  return row * WIDTH + ((mixed ^ (mixed >>> 15)) & (WIDTH - 1));
}
