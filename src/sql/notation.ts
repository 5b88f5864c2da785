/** Texts in the notation of a PostgreSQL type: ranges, networks and paths of a tree. What they hold is for PostgreSQL to read. */
import { isIP } from 'node:net';

const BOUND = String.raw`(?:"(?:[^"\\]|\\.|"")*"|[^"\\,()\[\]]*)`;
const RANGE = String.raw`(?:empty|[[(]\s*${BOUND}\s*,\s*${BOUND}\s*[\])])`;
const ONE_RANGE = new RegExp(`^${RANGE}$`, 'is');
const MANY_RANGES = new RegExp(String.raw`^\{\s*(?:${RANGE}\s*(?:,\s*${RANGE}\s*)*)?\}$`, 'is');

/** Null for what is no range, or holds what no text can. */
export function rangeOf(text: string): string | null {
  return ONE_RANGE.test(text) && !text.includes('\0') ? text : null;
}

/** A range stands for the multirange that holds it alone. */
export function multirangeOf(text: string): string | null {
  if (rangeOf(text) !== null) return /^empty$/i.test(text) ? '{}' : `{${text}}`;
  return MANY_RANGES.test(text) && !text.includes('\0') ? text : null;
}

/** An address, or one with the length of its network. */
export function isNetwork(text: string): boolean {
  const [address = '', length, ...rest] = text.split('/');
  const version = isIP(address);
  if (version === 0 || address.includes('%') || rest.length > 0) return false;
  return length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= (version === 4 ? 32 : 128));
}

/** Labels with dots between them. */
export function isTreePath(text: string): boolean {
  return /^[\p{L}\p{N}_-]+(?:\.[\p{L}\p{N}_-]+)*$/u.test(text);
}
