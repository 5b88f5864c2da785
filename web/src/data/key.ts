/** Keys as the API and the addresses of items write them. */

/** A composite key as one text. */
export function joinKey(values: readonly unknown[]): unknown {
  return values.length === 1 ? values[0] : values.map((each) => String(each).replace(/[~\\]/g, '\\$&')).join('~');
}

/** The values of a key that `joinKey` made. */
export function splitKey(text: string, keys: readonly string[]): Readonly<Record<string, string>> {
  const parts = [...text.matchAll(/((?:[^~\\]|\\.)*)(?:~|$)/g)].map(([, part = '']) => part.replace(/\\(.)/g, '$1'));
  const values = keys.length === 1 ? [text] : parts;
  return Object.fromEntries(keys.map((name, at) => [name, values[at] ?? '']));
}
