/**
 * When each caller has written last, in memory that all threads share. Callers are kept by a hash of the name: those that share a place
 * have the later time of both. A caller's read is served from memory only if the changes up to that time have been reported.
 */
import { performance } from 'node:perf_hooks';

const CALLERS = 4_096;

export class WriteTimes {
  readonly buffer: SharedArrayBuffer;
  /** By the clock that all threads have. The first is the latest of all. */
  readonly #times: Float64Array;
  /** Called after a write. */
  onWrite: () => void = () => {};
  /** By the clock of `performance` of this thread. */
  #settledAt = 0;

  /** With the buffer of another thread, the times of that thread as well. */
  constructor(buffer?: SharedArrayBuffer) {
    this.buffer = buffer ?? new SharedArrayBuffer((1 + CALLERS) * Float64Array.BYTES_PER_ELEMENT);
    this.#times = new Float64Array(this.buffer);
  }

  /** To be called before the write is answered. */
  wrote(caller: string): void {
    const now = performance.now() + OFFSET;
    this.#times[1 + (hashOf(caller) % CALLERS)] = now;
    this.#times[0] = now;
    this.onWrite();
  }

  /** Whether the changes of all writes have been reported. */
  get isQuiet(): boolean {
    return (this.#times[0] ?? 0) <= this.#settledAt + OFFSET;
  }

  /** By the clock of `performance` of this thread. */
  of(caller: string): number {
    return (this.#times[1 + (hashOf(caller) % CALLERS)] ?? 0) - OFFSET;
  }

  /** The changes of writes before `at` have been reported. */
  settled(at: number): void {
    this.#settledAt = at;
  }
}

/** Milliseconds from the clock of `performance`, which begins with its thread, to that of the machine. */
const OFFSET = Number(process.hrtime.bigint()) / 1e6 - performance.now();

/** FNV-1a. */
export function hashOf(text: string, seed = 0x811c9dc5): number {
  let hash = seed;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}
