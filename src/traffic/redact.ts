/**
 * Replaces the values of a recording. Numbers, dates, UUIDs and keys of items are swapped with other recorded values of the same place that
 * come about as often, so that they still find rows. Other texts become texts of the same length and the same kinds of characters. Equal
 * values of a place stay equal, and shapes stay as they are.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { Digits, isObject, parseJson, readNumber, writeJson } from '../base/exact-json.js';
import { groupBy } from '../base/narrow.js';
import type { RecordedRequest } from './traffic-file.js';

/** Returns the value that replaces the given one at a place, such as `/items/film title _eq`. */
type Replace = (place: string, value: string) => string;

/** To be given all requests first (`learn`), then each of them again. */
export class Redactor {
  readonly #key = randomBytes(32);
  /** How often each value comes, by place. */
  readonly #counts = new Map<string, Map<string, number>>();
  readonly #replacements = new Map<string, ReadonlyMap<string, string>>();

  learn(request: RecordedRequest): void {
    rewrite(request, (place, value) => {
      const counts = this.#counts.get(place) ?? new Map<string, number>();
      this.#counts.set(place, counts.set(value, (counts.get(value) ?? 0) + 1));
      return value;
    });
  }

  redact(request: RecordedRequest): RecordedRequest {
    return rewrite(request, (place, value) => {
      if (!isSwapped(place, value)) return this.#invented(value);
      const known = this.#replacements.get(place) ?? this.#swapped(place);
      this.#replacements.set(place, known);
      return known.get(value) ?? value;
    });
  }

  /** Each value becomes the next one of its kind that comes about as often; one that is alone in its class, any of its kind. */
  #swapped(place: string): ReadonlyMap<string, string> {
    const swapped = new Map<string, string>();
    const values = [...(this.#counts.get(place) ?? [])].filter(([value]) => isSwapped(place, value));
    for (const group of groupBy(values, ([value]) => kindOf(value)).values()) {
      const classes = [...groupBy(group, ([, count]) => String(Math.floor(Math.log2(count)))).values()];
      const alone = classes.filter(({ length }) => length === 1).flat();
      for (const each of [...classes.filter(({ length }) => length > 1), alone]) {
        const order = each.map(([value]) => value).sort((one, other) => this.#rank(one) - this.#rank(other));
        for (const [position, value] of order.entries())
          swapped.set(value, order[(position + 1) % order.length] ?? value);
      }
    }
    return swapped;
  }

  #rank(value: string): number {
    return this.#digest(value).readUInt32BE();
  }

  #invented(value: string): string {
    const random = this.#digest(value);
    let position = 0;
    const pick = (from: string): string => {
      // The digest is used again and again: what matters is that equal texts stay equal.
      const byte = random[position++ % random.length] ?? 0;
      return from[(byte + position) % from.length] ?? '';
    };
    return value.replace(/[a-z]|[A-Z]|\d|[^\x20-\x7e]/g, (character) => {
      if (/\d/.test(character)) return pick('0123456789');
      return /[A-Z]/.test(character) ? pick('ABCDEFGHIJKLMNOPQRSTUVWXYZ') : pick('abcdefghijklmnopqrstuvwxyz');
    });
  }

  #digest(value: string): Buffer {
    return createHmac('sha256', this.#key).update(value).digest();
  }
}

const NUMBER = /^[-+]?[\d.,]+(?:e[-+]?\d+)?$/i;
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const MOMENT = /^\d{4}-\d\d-\d\d(?:[T ][\d:.+Z-]*)?$|^\d\d:\d\d(?::[\d.]+)?$/;

function kindOf(value: string): string {
  if (NUMBER.test(value)) return 'number';
  if (UUID.test(value)) return 'uuid';
  return MOMENT.test(value) ? 'moment' : 'text';
}

/** The place of keys: they have to find rows. */
const KEY_PLACE = ' key';

function isSwapped(place: string, value: string): boolean {
  return place.endsWith(KEY_PLACE) || kindOf(value) !== 'text';
}

/** Values with a meaning for the service. */
const KEYWORD = /^(?:|true|false|null|\$[A-Z_]+(?:\(.*\))?(?:\..*)?)$/s;

