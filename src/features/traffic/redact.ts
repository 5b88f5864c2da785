/**
 * Replaces the values of a recording. Numbers, dates, UUIDs and keys of items are swapped with other recorded values of the same place that
 * come about as often, so that they still find rows. Other texts become texts of the same length and the same kinds of characters. Equal
 * values of a place stay equal, and shapes stay as they are. A value is kept only where the grammar of requests has no data, as in
 * `limit=5`. A request that does not follow the grammar is recorded without values.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { Digits, isObject, parseJson, readNumber, writeJson } from '../../base/exact-json.js';
import { groupBy } from '../../base/narrow.js';
import { type ReadDocument, readDocument, type ValuePosition } from '../../compiler/graphql/document-values.js';
import { EXPORT_FORMATS } from '../../compiler/request/ast.js';
import { RESOLUTIONS } from '../../compiler/request/on-conflict.js';
import { isNow } from '../../compiler/sql/now.js';
import type { RecordedRequest } from './traffic-file.js';

interface Replacer {
  /** Returns the value that replaces the given one at a place, such as `/items/film title _eq`. */
  value(place: string, value: string): string;
  /** Returns another text of the same length. */
  text(value: string): string;
}

/** To be given all requests first (`learn`), then each of them again. */
export class Redactor {
  readonly #key = randomBytes(32);
  /** How often each value comes, by place. */
  readonly #counts = new Map<string, Map<string, number>>();
  readonly #replacements = new Map<string, ReadonlyMap<string, string>>();

  learn(request: RecordedRequest): void {
    rewrite(request, {
      value: (place, value) => {
        const counts = this.#counts.get(place) ?? new Map<string, number>();
        this.#counts.set(place, counts.set(value, (counts.get(value) ?? 0) + 1));
        return value;
      },
      text: (value) => value,
    });
  }

  redact(request: RecordedRequest): RecordedRequest {
    return rewrite(request, {
      value: (place, value) => {
        if (!isSwapped(place, value)) return this.#invented(value);
        const known = this.#replacements.get(place) ?? this.#swapped(place);
        this.#replacements.set(place, known);
        return known.get(value) ?? this.#invented(value);
      },
      text: (value) => this.#invented(value),
    });
  }

  /**
   * Each value becomes the next one of its kind that comes about as often; one that is alone in its class, any of its kind. One that is alone
   * in its place is invented.
   */
  #swapped(place: string): ReadonlyMap<string, string> {
    const swapped = new Map<string, string>();
    const values = [...(this.#counts.get(place) ?? [])].filter(([value]) => isSwapped(place, value));
    for (const group of groupBy(values, ([value]) => kindOf(value)).values()) {
      const classes = [...groupBy(group, ([, count]) => String(Math.floor(Math.log2(count)))).values()];
      const alone = classes.filter(({ length }) => length === 1).flat();
      for (const each of [...classes.filter(({ length }) => length > 1), alone]) {
        const order = each.map(([value]) => value).sort((one, other) => this.#rank(one) - this.#rank(other));
        for (const [position, value] of order.entries()) {
          const next = order[(position + 1) % order.length] ?? value;
          swapped.set(value, next === value ? this.#invented(value) : next);
        }
      }
    }
    return swapped;
  }

  #rank(value: string): number {
    return this.#digest(value).readUInt32BE();
  }

  #invented(value: string): string {
    const digest = this.#digest(value);
    switch (kindOf(value)) {
      case 'number':
        return inventNumber(value, digest);
      case 'moment':
        return inventMoment(value, digest);
      case 'uuid':
        return inventText(value, digest, '0123456789abcdef');
      default:
        return inventText(value, digest, LETTERS);
    }
  }

  #digest(value: string): Buffer {
    return createHmac('sha256', this.#key).update(value).digest();
  }
}

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[-+]?\d+)?$/i;
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const MOMENT =
  /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[-+]\d\d(?::?\d\d)?)?)?$|^\d\d:\d\d(?::\d\d(?:\.\d+)?)?$/;

function kindOf(value: string): 'number' | 'uuid' | 'moment' | 'text' {
  if (NUMBER.test(value)) return 'number';
  if (UUID.test(value)) return 'uuid';
  return MOMENT.test(value) ? 'moment' : 'text';
}

