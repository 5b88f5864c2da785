/**
 * Caches of parsed requests: `ParseCache` by their texts, `UrlCache` also by the patterns of their URLs. Parsed requests stay valid as
 * long as the process runs, because names are looked up later and variables when the statement is bound.
 */
import { LRUCache } from 'lru-cache';
import type { Values } from '../sql/parameter.js';
import type { Parsed } from './ast.js';

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

/**
 * A text is kept when it arrives for the second time: most texts never come again, and keeping them would cost more than parsing them.
 * Texts that differ only in values share the rest of the parsed request. A table takes all of its memory when it is created, and many
 * are never used. So the first text creates it.
 */
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

/** A query string without its simple values, which are listed in its order. */
interface UrlPattern {
  readonly text: string;
  readonly values: readonly string[];
}

/** The common request of URLs of one pattern, and the slot of each value. */
interface Template {
  readonly parsed: Parsed;
  readonly slots: readonly number[];
}

const MAX_PATTERNS = 1_000;
const MAX_PATTERNS_BYTES = 16_777_216;
/** Bytes of the objects that a character of a pattern becomes, about. */
const BYTES_PER_CHARACTER = 24;

/**
 * URLs that differ only in simple values of filters, such as keys and dates, share one pattern. After the second URL of a pattern, its
 * URLs are no longer parsed: their values are put into the slots of the parsed request.
 */
export class UrlCache {
  readonly #texts = new ParseCache<{ readonly parsed: Parsed }>();
  #patterns: LRUCache<string, { template: Template | null | undefined }> | null = null;

  /** `path` identifies everything except the query string that the result of `parse` depends on. */
  get(path: string, queryString: string, parse: (queryString: string) => Parsed): Parsed {
    return this.#texts.get(`${path}?${queryString}`, () => ({ parsed: this.#parse(path, queryString, parse) })).parsed;
  }

  #parse(path: string, queryString: string, parse: (queryString: string) => Parsed): Parsed {
    const pattern = queryString.length > LONGEST_TEXT ? null : patternOf(queryString);
    if (!pattern) return parse(queryString);
    this.#patterns ??= makePatterns();
    const name = `${path}?${pattern.text}`;
    const cached = this.#patterns.get(name);
    if (cached?.template) return fill(cached.template, pattern.values);
    const parsed = parse(queryString);
    if (!cached) this.#patterns.set(name, { template: undefined });
    else if (cached.template === undefined) cached.template = templateOf(pattern, parsed, parse);
    return parsed;
  }
}

function makePatterns(): LRUCache<string, { template: Template | null | undefined }> {
  return new LRUCache({
    max: MAX_PATTERNS,
    maxSize: MAX_PATTERNS_BYTES,
    sizeCalculation: (_, name) => name.length * BYTES_PER_CHARACTER,
  });
}

function fill({ parsed, slots }: Template, values: readonly string[]): Parsed {
  const filled = [...parsed.values];
  for (const [position, slot] of slots.entries()) filled[slot] = values[position] as string;
  return { ...parsed, values: filled };
}

/** Parses the pattern with values that nobody sends, and looks where they went: each must be one value as it was written. */
function templateOf(
  { text, values }: UrlPattern,
  parsed: Parsed,
  parse: (queryString: string) => Parsed,
): Template | null {
  const probes = values.map((value, position) => (isDigits(value) ? `${PROBE + position}` : `p${PROBE + position}`));
  let next = 0;
  const probed = tryParse(
    parse,
    text.replace(MARKS, () => probes[next++] as string),
  );
  if (probed?.shape !== parsed.shape) return null;
  const slots = probes.map((probe) => probed.values.indexOf(probe));
  const isValue = slots.every(
    (slot, position) =>
      parsed.values[slot] === values[position] && probed.values.lastIndexOf(probes[position] as string) === slot,
  );
  return isValue ? { parsed, slots } : null;
}

/** Returns null if the text cannot be parsed: the parameter takes only some values. */
function tryParse(parse: (queryString: string) => Parsed, queryString: string): Parsed | null {
  try {
    return parse(queryString);
  } catch {
    return null;
  }
}

const PROBE = 730_451_928_000_000;

/** In the place of a value: the parser may read digits in another way than other texts. */
const DIGITS_MARK = '\uE000';
const TEXT_MARK = '\uE001';
const MARKS = /[\uE000\uE001]/g;

/** A simple value of a parameter in brackets: nothing that is encoded, a list, JSON or a variable. */
const VALUE = /(?<=\]|%5[Dd])=([\w.:-]{1,64})(?=&|$)/g;
/** Words that stand for values of JSON, and numbers other than digits: the parser may read them in a way of their own. */
const SPECIAL = /^(?:true|false|null|NULL|-?\d*\.\d*|-\d+)$/;

/** Returns null if no filter has a simple value. */
export function patternOf(queryString: string): UrlPattern | null {
  const values: string[] = [];
  const text = queryString.replace(VALUE, (match, value: string, start: number) => {
    const name = queryString.slice(queryString.lastIndexOf('&', start) + 1, start);
    // `filter[...]`, also below `deep`.
    if (!name.includes('filter') || name.includes('=') || SPECIAL.test(value)) return match;
    values.push(value);
    return `=${isDigits(value) ? DIGITS_MARK : TEXT_MARK}`;
  });
  return values.length === 0 || queryString.search(MARKS) >= 0 ? null : { text, values };
}

function isDigits(value: string): boolean {
  return /^\d+$/.test(value);
}
