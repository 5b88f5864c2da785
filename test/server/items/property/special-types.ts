/**
 * Types of PostgreSQL with operators of their own: arrays of texts, ranges and multiranges of whole numbers, addresses, words, paths of trees, texts that
 * are searched or alike, and what JSON values contain. Values are drawn and compared here; they have no other operators in the tests, and no order.
 */
import type { Draw } from './draw.js';
import type { Json, KindName } from './kinds.js';

export const SPECIAL_KINDS = ['texts', 'span', 'spans', 'network', 'words', 'tree', 'label'] as const;
export type SpecialKind = (typeof SPECIAL_KINDS)[number];

export function isSpecial(kind: KindName): kind is SpecialKind {
  return (SPECIAL_KINDS as readonly string[]).includes(kind);
}

const ELEMENTS = ['a', 'b', 'B', 'c,d', 'ü', '"q"', 'b\\s', 'true', '{x}', ' lead', '5'] as const;
const SPANS = ['[1,5)', '[5,9)', '(,3)', '[7,)', 'empty', '[2,3)', '(,)', '[-3,0)'] as const;
const OTHER_SPANS = ['[1,4]', '(4,9)', '[0,0]', '[9,100]', '(3,3)'] as const;
const MULTISPANS = ['{}', '{[1,5)}', '{[1,3),[5,9)}', '{(,0),[4,5),[7,)}', '{(,)}', '{[-3,0),[9,12)}'] as const;
const ADDRESSES = ['10.1.2.3', '10.1.0.0/16', '192.168.0.1/24', 'fe80::1', '10.0.0.0/8', '2001:db8::/32'] as const;
const NETWORKS = [
  '10.0.0.0/8',
  '10.1.0.0/16',
  '0.0.0.0/0',
  '192.168.0.77/24',
  'fe80::/10',
  '::/0',
  '10.1.2.3',
] as const;

/** Words of a `tsvector`; none is one that a configuration leaves out. */
const WORDS = ['garden', 'index', 'join', 'rose', 'row'] as const;
const TREES = ['top', 'top.sql', 'top.sql.join', 'top.garden', 'top.sqlite', 'other'] as const;
const LABELS = [
  'joining tables',
  'Joinning Table',
  'index',
  'Indexes',
  'roses',
  'Rose garden',
  'a row of roses',
] as const;

export function drawSpecial(kind: SpecialKind, draw: Draw): Json {
  switch (kind) {
    case 'texts':
      return { json: draw.some(ELEMENTS, 0, 4) };
    case 'span':
      return { json: draw.pick(SPANS) };
    case 'spans':
      return { json: draw.pick(MULTISPANS) };
    case 'network':
      return { json: draw.pick(ADDRESSES) };
    case 'words': {
      const words = draw.some(WORDS, 0, 3).sort();
      return { json: words.map((each) => `'${each}'`).join(' ') };
    }
    case 'tree':
      return { json: draw.pick(TREES) };
    case 'label':
      return { json: draw.pick(LABELS) };
  }
}

/** As PostgreSQL reads it. */
export function writeSpecial(kind: SpecialKind, { json }: Json): string {
  if (kind !== 'texts') return String(json);
  const elements = (json as readonly string[]).map((each) => `"${each.replace(/["\\]/g, '\\$&')}"`);
  return `{${elements.join(',')}}`;
}

