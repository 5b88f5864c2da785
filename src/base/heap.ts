/** A binary heap: the first of its entries, also after some have changed. */
export class Heap<Entry> {
  readonly #entries: Entry[] = [];
  readonly #indexes = new Map<Entry, number>();

  constructor(private readonly isBefore: (one: Entry, other: Entry) => boolean) {}

  get first(): Entry | undefined {
    return this.#entries[0];
  }

  /** Adds the entry, or moves it to where it belongs after a change. */
  put(entry: Entry): void {
    const index = this.#indexes.get(entry) ?? this.#entries.length;
    this.#down(entry, this.#up(entry, index));
  }

  delete(entry: Entry): void {
    const index = this.#indexes.get(entry);
    if (index === undefined) return;
    this.#indexes.delete(entry);
    const last = this.#entries.pop();
    if (last !== undefined && last !== entry) this.#down(last, this.#up(last, index));
  }

  #set(entry: Entry, index: number): number {
    this.#entries[index] = entry;
    this.#indexes.set(entry, index);
    return index;
  }

  /** Returns the index that the entry has then. */
  #up(entry: Entry, from: number): number {
    let index = from;
    while (index > 0) {
      const parent = this.#entries[(index - 1) >> 1] as Entry;
      if (!this.isBefore(entry, parent)) break;
      this.#set(parent, index);
      index = (index - 1) >> 1;
    }
    return this.#set(entry, index);
  }

  #down(entry: Entry, from: number): void {
    let index = from;
    for (;;) {
      const [left, right] = [this.#entries[2 * index + 1], this.#entries[2 * index + 2]];
      const isRight = left !== undefined && right !== undefined && this.isBefore(right, left);
      const child = isRight ? right : left;
      if (child === undefined || !this.isBefore(child, entry)) break;
      this.#set(child, index);
      index = 2 * index + (isRight ? 2 : 1);
    }
    this.#set(entry, index);
  }
}
