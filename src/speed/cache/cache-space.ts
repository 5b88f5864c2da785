/**
 * The memory of the cache. Callers are divided into groups. If the memory is full, the least recently used entries of the largest group
 * leave first, so a caller with many different reads evicts answers of that group only.
 */

export interface Kept {
  /** Bytes. */
  readonly size: number;
  /** The group of the caller who asked first. */
  readonly group: number;
}

const GROUPS = 64;

/** The group of a caller, by a hash of the name. */
export function groupOf(hash: number): number {
  return hash % GROUPS;
}

interface Group<Entry> {
  /** The least recently used first. */
  readonly entries: Set<Entry>;
  size: number;
}

export class CacheSpace<Entry extends Kept> {
  readonly #groups: Group<Entry>[] = Array.from({ length: GROUPS }, () => ({ entries: new Set(), size: 0 }));
  /** Bytes. */
  used = 0;

  /** `onEvicted` is called for what had to leave, which is removed already. */
  constructor(
    private readonly limit: number,
    private readonly onEvicted: (entry: Entry) => void,
  ) {}

  /** Whether an entry may have so many bytes: a sixteenth of the space. */
  mayHold(bytes: number): boolean {
    return bytes <= this.limit / 16;
  }

  /** Returns whether there is room for it. */
  add(entry: Entry): boolean {
    if (!this.mayHold(entry.size)) return false;
    const group = this.#groups[entry.group];
    if (!group) return false;
    group.entries.add(entry);
    this.#grow(group, entry.size);
    this.#makeRoom();
    return group.entries.has(entry);
  }

  /** It was used. */
  touch(entry: Entry): void {
    const entries = this.#groups[entry.group]?.entries;
    if (entries?.delete(entry)) entries.add(entry);
  }

  /** It takes more bytes than before; `entry.size` includes them already. */
  grown(entry: Entry, bytes: number): void {
    const group = this.#groups[entry.group];
    if (!group?.entries.has(entry)) return;
    this.#grow(group, bytes);
    this.#makeRoom();
  }

  remove(entry: Entry): void {
    const group = this.#groups[entry.group];
    if (group?.entries.delete(entry)) this.#grow(group, -entry.size);
  }

  #grow(group: Group<Entry>, bytes: number): void {
    group.size += bytes;
    this.used += bytes;
  }

  #makeRoom(): void {
    while (this.used > this.limit) {
      const largest = this.#groups.reduce((most, each) => (each.size > most.size ? each : most));
      const [oldest] = largest.entries;
      if (oldest === undefined) return;
      this.remove(oldest);
      this.onEvicted(oldest);
    }
  }
}
