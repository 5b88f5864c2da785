/** What subscriptions to events need of those who read the changes, and what is done with one. */
import type { LiveStats } from '../live-stats.js';
import type { SubscriptionCounts } from '../subscription-counts.js';

/** What events need of live queries, which share their stream with them. */
export interface EventHost {
  readonly generation: number;
  /** Grows when rights change or sessions end: what was found out of a caller holds where it is the same before and after. */
  readonly moment: number;
  readonly stats: LiveStats;
  readonly counts: SubscriptionCounts;
  /** Milliseconds between two rounds. */
  readonly interval: number;
  /** Resolves when changes are told, or after some time. */
  begin(): Promise<void>;
  /** One subscription less. */
  left(): void;
}

export interface EventHandle {
  close(): void;
  /** The listener takes more again. */
  wake(): void;
  /** The client has signed in anew, or is nobody any more. */
  renew(): void;
}