/** Another number with the same count of digits, which is smaller if that is possible: it fits the same types. */
function inventNumber(value: string, digest: Buffer): string {
  const [, sign = '', whole = '', fraction = '', exponent = ''] = /^(-?)(\d+)(?:\.(\d+))?(.*)$/.exec(value) ?? [];
  const digits = whole + fraction;
  const number = BigInt(digits);
  const least = 10n ** BigInt(String(number).length - 1);
  const random = BigInt(`0x${digest.toString('hex')}`);
  const invented = number > least ? least + (random % (number - least)) : number + 1n + (random % 8n);
  const text = String(invented).padStart(digits.length, '0');
  const [before, after] = [text.slice(0, text.length - fraction.length), text.slice(text.length - fraction.length)];
  return `${sign}${before}${fraction === '' ? '' : `.${after}`}${exponent}`;
}

/** Another day and time of the same form. The zone stays. */
function inventMoment(value: string, digest: Buffer): string {
  let position = 0;
  const other = (text: string, least: number, count: number): string => {
    const step = 1 + ((digest[position++] ?? 0) % (count - 1));
    return String(least + ((Number(text) - least + step) % count)).padStart(2, '0');
  };
  const day = /^(\d{4})-(\d\d)-(\d\d)/;
  const time = /(?<=^|[T ])(\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?/;
  return value
    .replace(day, (_, year, month, day) => `${year}-${other(month, 1, 12)}-${other(day, 1, 28)}`)
    .replace(time, (text: string, hour, minute, second) => {
      const fraction = text.slice(text.indexOf('.') < 0 ? text.length : text.indexOf('.'));
      const seconds = second === undefined ? '' : `:${other(second, 0, 60)}${inventText(fraction, digest, LETTERS)}`;
      return `${other(hour, 0, 24)}:${other(minute, 0, 60)}${seconds}`;
    });
}

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const DIGITS = '0123456789';

/** Each letter becomes another letter, and each digit another digit. Letters and digits share an alphabet if it has digits. */
function inventText(value: string, digest: Buffer, alphabet: string): string {
  let position = 0;
  return value.replace(/[A-Za-z]|\d|[^\x20-\x7e]/g, (character) => {
    const lower = character.toLowerCase();
    const from = /\d/.test(character) && !alphabet.startsWith(DIGITS) ? DIGITS : alphabet;
    // The digest is used again and again: what matters is that equal texts stay equal.
    const byte = digest[position++ % digest.length] ?? 0;
    const others = from.replace(lower, '');
    const other = others[(byte + position) % others.length] ?? '';
    return lower === character ? other : other.toUpperCase();
  });
}

/** The end of a place of keys: they have to find rows. */
const KEY_PLACE = ' key';

function isSwapped(place: string, value: string): boolean {
  return place.endsWith(KEY_PLACE) || kindOf(value) !== 'text';
}

/** The meaning of a value, by its position in a request. */
interface Role {
  /** A value of this form is kept. */
  readonly form?: RegExp;
  readonly isKey?: boolean;
  /** A request with a value is left out, for this reason. */
  readonly omission?: string;
  /** The role of a property. */
  readonly enter: (name: string) => Role;
}

const VALUE: Role = { enter: () => VALUE };
const KEY: Role = { isKey: true, enter: () => VALUE };
/** The cursor of a page holds values of its last item, and one with others is not valid. */
const CURSOR: Role = { omission: 'cursor', enter: () => CURSOR };

function kept(form: RegExp): Role {
  const role: Role = { form, enter: () => role };
  return role;
}

function oneOf(words: readonly string[]): Role {
  return kept(new RegExp(`^(?:${words.join('|')})$`));
}

/** Lists of fields, with functions and paths into JSON. */
const NAMES = kept(/^[\p{L}\p{M}\p{N}\p{Extended_Pictographic}_$*.,:()"\s[\]-]*$/u);
const COUNT = kept(/^(?:-1|\d{1,10})$/);
const FLAG = oneOf(['true', 'false', '0', '1']);
const DEEP: Role = {
  enter: (name) => (name.startsWith('_') ? (LEVEL.get(name.slice(1)) ?? VALUE) : DEEP),
};

/** Parameters of a level without data. */
const LEVEL: ReadonlyMap<string, Role> = new Map([
  ...['fields', 'alias', 'sort', 'aggregate', 'groupBy', 'group'].map((name) => [name, NAMES] as const),
  ...['limit', 'offset', 'page'].map((name) => [name, COUNT] as const),
  ['backlink', FLAG],
]);

const PARAMETERS: ReadonlyMap<string, Role> = new Map([
  ...[...LEVEL].filter(([name]) => name !== 'group'),
  ['deep', DEEP],
  ['cursor', CURSOR],
  ['version', KEY],
  ['meta', kept(/^(?:\*|(?:total|filter|estimated)_count|,)*$/)],
  ['export', oneOf(EXPORT_FORMATS)],
  ['geometry', NAMES],
  ['envelope', FLAG],
  ['on_conflict', NAMES],
  ['resolution', oneOf(RESOLUTIONS)],
]);

const ASSET_PARAMETERS: ReadonlyMap<string, Role> = new Map([
  ...['width', 'height', 'quality'].map((name) => [name, COUNT] as const),
  ...['withoutEnlargement', 'download'].map((name) => [name, FLAG] as const),
  ['fit', oneOf(['cover', 'contain', 'inside', 'outside'])],
  ['format', oneOf(['auto', 'jpg', 'jpeg', 'png', 'webp', 'avif', 'tiff'])],
]);

/** The arguments of a field of a GraphQL document. */
const ARGUMENTS: ReadonlyMap<string, Role> = new Map([
  ...['sort', 'limit', 'offset', 'page', 'groupBy', 'on_conflict', 'resolution', 'version'].map(
    (name) => [name, PARAMETERS.get(name) ?? VALUE] as const,
  ),
  ['id', KEY],
  ['ids', KEY],
]);

function named(roles: ReadonlyMap<string, Role>): Role {
  return { enter: (name) => roles.get(name) ?? VALUE };
}

/** The body of a SEARCH, and of a change of several items. Keys stand alone in a list. */
const SELECTING_BODY: Role = {
  isKey: true,
  ...named(
    new Map([
      ['query', named(PARAMETERS)],
      ['keys', KEY],
    ]),
  ),
};

/** Says why a request is recorded without values. */
class Omission {
  constructor(readonly reason: string) {}
}

const UNREADABLE = 'unreadable';

function rewrite(request: RecordedRequest, replacer: Replacer): RecordedRequest {
  if (request.omitted !== undefined) return request;
  const { path: _path, query: _query, body: _body, prefer: _prefer, accept: _accept, ...others } = request;
  try {
    return rewriteRequest(request, replacer);
  } catch (error) {
    if (!(error instanceof Omission)) throw error;
    return { ...others, path: templateOf(request.path), omitted: error.reason };
  }
}

const TEMPLATES: Readonly<Record<string, string>> = {
  items: '/items/:collection',
  rpc: '/rpc/:function',
  assets: '/assets/:id',
  graphql: '/graphql',
  transactions: '/transactions',
};

/** The route of a request, without names. */
function templateOf(path: string): string {
  const [, first = '', ...rest] = path.toLowerCase().split('/');
  return `${TEMPLATES[first] ?? '/:resource'}${first === 'items' && rest.length > 1 ? '/:key' : ''}`;
}

function rewriteRequest(request: RecordedRequest, replacer: Replacer): RecordedRequest {
  const { method, query, body } = request;
  const address = readPath(request.path);
  const rewriter = new Rewriter(address.resource, replacer);
  if (address.resource === '/graphql') return { ...request, ...rewriteGraphqlRequest(request, rewriter) };
  const parameters = address.resource === '/assets' ? ASSET_PARAMETERS : PARAMETERS;
  return {
    ...request,
    path: rewriter.path(address),
    ...(query === undefined ? {} : { query: rewriter.query(query, parameters) }),
    ...(body === undefined ? {} : { body: rewriteBody(body, method, address, rewriter) }),
  };
}

/** A path, with the segments that are data. */
interface Address {
  /** E.g. `/items/film`: the places of values are those of a resource. */
  readonly resource: string;
  readonly key: string | null;
  readonly fileName: string | null;
}

const NAME = /^[\p{L}_$"][\p{L}\p{M}\p{N}_$ .:()",*-]*$/u;

function readPath(path: string): Address {
  const [, first = '', ...rest] = path.replace(/\/$/, '').split('/').map(decode);
  const root = first.toLowerCase();
  const isNamed = root === 'items' || root === 'rpc';
  const resource = isNamed ? `/${root}/${rest.shift() ?? ''}` : `/${root}`;
  const most =
    root === 'items' ? 1 : root === 'assets' ? 2 : isNamed || root === 'graphql' || root === 'transactions' ? 0 : 1;
  const [key = null, fileName = null] = rest;
  const names = resource.slice(1).split('/');
  if (rest.length > most || !names.every((name) => NAME.test(name)) || names.length !== (isNamed ? 2 : 1))
    throw new Omission(UNREADABLE);
  return { resource, key, fileName };
}

function rewriteBody(body: string, method: string, { resource, key }: Address, rewriter: Rewriter): string {
  const value = parseOrOmit(body);
  if (resource !== '/transactions') return writeJson(rewriter.json(value, bodyRole(method, key !== null), []));
  const { operations, ...others } = isObject(value) ? value : {};
  if (!Array.isArray(operations)) throw new Omission(UNREADABLE);
  return writeJson({
    ...Object(rewriter.json(others, VALUE, [])),
    operations: operations.map((each) => rewriteOperation(each, rewriter.replacer)),
  });
}

function bodyRole(method: string, hasKey: boolean): Role {
  return method === 'POST' || hasKey ? VALUE : SELECTING_BODY;
}

/** An operation of a transaction is like a request: method, path, key and body. Its entity tag would not fit another item. */
function rewriteOperation(operation: unknown, replacer: Replacer): unknown {
  const { method, path, key, body, if_match: _tag, ...others } = isObject(operation) ? operation : {};
  if (typeof path !== 'string' || typeof method !== 'string') throw new Omission(UNREADABLE);
  const [route = '', query] = path.split(/\?(.*)/s, 2);
  const address = readPath(route);
  const rewriter = new Rewriter(address.resource, replacer);
  const url = query === undefined ? '' : `?${rewriter.query(query, PARAMETERS)}`;
  const role = bodyRole(method, address.key !== null || key !== undefined);
  return {
    ...Object(rewriter.json(others, VALUE, [])),
    method: /^[A-Z]{1,10}$/.test(method) ? method : replacer.text(method),
    path: `${rewriter.path(address)}${url}`,
    ...(key === undefined ? {} : { key: rewriter.json(key, KEY, []) }),
    ...(body === undefined ? {} : { body: rewriter.json(body, role, []) }),
  };
}

/** Operators whose values the URL separates by commas. */
const LIST = /^_n?(?:in|between)$/;

const KEYWORD = /^(?:|true|false|null|\$CURRENT_(?:USER|ROLE|ROLES|POLICIES)(?:\.[a-z_][\w.]{0,99})?)$/i;

/** Whether a value has a meaning for the service. */
function isKeyword(value: string): boolean {
  try {
    return KEYWORD.test(value) || isNow(value);
  } catch {
    return false;
  }
}

/** Rewrites the values of one resource. */
class Rewriter {
  constructor(
    private readonly resource: string,
    readonly replacer: Replacer,
  ) {}

  path({ resource, key, fileName }: Address): string {
    if (key === null) return encodeURI(resource);
    const own = key.toLowerCase() === 'me' && !resource.startsWith('/items/') ? key : this.leaf(key, KEY, []);
    const file = fileName === null ? '' : `/${encodeURIComponent(this.replacer.text(fileName))}`;
    return `${encodeURI(resource)}/${encodeURIComponent(own)}${file}`;
  }

  query(query: string, parameters: ReadonlyMap<string, Role>): string {
    return query
      .split('&')
      .map((parameter) => (parameter === '' ? '' : this.#parameter(parameter, parameters)))
      .join('&');
  }

  #parameter(parameter: string, parameters: ReadonlyMap<string, Role>): string {
    const [begin = '', text] = parameter.split(/=(.*)/s, 2);
    const name = decode(begin.replaceAll('+', ' '));
    const [first = '', ...rest] = name.split(/\]?\[|\]$/);
    const names = [first, ...rest].filter((each) => !/^\d*$/.test(each));
    const isWellFormed = /^[^[\]]+(?:\[[^[\]]*\])*$/.test(name) && names.every((each) => NAME.test(each));
    // Without a value, a name that is not known may be one.
    if (!isWellFormed || (text === undefined && !parameters.has(name))) throw new Omission(UNREADABLE);
    if (text === undefined) return begin;
    const role = names.slice(1).reduce((outer, each) => outer.enter(each), parameters.get(first) ?? VALUE);
    return `${begin}=${encodeURIComponent(this.#text(decode(text.replaceAll('+', ' ')), role, names))}`;
  }

  #text(text: string, role: Role, names: readonly string[]): string {
    const value = /^\s*[{[]/.test(text) ? parsed(text) : undefined;
    if (value !== undefined) return writeJson(this.json(value, role, names));
    if (!LIST.test(names.at(-1) ?? '')) return this.leaf(text, role, names);
    const list = text.split(',').map((each) => this.leaf(each, role, names));
    return list.join(',');
  }

  json(value: unknown, role: Role, names: readonly string[]): unknown {
    if (Array.isArray(value)) return value.map((each) => this.json(each, role, names));
    if (isReference(value)) return value;
    if (isObject(value))
      return Object.fromEntries(
        Object.entries(value).map(([name, each]) => {
          const own = NAME.test(name) ? name : this.replacer.text(name);
          return [own, this.json(each, role.enter(name), [...names, own])];
        }),
      );
    if (typeof value === 'string') return this.leaf(value, role, names);
    return typeof value === 'number' || value instanceof Digits
      ? readNumber(this.leaf(String(value), role, names))
      : value;
  }

  leaf(value: string, { form, isKey, omission }: Role, names: readonly string[]): string {
    if (isKeyword(value) || form?.test(value)) return value;
    if (omission !== undefined) throw new Omission(omission);
    const place = isKey
      ? `${[this.resource, ...names.filter((name) => name !== 'keys')].join(' ')}${KEY_PLACE}`
      : [this.resource, ...names].join(' ');
    return this.replacer.value(place, value);
  }
}

/** `{"$ref": "0"}` is the key that another operation of a transaction creates. */
function isReference(value: unknown): boolean {
  if (!isObject(value)) return false;
  const [[name, reference] = [], ...others] = Object.entries(value);
  return name === '$ref' && others.length === 0 && /^\d{1,2}(?:\.\d{1,4})?$/.test(String(reference));
}

/** The parts of a GraphQL request that may have values. The digest of a document would not fit another one. */
function rewriteGraphqlRequest(request: RecordedRequest, rewriter: Rewriter): Partial<RecordedRequest> {
  const { query, body } = request;
  if (body !== undefined) {
    const value = parseOrOmit(body);
    if (query !== undefined || !isObject(value)) throw new Omission(UNREADABLE);
    return { body: writeJson(rewriteOperationRequest(value, rewriter)) };
  }
  const url = new URLSearchParams(query ?? '');
  const [text, variables, operationName] = ['query', 'variables', 'operationName'].map((name) => url.get(name));
  const given = { query: text, operationName, variables: variables ? parseOrOmit(variables) : null };
  const parts = Object.entries(rewriteOperationRequest(given, rewriter)).map(
    ([name, value]) => `${name}=${encodeURIComponent(typeof value === 'string' ? value : writeJson(value))}`,
  );
  return { query: parts.join('&') };
}

function rewriteOperationRequest(
  { query, variables, operationName }: Readonly<Record<string, unknown>>,
  rewriter: Rewriter,
): Readonly<Record<string, unknown>> {
  const document = readDocument(String(query));
  if (document === null) throw new Omission(UNREADABLE);
  const rewritten = Object.entries(isObject(variables) ? variables : {}).map(([name, value]) => {
    const own = NAME.test(name) ? name : rewriter.replacer.text(name);
    return [own, rewriter.json(value, ...useOf(name, document))] as const;
  });
  return {
    query: document.rewrite(({ kind, text, position }) => {
      const [role, names] = placeOf(position, document);
      if (kind === 'enum') return role.form?.test(text) ? text : rewriter.replacer.text(text);
      return rewriter.leaf(text, role, names);
    }),
    ...(rewritten.length > 0 ? { variables: Object.fromEntries(rewritten) } : {}),
    ...(document.operations.some((name) => name === operationName) ? { operationName } : {}),
  };
}

type Place = readonly [role: Role, names: readonly string[]];

function placeOf(position: ValuePosition, document: ReadDocument): Place {
  const [first = '', argument, ...rest] = position;
  if (argument === undefined && first.startsWith('$')) return useOf(first.slice(1), document);
  if (argument === undefined || first.startsWith('@')) return [VALUE, position];
  return [rest.reduce((outer, name) => outer.enter(name), ARGUMENTS.get(argument) ?? VALUE), position];
}

/** The place of a variable is the one at which it is used. One that is used in several roles is a value. */
function useOf(variable: string, document: ReadDocument): Place {
  const uses = (document.uses.get(variable) ?? []).map((position) => placeOf(position, document));
  const [first] = uses;
  return first && uses.every(([role]) => role === first[0]) ? first : [VALUE, [`$${variable}`]];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Omission(UNREADABLE);
  }
}

/** Returns undefined if it is not valid JSON. */
function parsed(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function parseOrOmit(text: string): unknown {
  const value = parsed(text);
  if (value === undefined) throw new Omission(UNREADABLE);
  return value;
}
