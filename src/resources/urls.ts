/**
 * URLs that were parsed before. What was parsed stays valid as long as the process runs: names are looked up later,
 * variables at binding. A URL is kept from its second sight on: most that differ in a value never come again, and keeping
 * them would cost more than parsing them. The tables take their whole room when they are made, and many resources are
 * never read: they are made with the first URL.
 */
import { LRUCache } from 'lru-cache';
import type { Parsed } from '../request/ast.js';

interface Tables {
  readonly seen: LRUCache<string, true>;
  readonly kept: LRUCache<string, Parsed>;
}

export class ParsedUrls {
  #tables: Tables | null = null;

  get(text: string, parse: () => Parsed): Parsed {
    this.#tables ??= makeTables();
    const { seen, kept } = this.#tables;
    const known = kept.get(text);
    if (known) return known;
    const parsed = parse();
    if (text.length < 4_096) {
      if (seen.has(text)) kept.set(text, parsed);
      else seen.set(text, true);
    }
    return parsed;
  }
}

function makeTables(): Tables {
  return {
    seen: new LRUCache({ max: 10_000 }),
    kept: new LRUCache({
      max: 5_000,
      maxSize: 16_777_216,
      sizeCalculation: (parsed, text) => text.length + parsed.shape.length,
    }),
  };
}
