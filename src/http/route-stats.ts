/**
 * Requests by route: how many, with which status, how fast. Counted in plain arrays, because every request passes here; they
 * become metrics when they are requested.
 */

/** Upper bounds in seconds; what took longer falls into one more bucket. */
export const DURATION_BOUNDS_S: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** The client has left before its response was written. */
export const CLIENT_LEFT_STATUS = 499;

export interface StatusStats {
  /** In the order of their first count: what was counted first stays first. */
  readonly number: number;
  /** By duration: each request is in one bucket. */
  readonly buckets: Float64Array;
  seconds: number;
}

let created = 0;

export class RouteStats {
  readonly byStatus = new Map<number, StatusStats>();

  constructor(
    readonly method: string,
    /** The path as the route names it: values of clients must not become labels. */
    readonly path: string,
  ) {}

  count(status: number, ms: number): void {
    let stats = this.byStatus.get(status);
    if (!stats) {
      stats = { number: ++created, buckets: new Float64Array(DURATION_BOUNDS_S.length + 1), seconds: 0 };
      this.byStatus.set(status, stats);
    }
    const seconds = ms / 1_000;
    let bucket = 0;
    while (seconds > (DURATION_BOUNDS_S[bucket] ?? Number.POSITIVE_INFINITY)) bucket++;
    stats.buckets[bucket] = (stats.buckets[bucket] ?? 0) + 1;
    stats.seconds += seconds;
  }
}
