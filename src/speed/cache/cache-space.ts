/**
 * The memory of the cache. Callers are divided into groups. If the memory is full, the largest group loses entries that are seldom used,
 * so a caller with many different reads evicts answers of that group only. A new entry that is used less often than those it would
 * evict is not admitted: otherwise reads of many keys would evict each other before any of them comes again.
 */
import type { Frequencies } from './frequencies.js';

const GROUPS = 64;

/** The group of a caller, by a hash of the name. */
export function groupOf(hash: number): number {
  return hash % GROUPS;
}

/** Something that takes memory. The entries of a group are a ring. */
export abstract class Kept {
  /** Neighbours in the ring; null while it is not in the space. */
  previous: Kept | null = null;
  next: Kept | null = null;
  /** How often it was used, and since which age that is not halved yet. */
  uses = 0;
  age = 0;

  constructor(
    /** Bytes. */
    public size: number,
    /** The group of the caller who asked first. */
    readonly group: number,
  ) {}

  /** It had to leave the space, which it has left already. */
  abstract evicted(): void;
}

/** Something that is kept with an entry, such as a reply that is made of it, for a caller with a group of its own. */
export abstract class Attached extends Kept {
  /** Neighbours in the list of the entry. */
  before: Attached | null = null;
  after: Attached | null = null;

  /** The entry was dropped. */
  abstract gone(): void;
}

interface Group {
  /** Where the search for an entry to evict goes on. */
  hand: Kept | null;
  size: number;
}

/** Entries of which the one that is used least is evicted. */
const CANDIDATES = 5;
/** A new entry must be used so many times as often as the one that it evicts. */
const ADVANTAGE = 2;
/** The space counts as full from this part of it on: an entry is judged before its size is known. */
const FULL = 0.97;

export class CacheSpace {
  readonly #groups: Group[] = Array.from({ length: GROUPS }, () => ({ hand: null, size: 0 }));
  /** Bytes. */
  used = 0;

  constructor(
    private readonly limit: number,
    private readonly frequencies: Frequencies,
  ) {}

  /** Whether an entry may have so many bytes: a sixteenth of the space. */
  mayHold(bytes: number): boolean {
    return bytes <= this.limit / 16;
  }

  /** Whether an entry of the group that is used so often would be admitted. */
  admits(group: number, uses: number): boolean {
    if (this.used < this.limit * FULL) return true;
    const largest = this.#largest;
    return this.#groups[group] !== largest || this.#isBetter(uses, this.#leastUsed(largest, null));
  }

  /** Returns whether there is room for it. */
  add(entry: Kept): boolean {
    if (!this.mayHold(entry.size)) return false;
    const group = this.#groups[entry.group];
    if (!group) return false;
    const { hand } = group;
    const previous = hand?.previous ?? entry;
    entry.next = hand ?? entry;
    entry.previous = previous;
    previous.next = entry;
    entry.next.previous = entry;
    group.hand ??= entry;
    this.#grow(group, entry.size);
    this.#makeRoom(entry);
    return entry.next !== null;
  }

  /** It takes more bytes than before; `entry.size` includes them already. */
  grown(entry: Kept, bytes: number): void {
    const group = this.#groups[entry.group];
    if (!group || entry.next === null) return;
    this.#grow(group, bytes);
    this.#makeRoom(null);
  }

  remove(entry: Kept): void {
    const group = this.#groups[entry.group];
    const { previous, next } = entry;
    if (!group || previous === null || next === null) return;
    previous.next = next;
    next.previous = previous;
    if (group.hand === entry) group.hand = next === entry ? null : next;
    entry.previous = entry.next = null;
    this.#grow(group, -entry.size);
  }

  #grow(group: Group, bytes: number): void {
    group.size += bytes;
    this.used += bytes;
  }

  get #largest(): Group | undefined {
    let [largest] = this.#groups;
    for (const group of this.#groups) if (group.size > (largest?.size ?? 0)) largest = group;
    return largest;
  }

  /** The entry that is used least of the next ones, but for a new one. */
  #leastUsed(group: Group | undefined, added: Kept | null): Kept | null {
    let least: Kept | null = null;
    for (let count = 0; count < CANDIDATES; count++) {
      const entry = group?.hand ?? null;
      if (group === undefined || entry === null) return null;
      group.hand = entry.next;
      if (entry !== added && (least === null || this.frequencies.usesOf(entry) < least.uses)) least = entry;
    }
    return least;
  }

  #isBetter(uses: number, than: Kept | null): boolean {
    return than === null || uses > this.frequencies.most(ADVANTAGE * this.frequencies.usesOf(than));
  }

  /** `added` is the new entry, or null if an entry has grown. */
  #makeRoom(added: Kept | null): void {
    while (this.used > this.limit) {
      const largest = this.#largest;
      const least = this.#leastUsed(largest, added);
      const isRival = added !== null && this.#groups[added.group] === largest;
      const evicted = isRival && !this.#isBetter(added.uses, least) ? added : (least ?? added);
      if (evicted === null) return;
      this.remove(evicted);
      evicted.evicted();
      if (added !== null && added.next === null) return;
    }
  }
}
