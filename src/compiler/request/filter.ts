/**
 * Filters. An object says what must hold of a row; its keys are fields, relations, functions of fields, `_and` and `_or`.
 * Below a field they are operators. Which names exist, and which operator suits which field, is the planner's business.
 */

import { invalidQuery, tooManyRelations } from '../../base/errors.js';
import { Digits, isObject, parseJson, writeJson } from '../../base/exact-json.js';
import { isOneOf, onlyOf } from '../../base/narrow.js';
import type { Scalar } from '../sql/codec.js';
import { shapeText } from '../sql/geojson.js';
import { isNow } from '../sql/now.js';
import {
  AGGREGATES,
  ARRAY_OPERATORS,
  CALLER_VARIABLES,
  type CallerVariable,
  type Filter,
  GEOMETRY_OPERATORS,
  type JsonFilter,
  LIST_OPERATORS,
  OPERATORS,
  type Operand,
  type Operator,
  TEST_OPERATORS,
} from './ast.js';
import { isQuoted, parseExpression, parseJsonPath, unquoteName } from './expression.js';
import {
  asJson,
  checkObject,
  contextOf,
  type Input,
  type ParseContext,
  readIndexedList,
  readObject,
} from './parse-context.js';

/** A place in a filter: the relations that lead to it, and the field above it for messages, or null at the root. */
interface Place extends ParseContext {
  readonly depth: number;
  readonly owner: string | null;
}

export function parseFilter(input: Input, context: ParseContext): Filter {
  return parseObject(input, { ...context, depth: context.depth ?? 0, owner: null });
}

/** Operators, or a whole filter of what the field leads to. */
function parseObject(input: unknown, place: Place): Filter {
  const { limits, depth, owner } = place;
  if (depth > limits.relationalDepth) throw tooManyRelations(limits.relationalDepth);
  if (Array.isArray(input)) throw invalidQuery(`The filter of "${owner ?? 'root'}" must be an object, not a list`);
  if (!isObject(input)) {
    if (owner === null) throw invalidQuery('A filter must be an object');
    return parseOperator('eq', input, place, owner);
  }
  const filters = Object.entries(input).map(([key, value]) => parseEntry(key, value, place));
  return onlyOf(filters) ?? { kind: 'and', filters };
}

function parseEntry(key: string, value: unknown, place: Place): Filter {
  const { depth, owner } = place;
  const parseBelow = (): Filter => parseObject(value, { ...place, depth: depth + 1, owner: key });
  place.values.count(1);
  if (isQuoted(key)) return { kind: 'field', name: unquoteName(key, 'filter'), filter: parseBelow() };
  switch (key) {
    case '_and':
    case '_or':
      return { kind: key === '_and' ? 'and' : 'or', filters: parseBranches(key, value, place) };
    case '_some':
    case '_none':
      if (owner === null) throw invalidQuery(`"${key}" needs a relation above it`);
      return { kind: key === '_some' ? 'some' : 'none', filter: parseObject(checkObject(value, key), place) };
    case '_json':
      if (owner === null) throw invalidQuery('"_json" needs a field above it');
      return { kind: 'json', filter: parseJsonFilter(readCondition(value, '_json'), contextOf(value, place)) };
    case '_length':
      if (owner === null) throw invalidQuery('"_length" needs a field above it');
      return { kind: 'length', filter: parseObject(value, { ...place, owner: `_length of ${owner}` }) };
  }
  if (key.startsWith('$FOLLOW(')) return { kind: 'follow', arguments: followed(key), filter: parseBelow() };
  if (key === '_regex' || key === '_submitted') return parsePayloadOperator(key, value, place);
  const operator = key.slice(1);
  if (key.startsWith('_') && isOperator(operator)) {
    if (owner === null) throw invalidQuery(`The operator "${key}" needs a field above it`);
    return parseOperator(operator, value, place, owner);
  }
  if (!key.includes('(')) return { kind: 'field', name: key, filter: parseBelow() };
  const expression = parseExpression(key, 'filter', place);
  if (!expression.call) throw invalidQuery(`Invalid filter key "${key}"`);
  return { kind: 'function', expression, filter: parseBelow() };
}

/** A pattern may be written as in JavaScript: `/^[a-z]+$/`. */
function parsePayloadOperator(key: string, value: unknown, { payload, values, owner }: Place): Filter {
  if (!payload || owner === null) throw invalidQuery(`"${key}" can only be used in validations`);
  if (key === '_submitted') return compare('submitted', null);
  if (typeof value !== 'string' || value === '') throw invalidQuery(`"_regex" of "${owner}" needs a pattern`);
  const [, bare, flags] = /^\/(.*)\/([a-z]*)$/s.exec(value) ?? [null, value, ''];
  const pattern = flags?.includes('i') ? `(?i)${bare}` : String(bare);
  return compare('regex', { kind: 'slot', slot: values.add(pattern) });
}

