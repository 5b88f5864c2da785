/** SHA-256 (FIPS 180-4) of short texts: digests of secrets, and parts of long names. */

/** The first 32 bits of the fractional parts of roots of the first primes. */
const fraction = (root: number): number => ((root - Math.floor(root)) * 2 ** 32) | 0;
const PRIMES = firstPrimes(64);
const ROUNDS = PRIMES.map((prime) => fraction(Math.cbrt(prime)));
const START = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));

/** In hexadecimal digits. */
export function sha256(text: string): string {
  const blocks = paddedBlocks(new TextEncoder().encode(text));
  const state = Int32Array.from(START);
  const words = new Int32Array(64);
  for (let offset = 0; offset < blocks.byteLength; offset += 64) {
    for (let at = 0; at < 16; at++) words[at] = blocks.getInt32(offset + 4 * at);
    addBlock(state, words);
  }
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
}

/** The text, a one bit, zeros, and the number of its bits. */
function paddedBlocks(bytes: Uint8Array): DataView {
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  return view;
}

function addBlock(state: Int32Array, words: Int32Array): void {
  for (let at = 16; at < 64; at++) {
    const [early, late] = [wordAt(words, at - 15), wordAt(words, at - 2)];
    const one = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
    const other = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
    words[at] = wordAt(words, at - 16) + one + wordAt(words, at - 7) + other;
  }
  let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
  for (let at = 0; at < 64; at++) {
    const choice = (e & f) ^ (~e & g);
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const one = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + choice + (ROUNDS[at] ?? 0) + wordAt(words, at);
    const other = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + majority;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + other) | 0];
  }
  for (const [at, word] of [a, b, c, d, e, f, g, h].entries()) state[at] = wordAt(state, at) + word;
}

function wordAt(words: Int32Array, at: number): number {
  return words[at] ?? 0;
}

function rotated(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}

function firstPrimes(count: number): readonly number[] {
  const primes: number[] = [];
  for (let number = 2; primes.length < count; number++)
    if (primes.every((prime) => number % prime !== 0)) primes.push(number);
  return primes;
}
