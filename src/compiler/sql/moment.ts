/**
 * Dates and moments as texts. PostgreSQL reads ISO 8601 and a year before the first as `0044-03-15 BC`, which is also how such a
 * year is shown; years as JavaScript writes them beyond four digits (`-000043-03-15`, `+012024-01-01`) are turned into that.
 */
const EXPANDED = /^([+-])(\d{6})(-.*)$/s;
const MOMENT = /^(\d{4,7})-(\d{2})-(\d{2})(.*?)( BC)?$/s;
const CLOCK =
  /^(?:(?:[01]\d|2[0-3]):[0-5]\d(?::(?:[0-5]\d|60)(?:\.\d{1,9})?)?|24:00(?::00(?:\.0{1,9})?)?)(?:Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?$/;

/** As PostgreSQL reads it; a string that is no such year stays as it is. */
export function readMoment(text: string): string {
  const [, sign, digits, rest] = EXPANDED.exec(text) ?? [];
  if (digits === undefined) return text;
  // There is a year zero in ISO 8601, and none between 1 BC and 1 AD.
  const year = sign === '-' ? -Number(digits) : Number(digits);
  return year > 0 ? `${paddedYear(year)}${rest}` : `${paddedYear(1 - year)}${rest} BC`;
}

function paddedYear(year: number): string {
  return String(year).padStart(4, '0');
}

/** Whether the text is a day that the calendar has, alone or with a time. */
export function isMoment(text: string): boolean {
  if (/^-?infinity$/.test(text)) return true;
  const [, yearText, monthText, dayText, rest = '', era] = MOMENT.exec(text) ?? [];
  if (dayText === undefined) return false;
  const [year, month, day] = [Number(yearText), Number(monthText), Number(dayText)];
  const known = year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= daysIn(era ? 1 - year : year, month);
  return known && (rest === '' || (/^[T ]/.test(rest) && isClock(rest.slice(1))));
}

export function isClock(text: string): boolean {
  return CLOCK.test(text);
}

function daysIn(year: number, month: number): number {
  if (month !== 2) return month === 4 || month === 6 || month === 9 || month === 11 ? 30 : 31;
  return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
}
