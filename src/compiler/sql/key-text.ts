/**
 * The key of an item as one string. A key of one column is the text of its value as it is. For a key of several columns, the texts of the
 * parts are joined by `~`, in the order of the key. Inside a part, `\` precedes each `~` and each `\`.
 */
import { elementAt } from '../../base/narrow.js';

export function joinKey(parts: readonly unknown[]): string {
  return parts.map((part) => String(part).replace(/[\\~]/g, '\\$&')).join('~');
}

/** Returns null if the text is not a key of `count` parts. */
export function splitKey(key: string, count: number): string[] | null {
  const parts = key.includes('\\') ? unescaped(key) : key.split('~');
  return parts?.length === count ? parts : null;
}

function unescaped(key: string): string[] | null {
  const parts = [''];
  for (let position = 0; position < key.length; position++) {
    const character = elementAt(key, position);
    if (character === '~') {
      parts.push('');
      continue;
    }
    const escaped = character === '\\' ? key[++position] : character;
    if (escaped === undefined || (character === '\\' && escaped !== '\\' && escaped !== '~')) return null;
    parts.push(`${parts.pop()}${escaped}`);
  }
  return parts;
}
