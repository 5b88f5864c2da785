/** The query string of a REST request becomes the request AST. */
import qs from 'qs';
import { invalidQuery } from '../errors.js';
import type { Limit, Parsed, Query, ReadRequest, SortKey } from './ast.js';
import { parseList, parsePath, selectionOf } from './path.js';
import { ValueList } from './values.js';

export interface ParseLimits {
  readonly relationalDepth: number;
  readonly bracketDepth: number;
  readonly arrayLength: number;
  /** Highest `limit`; null when there is none. */
  readonly pageSize: number | null;
}

/** `key` is the item's key of a single read, null for a list. */
export function parseRead(collection: string, key: string | null, queryString: string, limits: ParseLimits): Parsed {
  const values = new ValueList();
  const target = key === null ? ({ kind: 'list' } as const) : ({ kind: 'item', key: values.add(key) } as const);
  const query = parseQuery(readQueryString(queryString, limits), values, limits);
  const request: ReadRequest = { kind: 'read', collection, target, query };
  return { request, values: values.done(), shape: JSON.stringify(request) };
}

function readQueryString(queryString: string, limits: ParseLimits): Record<string, unknown> {
  if (queryString === '') return {};
  return qs.parse(queryString, { depth: limits.bracketDepth, arrayLimit: limits.arrayLength, parameterLimit: 10_000 });
}

const UNKNOWN_YET = ['filter', 'search', 'aggregate', 'groupBy', 'deep', 'alias', 'meta', 'export'];

function parseQuery(input: Record<string, unknown>, values: ValueList, limits: ParseLimits): Query {
  for (const name of UNKNOWN_YET) {
    if (input[name] !== undefined) throw invalidQuery(`"${name}" is not supported`);
  }
  return {
    fields: input.fields === undefined ? null : parseFields(input.fields, limits),
    sort: input.sort === undefined ? null : parseSort(input.sort, limits),
    limit: parseLimit(input.limit, values, limits),
    offset: parseCount(input.offset, 'offset', values),
    page: parseCount(input.page, 'page', values),
  };
}

function parseFields(input: unknown, limits: ParseLimits): Query['fields'] {
  const paths = parseList(input, 'fields').map((text) => parsePath(text, 'fields', limits.relationalDepth));
  return paths.length === 0 ? null : selectionOf(paths);
}

function parseSort(input: unknown, limits: ParseLimits): SortKey[] | null {
  const keys = parseList(input, 'sort').map((text) => {
    const descending = text.startsWith('-');
    return { path: parsePath(descending ? text.slice(1) : text, 'sort', limits.relationalDepth), descending };
  });
  return keys.length === 0 ? null : keys;
}

function parseLimit(input: unknown, values: ValueList, limits: ParseLimits): Limit | null {
  if (input === undefined || input === '') return null;
  if (input === '-1' || input === -1) {
    return limits.pageSize === null ? { kind: 'all' } : { kind: 'slot', slot: values.add(limits.pageSize) };
  }
  const limit = wholeNumber(input, 'limit');
  if (limits.pageSize !== null && limit > limits.pageSize) {
    throw invalidQuery(`"limit" is above QUERY_LIMIT_MAX (${limits.pageSize})`);
  }
  return { kind: 'slot', slot: values.add(limit) };
}

function parseCount(input: unknown, parameter: string, values: ValueList): number | null {
  if (input === undefined || input === '') return null;
  return values.add(wholeNumber(input, parameter));
}

function wholeNumber(input: unknown, parameter: string): number {
  const text = typeof input === 'number' || typeof input === 'string' ? String(input) : '';
  if (!/^\d{1,10}$/.test(text) || Number(text) > 2_147_483_647) {
    throw invalidQuery(`"${parameter}" has to be a whole number, zero or above`);
  }
  return Number(text);
}