function readFilters(input: unknown, key: string, context: ParseContext): readonly unknown[] {
  const list = readIndexedList(input, context);
  if (!list) throw invalidQuery(`"${key}" must be a list of filters`);
  return list;
}

/** The filters below `_and` or `_or`, which is the key. */
function branches<Branch>(
  key: '_and' | '_or',
  input: unknown,
  context: ParseContext,
  parse: (filter: Input, context: ParseContext) => Branch,
): { kind: 'and' | 'or'; filters: Branch[] } {
  const filters = readFilters(input, key, context).map((each) => parse(checkObject(each, key), context));
  return { kind: key === '_and' ? 'and' : 'or', filters };
}

/** An object, or its JSON text as URLs carry it. */
function readCondition(input: unknown, key: string): Input {
  return typeof input === 'string' && input.trim() !== '' ? readObject(input, key) : checkObject(input, key);
}

function parseBranches(key: string, input: unknown, place: Place): Filter[] {
  return readFilters(input, key, place).map((each) => {
    if (place.owner === null && (each === null || typeof each !== 'object'))
      throw invalidQuery(`"${key}" must be a list of filters`);
    return parseObject(each, place);
  });
}

/** `$FOLLOW(collection, field)` or `$FOLLOW(collection, itemField, collectionField)`: rows elsewhere that point here. */
function followed(key: string): string[] {
  const match = /^\$FOLLOW\(([^()]*)\)$/.exec(key);
  const names = match?.[1]?.split(',').map((each) => each.trim()) ?? [];
  if (key.length > 500 || names.length < 2 || names.length > 3 || names.includes(''))
    throw invalidQuery('"$FOLLOW" takes a collection and one or two of its fields, in at most 500 characters');
  return names;
}

const KNOWN_OPERATORS: ReadonlySet<string> = new Set(OPERATORS);

function isOperator(name: string): name is Operator {
  return KNOWN_OPERATORS.has(name);
}

const OPPOSITES: Readonly<Record<string, Operator>> = {
  null: 'nnull',
  nnull: 'null',
  empty: 'nempty',
  nempty: 'empty',
};

function parseOperator(operator: Operator, input: unknown, context: ParseContext, owner: string): Filter {
  if (isOneOf(TEST_OPERATORS, operator)) return compare(parseTest(operator, input, context, owner), null);
  if (isOneOf(LIST_OPERATORS, operator) || isOneOf(ARRAY_OPERATORS, operator))
    return compare(operator, parseListOperand(operator, input, context, owner));
  if (isOneOf(GEOMETRY_OPERATORS, operator)) return compare(operator, parseShape(input, context, owner));
  if (operator === 'dwithin') return compare(operator, parseDistance(input, context, owner));
  if (operator === 'fts' && isObject(input)) return parseFullText(input, context, owner);
  const isNull = plain(input, context) === null;
  if (isNull && operator === 'eq') return compare('null', null);
  if (isNull && operator === 'neq') return compare('nnull', null);
  return compare(operator, parseOperand(input, context, owner));
}

/** `{query, config}`: a configuration says how the words of a language are read. */
function parseFullText({ query, config, ...rest }: Input, context: ParseContext, owner: string): Filter {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidQuery(`"_fts" of "${owner}" takes "query" and "config", not "${unknown}"`);
  if (typeof query !== 'string') throw invalidQuery(`"_fts" of "${owner}" needs a string as "query"`);
  if (config === undefined) return compare('fts', parseOperand(query, context, owner));
  if (typeof config !== 'string' || config.length > 130)
    throw invalidQuery(`"config" in "_fts" of "${owner}" must be the name of a text search configuration`);
  return { kind: 'compare', operator: 'fts', value: parseOperand(query, context, owner), configuration: config };
}

function compare(operator: Operator, value: Operand): Filter {
  return { kind: 'compare', operator, value };
}

/** The value of `_null` and its kin is true or false, which asks for the opposite; a URL may leave it out. */
function parseTest(operator: Operator, input: unknown, { typed = false }: ParseContext, owner: string): Operator {
  const value = input instanceof Digits ? Number(input) : plain(input);
  if (value === true || value === 1 || value === '1' || (value === '' && !typed)) return operator;
  if (value === false || value === 0 || value === '0') return OPPOSITES[operator] ?? operator;
  throw invalidQuery(`"_${operator}" of "${owner}" must be true or false`);
}

