/**
 * URLs that were parsed before. What was parsed stays valid as long as the process runs: names are looked up later,
 * variables at binding. A URL is kept from its second sight on: most that differ in a value never come again, and keeping
 * them would cost more than parsing them.
 */
import { LRUCache } from 'lru-cache';
import type { Parsed } from '../request/ast.js';

export class ParsedUrls {
  readonly #seen = new LRUCache<string, true>({ max: 10_000 });
  readonly #kept = new LRUCache<string, Parsed>({
    max: 5_000,
    maxSize: 16_777_216,
    sizeCalculation: (parsed, text) => text.length + parsed.shape.length,
  });

  get(text: string, parse: () => Parsed): Parsed {
    const kept = this.#kept.get(text);
    if (kept) return kept;
    const parsed = parse();
    if (text.length < 4_096) {
      if (this.#seen.has(text)) this.#kept.set(text, parsed);
      else this.#seen.set(text, true);
    }
    return parsed;
  }
}
