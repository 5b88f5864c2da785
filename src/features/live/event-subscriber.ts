/** A subscription to the changes of a collection: its query, its listener, and its offset in the log. */

import type { Parsed } from '../../compiler/request/ast.js';
import type { Identity } from '../../server/access/identity.js';
import type { Known } from '../../server/changes/changes.js';
import type { MaybePromise } from '../../server/execute/pipeline.js';
import type { PreparedRead } from '../../server/execute/reads/reads.js';
import { type LiveClient, Subscriber, type SubscriptionCounts } from './subscribers.js';
import type { Change, TableLog } from './table-log.js';
import { VisibleKeys } from './visible-keys.js';

/** Changes that are not sent, because the subscriber knows them. */
interface KnownChanges extends Pick<Known, 'isBefore'> {
  /** `time`: when the transaction was committed. */
  has(xid: number, time: number): boolean;
}

/** The arrival of a subscription. The changes since then are kept until it is closed. */
export interface Arrival {
  /** By the clock of `performance`. */
  readonly at: number;
  /** The transactions that were committed before, or null if they are not known. */
  readonly known: Promise<KnownChanges | null>;
  close(): void;
}

export interface EventSource extends LiveClient {
  /** A subscription without an initial state gets the changes since its arrival, or if this is null, since its beginning. */
  readonly arrival: Arrival | null;
  readonly collection: string;
  /** The only item whose changes are sent, or null for all. */
  readonly item: string | null;
  /** The only kind of change that is sent, or null for all. */
  readonly change: Change | null;
  /** Reads items that were changed; their keys are the first value. */
  parseChanged(caller: Identity): MaybePromise<Parsed>;
  /** Reads the initial state, or null if none is sent. */
  parseInitial(caller: Identity): MaybePromise<Parsed | null>;
  /** Reads the keys of all items that the caller may see. */
  parseKeys(caller: Identity, key: readonly string[]): Parsed;
}

export interface ChangedItems {
  readonly change: Change;
  readonly keys: readonly string[];
  /** The answers of their reads, in the order of the keys; none of deleted items. */
  readonly items: readonly Buffer[];
}

export interface EventListener {
  /** Whether it accepts more now; if not, it calls `wake` later. */
  isReady(): boolean;
  /** The initial state, or null if none was asked for. With `isResync`, changes may have been missed. */
  initial(body: Buffer | null, isResync: boolean): void;
  changed(items: ChangedItems): void;
  /** Drops what was not sent yet, unless the rights are the same. Returns whether there was something. */
  withdraw(isSame: boolean): boolean;
}

export interface EventHandle {
  close(): void;
  /** The listener accepts more again. */
  wake(): void;
  /** The client has signed in again, or signed out. */
  renew(): void;
}

/** Serves subscribers to events. */
export interface EventEngine {
  readonly counts: SubscriptionCounts;
  resolve(subscriber: EventSubscriber, caller: Identity, isValid: () => boolean): Promise<void>;
  leave(subscriber: EventSubscriber): void;
}

let count = 0;

export class EventSubscriber extends Subscriber {
  readonly number = ++count;
  readonly waitsForRights = true;
  readonly keys: VisibleKeys;
  prepared: PreparedRead<Parsed> | null = null;
  /** Equal for subscribers that are sent the same. */
  group = '';
  log: TableLog<EventSubscriber> | null = null;
  /** The offset in the log up to which everything was sent. */
  offset = 0;
  /** The snapshot of the initial state: the log may report its transactions later. Null once it has reported all of them. */
  known: KnownChanges | null = null;
  knownUntil = 0;
  /** Whether it needs a resync: changes may have been missed. */
  isStale = false;

  /** Calls `onEnd` if it ends without being closed. */
  constructor(
    readonly source: EventSource,
    readonly listener: EventListener,
    private readonly onEnd: (error: unknown) => void,
    private readonly engine: EventEngine,
  ) {
    super();
    this.keys = new VisibleKeys(this, engine.counts);
  }

  resolve(caller: Identity, isValid: () => boolean): Promise<void> {
    return this.engine.resolve(this, caller, isValid);
  }

  onUnresolved(): void {
    this.isStale = true;
    this.listener.withdraw(false);
  }

  onClosed(): void {
    this.keys.reset(null);
    this.engine.leave(this);
  }

  ping(): void {}

  end(error: unknown): void {
    if (error !== null) this.onEnd(error);
  }
}