function parseListOperand(operator: Operator, input: unknown, context: ParseContext, owner: string): Operand {
  if (plain(input, context) === null)
    throw invalidQuery(
      `"_${operator}" of "${owner}" needs a list of values, not null: use "_null" for items without one`,
    );
  let list: readonly unknown[];
  let entries = context;
  if (typeof input === 'string') {
    const variable = input.includes(',') ? null : parseVariable(input.trim());
    if (variable) return variableOperand(variable, context);
    const elements = isOneOf(ARRAY_OPERATORS, operator) && !context.typed ? jsonList(input) : null;
    if (elements) entries = asJson(context);
    list = elements ?? input.split(',').map((each) => each.trim());
  } else list = readIndexedList(input, context) ?? [input];
  const values = list.map((each) => scalar(each, entries, owner));
  if (values.length === 0 || (values.length === 1 && values[0] === ''))
    throw invalidQuery(`"_${operator}" of "${owner}" needs a list of values`);
  if (operator.endsWith('between') && values.length !== 2)
    throw invalidQuery(`"_${operator}" of "${owner}" needs exactly two values`);
  const only = values[0];
  if (values.length === 1 && typeof only === 'string') {
    const variable = parseVariable(only);
    if (variable) return variableOperand(variable, context);
  }
  const bound = values.map((each) => (typeof each === 'string' ? (dynamic(each, owner) ?? each) : each));
  return { kind: 'slot', slot: context.values.add(bound) };
}