export function drawSpecialTest(kind: SpecialKind, draw: Draw): { readonly [operator: string]: unknown } {
  switch (kind) {
    case 'texts': {
      const count = draw.integer(0, 4);
      if (draw.chance(30))
        return { _length: draw.chance(50) ? count : { [draw.pick(['_gt', '_lte', '_neq'])]: count } };
      return { [draw.pick(['_contains_all', '_contains_any', '_contained_in'])]: draw.some(ELEMENTS, 1, 5) };
    }
    case 'span':
      if (draw.chance(40)) return { _contains_value: draw.integer(-4, 10) };
      return { [draw.pick(['_overlaps', '_adjacent'])]: draw.pick([...SPANS, ...OTHER_SPANS]) };
    case 'spans':
      if (draw.chance(30)) return { _contains_value: draw.integer(-4, 13) };
      return { [draw.pick(['_overlaps', '_adjacent'])]: draw.pick([...SPANS, ...OTHER_SPANS, ...MULTISPANS]) };
    case 'network':
      return { _within_network: draw.pick(NETWORKS) };
    case 'words':
      return { _fts: { query: drawQuery(draw), config: 'simple' } };
    case 'tree':
      return { [draw.pick(['_descendant_of', '_ancestor_of'])]: draw.pick(TREES) };
    case 'label':
      if (draw.chance(50)) return { _fts: { query: drawQuery(draw), config: 'simple' } };
      return { _similar: draw.pick([...LABELS, 'tabels', 'idnex', 'nothing alike']) };
  }
}

/** Words that all must be there or, with a minus, must not; alternatives of them. */
export function drawQuery(draw: Draw): string {
  const some = (): string =>
    draw
      .some([...WORDS, 'roses', 'tables'], 1, 2)
      .map((each, position) => (position > 0 && draw.chance(40) ? `-${each}` : each))
      .join(' ');
  return draw.chance(30) ? `${some()} or ${some()}` : some();
}

/** Mostly a part of the value, or a key that it has. */
export function drawContained(
  value: unknown,
  random: () => unknown,
  draw: Draw,
): { readonly [operator: string]: unknown } {
  if (draw.chance(40)) {
    const keys = value !== null && typeof value === 'object' ? Object.keys(value) : [];
    return { _has_key: draw.pick([...keys, 'a', 'x', 'k_1']) };
  }
  const part = draw.chance(75) ? drawPart(value, draw) : random();
  return { _json_contains: part === null || part === '' ? draw.pick([{}, [], { a: 1 }, ['x']]) : part };
}

function drawPart(value: unknown, draw: Draw): unknown {
  if (Array.isArray(value)) return draw.some(value, 0, 2).map((each) => drawPart(each, draw));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(draw.some(Object.entries(value), 0, 2).map(([key, each]) => [key, drawPart(each, draw)]));
}

export const SPECIAL_OPERATORS = [
  '_contains_all',
  '_contains_any',
  '_contained_in',
  '_contains_value',
  '_overlaps',
  '_adjacent',
  '_within_network',
  '_json_contains',
  '_has_key',
  '_fts',
  '_similar',
  '_descendant_of',
  '_ancestor_of',
] as const;

export function isSpecialOperator(name: string): boolean {
  return (SPECIAL_OPERATORS as readonly string[]).includes(name);
}

/** Whether the operator holds of the value, which is not null. */
export function holdsSpecially(operator: string, given: unknown, { json }: Json): boolean {
  switch (operator) {
    case '_json_contains':
      return containsDocument(json, given, true);
    case '_has_key':
      if (Array.isArray(json)) return json.includes(given);
      return json !== null && typeof json === 'object' ? Object.hasOwn(json, String(given)) : json === given;
    case '_within_network':
      return isWithin(String(json), String(given));
    case '_descendant_of':
      return `${json}.`.startsWith(`${given}.`);
    case '_ancestor_of':
      return `${given}.`.startsWith(`${json}.`);
    case '_fts':
      return hasWords(wordsOf(String(json)), (given as { query: string }).query);
    case '_similar':
      return similarity(String(json), String(given)) >= SIMILAR;
  }
  if (operator === '_contains_value') return overlap(readSpans(json), [[Number(given), Number(given) + 1]]);
  if (operator === '_overlaps') return overlap(readSpans(json), readSpans(given));
  if (operator === '_adjacent') return adjoin(readSpans(json), readSpans(given));
  const held = json as readonly unknown[];
  const wanted = given as readonly unknown[];
  if (operator === '_contains_all') return wanted.every((each) => held.includes(each));
  if (operator === '_contains_any') return wanted.some((each) => held.includes(each));
  return held.every((each) => wanted.includes(each));
}

function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[a-z]+/g) ?? [];
}

