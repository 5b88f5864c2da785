/** The parameters of a query, as REST brackets or JSON give them, become the AST. `deep` holds the same with underscores. */

import { bytesOfBase64 } from '../../base/base64.js';
import { invalidQuery, tooManyRelations } from '../../base/errors.js';
import { Digits, isObject } from '../../base/exact-json.js';
import { isOneOf } from '../../base/narrow.js';
import { isLongerThan } from '../../base/utf8.js';
import {
  AGGREGATES,
  type Aggregate,
  type Alias,
  type Expression,
  type Filter,
  type MetaCount,
  type PageLimit,
  type Query,
  type Slot,
  type SortKey,
} from './ast.js';
import { isQuoted, parseExpression, parseFields, parseList, unquoteName } from './expression.js';
import { parseFilter, parseHaving } from './filter.js';
import { contextOf, type Input, type ParseContext, readObject } from './parse-context.js';

export function parseQuery(input: Input, context: ParseContext): Query {
  return parseLevel(input, '', context, context.depth ?? 0);
}

/** `prefix` is '_' inside deep. Names that no parameter has are ignored at the root, and are relations inside deep. */
function parseLevel(input: Input, prefix: '' | '_', parent: ParseContext, depth: number): Query {
  if (depth > parent.limits.relationalDepth) {
    throw tooManyRelations(parent.limits.relationalDepth);
  }
  const context = depth === (parent.depth ?? 0) ? parent : { ...parent, depth };
  const get = (name: string): unknown => {
    const value = input[prefix + name];
    return value === null ? undefined : value;
  };
  const fields = get('fields');
  const filter = get('filter');
  const having = get('having');
  const aggregate = get('aggregate');
  const groupBy = get('groupBy') ?? (prefix === '_' ? get('group') : undefined);
  const deep = prefix === '' ? readObject(get('deep'), 'deep') : input;
  const alias = parseAlias(get('alias'), context);
  return {
    fields: fields === undefined || prefix === '_' ? null : parseFields(fields, context),
    alias,
    filter: filter === undefined ? null : parseFilter(readObject(filter, 'filter'), contextOf(filter, context)),
    search: parseSearchTerm(get('search'), context),
    sort: parseSort(get('sort'), alias, context),
    limit: parseLimit(get('limit'), context),
    offset: parseCount(get('offset'), 'offset', context),
    // Page 0 is none: an offset then applies.
    page: isOneOf(['0', 0], get('page')) ? null : parseCount(get('page'), 'page', context),
    cursor: prefix === '' ? parseCursor(input['cursor'], context) : null,
    aggregate: aggregate === undefined ? null : parseAggregate(readObject(aggregate, 'aggregate'), context),
    groupBy: groupBy === undefined ? null : parseGroupBy(groupBy, context),
    having: having === undefined ? null : parseHavingFilter(having, context),
    groupFields: null,
    deep: deep === undefined ? [] : parseDeep(deep, prefix === '' ? contextOf(get('deep'), context) : context, depth),
    meta: prefix === '' ? parseMeta(get('meta')) : [],
    backlink: !isFalse(get('backlink')),
  };
}

/** Whether the value turns a switch off, in REST or JSON. Any other value turns it on. */
export function isFalse(value: unknown): boolean {
  return isOneOf(['false', '0', false, 0], value);
}

const DEEP_PARAMETERS: ReadonlySet<string> = new Set(
  [
    'fields',
    'alias',
    'filter',
    'search',
    'sort',
    'limit',
    'offset',
    'page',
    'aggregate',
    'groupBy',
    'group',
    'having',
    'backlink',
  ].map((name) => `_${name}`),
);

