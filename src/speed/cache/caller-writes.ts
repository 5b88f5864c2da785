/**
 * The last write of each caller, in memory that all threads share: writes are numbered. Callers are kept by a hash of the name, and
 * those that share a place have the later number of both. A caller's read is served from memory only if the changes of all writes up
 * to that number have been reported.
 */
const CALLERS = 4_096;

export class CallerWrites {
  readonly buffer: SharedArrayBuffer;
  /** The first is the number of the last write of all. */
  readonly #numbers: BigInt64Array;
  /** Called after a write. */
  onWrite: () => void = () => {};
  /** The changes of writes up to this number have been reported. */
  #reported = -1n;

  /** With the buffer of another thread, the writes of that thread as well. */
  constructor(buffer?: SharedArrayBuffer) {
    this.buffer = buffer ?? new SharedArrayBuffer((1 + CALLERS) * BigInt64Array.BYTES_PER_ELEMENT);
    this.#numbers = new BigInt64Array(this.buffer);
  }

  /** To be called after the commit, and before it is answered. */
  wrote(caller: string): void {
    const number = Atomics.add(this.#numbers, 0, 1n) + 1n;
    const place = placeOf(caller);
    for (let known = Atomics.load(this.#numbers, place); known < number; ) {
      const found = Atomics.compareExchange(this.#numbers, place, known, number);
      if (found === known) break;
      known = found;
    }
    this.onWrite();
  }

  /** The number of the last write. */
  get last(): bigint {
    return Atomics.load(this.#numbers, 0);
  }

  /** Whether the changes of all writes have been reported. */
  get isQuiet(): boolean {
    return this.last === this.#reported;
  }

  /** Whether the changes of all writes of the caller have been reported. */
  isReported(caller: string): boolean {
    return Atomics.load(this.#numbers, placeOf(caller)) <= this.#reported;
  }

  /** The changes of writes up to the number have been reported. */
  reported(number: bigint): void {
    this.#reported = number;
  }
}

function placeOf(caller: string): number {
  return 1 + (hashOf(caller) % CALLERS);
}

/** FNV-1a. */
export function hashOf(text: string, seed = 0x811c9dc5): number {
  let hash = seed;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}