/** The elements of an array that a URL writes as JSON; null for other texts. */
function jsonList(text: string): readonly unknown[] | null {
  if (!text.startsWith('[')) return null;
  try {
    const value = parseJson(text);
    return Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** In a list of several entries a variable stands for one value. */
function dynamic(text: string, owner: string): { variable: string } | null {
  const variable = parseVariable(text);
  if (!variable) return null;
  if (variable.kind === 'path') throw invalidQuery(`"${text}" cannot be in a list of "${owner}" with other values`);
  return { variable: variable.text };
}

function parseShape(input: unknown, context: ParseContext, owner: string): Operand {
  return { kind: 'slot', slot: context.values.add(readShape(input, owner)) };
}

/** The text of a GeoJSON object or EWKT. */
function readShape(input: unknown, owner: string): string {
  const text = typeof input === 'string' && !input.trimStart().startsWith('{') ? shapeText(input) : null;
  return text ?? jsonText(readCondition(input, owner), owner);
}

/** `{geometry, distance}`: a list of two values. */
function parseDistance(input: unknown, context: ParseContext, owner: string): Operand {
  const { geometry, distance, ...rest } = readCondition(input, `_dwithin of ${owner}`);
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined)
    throw invalidQuery(`"_dwithin" of "${owner}" takes "geometry" and "distance", not "${unknown}"`);
  const isNumber = typeof distance === 'number' || distance instanceof Digits || /^[\d.]+$/.test(String(distance));
  const number = isNumber ? Number(distance) : Number.NaN;
  if (!Number.isFinite(number) || number < 0)
    throw invalidQuery(`"_dwithin" of "${owner}" needs a non-negative number as "distance"`);
  if (geometry === undefined) throw invalidQuery(`"_dwithin" of "${owner}" needs GeoJSON as "geometry"`);
  const shape = { json: readShape(geometry, owner) };
  return { kind: 'slot', slot: context.values.add([shape, number]) };
}

function parseOperand(value: unknown, context: ParseContext, owner: string): Operand {
  const checked = scalar(value, context, owner);
  if (checked === '')
    throw invalidQuery(
      `The filter of "${owner}" needs a value: use "_empty" for an empty string, "_null" for no value`,
    );
  const variable = typeof checked === 'string' ? parseVariable(checked) : null;
  return variable ? variableOperand(variable, context) : { kind: 'slot', slot: context.values.add(checked) };
}

function variableOperand(variable: FilterVariable, context: ParseContext): Operand {
  if (variable.kind === 'path') {
    return { kind: 'variable', variable: variable.name, path: variable.path };
  }
  return { kind: 'slot', slot: context.values.add({ variable: variable.text }) };
}

function scalar(input: unknown, context: ParseContext, owner: string): Scalar {
  const value = plain(input, context);
  if (typeof value === 'string') return context.typed ? value : urlText(value);
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number' && Math.abs(value) <= Number.MAX_SAFE_INTEGER) return value;
  if (typeof value === 'object' && value !== null) return { json: jsonText(value, owner) };
  if (value === null)
    throw invalidQuery(`The filter of "${owner}" compares with null: use "_null" or "_nnull" instead`);
  throw invalidQuery(`The filter of "${owner}" has no value, or a number that JSON cannot hold exactly`);
}

/** A list or an object as JSON, where the type of the field has such; elsewhere the text itself. */
export function urlText(text: string): Scalar {
  if (!text.startsWith('[') && !text.startsWith('{')) return text;
  try {
    JSON.parse(text);
    return { json: text, text };
  } catch {
    return text;
  }
}

function jsonText(value: object, owner: string): string {
  try {
    return writeJson(value);
  } catch {
    throw invalidQuery(`The filter of "${owner}" has a value that is nested too deeply`);
  }
}

/** URLs hold only strings: these four stand for values of JSON, and for themselves between double quotes. In JSON a string is a string. */
function plain(value: unknown, { typed = false }: { readonly typed?: boolean } = {}): unknown {
  if (typed) return value;
  switch (value) {
    case 'true':
      return true;
    case 'false':
      return false;
    case 'null':
    case 'NULL':
      return null;
    case '"true"':
    case '"false"':
    case '"null"':
    case '"NULL"':
      return value.slice(1, -1);
    default:
      return value;
  }
}

const ORDERED: ReadonlySet<Operator> = new Set(['lt', 'lte', 'gt', 'gte', 'between', 'nbetween']);

/** Keys are paths into the value; numbers compare as numbers, everything else as text. */
function parseJsonFilter(input: Input, context: ParseContext): JsonFilter {
  const filters: JsonFilter[] = [];
  for (const [key, value] of Object.entries(input)) {
    context.values.count(1);
    if (key === '_and' || key === '_or') {
      filters.push(branches(key, value, context, parseJsonFilter));
      continue;
    }
    const path = context.values.add(parseJsonPath(key, context));
    const operators = isObject(value) ? value : { _eq: value };
    for (const [name, operand] of Object.entries(operators)) {
      const operator = name.slice(1);
      if (!isOperator(operator) || !name.startsWith('_'))
        throw invalidQuery(`"${name}" is not an operator for JSON paths`);
      const parsed = parseOperator(operator, operand, context, key);
      if (parsed.kind !== 'compare') throw new Error('an operator is a comparison');
      filters.push({
        kind: 'path',
        path,
        operator: parsed.operator,
        value: parsed.value,
        numeric: isNumeric(parsed.operator, operand),
      });
    }
  }
  return onlyOf(filters) ?? { kind: 'and', filters };
}

/** URLs carry numbers as texts: an order among digits means numbers. */
function isNumeric(operator: Operator, operand: unknown): boolean {
  const values = Array.isArray(operand) ? operand : typeof operand === 'string' ? operand.split(',') : [operand];
  const isCompared = ORDERED.has(operator) || ['eq', 'neq', 'in', 'nin'].includes(operator);
  if (isCompared && values.every((each) => typeof each === 'number' || each instanceof Digits)) return true;
  return ORDERED.has(operator) && values.every((each) => /^-?\d+(\.\d+)?$/.test(String(each)));
}

/** `{count: {_gt: 1}, sum: {price: {_lt: 9}}}`: aggregates take the place of fields. */
export function parseHaving(input: Input, context: ParseContext): Filter {
  const filters = Object.entries(input).map(([key, value]): Filter => {
    context.values.count(1);
    if (key === '_and' || key === '_or') return branches(key, value, context, parseHaving);
    if (!isOneOf(AGGREGATES, key)) throw invalidQuery(`Unknown aggregate function "${key}" in "having"`);
    const place = { ...context, depth: context.depth ?? 0, owner: key };
    return { kind: 'field', name: key, filter: parseObject(value, place) };
  });
  return onlyOf(filters) ?? { kind: 'and', filters };
}

/** A value that is known only when the statement is bound (the time, the caller), or a field of the caller, which is part of it. */
type FilterVariable =
  | { readonly kind: 'value'; readonly text: string }
  | { readonly kind: 'path'; readonly name: CallerVariable; readonly path: readonly string[] };

export function parseVariable(text: string): FilterVariable | null {
  if (!text.startsWith('$')) return null;
  if (isNow(text)) return { kind: 'value', text };
  const [name = '', ...path] = text.split('.');
  if (!isOneOf(CALLER_VARIABLES, name) || path.includes('')) return null;
  return path.length === 0 ? { kind: 'value', text } : { kind: 'path', name, path };
}
