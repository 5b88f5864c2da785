/** Counts the work of live queries and measures their lag, for metrics. */

/** Seconds. */
export const LAG_BOUNDS_S: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export class LiveStats {
  /** Transactions that changed something that is subscribed to. */
  transactions = 0;
  /** Reads of topics and of changed items. */
  reads = 0;
  /** Reads whose answer was the same as before. */
  unchanged = 0;
  /** Answers that were sent to subscribers. */
  sent = 0;
  /** Answers that a newer one replaced before they were sent. */
  dropped = 0;
  /** How often everything was read again because changes may have been missed. */
  resyncs = 0;
  /** When the oldest change was committed that was not read yet, in milliseconds since 1970. */
  changedAt = Number.POSITIVE_INFINITY;
  /** Times from a commit until its answer was sent: counts per bucket, the last for longer ones, and their sum in seconds. */
  readonly lags = new Float64Array(LAG_BOUNDS_S.length + 1);
  lagSum = 0;

  takeChangedAt(): number {
    const { changedAt } = this;
    this.changedAt = Number.POSITIVE_INFINITY;
    return changedAt;
  }

  addLag(ms: number): void {
    const seconds = Math.max(ms, 0) / 1_000;
    const found = LAG_BOUNDS_S.findIndex((bound) => seconds <= bound);
    const bucket = found < 0 ? LAG_BOUNDS_S.length : found;
    this.lags[bucket] = (this.lags[bucket] ?? 0) + 1;
    this.lagSum += seconds;
  }
}
