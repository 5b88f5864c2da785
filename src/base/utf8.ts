/** Whether the text has more bytes in UTF-8 than `most`. An unpaired surrogate counts as the three bytes that replace it. */
export function isLongerThan(text: string, most: number): boolean {
  if (text.length > most) return true;
  if (text.length * 3 <= most) return false;
  let bytes = text.length;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code < 0x80) continue;
    // A pair of surrogates has four bytes, two for each of its halves.
    bytes += code < 0x800 || isPaired(text, at) ? 1 : 2;
  }
  return bytes > most;
}

function isPaired(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  if (code < 0xd800 || code > 0xdfff) return false;
  const isHigh = code < 0xdc00;
  const other = text.charCodeAt(isHigh ? at + 1 : at - 1);
  return isHigh ? other >= 0xdc00 && other <= 0xdfff : other >= 0xd800 && other < 0xdc00;
}
