/**
 * The tables, other than its own, that decide which rows a subscriber to events sees: a rule such as `{team: {open: true}}` reads them.
 * When one of them changes, items whose keys are remembered may be hidden. Until these keys were read again, the deletion of such an item
 * leads to a resync. Creations and updates do not wait for that.
 */
import type { CommitVisibility } from '../changes/visibility.js';
import type { EventReads } from './event-reads.js';
import type { EventSubscriber } from './event-subscriber.js';
import { Semaphore } from './semaphore.js';
import { MAX_VISIBLE_KEYS } from './visible-keys.js';

/** Milliseconds in which changes are gathered. */
const GATHER_MS = 300;

/** The pause after the keys were read: a multiple of the time that took, at most so many milliseconds. */
const PAUSES = 10;
const MAX_PAUSE_MS = 30_000;

/** A failed read counts as so many milliseconds. */
const FAILED_MS = 1_000;

/** Groups of subscribers whose keys are read at the same time. */
const MAX_READING = 2;

/** Keys beyond the first ones that are read one by one. */
const MAX_CHECKED_KEYS = 1_000;

export class RelatedTables {
  readonly #subscribers = new Map<string, Set<EventSubscriber>>();
  readonly #tables = new Map<EventSubscriber, ReadonlySet<string>>();
  readonly #reading = new Semaphore(MAX_READING);
  readonly #unsure = new Set<EventSubscriber>();
  #timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly reads: EventReads,
    private readonly visibility: CommitVisibility,
    private readonly onChecked: () => void,
  ) {}

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
      subscriber.keys.relatedChanges++;
      this.recheck(subscriber);
    }
  }

  /** Reads the keys again, unless they were read since the last change. */
  recheck(subscriber: EventSubscriber): void {
    if (!subscriber.keys.isInDoubt || !this.#tables.has(subscriber)) return;
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
      if (subscriber.keys.recheckAt > now) continue;
      this.#unsure.delete(subscriber);
      subscriber.keys.recheckAt = Number.POSITIVE_INFINITY;
      const name = `${subscriber.group} ${subscriber.log?.table}`;
      groups.set(name, [...(groups.get(name) ?? []), subscriber]);
    }
    for (const group of groups.values()) void this.#run(group);
  }

  async #run(subscribers: readonly EventSubscriber[]): Promise<void> {
    const tookMs = await this.#reading.run(() => this.#recheckGroup(subscribers)).catch(() => FAILED_MS);
    const recheckAt = performance.now() + Math.min(tookMs * PAUSES, MAX_PAUSE_MS);
    for (const subscriber of subscribers) {
      subscriber.keys.recheckAt = recheckAt;
      if (canRecheck(subscriber)) this.recheck(subscriber);
    }
    this.onChecked();
  }

  /** Reads what subscribers with the same rights and query see. Returns how many milliseconds that took. */
  async #recheckGroup(subscribers: readonly EventSubscriber[]): Promise<number> {
    const all = subscribers.flatMap((subscriber) => stateOf(subscriber) ?? []);
    const [first] = all;
    if (first === undefined) return 0;
    const states = all.filter(({ group }) => group === first.group);
    await this.visibility.wait();
    const begun = performance.now();
    const now = await this.#readVisible(first, new Set(states.flatMap(({ before }) => before)));
    const tookMs = performance.now() - begun;
    for (const { subscriber, visible, group, changes, before } of states) {
      // Otherwise its keys were read meanwhile, or its rights have changed.
      const isSame = subscriber.keys.visible === visible && subscriber.group === group;
      if (isSame && canRecheck(subscriber)) subscriber.keys.recheck(changes, before, now);
    }
    return tookMs;
  }

  /** The first of all visible keys, and those of `before` that are visible. */
  async #readVisible(
    { prepared, subscriber: { source } }: CheckedState,
    before: ReadonlySet<string>,
  ): Promise<ReadonlySet<string>> {
    const visible = await this.reads.visibleKeys(await this.reads.prepareKeys(source, prepared.caller));
    if (visible.size < MAX_VISIBLE_KEYS) return visible;
    const left = [...before].filter((key) => !visible.has(key)).slice(0, MAX_CHECKED_KEYS);
    const items = await this.reads.changed(prepared, left, () => true);
    return new Set([...visible, ...items.keys()]);
  }
}

/** A subscriber that is stale or being resolved reads its keys anyway. */
function canRecheck({ isResolved, isStale }: EventSubscriber): boolean {
  return isResolved && !isStale;
}

type CheckedState = NonNullable<ReturnType<typeof stateOf>>;

function stateOf(subscriber: EventSubscriber) {
  const { prepared, group, keys } = subscriber;
  const { visible, relatedChanges: changes } = keys;
  if (!canRecheck(subscriber) || prepared === null || visible === null) return null;
  return { subscriber, prepared, visible, group, changes, before: [...visible] };
}
