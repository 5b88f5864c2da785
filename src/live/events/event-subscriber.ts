/** Who wants to be told of each change of a collection: what they read of changed items, and where that goes. */
import type { Identity } from '../../access/identity.js';
import type { MaybePromise } from '../../engine/pipeline.js';
import type { PreparedRead } from '../../engine/reads/reads.js';
import type { Parsed } from '../../request/ast.js';
import type { Known } from '../changes/visibility.js';
import { NOBODY } from '../subscriber.js';
import type { SubscriptionCounts } from '../subscription-counts.js';
import type { Change, RowChange } from './table-log.js';

export interface EventSource {
  /** Of the client; for limits. */
  readonly address: string;
  readonly collection: string;
  /** The only item that counts; null for all. */
  readonly item: string | null;
  /** The only kind of change that counts; null for all. */
  readonly change: Change | null;
  identify(): MaybePromise<Identity>;
  /** What is read of the items that were changed; their keys are the first value. */
  parseChanged(caller: Identity): MaybePromise<Parsed>;
  /** What is told at the beginning; null for nothing. */
  parseInitial(caller: Identity): MaybePromise<Parsed | null>;
  /** The keys of all items that the caller may see. */
  parseKeys(caller: Identity, key: readonly string[]): Parsed;
}

export interface ChangedItems {
  readonly change: Change;
  readonly keys: readonly string[];
  /** The answers of their reads, in the order of the keys; none of deleted ones. */
  readonly items: readonly Buffer[];
}

export interface EventListener {
  /** Whether it takes more now; where not, `wake` is called later. */
  isReady(): boolean;
  /** The state to begin with, null where none was asked for; `isResync` where changes may have been missed. */
  initial(body: Buffer | null, isResync: boolean): void;
  changed(items: ChangedItems): void;
  /** What was not sent yet is dropped, unless rights are the same as they were. Answers whether something was. */
  withdraw(isSame: boolean): boolean;
}

/** Those who have been told the same, and are told the same next: as they were when they were put together. */
export interface EventGroup {
  readonly prepared: PreparedRead<Parsed>;
  readonly source: EventSource;
  readonly generation: number;
  /** Who has another turn since then may be somebody else by now. */
  readonly turns: Map<EventSubscriber, number>;
  /** Null where they have to begin anew. */
  readonly changes: ReadonlyMap<string, RowChange> | null;
  readonly end: number;
}

/** Keys that are remembered as visible; of others deletions are not told. */
export const MAX_VISIBLE_KEYS = 10_000;

const MAX_UNTOLD_KEYS = 1_000;
const MAX_MISSING_KEYS = 1_000;

export class EventSubscriber {
  /** No other has it. */
  readonly number: number;
  readonly source: EventSource;
  readonly listener: EventListener;
  readonly #counts: SubscriptionCounts;
  /** Called where it ends without having been closed. */
  readonly onEnd: (error: unknown) => void;
  owner: string | null = null;
  caller: Identity | null = null;
  prepared: PreparedRead<Parsed> | null = null;
  /** Equal for those who are told the same. */
  group = '';
  /** Of the table, as schema.name. */
  table = '';
  /** Up to where in the log of the table everything was told. */
  position = 0;
  /** What was visible when it began: the log may tell it later. Null when it has told all of it. */
  known: Known | null = null;
  knownUntil = 0;
  #generation = NOBODY;
  /** Under which rights it was told what was told last. */
  #told = { generation: NOBODY, group: '' };
  turn = 0;
  isBusy = false;
  isClosed = false;
  /** How often something has changed that decides which rows it sees, and how often that was when `visible` was read. */
  doubts = 0;
  settledDoubts = 0;
  /** By the clock of `performance`: its keys are not read again before. */
  recheckAt = 0;
  /** Whether it has to begin anew: changes may have been missed. */
  isStale = false;
  /** Where the caller sees some of the rows only: the keys of those which it was told of; null where all are seen. */
  visible: Set<string> | null = null;
  /** Whether the caller may see keys at all; null before that is known. */
  #showsKeys: boolean | null = null;
  /** Items that were gone, or outside of the query, when their creation was to be told: their deletion would be of something never seen. */
  #untold: Set<string> | null = null;
  /** Items that it was told of and that were not there when a change of theirs was to be told, and what was known then: they were hidden, or deleted. */
  #missing: Map<string, Known> | null = null;
  /** Keys that are counted as remembered. */
  #counted = 0;

  constructor(
    source: EventSource,
    listener: EventListener,
    onEnd: (error: unknown) => void,
    number: number,
    counts: SubscriptionCounts,
  ) {
    this.number = number;
    this.#counts = counts;
    this.onEnd = onEnd;
    this.source = source;
    this.listener = listener;
  }

