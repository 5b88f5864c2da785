/** Dates and times as text: checked as PostgreSQL writes them, and converted between UTC and the time zone of the browser. */

const DATE = String.raw`(\d{4,6})-(\d\d)-(\d\d)`;
const TIME = String.raw`(\d\d):(\d\d)(?::(\d\d)(\.\d+)?)?`;
const ZONE = String.raw`(?:Z|[-+]\d\d(?::?\d\d){0,2})`;
const FORMS: Readonly<Record<string, RegExp>> = {
  date: new RegExp(`^${DATE}( BC)?$`, 'i'),
  time: new RegExp(`^${TIME}(${ZONE})?$`, 'i'),
  dateTime: new RegExp(`^${DATE}(?:[T ]${TIME})?( BC)?$`, 'i'),
  timestamp: new RegExp(`^${DATE}(?:[T ]${TIME} ?(${ZONE})?)?( BC)?$`, 'i'),
};
const ENDLESS = /^[-+]?infinity$/i;

export function isMomentText(text: string, type: string): boolean {
  if (type !== 'time' && ENDLESS.test(text)) return true;
  if (!FORMS[type]?.test(text)) return false;
  const [, year = '', month = '', day = ''] = new RegExp(`^${DATE}`).exec(text) ?? [];
  const [, hour = '0', minute = '0', second = '0'] = new RegExp(`(?:^|[T ])${TIME}`).exec(text) ?? [];
  const isTime = Number(hour) <= 24 && Number(minute) < 60 && Number(second) <= 60;
  if (type === 'time') return isTime;
  return isTime && Number(month) >= 1 && Number(month) <= 12 && Number(day) >= 1 && Number(day) <= daysIn(year, month);
}

function daysIn(year: string, month: string): number {
  return new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
}

export type Zone = 'UTC' | 'local';

/** The time zone of the browser. */
export const LOCAL_ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Splits `2024-05-31T14:30:00.123456Z`; null if the browser cannot convert it, such as `infinity` or years before Christ. */
const ISO = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z$/;

/** A timestamp of the API, as text in a time zone, without its name. */
export function inZone(value: string, zone: Zone): string {
  const [, seconds, fraction = ''] = ISO.exec(value) ?? [];
  if (seconds === undefined) return value.replace('T', ' ');
  const shown = zone === 'UTC' ? seconds : localText(new Date(`${seconds}Z`));
  return `${shown.replace('T', ' ')}${/^\.0+$/.test(fraction) ? '' : fraction}`;
}

function localText(date: Date): string {
  const two = (number: number): string => String(number).padStart(2, '0');
  const day = `${String(date.getFullYear()).padStart(4, '0')}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** A text in a time zone, as a timestamp for the API. A text that names its zone keeps it. */
export function fromZone(text: string, zone: Zone): string {
  const trimmed = text.trim();
  const parts = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?)?$/.exec(trimmed);
  if (!parts) return trimmed;
  const [, day = '', minutes = '00:00', seconds = ':00', fraction = ''] = parts;
  const whole = `${day}T${minutes}${seconds}`;
  if (zone === 'UTC') return `${whole}${fraction}Z`;
  const date = new Date(whole);
  return Number.isNaN(date.getTime()) ? trimmed : `${date.toISOString().slice(0, 19)}${fraction}Z`;
}
