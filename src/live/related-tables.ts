/**
 * The tables, other than its own, that decide which rows a subscriber to events sees: a rule such as `{team: {open: true}}` reads them. When one of
 * them changes, remembered keys may be hidden. Until they were read again, no deletion is reported by them.
 */
import type { EventSubscriber } from './event-subscriber.js';

/** Milliseconds in which changes are gathered. */
const GATHER_MS = 300;

export class RelatedTables {
  readonly #subscribers = new Map<string, Set<EventSubscriber>>();
  readonly #tables = new Map<EventSubscriber, ReadonlySet<string>>();
  readonly #recheck: (subscribers: readonly EventSubscriber[]) => void;
  readonly #unsure = new Set<EventSubscriber>();
  #timer: NodeJS.Timeout | null = null;

  constructor(recheck: (subscribers: readonly EventSubscriber[]) => void) {
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
      this.#unsure.add(subscriber);
    }
    if (this.#unsure.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      const subscribers = [...this.#unsure];
      this.#unsure.clear();
      this.#recheck(subscribers);
    }, GATHER_MS).unref();
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
