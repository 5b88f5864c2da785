/** Percentiles of measured times. */

export const SHARES = { p50: 0.5, p90: 0.9, p99: 0.99, 'p99.9': 0.999 } as const;

export type Percentiles = Readonly<Record<keyof typeof SHARES, number>>;

/** The smallest value that the given share of all values does not exceed. With few values, the highest percentiles are the same. */
export function percentilesOf(values: readonly number[]): Percentiles {
  const sorted = Float64Array.from(values).sort();
  const of = (share: number): number => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
  return { p50: of(SHARES.p50), p90: of(SHARES.p90), p99: of(SHARES.p99), 'p99.9': of(SHARES['p99.9']) };
}
