/** Remembers which reads came within the last minute: an answer is kept from the second request on. */
import { hashOf } from './caller-writes.js';

/** Milliseconds within which a read must come again. */
const SEEN_MS = 60_000;
/** A power of two. */
const PLACES = 131_072;

/** A read: its statement by a number, and its values. */
interface SeenRead {
  readonly shape: { readonly number: number };
  readonly key: string;
}

export class SeenReads {
  /** Hashes of reads, and when each came last. A hash has one place: the read that comes later takes it. */
  readonly #hashes = new Uint32Array(PLACES);
  readonly #times = new Float64Array(PLACES).fill(Number.NEGATIVE_INFINITY);

  /** The read with this hash comes. Returns whether it has come before within a minute, and is not skipped. */
  comes(hash: number, now: number): boolean {
    const since = now - this.#lastOf(hash);
    if (since < 0) return false;
    this.#set(hash, now);
    return since < SEEN_MS;
  }

  /** Records that a read was answered from memory at that time. */
  came(hash: number, at: number): void {
    if (at > (this.#times[hash % PLACES] ?? 0)) this.#set(hash, at);
  }

  /** The read is not kept until that time, which lies in the future. */
  skip(read: SeenRead, until: number): void {
    this.#set(readHash(read), until);
  }

  #lastOf(hash: number): number {
    const place = hash % PLACES;
    return this.#hashes[place] === hash ? (this.#times[place] ?? 0) : Number.NEGATIVE_INFINITY;
  }

  #set(hash: number, at: number): void {
    const place = hash % PLACES;
    this.#hashes[place] = hash;
    this.#times[place] = at;
  }
}

export function readHash({ shape, key }: SeenRead): number {
  return hashOf(key, shape.number);
}
