/** The ids of requests: those that clients give, or a number with a prefix of this process. */
let requests = 0;
const DIGITS = 9;
const PREFIX = `${Math.random().toString(36).slice(2, 8).padEnd(6, '0')}-`;

/** Bytes of an id, until there are more requests than its digits can count. */
export const ID_LENGTH = PREFIX.length + DIGITS;
/** A place for an id, with its prefix. */
export const ID_SPACE = PREFIX.padEnd(ID_LENGTH, '0');
const MAX_REQUESTS = 10 ** DIGITS - 1;
const ZERO = 48;

/** A caller's id is kept when it is harmless as a header and in a log. */
export function requestId(headerValue: string): string {
  if (headerValue !== '' && /^[\w.:-]{1,128}$/.test(headerValue)) return headerValue;
  return `${PREFIX}${String(++requests).padStart(DIGITS, '0')}`;
}

/** Writes the digits of the next id into bytes that begin with a place for an id. Returns false if they do not fit. */
export function writeNextId(bytes: Uint8Array): boolean {
  if (requests >= MAX_REQUESTS) return false;
  let rest = ++requests;
  for (let position = ID_LENGTH - 1; position >= PREFIX.length; position--) {
    bytes[position] = ZERO + (rest % 10);
    rest = (rest / 10) | 0;
  }
  return true;
}
