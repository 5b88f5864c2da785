/**
 * Parsed requests by their texts. They stay valid as long as the process runs, because names are looked up later and variables when the
 * statement is bound. A text is kept when it arrives for the second time: most texts never come again, and keeping them would cost more
 * than parsing them. Texts that differ only in values share the rest of the parsed request. A table takes all of its memory when it is
 * created, and many are never used. So it is created with the first text.
 */
import { LRUCache } from 'lru-cache';
import type { Values } from '../sql/parameter.js';

/** A request whose shape says all of it but its values. */
interface Shaped {
  readonly request: object;
  readonly shape: string;
  readonly values: Values;
}

interface Tables<Kept extends object> {
  readonly seen: LRUCache<string, true>;
  readonly parsedRequests: LRUCache<string, Kept>;
  readonly shapes: LRUCache<string, Shaped>;
}

const LONGEST_TEXT = 4_096;

/** About how many bytes of objects a character of a document becomes. */
const OBJECTS = 12;

export class ParseCache<Kept extends { readonly parsed: Shaped }> {
  #tables: Tables<Kept> | null = null;

  clear(): void {
    this.#tables = null;
  }

  get(text: string, parse: () => Kept): Kept {
    this.#tables ??= makeTables<Kept>();
    const { seen, parsedRequests, shapes } = this.#tables;
    const cached = parsedRequests.get(text);
    if (cached) return cached;
    const parsed = parse();
    if (text.length > LONGEST_TEXT) return parsed;
    if (!seen.has(text)) {
      seen.set(text, true);
      return parsed;
    }
    const shared = { ...parsed, parsed: share(parsed.parsed, shapes) };
    parsedRequests.set(text, shared);
    return shared;
  }
}

function share<Parsed extends Shaped>(parsed: Parsed, shapes: Tables<never>['shapes']): Parsed {
  const cached = shapes.get(parsed.shape);
  if (cached) return { ...parsed, request: cached.request, shape: cached.shape };
  shapes.set(parsed.shape, parsed);
  return parsed;
}

function makeTables<Kept extends { readonly parsed: Shaped }>(): Tables<Kept> {
  return {
    seen: new LRUCache({ max: 10_000, maxSize: 8_388_608, sizeCalculation: (_, text) => text.length + 1 }),
    parsedRequests: new LRUCache({
      max: 5_000,
      maxSize: 16_777_216,
      sizeCalculation: ({ parsed }, text) => text.length * OBJECTS + sizeOf(parsed.values) + 1,
    }),
    shapes: new LRUCache({ max: 1_000, maxSize: 16_777_216, sizeCalculation: (_, shape) => shape.length * OBJECTS }),
  };
}

/** Introspection answers a short text with a very long value. */
function sizeOf(values: Values): number {
  return values.reduce<number>((size, value) => size + (typeof value === 'string' ? value.length : 8), 0);
}
