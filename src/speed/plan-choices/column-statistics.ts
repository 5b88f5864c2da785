/**
 * The statistics that ANALYZE has gathered about the values of a table: which part of the rows a value selects. Where that is
 * not known, or a value may be written in several ways, the answer is null: unknown, not rare.
 */
import { elementAt } from '../../base/narrow.js';
import { DATE_CODECS, NUMBER_CODECS } from '../../compiler/sql/codec.js';

/** The result of sql/server/statistics.sql for a table. */
export interface TableStatisticsEntry {
  readonly schema: string;
  readonly table: string;
  /** Changes whenever the table is analyzed, or grows. */
  readonly version: string;
  /** Below 0 if the table was never analyzed. */
  readonly rows: number;
  /** Its size on disk; null for a view or a partitioned table, which have no rows of their own. */
  readonly bytes: number | null;
  readonly columns: readonly ColumnStatisticsEntry[] | null;
}

export type ColumnStatisticsEntry = readonly [
  name: string,
  nullShare: number,
  /** Negative: the part of the rows. */
  distinct: number,
  commonValues: readonly string[] | null,
  commonShares: readonly number[] | null,
  bounds: readonly string[] | null,
];

/** A scan of all of it costs about a hundred of the planner's units. */
const SMALL_BYTES = 262_144;

export class TableStatistics {
  readonly version: string;
  readonly rows: number;
  /** Whether it is so small that no plan over it goes wrong. */
  readonly isSmall: boolean;
  readonly #columns = new Map<string, ColumnStatistics>();

  constructor({ version, rows, bytes, columns }: TableStatisticsEntry) {
    this.version = version;
    this.rows = rows;
    this.isSmall = bytes !== null && bytes < SMALL_BYTES;
    if (rows >= 0) for (const entry of columns ?? []) this.#columns.set(entry[0], new ColumnStatistics(entry, rows));
  }

  /** The statistics of a column, or null if there are none. */
  column(name: string): ColumnStatistics | null {
    return this.#columns.get(name) ?? null;
  }
}

class ColumnStatistics {
  readonly nullShare: number;
  /** The share of the most common value. */
  readonly largestShare: number;
  /** The share of each value that is not common. */
  readonly otherShare: number;
  readonly #shares = new Map<string, number>();
  readonly #commonShare: number;
  readonly #bounds: readonly string[];
  #ordered: Ordered | null = null;

  constructor([, nullShare, distinct, values, shares, bounds]: ColumnStatisticsEntry, rows: number) {
    this.nullShare = nullShare;
    values?.forEach((value, position) => {
      this.#shares.set(value, shares?.[position] ?? 0);
    });
    this.#commonShare = [...this.#shares.values()].reduce((sum, share) => sum + share, 0);
    this.largestShare = Math.max(0, ...this.#shares.values());
    const count = distinct < 0 ? -distinct * rows : distinct;
    const left = Math.max(0, 1 - this.#commonShare - nullShare);
    this.otherShare = Math.min(left / Math.max(1, count - this.#shares.size), ...this.#shares.values(), 1);
    this.#bounds = bounds ?? [];
  }

  /** The part of the rows that have the value. */
  equal(value: string, type: string): number | null {
    const text = spelling(value, type);
    const share = this.#shares.get(text ?? value);
    return share ?? (text === null ? null : this.otherShare);
  }

  /** The part of the rows whose value is less. */
  below(value: string, type: string): number | null {
    const limit = orderOf(value, type);
    this.#ordered ??= this.#inOrder(type);
    const { common, bounds } = this.#ordered;
    if (Number.isNaN(limit) || common === null || bounds === null) return null;
    let share = 0;
    for (const [order, each] of common) if (order < limit) share += each;
    return share + Math.max(0, 1 - this.#commonShare - this.nullShare) * positionOf(limit, bounds);
  }

  #inOrder(type: string): Ordered {
    const common = [...this.#shares].map(([text, share]) => [orderOf(text, type), share] as const);
    const bounds = this.#bounds.map((text) => orderOf(text, type));
    const isKnown = common.length + bounds.length > 0 && [...common.map(([order]) => order), ...bounds].every(isNumber);
    return isKnown ? { common, bounds } : { common: null, bounds: null };
  }
}

/** The common values with their shares, and the bounds of the histogram, as numbers, or null if they are not numbers. */
interface Ordered {
  readonly common: readonly (readonly [order: number, share: number])[] | null;
  readonly bounds: readonly number[] | null;
}

/** The part of the values in the histogram that lie below. */
function positionOf(limit: number, bounds: readonly number[]): number {
  const steps = bounds.length - 1;
  if (steps < 1 || limit <= elementAt(bounds, 0)) return 0;
  if (limit > elementAt(bounds, steps)) return 1;
  let [low, high] = [0, steps];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (elementAt(bounds, middle) < limit) low = middle;
    else high = middle;
  }
  const [from, to] = [elementAt(bounds, low), elementAt(bounds, high)];
  return (low + (to > from ? (limit - from) / (to - from) : 1)) / steps;
}

function isNumber(order: number): boolean {
  return !Number.isNaN(order);
}

/** The value as PostgreSQL prints it, or null if that is not known. */
function spelling(value: string, type: string): string | null {
  switch (type) {
    case 'text':
    case 'varchar':
      return value;
    case 'uuid':
      return value.toLowerCase();
    case 'bool':
      return value.startsWith('t') ? 't' : 'f';
    case 'int2':
    case 'int4':
    case 'int8':
      return /^[+-]?\d+$/.test(value) ? String(BigInt(value.replace('+', ''))) : null;
    default:
      return null;
  }
}

/** A number in whose order the values are; NaN for types that have none here, and for what is no number. */
function orderOf(value: string, type: string): number {
  if (value.trim() === '') return Number.NaN;
  return NUMBER_CODECS.has(type) ? Number(value) : DATE_CODECS.has(type) ? momentOf(value) : Number.NaN;
}

/** Sessions are in UTC; a moment without a zone is one in UTC here, as it is in all that it is compared with. */
function momentOf(value: string): number {
  const [, day = '', time = '00:00:00', zone = 'Z'] =
    /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?(Z|[+-]\d\d(?::?\d\d)?)?$/i.exec(value) ?? [];
  if (day === '') return Number.NaN;
  const offset = /^[+-]\d\d$/.test(zone) ? `${zone}:00` : zone;
  return Date.parse(`${day}T${time.replace(/(\.\d{3})\d+$/, '$1')}${offset}`);
}