function parseDeep(input: Input, context: ParseContext, depth: number): Query['deep'] {
  const deep: { name: string; query: Query }[] = [];
  for (const [name, value] of Object.entries(input)) {
    if (depth > 0 && DEEP_PARAMETERS.has(name)) continue;
    if (isQuoted(name)) {
      const query = parseLevel(readObject(value, `deep.${name}`), '_', context, depth + 1);
      deep.push({ name: unquoteName(name, 'deep'), query });
      continue;
    }
    if (name.startsWith('_')) throw invalidQuery(`"${name}" is not a parameter of "deep"`);
    const isMisspelt = depth > 0 && DEEP_PARAMETERS.has(`_${name}`) && !isLevel(value);
    if (isMisspelt) throw invalidQuery(`"${name}" is not a relation: in "deep" write the parameter as "_${name}"`);
    deep.push({ name, query: parseLevel(readObject(value, `deep.${name}`), '_', context, depth + 1) });
  }
  return deep;
}

/** Whether it can be what `deep` says of a relation that has the name of a parameter; a few levels show it. */
function isLevel(value: unknown, levels = 3): boolean {
  if (value === null || levels === 0) return true;
  if (!isObject(value)) return false;
  const isKnown = ([name, inner]: [string, unknown]): boolean =>
    DEEP_PARAMETERS.has(name) || (!name.startsWith('_') && isLevel(inner, levels - 1));
  return Object.entries(value).every(isKnown);
}

function parseAlias(input: unknown, context: ParseContext): Alias[] {
  if (input === undefined) return [];
  return Object.entries(readObject(input, 'alias')).map(([name, value]) => {
    if (typeof value !== 'string' || value === '') throw invalidQuery(`The alias "${name}" must name a field`);
    if (name === '' || name.includes('.') || name === '*') throw invalidQuery(`"${name}" cannot be an alias`);
    if (isLongerThan(name, 63) || name.startsWith('%') || name.includes('\0')) {
      throw invalidQuery(`"${name}" cannot be an alias: at most 63 bytes, without a leading percent sign`);
    }
    const target = parseExpression(value, 'alias', context);
    if (target.path.length !== 1) throw invalidQuery(`The alias "${name}" cannot name a path`);
    return { name, target };
  });
}

/** A term is looked for in every field of every row of its level. */
const LONGEST_TERM = 1_024;
const MOST_TERMS = 10;

function parseSearchTerm(input: unknown, context: ParseContext): Slot | null {
  if (input === undefined) return null;
  if (typeof input !== 'string' && typeof input !== 'number' && !(input instanceof Digits))
    throw invalidQuery('"search" must be a string');
  const term = String(input).trim();
  if (term.includes('\0')) throw invalidQuery('"search" cannot contain a NUL character');
  if (term === '') return null;
  if (isLongerThan(term, LONGEST_TERM)) throw invalidQuery(`"search" is longer than ${LONGEST_TERM} bytes`);
  if (context.values.countTerm() > MOST_TERMS)
    throw invalidQuery(`"search" is used in more than ${MOST_TERMS} places of one request`);
  return context.values.add(term);
}

function parseSort(input: unknown, aliases: readonly Alias[], context: ParseContext): SortKey[] | null {
  if (input === undefined) return null;
  const keys = parseList(input, 'sort').map((text) => {
    const descending = text.startsWith('-');
    const expression = parseExpression(descending ? text.slice(1) : text, 'sort', context);
    return { expression: replaceAlias(expression, aliases), descending };
  });
  return keys.length === 0 ? null : keys;
}

/** A name that `alias` defines stands for its target, as it does in `fields`. */
function replaceAlias(expression: Expression, aliases: readonly Alias[]): Expression {
  const [first, ...rest] = expression.path;
  const target = aliases.find(({ name }) => name === first)?.target;
  if (!target) return expression;
  if (!target.call) return { ...expression, path: [...target.path, ...rest] };
  if (rest.length > 0 || expression.call)
    throw invalidQuery(`"${expression.text}" in "sort": the alias "${first}" is a function and has no fields`);
  return { ...target, text: expression.text };
}

const SMALL_PAGE = 100;

