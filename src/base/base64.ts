/** Base64 without Node: for short texts. */

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const VALUES: ReadonlyMap<string, number> = new Map([
  ...[...ALPHABET].map((digit, value) => [digit, value] as const),
  ['-', 62],
  ['_', 63],
]);

/** Reads both alphabets, without padding. */
export function bytesOfBase64(text: string): Uint8Array {
  const bytes = new Uint8Array(Math.floor((text.length * 3) / 4));
  let at = 0;
  let bits = 0;
  let held = 0;
  for (const digit of text) {
    held = (held << 6) | (VALUES.get(digit) ?? 0);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes[at++] = held >> bits;
    held &= (1 << bits) - 1;
  }
  return bytes;
}

/** The bytes of a base64 text as hexadecimal digits. */
export function hexDigits(text: string): string {
  let digits = '';
  for (const byte of bytesOfBase64(text)) digits += byte.toString(16).padStart(2, '0');
  return digits;
}

/** The bytes of hexadecimal digits as base64, with padding. */
export function base64OfHex(digits: string): string {
  let text = '';
  for (let at = 0; at < digits.length; at += 6) {
    const group = digits.slice(at, at + 6);
    const value = Number.parseInt(group.padEnd(6, '0'), 16);
    const length = group.length / 2 + 1;
    for (let position = 0; position < 4; position++)
      text += position < length ? ALPHABET.charAt((value >> (18 - 6 * position)) & 63) : '=';
  }
  return text;
}
