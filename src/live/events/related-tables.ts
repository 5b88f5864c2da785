/**
 * The tables, other than its own, that decide which rows a subscriber to events sees: a rule such as `{team: {open: true}}` reads them. When one of
 * them changes, remembered keys may be hidden: until they were read again, a deletion of one of them leads to a resync. Creations and
 * updates do not wait for that.
 */
import type { EventSubscriber } from './event-subscriber.js';
import { Places } from './semaphore.js';

/** Milliseconds in which changes are gathered. */
const GATHER_MS = 300;

/** The pause after the keys were read: so many times what that took, and the most, in milliseconds. */
const PAUSES = 10;
const MAX_PAUSE_MS = 30_000;

/** Subscriptions of different rights or queries whose keys are read at the same time. */
const MAX_READING = 2;

/** Reads the keys again that subscribers with the same rights and query see. Answers how many milliseconds that took. */
export type Recheck = (subscribers: readonly EventSubscriber[]) => Promise<number>;

export class RelatedTables {
  readonly #subscribers = new Map<string, Set<EventSubscriber>>();
  readonly #tables = new Map<EventSubscriber, ReadonlySet<string>>();
  readonly #recheck: Recheck;
  readonly #reading = new Places(MAX_READING);
  readonly #unsure = new Set<EventSubscriber>();
  #timer: NodeJS.Timeout | null = null;

  constructor(recheck: Recheck) {
    this.#recheck = recheck;
  }

  has(table: string): boolean {
    return this.#subscribers.has(table);
  }

  set(subscriber: EventSubscriber, tables: ReadonlySet<string>): void {
    this.delete(subscriber);
    if (tables.size === 0 || subscriber.isClosed) return;
    this.#tables.set(subscriber, tables);
    for (const table of tables) {
      const subscribers = this.#subscribers.get(table) ?? new Set();
      this.#subscribers.set(table, subscribers.add(subscriber));
    }
  }

  delete(subscriber: EventSubscriber): void {
    for (const table of this.#tables.get(subscriber) ?? []) {
      const subscribers = this.#subscribers.get(table);
      subscribers?.delete(subscriber);
      if (subscribers?.size === 0) this.#subscribers.delete(table);
    }
    this.#tables.delete(subscriber);
    this.#unsure.delete(subscriber);
  }

  changed(table: string): void {
    for (const subscriber of this.#subscribers.get(table) ?? []) {
      subscriber.doubts++;
      this.doubt(subscriber);
    }
  }

  /** Its keys are read again, unless they were read since the last change. */
  doubt(subscriber: EventSubscriber): void {
    if (subscriber.doubts === subscriber.settledDoubts || !this.#tables.has(subscriber)) return;
    this.#unsure.add(subscriber);
    this.#schedule();
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#unsure.clear();
  }

  #schedule(): void {
    if (this.#unsure.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#start();
      this.#schedule();
    }, GATHER_MS).unref();
  }

  #start(): void {
    const now = performance.now();
    const groups = new Map<string, EventSubscriber[]>();
    for (const subscriber of this.#unsure) {
      if (subscriber.recheckAt > now) continue;
      this.#unsure.delete(subscriber);
      subscriber.recheckAt = Number.POSITIVE_INFINITY;
      const name = `${subscriber.group} ${subscriber.table}`;
      groups.set(name, [...(groups.get(name) ?? []), subscriber]);
    }
    for (const group of groups.values()) void this.#run(group);
  }

  async #run(subscribers: readonly EventSubscriber[]): Promise<void> {
    const tookMs = await this.#reading.run(() => this.#recheck(subscribers));
    const pause = Math.min(tookMs * PAUSES, MAX_PAUSE_MS);
    for (const subscriber of subscribers) subscriber.recheckAt = performance.now() + pause;
  }
}
