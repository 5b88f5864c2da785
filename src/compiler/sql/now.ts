/** `$NOW`, `$NOW(-1 day)`, `$NOW(+2 hours)`: the current time plus or minus an interval. Months and years follow the calendar, in UTC. */
import { invalidQuery } from '../../base/errors.js';

/** Milliseconds of each unit with a fixed length. */
const FIXED: readonly (readonly [RegExp, number])[] = [
  [/^(ms|msecs?|milliseconds?)$/, 1],
  [/^(s|secs?|seconds?)$/, 1_000],
  [/^(m|mins?|minutes?)$/, 60_000],
  [/^(h|hrs?|hours?)$/, 3_600_000],
  [/^(d|days?|)$/, 86_400_000],
  [/^(w|wks?|weeks?)$/, 604_800_000],
];

const FORM = /^\$NOW(?:\(\s*(?:([+-]?)\s*(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)\s*)?\))?$/i;

/** Whether the text is a `$NOW` variable. Throws 400 if it is one that `adjustNow` cannot read. */
export function isNow(text: string): boolean {
  if (!/^\$NOW\b/.test(text)) return false;
  adjustNow(text, new Date());
  return true;
}

export function adjustNow(text: string, now: Date): string {
  const match = FORM.exec(text);
  if (!match) throw unreadable(text);
  const [, sign, amount, unit = ''] = match;
  if (amount === undefined) return now.toISOString();
  const moved = move(now, Number(amount) * (sign === '-' ? -1 : 1), unit.toLowerCase());
  if (moved === null || Number.isNaN(moved.getTime())) throw unreadable(text);
  return readable(moved);
}

function unreadable(text: string): Error {
  return invalidQuery(`"${text.slice(0, 100)}" is not a time: $NOW takes a number and a unit, as in "$NOW(-1 day)"`);
}

/** Returns null if the unit is unknown. */
function move(now: Date, amount: number, unit: string): Date | null {
  const fixed = FIXED.find(([pattern]) => pattern.test(unit));
  if (fixed) return new Date(now.getTime() + amount * fixed[1]);
  const months = /^(mo|mths?|months?)$/.test(unit) ? amount : /^(y|yrs?|years?)$/.test(unit) ? amount * 12 : null;
  if (months === null) return null;
  const moved = new Date(now);
  const day = moved.getUTCDate();
  moved.setUTCDate(1);
  moved.setUTCMonth(moved.getUTCMonth() + Math.trunc(months));
  const last = new Date(Date.UTC(moved.getUTCFullYear(), moved.getUTCMonth() + 1, 0)).getUTCDate();
  moved.setUTCDate(Math.min(day, last));
  return moved;
}

/** Years outside 0 to 9999 have a sign in ISO texts, which PostgreSQL does not read. */
function readable(date: Date): string {
  const year = date.getUTCFullYear();
  const iso = date.toISOString();
  if (year > 9_999) return iso.slice(1);
  if (year < 1) return `${String(1 - year).padStart(4, '0')}${iso.slice(year < 0 ? 7 : 4)} BC`;
  return iso;
}