function rewrite(request: RecordedRequest, replace: Replace): RecordedRequest {
  if (request.omitted !== undefined) return request;
  const { path, query, body } = request;
  const [resource] = splitPath(path);
  if (query !== undefined && /(?:^|&)cursor=[^&]/.test(query)) return withoutValues(request, resource);
  const visit = visitorOf(resource, replace);
  return {
    ...request,
    path: rewritePath(path, visit),
    ...(query === undefined ? {} : { query: rewriteQuery(query, visit) }),
    ...(body === undefined ? {} : { body: rewriteBody(body, request, replace) }),
  };
}

/** The places of values are those of a resource. */
function visitorOf(resource: string, replace: Replace): Replace {
  return (place, value) => (KEYWORD.test(value) ? value : replace(`${resource}${place}`, value));
}

function rewritePath(path: string, visit: Replace): string {
  const [resource, key] = splitPath(path);
  return key === '' ? path : `${resource}/${encodeURIComponent(visit(KEY_PLACE, decode(key)))}`;
}

/** The cursor of a page holds values of its last item, and one with others is not valid. */
function withoutValues(request: RecordedRequest, path: string): RecordedRequest {
  const { query: _query, body: _body, ...others } = request;
  return { ...others, path, omitted: 'cursor' };
}

/** `/items/film/7` is `/items/film` and `7`, `/users/7` is `/users` and `7`. */
function splitPath(path: string): readonly [resource: string, key: string] {
  const [, first = '', second = '', ...rest] = path.split('/');
  if (first === 'items') return [`/${first}/${second}`, rest.join('/')];
  if (first === 'rpc' || second === '' || second === 'me') return [path, ''];
  return [`/${first}`, [second, ...rest].join('/')];
}

/** Parameters whose values are names and numbers of the API. Those of nested relations begin with an underscore. */
const STRUCTURE =
  /^_?(?:fields|sort|limit|offset|page|groupBy|group|aggregate|alias|meta|export|format|version|on_conflict|resolution|count|envelope|operationName|extensions|geometry)$/;
/** Operators whose values the URL separates by commas. */
const LIST = /^_n?(?:in|between)$/;

function rewriteQuery(query: string, visit: Replace): string {
  const [, document = ''] = /(?:^|&)query=([^&]*)/.exec(query) ?? [];
  const structural = structuralVariables(decode(document.replaceAll('+', ' ')));
  return query
    .split('&')
    .map((parameter) => {
      const at = parameter.indexOf('=');
      if (at < 0) return parameter;
      const names = decode(parameter.slice(0, at))
        .split(/[[\]]+/)
        .filter((name) => name !== '' && !/^\d+$/.test(name));
      const text = decode(parameter.slice(at + 1).replaceAll('+', ' '));
      if (names.some((name) => STRUCTURE.test(name))) return parameter;
      const variables = names[0] === 'variables' ? parse(text) : undefined;
      if (isObject(variables))
        return `variables=${encodeURIComponent(writeJson(rewriteVariables(variables, structural, visit)))}`;
      return `${parameter.slice(0, at)}=${encodeURIComponent(rewriteText(text, names, visit))}`;
    })
    .join('&');
}

