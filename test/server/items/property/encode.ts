/**
 * Requests on the wire. One query has many spellings that mean the same: a SEARCH body, JSON texts or brackets in the URL,
 * lists with commas or one parameter per entry. The request's `spelling` decides which are used.
 */
import type { Query, ReadRequest } from './requests.js';

export interface Message {
  readonly method: 'GET' | 'SEARCH';
  readonly path: string;
  readonly body: string | null;
  /** The spellings used. */
  readonly features: readonly string[];
}

export function encodeRequest(request: ReadRequest): Message {
  const { collection, item, keys, query, spelling } = request;
  const path = ['', 'items', collection, ...(item === null ? [] : [item])].map(encodeURIComponent).join('/');
  const choose = chooser(spelling);
  if (item === null && (keys !== null || choose() < 0.3)) {
    const body = JSON.stringify({ query: listsAsText(query, choose), ...(keys === null ? {} : { keys }) });
    return { method: 'SEARCH', path, body, features: ['SEARCH'] };
  }
  const features = new Set(['GET']);
  const pairs = Object.entries(query).flatMap(([name, value]) => spell(name, value, choose, features));
  return {
    method: 'GET',
    path: pairs.length === 0 ? path : `${path}?${pairs.join('&')}`,
    body: null,
    features: [...features],
  };
}

/** Numbers from 0 to 1 that follow from the seed. */
function chooser(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return ((state >>> 8) & 0xffff) / 0x10000;
  };
}

const LISTS: ReadonlySet<string> = new Set(['fields', 'sort', 'groupBy', 'meta']);

function listsAsText(query: Query, choose: () => number): Query {
  const entries = Object.entries(query).map(([name, value]): [string, unknown] => {
    const isText = LISTS.has(name) && Array.isArray(value) && choose() < 0.5;
    return [name, isText ? value.join(',') : value];
  });
  return Object.fromEntries(entries);
}

function spell(name: string, value: unknown, choose: () => number, features: Set<string>): string[] {
  if (Array.isArray(value)) {
    if (choose() < 0.6) return [pair([name], value.join(','))];
    features.add('brackets');
    return choose() < 0.5
      ? value.map((each) => `${encodeURIComponent(name)}[]=${encodeURIComponent(each)}`)
      : value.map((each, position) => pair([name, String(position)], each));
  }
  if (value === null || typeof value !== 'object') return [pair([name], value)];
  if (choose() < 0.5 && hasBrackets(value)) {
    features.add('brackets');
    return Object.entries(value).flatMap(([key, below]) => bracket([name, key], below, choose));
  }
  features.add('JSON text');
  return [pair([name], JSON.stringify(value))];
}

/** Brackets have no empty objects, and keys that hold brackets themselves; their numbers are texts, which `_json` tells apart. */
function hasBrackets(value: unknown): boolean {
  if (value === null || typeof value !== 'object') return true;
  const entries = Object.entries(value);
  if (entries.length === 0) return false;
  return entries.every(
    ([key, below]) => !/[[\]]/.test(key) && key !== '_json' && key !== '_json_contains' && hasBrackets(below),
  );
}

const COMMA_LISTS: ReadonlySet<string> = new Set([
  ...['_in', '_nin', '_between', '_nbetween', '_sort', '_groupBy'],
  ...['_contains_all', '_contains_any', '_contained_in'],
]);

function bracket(path: readonly string[], value: unknown, choose: () => number): string[] {
  if (Array.isArray(value)) {
    const hasCommas = value.some((each) => typeof each !== 'object' && /^$|,|^\s|\s$/.test(String(each)));
    if (COMMA_LISTS.has(path.at(-1) ?? '') && !hasCommas && choose() < 0.5) return [pair(path, value.join(','))];
    return value.flatMap((each, position) => bracket([...path, String(position)], each, choose));
  }
  if (value === null || typeof value !== 'object') return [pair(path, value)];
  return Object.entries(value).flatMap(([key, below]) => bracket([...path, key], below, choose));
}

function pair([first = '', ...rest]: readonly string[], value: unknown): string {
  const keys = rest.map((key) => `[${encodeURIComponent(key)}]`).join('');
  return `${encodeURIComponent(first)}${keys}=${encodeURIComponent(String(value))}`;
}
