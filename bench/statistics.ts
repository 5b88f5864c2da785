/** Statistics of measurements. */

export function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((one, other) => one - other);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

export function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

export const SHARES = { p50: 0.5, p90: 0.9, p99: 0.99, 'p99.9': 0.999 } as const;

export type Percentiles = Readonly<Record<keyof typeof SHARES, number>>;

/** The smallest value that the given share of all values does not exceed. With few values, the highest percentiles are the same. */
export function percentilesOf(values: readonly number[]): Percentiles {
  const sorted = Float64Array.from(values).sort();
  const of = (share: number): number => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
  return { p50: of(SHARES.p50), p90: of(SHARES.p90), p99: of(SHARES.p99), 'p99.9': of(SHARES['p99.9']) };
}