function rewriteText(text: string, names: readonly string[], visit: Replace): string {
  if (names[0] === 'query' && /[{]/.test(text)) return rewriteDocument(text, visit);
  const value = /^\s*[{[]/.test(text) ? parse(text) : undefined;
  if (value !== undefined) return writeJson(rewriteValue(value, names, visit));
  const place = ` ${names.join(' ')}`;
  return LIST.test(names.at(-1) ?? '')
    ? text
        .split(',')
        .map((each) => visit(place, each))
        .join(',')
    : visit(place, text);
}

function rewriteBody(body: string, { path, method }: RecordedRequest, replace: Replace): string {
  const value = parse(body);
  if (value === undefined) return body;
  const [resource] = splitPath(path);
  const visit = visitorOf(resource, replace);
  if (resource === '/graphql' && isObject(value)) return writeJson(rewriteGraphql(value, visit));
  if (resource === '/transactions' && isObject(value) && Array.isArray(value['operations'])) {
    const operations = value['operations'].map((each) => rewriteOperation(each, replace));
    return writeJson({ ...Object(rewriteValue({ ...value, operations: [] }, [], visit, NOTHING)), operations });
  }
  // Other methods send items, in which all names are fields.
  const isQuery = method === 'SEARCH';
  return writeJson(rewriteValue(value, [], visit, isQuery ? STRUCTURE : NOTHING));
}

/** An operation of a transaction is like a request: method, path, key and body. */
function rewriteOperation(operation: unknown, replace: Replace): unknown {
  const { method, path, key, body, if_match: tag, ...others } = isObject(operation) ? operation : { others: operation };
  const [route = '', query] = typeof path === 'string' ? path.split(/\?(.*)/s, 2) : [];
  const visit = visitorOf(splitPath(route)[0], replace);
  const url = query === undefined ? '' : `?${rewriteQuery(query, visit)}`;
  return {
    ...Object(rewriteValue(others, [], visit, NOTHING)),
    ...(method === undefined ? {} : { method }),
    ...(path === undefined ? {} : { path: `${rewritePath(route, visit)}${url}` }),
    ...(key === undefined ? {} : { key: rewriteValue(key, [], visit, REFERENCE) }),
    ...(tag === undefined ? {} : { if_match: tag }),
    ...(body === undefined ? {} : { body: rewriteValue(body, [], visit, REFERENCE) }),
  };
}

/** `{"$ref": "0"}` is the key that another operation creates. */
const REFERENCE = /^\$ref$/;

function rewriteGraphql(body: Readonly<Record<string, unknown>>, visit: Replace): Record<string, unknown> {
  const { query, variables, ...others } = body;
  const structural = structuralVariables(typeof query === 'string' ? query : '');
  return {
    ...(typeof query === 'string' ? { query: rewriteDocument(query, visit) } : {}),
    ...(isObject(variables) ? { variables: rewriteVariables(variables, structural, visit) } : {}),
    ...Object(rewriteValue(isObject(variables) ? others : { ...others, variables }, [], visit)),
  };
}

/** Variables of a document that are the values of arguments such as `limit`. */
function structuralVariables(document: string): ReadonlySet<string> {
  const uses = [...document.matchAll(/(\w+)\s*:\s*\[?\s*\$(\w+)/g)];
  return new Set(uses.flatMap(([, name = '', variable = '']) => (STRUCTURE.test(name) ? [variable] : [])));
}

const PAGING = /^(?:limit|offset|page)$/;

/** The names inside of a variable are those of fields and operators. */
function rewriteVariables(
  variables: Readonly<Record<string, unknown>>,
  structural: ReadonlySet<string>,
  visit: Replace,
): Record<string, unknown> {
  const isKept = (name: string, value: unknown): boolean =>
    structural.has(name) || (PAGING.test(name) && typeof value !== 'string');
  return Object.fromEntries(
    Object.entries(variables).map(([name, value]) => [
      name,
      isKept(name, value) ? value : rewriteValue(value, ['variables', name], visit, NOTHING),
    ]),
  );
}

const NOTHING = /^(?!)/;

/** Keys of items stand alone in a list. */
function rewriteValue(value: unknown, names: readonly string[], visit: Replace, structure = STRUCTURE): unknown {
  if (Array.isArray(value)) return value.map((each) => rewriteValue(each, names, visit, structure));
  if (isObject(value))
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [
        name,
        structure.test(name) ? each : rewriteValue(each, [...names, name], visit, structure),
      ]),
    );
  const isKey = names.length === 0 || (names.length === 1 && names[0] === 'keys');
  const place = isKey ? KEY_PLACE : ` ${names.join(' ')}`;
  if (typeof value === 'string') return visit(place, value);
  return typeof value === 'number' || value instanceof Digits ? readNumber(visit(place, String(value))) : value;
}

const TOKEN = /"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*|[A-Za-z_]\w*|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|:/g;

/** Strings and numbers of a GraphQL document, by the name of the argument or field that they are for. */
function rewriteDocument(text: string, visit: Replace): string {
  let [last, name] = ['', ''];
  return text.replace(TOKEN, (token) => {
    if (token === ':') name = last;
    else if (/^[A-Za-z_]/.test(token)) last = token;
    else if (STRUCTURE.test(name) || token.startsWith('#')) return token;
    else if (!token.startsWith('"')) return visit(` ${name}`, token);
    else {
      const value = token.startsWith('"""') ? token.slice(3, -3) : parse(token);
      return typeof value === 'string' ? JSON.stringify(visit(` ${name}`, value)) : token;
    }
    return token;
  });
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns undefined if it is not valid JSON. */
function parse(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
