/** Which coding of the body a client prefers, by its Accept-Encoding (RFC 9110, 12.5.3). */

import type { Config } from '../config/config.js';

export type Encoding = Config['COMPRESSION'][number];

export interface NegotiatedEncoding {
  readonly name: Encoding;
  /** The client refuses a body that is not encoded, however small it is. */
  readonly always: boolean;
}

/** The offered coding that the client prefers, the first of equals, or null. */
export function negotiateEncoding(header: string, offered: readonly Encoding[]): NegotiatedEncoding | null {
  if (header === '') return null;
  const qualities = readQualities(header);
  const others = qualities.get('*');
  let encoding: Encoding | null = null;
  let best = 0;
  for (const each of offered) {
    const quality = NAMES[each].map((name) => qualities.get(name)).find((known) => known !== undefined) ?? others ?? 0;
    if (quality <= best) continue;
    encoding = each;
    best = quality;
  }
  if (encoding === null) return null;
  const plain = qualities.get('identity');
  if (plain !== undefined && plain > best) return null;
  return { name: encoding, always: plain === 0 || (plain === undefined && others === 0) };
}

const NAMES: Readonly<Record<Encoding, readonly string[]>> = { gzip: ['gzip', 'x-gzip'], brotli: ['br'] };

/** Malformed entries are ignored. */
function readQualities(header: string): ReadonlyMap<string, number> {
  const qualities = new Map<string, number>();
  for (const each of header.toLowerCase().split(',')) {
    const [, name, quality = '1'] =
      /^\s*([\w.*+-]+)\s*(?:;\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*)?$/.exec(each) ?? [];
    if (name !== undefined) qualities.set(name, Number(quality));
  }
  return qualities;
}
