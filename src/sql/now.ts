/** `$NOW`, `$NOW(-1 day)`, `$NOW(+2 hours)`: the time, moved. Months and years move by the calendar, in UTC. */
const FIXED: readonly (readonly [RegExp, number])[] = [
  [/^(ms|msecs?|milliseconds?)$/, 1],
  [/^(s|secs?|seconds?)$/, 1_000],
  [/^(m|mins?|minutes?)$/, 60_000],
  [/^(h|hrs?|hours?)$/, 3_600_000],
  [/^(d|days?|)$/, 86_400_000],
  [/^(w|wks?|weeks?)$/, 604_800_000],
];

/** An adjustment that cannot be read leaves the time as it is. */
export function adjustNow(text: string, now: Date): string {
  const match = /^\$NOW\(\s*([+-]?)\s*(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)\s*\)$/i.exec(text);
  if (!match) return now.toISOString();
  const amount = Number(match[2]) * (match[1] === '-' ? -1 : 1);
  const moved = move(now, amount, (match[3] as string).toLowerCase());
  return Number.isNaN(moved.getTime()) ? now.toISOString() : readable(moved);
}

function move(now: Date, amount: number, unit: string): Date {
  const fixed = FIXED.find(([pattern]) => pattern.test(unit));
  if (fixed) return new Date(now.getTime() + amount * fixed[1]);
  const months = /^(mo|mths?|months?)$/.test(unit) ? amount : /^(y|yrs?|years?)$/.test(unit) ? amount * 12 : 0;
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