function hasWords(words: readonly string[], query: string): boolean {
  const holds = (term: string): boolean =>
    term.startsWith('-') ? !words.includes(term.slice(1)) : words.includes(term);
  return query.split(' or ').some((all) => all.split(' ').every(holds));
}

/** The default of `pg_trgm`; no two texts of the tests are exactly as similar. */
const SIMILAR = 0.3;

function similarity(left: string, right: string): number {
  const [one, other] = [trigramsOf(left), trigramsOf(right)];
  const common = [...one].filter((each) => other.has(each)).length;
  return common / (one.size + other.size - common);
}

function trigramsOf(text: string): Set<string> {
  const padded = wordsOf(text).map((word) => `  ${word} `);
  return new Set(padded.flatMap((word) => Array.from({ length: word.length - 2 }, (_, at) => word.slice(at, at + 3))));
}

/** At the top a list contains a value of its own as well. */
function containsDocument(left: unknown, right: unknown, top: boolean): boolean {
  if (Array.isArray(right)) {
    return Array.isArray(left) && right.every((each) => left.some((one) => containsDocument(one, each, false)));
  }
  if (right !== null && typeof right === 'object') {
    if (left === null || typeof left !== 'object' || Array.isArray(left)) return false;
    const held = left as Record<string, unknown>;
    return Object.entries(right).every(
      ([key, each]) => Object.hasOwn(held, key) && containsDocument(held[key], each, false),
    );
  }
  return left === right || (top && Array.isArray(left) && left.includes(right));
}

type Span = readonly [from: number, to: number];

/** The ranges of a text without their upper bounds, in their order; none where it is empty. */
function readSpans(text: unknown): Span[] {
  return [...String(text).matchAll(/([[(])(-?\d*),(-?\d*)([\])])/g)].flatMap(([, open, from, to, close]) => {
    const low = from === '' ? -Infinity : Number(from) + (open === '(' ? 1 : 0);
    const high = to === '' ? Infinity : Number(to) + (close === ']' ? 1 : 0);
    return low < high ? [[low, high] as const] : [];
  });
}

function overlap(left: readonly Span[], right: readonly Span[]): boolean {
  return left.some((one) => right.some((other) => one[0] < other[1] && other[0] < one[1]));
}

/** At their outer ends: nothing lies between the last of one and the first of the other. */
function adjoin(left: readonly Span[], right: readonly Span[]): boolean {
  const meets = (before: readonly Span[], behind: readonly Span[]): boolean =>
    before.length > 0 && before.at(-1)?.[1] === behind[0]?.[0];
  return meets(left, right) || meets(right, left);
}

/** How many of the alternatives a text has: each counts once, and as much as any other. */
export function rankOf(text: unknown, query: string): number {
  const words = wordsOf(String(text));
  return query.split(' or ').filter((each) => words.includes(each)).length;
}

/** Alternatives of single words. */
export function drawAlternatives(draw: Draw): string {
  return draw.some([...WORDS, 'roses', 'tables'], 2, 4).join(' or ');
}

function isWithin(value: string, network: string): boolean {
  const [inner, outer] = [readAddress(value), readAddress(network)];
  if (inner.bits !== outer.bits || inner.length < outer.length) return false;
  const shift = BigInt(outer.bits - outer.length);
  return inner.number >> shift === outer.number >> shift;
}

function readAddress(text: string): { bits: number; length: number; number: bigint } {
  const [address = '', length] = text.split('/');
  const isOld = address.includes('.');
  const [left = '', right] = address.split('::');
  const groups = (half: string): string[] => (half === '' ? [] : half.split(isOld ? '.' : ':'));
  const [before, after] = [groups(left), groups(right ?? '')];
  const missing = isOld ? 0 : 8 - before.length - after.length;
  const all = [...before, ...Array.from({ length: missing }, () => '0'), ...after];
  const size = isOld ? 8n : 16n;
  const number = all.reduce((sum, each) => (sum << size) + BigInt(isOld ? each : `0x${each}`), 0n);
  const bits = isOld ? 32 : 128;
  return { bits, length: length === undefined ? bits : Number(length), number };
}
