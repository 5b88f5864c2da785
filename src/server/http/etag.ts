/** ETags: the tag of a body, and the tags that a client sends. */

/**
 * The ETag of a body: its row part if there is one, then 64 bits that say whether two bodies are the same. These are made with the
 * steps of MurmurHash3 and two states. They guard nothing, so they need not withstand an attacker who looks for two bodies with one ETag. A digest that does is as fast for
 * large bodies, but what surrounds it took a small read a twentieth of all its time.
 */
export function tagOf(body: Buffer, row = ''): string {
  const { length } = body;
  const view = new DataView(body.buffer, body.byteOffset, length);
  const words = length & ~3;
  let one = length;
  let other = ~length;
  for (let at = 0; at < words; at += 4) {
    const mixed = scatter(view.getInt32(at, true));
    one = (Math.imul(rotate(one ^ mixed, 13), 5) + 0xe6546b64) | 0;
    other = (Math.imul(rotate(other ^ mixed, 17), 5) + 0x561ccd1b) | 0;
  }
  let rest = 0;
  for (let at = words; at < length; at++) rest = (rest << 8) | view.getUint8(at);
  const mixed = scatter(rest);
  const digest = `${finish(one ^ mixed)}.${finish(other ^ mixed)}`;
  return row === '' ? `"${digest}"` : `"${row}.${digest}"`;
}

const CLOSING_BRACE = 0x7d;
/** A sign and the digits of 64 bits. */
const MAX_ROW_LENGTH = 20;

/** A body, and the row part of its item's entity tag: '' if none follows the body (compile/row-tag.ts). */
export function withoutRow(cell: Buffer): { readonly body: Buffer; readonly row: string } {
  const { length } = cell;
  let end = length;
  while (end > length - MAX_ROW_LENGTH && cell[end - 1] !== CLOSING_BRACE) end--;
  if (end === length || cell[end - 1] !== CLOSING_BRACE) return { body: cell, row: '' };
  return { body: cell.subarray(0, end), row: cell.toString('latin1', end) };
}

const ENVELOPE_LENGTH = '{"data":'.length;

/** The data of a body `{"data":…}` that PostgreSQL wrote. */
export function withoutEnvelope(body: Buffer): Buffer {
  return body.subarray(ENVELOPE_LENGTH, -1);
}

function rotate(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

function scatter(word: number): number {
  return Math.imul(rotate(Math.imul(word, 0xcc9e2d51), 15), 0x1b873593);
}

/** With a sign: it fits into a small integer, which becomes a string in half the time. */
function finish(state: number): string {
  let value = state ^ (state >>> 16);
  value = Math.imul(value, 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)).toString(36);
}

/** Whether the client already has the content, in any content encoding. */
export function isNotModified(ifNoneMatch: string, tag: string): boolean {
  if (ifNoneMatch === '' || ifNoneMatch === '*') return ifNoneMatch === '*';
  return strongTags(ifNoneMatch).some((each) => each === tag || plainTag(each) === tag);
}

export function strongTags(header: string): string[] {
  return header.split(',').map((each) => each.trim().replace(/^W\//, ''));
}

/** The tag of the content, without the suffix of its encoding. */
export function plainTag(tag: string): string {
  return tag.replace(/-(?:gzip|br)"$/, '"');
}
