/**
 * Answers as the oracle expects them: plain JSON, with numbers that compare as numbers whatever digits the database wrote.
 * Counts, sums and averages are exact fractions here.
 */

/** A fraction; shown as a number, or as a text where a double would round it. */
export class Decimal {
  readonly numerator: bigint;
  readonly denominator: bigint;
  readonly shown: 'number' | 'text';

  constructor(numerator: bigint, denominator: bigint, shown: 'number' | 'text') {
    this.numerator = numerator;
    this.denominator = denominator;
    this.shown = shown;
  }

  compare(other: Decimal): number {
    const difference = this.numerator * other.denominator - other.numerator * this.denominator;
    return difference < 0n ? -1 : difference > 0n ? 1 : 0;
  }

  isShownBy(actual: unknown): boolean {
    if (typeof actual !== (this.shown === 'text' ? 'string' : 'number')) return false;
    const found = typeof actual === 'string' ? parseDecimal(actual) : null;
    if (found && found.compare(this) === 0) return true;
    const value = Number((this.numerator * 10n ** 20n) / this.denominator) / 1e20;
    return Math.abs(Number(actual) - value) <= Math.abs(value) * 1e-9;
  }

  toJSON(): string {
    return `${this.numerator}/${this.denominator} as ${this.shown}`;
  }
}

/** A key that may be shown as a number or as a text. */
export class Key {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toJSON(): string {
    return `${this.text} as number or text`;
  }
}

export type Expected =
  | null
  | boolean
  | number
  | string
  | Decimal
  | Key
  | readonly Expected[]
  | { readonly [name: string]: Expected };

export function parseDecimal(text: string): Decimal | null {
  const match = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  if (!match) return null;
  const fraction = match[3] ?? '';
  const numerator = BigInt(`${match[2]}${fraction}`);
  return new Decimal(match[1] === '-' ? -numerator : numerator, 10n ** BigInt(fraction.length), 'text');
}

/** Where the answer differs from what was expected, in words; null where it does not. */
export function difference(actual: unknown, expected: Expected, place = 'answer'): string | null {
  if (expected instanceof Decimal) return expected.isShownBy(actual) ? null : differs(actual, expected, place);
  if (expected instanceof Key) {
    const isKey = typeof actual === 'string' || typeof actual === 'number';
    return isKey && String(actual) === expected.text ? null : differs(actual, expected, place);
  }
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual) || actual.length !== expected.length) return differs(actual, expected, place);
    return firstOf(expected, (each, position) => difference(actual[position], each, `${place}[${position}]`));
  }
  if (expected !== null && typeof expected === 'object') {
    if (actual === null || typeof actual !== 'object' || Array.isArray(actual)) return differs(actual, expected, place);
    const entries = Object.entries(expected);
    const missing = entries.find(([name]) => !Object.hasOwn(actual, name));
    if (missing) return `${place} lacks "${missing[0]}"`;
    const extra = Object.keys(actual).find((name) => !Object.hasOwn(expected, name));
    if (extra !== undefined) return `${place} has "${extra}", which was not expected`;
    return firstOf(entries, ([name, each]) =>
      difference((actual as Record<string, unknown>)[name], each, `${place}.${name}`),
    );
  }
  return actual === expected ? null : differs(actual, expected, place);
}

function firstOf<Item>(list: readonly Item[], find: (item: Item, position: number) => string | null): string | null {
  for (const [position, item] of list.entries()) {
    const found = find(item, position);
    if (found !== null) return found;
  }
  return null;
}

function differs(actual: unknown, expected: Expected, place: string): string {
  return `${place} is ${brief(actual)}, expected ${brief(expected)}`;
}

function brief(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 600 ? `${text.slice(0, 600)}...` : text;
}