  /** Of the rights under which `prepared` is right. */
  get generation(): number {
    return this.#generation;
  }

  set generation(generation: number) {
    const isBeingFound = generation === NOBODY && this.#generation !== NOBODY;
    this.#generation = generation;
    // Who asks is looked up from time to time, and mostly is who they were.
    if (isBeingFound) return;
    const isSame = generation === this.#told.generation && this.group === this.#told.group;
    this.#told = { generation, group: this.group };
    if (this.listener.withdraw(isSame)) this.isStale = true;
  }

  /** Rights are others, or are known for the first time: what the caller sees now, before the log has told all of it. */
  see(visible: Set<string> | null, showsKeys: boolean): void {
    const before = this.visible;
    const isFirst = this.#showsKeys === null;
    const isOther = this.#showsKeys !== showsKeys || (before === null) !== (visible === null);
    this.#showsKeys = showsKeys;
    this.visible = visible;
    this.#count();
    const { change } = this.source;
    // The keys decide which deletions are told.
    if (isFirst || before === visible || change === 'create' || change === 'update') return;
    // Of an item that is not there any more nobody can say whether it was deleted or hidden.
    if (isOther || before === null || visible === null || ![...before].every((key) => visible.has(key)))
      this.isStale = true;
    // What was never told of must not be told as deleted.
    else this.visible = before;
  }

  /**
   * Related items have changed. `before`: the keys that were remembered before the visible ones were read; `now`: those that are visible.
   * Nobody can say of a missing one whether it was deleted or hidden. Where items were sent meanwhile that are not in `now`, it is in doubt
   * until the next read.
   */
  settle(doubts: number, before: readonly string[], now: ReadonlySet<string>): void {
    const { visible } = this;
    if (visible === null) return;
    if (before.some((key) => visible.has(key) && !now.has(key))) this.isStale = true;
    else if ([...visible].every((key) => now.has(key))) this.settledDoubts = doubts;
  }

  /** Whether the caller could see the item that is gone. */
  forgetDeleted(key: string, xid: number): boolean {
    if (this.#showsKeys !== true) return false;
    if (this.visible === null) return this.#untold?.delete(key) !== true;
    if (this.doubts !== this.settledDoubts) {
      // Nobody can say whether it was hidden before it was deleted.
      if (this.visible.has(key) || this.#missing?.has(key)) this.isStale = true;
      return false;
    }
    const known = this.#missing?.get(key);
    this.#missing?.delete(key);
    const wasVisible = this.visible.delete(key);
    this.#count();
    return wasVisible || known?.has(xid) === true;
  }

  /** Nothing was told that is not in the state which it begins with. */
  begin(visible: Set<string> | null): void {
    this.visible = visible;
    this.#untold = this.#missing = null;
    this.#count();
  }

  /** It ends. */
  forget(): void {
    this.visible = null;
    this.#untold = this.#missing = null;
    this.#count();
  }

  /** Throws where there are too many. */
  #count(): void {
    const now = (this.visible?.size ?? 0) + (this.#untold?.size ?? 0) + (this.#missing?.size ?? 0);
    if (now === this.#counted) return;
    this.#counts.remember(this.owner ?? '', now - this.#counted);
    this.#counted = now;
  }

  /** `known`: of a moment behind the one in which it was looked for; null where all that was looked for was there. */
  remember(key: string, isVisible: boolean, change: Change, known: Known | null): void {
    this.#remember(key, isVisible, change, known);
    try {
      this.#count();
    } catch {
      this.visible?.delete(key);
      this.#untold?.delete(key);
      this.#missing?.delete(key);
      // It begins anew: where that takes too many as well, it ends.
      this.isStale = true;
    }
  }

  #remember(key: string, isVisible: boolean, change: Change, known: Known | null): void {
    if (this.visible === null) {
      if (isVisible) this.#untold?.delete(key);
      else if (change === 'create' && this.source.change !== 'delete') this.#leaveUntold(key);
      return;
    }
    if (isVisible) {
      this.#missing?.delete(key);
      if (this.visible.size < MAX_VISIBLE_KEYS) this.visible.add(key);
    } else if (this.visible.delete(key) && known) this.#miss(key, known);
  }

  #leaveUntold(key: string): void {
    this.#untold ??= new Set();
    this.#untold.add(key);
    if (this.#untold.size <= MAX_UNTOLD_KEYS) return;
    const [oldest = key] = this.#untold;
    this.#untold.delete(oldest);
  }

  #miss(key: string, known: Known): void {
    this.#missing ??= new Map();
    this.#missing.set(key, known);
    if (this.#missing.size <= MAX_MISSING_KEYS) return;
    const [oldest = key] = this.#missing.keys();
    this.#missing.delete(oldest);
  }
}
