/** The keys of the items that a subscriber to events has seen: they decide which deletions it is sent. */
import type { Known } from '../../server/changes/changes.js';
import type { SubscriptionCounts } from './subscribers.js';
import type { Change } from './table-log.js';

/** Keys that are remembered as visible; deletions of other items are not sent. */
export const MAX_VISIBLE_KEYS = 10_000;

const MAX_UNSENT_KEYS = 1_000;
const MAX_MISSING_KEYS = 1_000;

/** The subscriber whose keys they are. */
interface KeyOwner {
  /** For limits. */
  readonly owner: string | null;
  readonly source: { readonly change: Change | null };
  /** Set if it is unknown which deletions to send. */
  isStale: boolean;
}

export class VisibleKeys {
  /** If the caller sees only some of the rows: the keys of the items that were sent; null if the caller sees all rows. */
  visible: Set<string> | null = null;
  /** Whether the caller may see keys at all; null before that is known. */
  #showsKeys: boolean | null = null;
  /** Items that were deleted already, or outside of the query, when their creation was to be sent: their deletion is not sent either. */
  #unsent: Set<string> | null = null;
  /** Items that were sent before and could not be read when a change was to be sent, with the snapshot: they were hidden or deleted. */
  #missing: Map<string, Known> | null = null;
  /** Keys that are counted as remembered. */
  #counted = 0;
  /** How often a related table has changed that decides which rows are visible. */
  relatedChanges = 0;
  /** How often one had changed when `visible` was read. */
  checkedChanges = 0;
  /** The keys are not read again before, by the clock of `performance`. */
  recheckAt = 0;

  constructor(
    private readonly subscriber: KeyOwner,
    private readonly counts: SubscriptionCounts,
  ) {}

  /** Whether a related table has changed since the keys were read. */
  get isInDoubt(): boolean {
    return this.relatedChanges !== this.checkedChanges;
  }

  /** Applies the permissions, at first and after each change. `visible` has the keys that the caller sees now, before the log has reported all of them. */
  see(visible: Set<string> | null, showsKeys: boolean): void {
    const before = this.visible;
    const isFirst = this.#showsKeys === null;
    const isOther = this.#showsKeys !== showsKeys || (before === null) !== (visible === null);
    this.#showsKeys = showsKeys;
    this.visible = visible;
    this.#count();
    const { change } = this.subscriber.source;
    if (isFirst || before === visible || change === 'create' || change === 'update') return;
    // A missing item was deleted or hidden: it is unknown which.
    if (isOther || before === null || visible === null || ![...before].every((key) => visible.has(key)))
      this.subscriber.isStale = true;
    // The deletion of an item that was never sent must not be sent.
    else this.visible = before;
  }

  /**
   * The keys were read again after a change of related tables. `before`: the keys that were remembered before the read; `now`: the
   * visible ones. If a key is missing, its item was deleted or hidden: it is unknown which. If items were sent meanwhile that are not in
   * `now`, the keys stay in doubt until the next read.
   */
  recheck(changes: number, before: readonly string[], now: ReadonlySet<string>): void {
    const { visible } = this;
    if (visible === null) return;
    if (before.some((key) => visible.has(key) && !now.has(key))) this.subscriber.isStale = true;
    else if ([...visible].every((key) => now.has(key))) this.checkedChanges = changes;
  }

  /** Forgets a deleted item. Returns whether the caller could see it. */
  delete(key: string, xid: number): boolean {
    if (this.#showsKeys !== true) return false;
    if (this.visible === null) return this.#unsent?.delete(key) !== true;
    if (this.isInDoubt) {
      // It may have been hidden before it was deleted.
      if (this.visible.has(key) || this.#missing?.has(key)) this.subscriber.isStale = true;
      return false;
    }
    const known = this.#missing?.get(key);
    this.#missing?.delete(key);
    const wasVisible = this.visible.delete(key);
    this.#count();
    return wasVisible || known?.has(xid) === true;
  }

  /** Begins with the keys of a new initial state, or with null at the end. */
  reset(visible: Set<string> | null): void {
    this.visible = visible;
    this.#unsent = this.#missing = null;
    this.#count();
  }

  /** `known`: a snapshot that was taken after the item was read, or null if no item was missing. */
  remember(key: string, isVisible: boolean, change: Change, known: Known | null): void {
    if (this.visible === null) this.#rememberUnsent(key, isVisible, change);
    else if (isVisible) {
      this.#missing?.delete(key);
      if (this.visible.size < MAX_VISIBLE_KEYS) this.visible.add(key);
    } else if (this.visible.delete(key) && known) {
      this.#missing = (this.#missing ?? new Map()).set(key, known);
      dropOldest(this.#missing, MAX_MISSING_KEYS);
    }
    try {
      this.#count();
    } catch {
      this.visible?.delete(key);
      this.#unsent?.delete(key);
      this.#missing?.delete(key);
      // If the resync needs too many keys as well, the subscription ends.
      this.subscriber.isStale = true;
    }
  }

  #rememberUnsent(key: string, isVisible: boolean, change: Change): void {
    if (isVisible) this.#unsent?.delete(key);
    else if (change === 'create' && this.subscriber.source.change !== 'delete') {
      this.#unsent = (this.#unsent ?? new Set()).add(key);
      dropOldest(this.#unsent, MAX_UNSENT_KEYS);
    }
  }

  /** Throws if there are too many. */
  #count(): void {
    const now = (this.visible?.size ?? 0) + (this.#unsent?.size ?? 0) + (this.#missing?.size ?? 0);
    if (now === this.#counted) return;
    this.counts.remember(this.subscriber.owner ?? '', now - this.#counted);
    this.#counted = now;
  }
}

function dropOldest(keys: Set<string> | Map<string, unknown>, limit: number): void {
  const [oldest] = keys.keys();
  if (keys.size > limit && oldest !== undefined) keys.delete(oldest);
}