function parseLimit(input: unknown, context: ParseContext): PageLimit | null {
  if (input === undefined || input === '') return null;
  const { values, limits } = context;
  const most = limits.pageSize;
  const all = input === '-1' || input === -1;
  const every = Math.min(most ?? Number.POSITIVE_INFINITY, limits.selectedRows ?? Number.POSITIVE_INFINITY);
  if (all && every === Number.POSITIVE_INFINITY) return { kind: 'all' };
  const limit = all ? every : wholeNumber(input, 'limit');
  if (most !== null && limit > most)
    throw invalidQuery(`"limit" must be less than or equal to ${most}`, { option: 'QUERY_LIMIT_MAX', limit: most });
  if (limit <= Math.min(SMALL_PAGE, limits.wholeRows)) return { kind: 'constant', value: limit };
  return { kind: 'slot', slot: values.add(limit), large: limit > limits.wholeRows };
}

function parseCount(input: unknown, parameter: string, context: ParseContext): Slot | null {
  if (input === undefined || input === '') return null;
  return context.values.add(wholeNumber(input, parameter));
}

function wholeNumber(input: unknown, parameter: string): number {
  const number = input instanceof Digits ? Number(input) : input;
  const text = typeof number === 'number' || typeof number === 'string' ? String(number) : '';
  if (!/^\d{1,10}$/.test(text) || Number(text) > 2_147_483_647) {
    const all = parameter === 'limit' ? ', or -1 for all' : '';
    throw invalidQuery(`"${parameter}" must be a whole number, zero or above${all}`);
  }
  return Number(text);
}

/** A cursor is the list of the last row's sort values, as texts; clients hand it back as it came. */
function parseCursor(input: unknown, context: ParseContext): Query['cursor'] {
  if (input === undefined || input === null) return null;
  if (input === '') return 'first';
  if (typeof input === 'string' && /^[\w-]+$/.test(input)) {
    try {
      const list: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytesOfBase64(input)));
      if (
        Array.isArray(list) &&
        list.every((each) => each === null || (typeof each === 'string' && !each.includes('\0')))
      ) {
        return { slot: context.values.add(list as readonly string[]), nulls: list.map((each) => each === null) };
      }
    } catch {
      // The error below covers every cursor that the service did not issue.
    }
  }
  throw invalidQuery('"cursor" is not a cursor of this service');
}

function parseAggregate(input: Input, context: ParseContext): Aggregate[] | null {
  const aggregates: Aggregate[] = [];
  for (const [name, fields] of Object.entries(input)) {
    const aggregateFunction = AGGREGATES.find((each) => each === name);
    if (!aggregateFunction) throw invalidQuery(`Unknown aggregate function "${name}"`);
    for (const text of aggregateFunction === 'countAll' ? ['*'] : parseList(fields, `aggregate.${name}`)) {
      const field = text === '*' ? null : parseExpression(text, 'aggregate', context);
      if (!field && !aggregateFunction.startsWith('count')) throw invalidQuery(`"${name}" needs a field, not "*"`);
      if (field?.call) throw invalidQuery(`"${name}" takes fields, not functions`);
      aggregates.push({ function: aggregateFunction, field });
    }
  }
  return aggregates.length === 0 ? null : aggregates;
}

function parseGroupBy(input: unknown, context: ParseContext): Expression[] | null {
  const list = parseList(input, 'groupBy').map((text) => parseExpression(text, 'groupBy', context));
  return list.length === 0 ? null : list;
}

function parseHavingFilter(input: unknown, context: ParseContext): Filter {
  return parseHaving(readObject(input, 'having'), contextOf(input, context));
}

const COUNTS: readonly MetaCount[] = ['total_count', 'filter_count'];
const META: readonly MetaCount[] = [...COUNTS, 'estimated_count'];

function parseMeta(input: unknown): MetaCount[] {
  if (input === undefined) return [];
  const names = parseList(input, 'meta');
  const unknown = names.find((name) => name !== '*' && !isOneOf(META, name));
  if (unknown !== undefined) throw invalidQuery(`"meta" cannot be "${unknown}"`);
  // `*` means the exact counts: an estimate next to them is useless.
  return META.filter((meta) => names.includes(meta) || (names.includes('*') && isOneOf(COUNTS, meta)));
}
