/** A copy of a collection that is kept by events alone, and what was wrong with them: each that contradicts those before it. */

export interface Followed {
  readonly collection: string;
  readonly fields: readonly string[];
  /** Whether every item is visible: then nothing can change that was not created before. */
  readonly seesAll: boolean;
}

const MAX_HISTORY = 100;

export type Item = Readonly<Record<string, unknown>>;

export class CollectionCopy {
  readonly items = new Map<string, Item>();
  readonly faults: string[];
  readonly #seesAll: boolean;
  /** Whether every later event is told behind the state it began with. */
  #isExact = false;
  /** Those that an event has told of since then. */
  readonly #told = new Set<string>();
  /** What was told last, to be shown with a fault. */
  readonly #history: string[] = [];

  constructor({ seesAll }: Followed, faults: string[]) {
    this.#seesAll = seesAll;
    this.faults = faults;
  }

  /** Where it is not exact, events that come later may be in it already. */
  begin(items: readonly Item[], isExact: boolean): void {
    this.#isExact = isExact;
    this.#note(`began with ${items.map(({ id }) => id).join()}`);
    this.items.clear();
    this.#told.clear();
    for (const item of items) this.items.set(String(item['id']), item);
  }

  put(event: string, item: Item): void {
    const key = String(item['id']);
    this.#note(`${event} ${key}`);
    const isKnown = this.#isExact ? this.items.has(key) : this.#told.has(key);
    if (event === 'create' && isKnown) this.#fault(`created twice: ${JSON.stringify(item)}`);
    if (event === 'update' && this.#isExact && !isKnown && this.#seesAll)
      this.#fault(`its creation was lost: ${JSON.stringify(item)}`);
    this.#told.add(key);
    this.items.set(key, item);
  }

  remove(key: string): void {
    this.#note(`delete ${key}`);
    if (!this.items.delete(key) && this.#isExact) this.#fault(`deleted, but never seen: ${key}`);
    this.#told.delete(key);
  }

  #note(text: string): void {
    this.#history.push(text);
    if (this.#history.length > MAX_HISTORY) this.#history.shift();
  }

  #fault(text: string): void {
    this.faults.push(`${text} after ${this.#history.join('; ')}`);
  }

  /**
   * How the copy differs from what a read answers; '' where it does not. Of what is hidden meanwhile nobody is told; `isGone` says of
   * which of the others a deletion must have been told.
   */
  differenceFrom(fresh: readonly Item[], isGone: (key: string) => boolean): string {
    for (const item of fresh) {
      const kept = this.items.get(String(item['id']));
      if (JSON.stringify(kept) !== JSON.stringify(item))
        return `${JSON.stringify(kept)} instead of ${JSON.stringify(item)}`;
    }
    const shown = new Set(fresh.map(({ id }) => String(id)));
    // What came and went in a moment is not told of: who has read it by themselves has it still.
    const mustBeTold = (key: string): boolean => this.#isExact || this.#told.has(key);
    const left = [...this.items.keys()].find(
      (key) => !shown.has(key) && mustBeTold(key) && (this.#seesAll || isGone(key)),
    );
    return left === undefined ? '' : `${left} is still there`;
  }
}
