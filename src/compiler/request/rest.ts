/** REST requests: the query string of a GET, or the body of a SEARCH, becomes the request AST. */

import qs from 'qs';
import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { Digits, isObject, writeJson } from '../../base/exact-json.js';
import { didYouMean } from '../../base/nearest-name.js';
import type { Scalar } from '../sql/codec.js';
import type { Value } from '../sql/parameter.js';
import {
  type CallRequest,
  EXPORT_FORMATS,
  type ExportFormat,
  type Parsed,
  type Query,
  type ReadRequest,
  type ReadTarget,
} from './ast.js';
import { quoteName, textOf } from './expression.js';
import { urlText } from './filter.js';
import {
  type Input,
  type ParseContext,
  type ParseLimits,
  readObject,
  refuseOthers,
  ValueList,
  type ValueSink,
} from './parse-context.js';
import { isFalse, parseQuery } from './query-parameters.js';
import { type Key, readKey, readShownKeys } from './write.js';

/** `key` is the item's key of a single read, null for a list. */
export function parseRead(collection: string, key: string | null, queryString: string, limits: ParseLimits): Parsed {
  const context = contextOf(limits);
  const target: ReadTarget = key === null ? LIST : { kind: 'item', key: context.values.add(key) };
  return finish({ collection, target }, readQueryString(queryString, limits), context);
}

/** The same read, with the row part of the item's entity tag behind the body. */
export function tagged(parsed: Parsed): Parsed {
  return { ...parsed, request: { ...parsed.request, tagged: true }, shape: `tagged ${parsed.shape}` };
}

/** The same read without the fields that the caller may not see. */
export function partial(parsed: Parsed): Parsed {
  return { ...parsed, request: { ...parsed.request, partial: true }, shape: `partial ${parsed.shape}` };
}

/** The caller's own item, or several such as roles. The caller need not be able to see the keys. */
export function parseOwn(
  collection: string,
  keys: string | readonly string[],
  queryString: string,
  limits: ParseLimits,
): Parsed {
  const context = contextOf(limits);
  const slot = context.values.add(keys);
  const target: ReadTarget =
    typeof keys === 'string' ? { kind: 'item', key: slot, known: true } : { kind: 'keys', keys: slot, known: true };
  return finish({ collection, target }, readQueryString(queryString, limits), context);
}

function shownTarget(keys: readonly unknown[], values: ValueList): ReadTarget {
  const shown = keys.some((key) => readKey(key) === null) ? 'documents' : 'values';
  return { kind: 'keys', keys: values.add(keys.map(keyScalar)), shown };
}

/** The `query` of the body replaces the parameters of the URL; `keys` narrows it to these items. */
export function parseSearch(collection: string, body: unknown, queryString: string, limits: ParseLimits): Parsed {
  const context = contextOf(limits);
  const { query, keys, ...rest } = readSearch(body);
  refuseOthers(rest);
  const target: ReadTarget = keys === undefined ? LIST : shownTarget(readShownKeys(keys), context.values);
  return finishSearch({ collection, target }, readQueryString(queryString, limits), query, context);
}

function finishSearch(subject: Subject, url: Input, query: Input | undefined, context: RequestContext): Parsed {
  if (query === undefined) return finish(subject, url, context);
  const problem = 'must be in the "query" of the body, which replaces the parameters of the URL';
  refuseUnused(url, [...CONDITIONS, 'version'], query, problem);
  const { envelope = url['envelope'], ...given } = readBodyQuery(query, context.limits);
  return finish(subject, { ...given, envelope }, { ...context, typed: true });
}

function keyScalar(key: unknown): Scalar {
  if (key instanceof Digits) return { json: key.text, text: String(readKey(key)) };
  if (typeof key === 'boolean') return { json: String(key), text: String(key) };
  return readKey(key) ?? { json: writeJson(key) };
}

/** Counts the items with these keys, which are texts as in a path. */
export function parseCountOfKeys(collection: string, keys: readonly Key[], limits: ParseLimits): Parsed {
  const context = contextOf(limits, true);
  const target: ReadTarget = { kind: 'keys', keys: context.values.add(keys) };
  return finish({ collection, target }, { aggregate: { count: '*' } }, context);
}

/** The body of POST /utils/export: all items that the query selects, unless it names a limit. The route reads `file` by itself. */
export function parseExport(collection: string, body: unknown, limits: ParseLimits): Parsed {
  const { query = {}, format, file: _, ...rest } = readBody(body);
  refuseOthers(rest);
  if (!EXPORT_FORMATS.some((each) => each === format))
    throw invalidPayload(`"format" must be one of ${EXPORT_FORMATS.join(', ')}`);
  const input = readBodyQuery(query, limits);
  const context = contextOf(limits, true);
  return finish({ collection, target: LIST }, { ...input, limit: input['limit'] ?? -1, export: format }, context);
}

/**
 * The read-back of a write: the URL says which fields are read; the keys are the first value, and filled in when they are known
 * (`withKeys`).
 */
export function parseReadBack(collection: string, one: boolean, queryString: string, limits: ParseLimits): Parsed {
  const url = readQueryString(queryString, limits);
  refuseSelecting(url);
  return readBackOf(collection, one, url, contextOf(limits));
}

/** Parses the query of a message, which is JSON and may select the written items. */
export function parseMessageReadBack(collection: string, one: boolean, query: Input, limits: ParseLimits): Parsed {
  return readBackOf(collection, one, query, contextOf(limits, true));
}

function readBackOf(collection: string, one: boolean, query: Input, context: RequestContext): Parsed {
  const keys = context.values.add(null);
  const target: ReadTarget = one ? { kind: 'item', key: keys, known: true } : { kind: 'written', keys };
  const { fields, deep, alias, backlink, envelope } = query;
  return finish({ collection, target }, { fields, deep, alias, backlink, envelope }, context);
}

/** One item, with a query that is JSON. */
export function parseItem(collection: string, key: Key, query: Input, limits: ParseLimits): Parsed {
  const context = contextOf(limits, true);
  return finish({ collection, target: { kind: 'item', key: context.values.add(key) } }, query, context);
}

/** Reads the items with these keys that match the query, without its sort and page. The first value has the keys. */
export function parseChanged(collection: string, query: Input, limits: ParseLimits): Parsed {
  const context = contextOf(limits, true);
  const keys = context.values.add([]);
  const { fields, filter, search, deep, alias, backlink } = query;
  const target: ReadTarget = { kind: 'keys', keys, known: true };
  return finish({ collection, target }, { fields, filter, search, deep, alias, backlink }, context);
}

/** The URL of a write that answers nothing. */
export function checkWriteUrl(queryString: string, limits: ParseLimits): void {
  refuseSelecting(readQueryString(queryString, limits));
}

/** Clients would expect that parameters which select items in the URL of a write select the items to write. A limit of -1 selects nothing. */
function refuseSelecting({ limit, ...url }: Input): void {
  const input = limit === '-1' ? url : { limit, ...url };
  if (readVersion(url) !== null) throw invalidQuery('"version" does not apply to writes: POST /versions/:id/save');
  refuseUnused(input, SELECTING, {}, 'in the URL does not select the items to write: use the "query" of the body');
}

/** Parameters that would have no effect are refused, not dropped. */
function refuseUnused(url: Input, names: readonly string[], body: Input, problem: string): void {
  const stray = names.find((name) => url[name] !== undefined && url[name] !== '' && !Object.hasOwn(body, name));
  if (stray !== undefined) throw invalidQuery(`"${stray}" ${problem}`);
}

/** The read-back of the items with these keys. */
export function withKeys(readBack: Parsed, keys: readonly Key[]): Parsed {
  const value = readBack.request.target.kind === 'item' ? (keys[0] ?? null) : keys;
  return { ...readBack, values: [value, ...readBack.values.slice(1)] };
}

/** A read of a recorded row, which is named later (`withImage`): it shows these fields if the row matches the filter. */
export function parseImage(collection: string, query: Input, limits: ParseLimits): Parsed {
  const context = contextOf(limits, true);
  const image = context.values.add(null);
  return finish({ collection, target: LIST, image }, { ...query, limit: 1 }, context);
}

export function withImage(parsed: Parsed, reference: string): Parsed {
  return { ...parsed, values: [reference, ...parsed.values.slice(1)] };
}

/** The keys of the items that a query selects; it has no limit unless it names one. */
export function parseSelection(collection: string, query: Input, key: readonly string[], limits: ParseLimits): Parsed {
  const { filter, search, sort, limit: requestedLimit, offset, page } = query;
  const limited = requestedLimit !== undefined && requestedLimit !== null && requestedLimit !== '';
  const limit = limited ? requestedLimit : -1;
  const input = { filter, search, sort, limit, offset, page, fields: key.map(quoteName) };
  // Pages have the size of the limit.
  const selectedRows = page === undefined ? limits.selectedRows : null;
  const context = contextOf({ ...limits, selectedRows, wholeRows: Number.MAX_SAFE_INTEGER }, true);
  return finish({ collection, target: { kind: 'selected', limited } }, input, context);
}

/** Which items are meant, and as what. */
const SELECTING = [
  ...(['filter', 'search', 'sort', 'limit', 'offset', 'page', 'cursor'] as const),
  ...(['aggregate', 'groupBy', 'having'] as const),
];
const CONDITIONS = [...SELECTING, 'deep', 'meta', 'export'] as const;

/** The parameters of a query. In the URL of a call all other names are arguments. */
const QUERY_PARAMETERS: ReadonlySet<string> = new Set([...CONDITIONS, 'fields', 'alias', 'backlink', 'envelope']);

/** A call of a function: its arguments are those of the body or, where there is none, the names of the URL that no query has. */
export function parseRpc(name: string, body: unknown, queryString: string, limits: ParseLimits): Parsed {
  const { query, callArguments } = splitCall(readParameters(queryString, limits));
  if (body !== undefined && !isObject(body)) throw invalidPayload('The body must be an object of arguments');
  const problem = 'is in the URL: the arguments of a POST must be in its body';
  if (body !== undefined) refuseUnused(callArguments, Object.keys(callArguments), {}, problem);
  const context = contextOf(limits);
  const call = parseArguments(body ?? callArguments, body !== undefined, context);
  return finish({ collection: name, target: LIST, call }, query, context);
}

/** The same with a body of a SEARCH: `arguments` and `query` take the place of the same in the URL. It calls only what reads. */
export function parseRpcSearch(name: string, body: unknown, queryString: string, limits: ParseLimits): Parsed {
  const { query, arguments: bodyArguments, ...rest } = readSearch(body);
  refuseOthers(rest, ': the body takes arguments, query');
  if (bodyArguments !== undefined && !isObject(bodyArguments)) throw invalidPayload('"arguments" must be an object');
  const url = splitCall(readParameters(queryString, limits));
  const context = contextOf(limits);
  const problem = 'must be in the "arguments" of the body';
  if (bodyArguments) refuseUnused(url.callArguments, Object.keys(url.callArguments), bodyArguments, problem);
  const call = parseArguments(bodyArguments ?? url.callArguments, bodyArguments !== undefined, context);
  return finishSearch({ collection: name, target: LIST, call }, url.query, query, context);
}

function splitCall(input: Input): { query: Input; callArguments: Input } {
  const entries = Object.entries(input);
  const pick = (isQuery: boolean): Input =>
    Object.fromEntries(entries.filter(([each]) => QUERY_PARAMETERS.has(each) === isQuery));
  return { query: pick(true), callArguments: pick(false) };
}

/** In the order of their names: calls that differ in that of writing have one shape. */
export function parseArguments(input: Input, typed: boolean, { values }: { readonly values: ValueSink }): CallRequest {
  const names = Object.keys(input).sort();
  values.count(names.length);
  return { arguments: names.map((name) => ({ name, slot: values.add(argumentValue(name, input[name], typed)) })) };
}

function argumentValue(name: string, value: unknown, typed: boolean): Value {
  if (value === undefined || value === null) return null;
  if (typeof value === 'string') return typed ? value : urlText(value);
  if (typeof value === 'boolean' || typeof value === 'number') return value;
  try {
    return { json: writeJson(value) };
  } catch {
    throw invalidQuery(`The argument "${name}" is nested too deeply`);
  }
}

interface RequestContext extends ParseContext {
  readonly values: ValueList;
}

function contextOf(limits: ParseLimits, typed = false): RequestContext {
  return { values: new ValueList(limits.nodes), limits, typed };
}

const LIST: ReadTarget = { kind: 'list' };

/** A collection or function, and which of its items are meant. */
type Subject = Pick<ReadRequest, 'collection' | 'target' | 'call' | 'image'>;

function finish(subject: Subject, input: Input, context: RequestContext): Parsed {
  const format = parseFormat(input['export']);
  const query = parseQuery(input, context);
  const version = readVersion(input);
  const request: ReadRequest = {
    kind: 'read',
    ...subject,
    query,
    export: format !== null,
    ...(version !== null && { version: context.values.add(version) }),
    ...(version !== null && format === null && { showsVersion: true as const }),
  };
  const parsed = {
    ...parsedRead(request, context.values, format),
    ...(isBare(input['envelope'], query) && { bare: true as const }),
  };
  if (format !== 'geojson' || input['geometry'] === undefined) return parsed;
  if (typeof input['geometry'] !== 'string') throw invalidQuery('"geometry" must be the name of a field');
  return { ...parsed, geometry: input['geometry'] };
}

/** `envelope=false` leaves no room for `meta`, which also has the next cursor. */
function isBare(envelope: unknown, { meta, cursor }: Query): boolean {
  if (!isFalse(envelope)) return false;
  if (meta.length > 0 || cursor !== null) throw invalidQuery('"envelope" must be true if "meta" or "cursor" is given');
  return true;
}

export function parsedRead(request: ReadRequest, values: ValueList, format: ExportFormat | null = null): Parsed {
  return { request, values: values.done(), shape: requestShape(request), format };
}

/** The items as they are have these names too. */
export const LIVE_VERSIONS: readonly unknown[] = ['main', 'published'];

/** The requested content version, or null if the request reads the items themselves. */
export function readVersion({ version, versionRaw = false }: Input): string | null {
  if (version === undefined || version === null || version === '' || LIVE_VERSIONS.includes(version)) return null;
  if (typeof version !== 'string' || version.includes('\0'))
    throw invalidQuery('"version" must be the key of a version');
  if (versionRaw !== null && !isFalse(versionRaw))
    throw invalidQuery('"versionRaw" is not offered: GET /versions/:id/compare answers the changes as they were saved');
  return version;
}

const PARTS = [
  ...(['alias', 'filter', 'search', 'sort', 'limit', 'offset', 'page', 'cursor'] as const),
  ...(['aggregate', 'groupBy', 'having', 'deep', 'meta'] as const),
];

/** The AST as text: what is left out was not asked for. */
function requestShape(request: ReadRequest): string {
  const { collection, call, target, version, query, export: exported } = request;
  const { fields } = query;
  const parts: unknown[] = [collection, target, exported, query.backlink, (fields && textOf(fields)) ?? fields];
  for (const name of PARTS) {
    const part = query[name];
    if (part !== null && !(Array.isArray(part) && part.length === 0)) parts.push(name, part);
  }
  if (call) parts.push('call', call.arguments);
  if (version !== undefined) parts.push(request.showsVersion ? 'shown version' : 'version', version);
  return JSON.stringify(parts);
}

function parseFormat(input: unknown): ExportFormat | null {
  if (input === undefined || input === null || input === '') return null;
  const format = EXPORT_FORMATS.find((each) => each === input);
  if (!format) throw invalidQuery(`"export" must be one of ${EXPORT_FORMATS.join(', ')}`);
  return format;
}

const PARAMETERS = 1_000;

/** Names that reads of items know next to the parameters of a query. */
const READ_PARAMETERS = ['version', 'versionRaw', 'geometry'] as const;
const CONFLICT_PARAMETERS = ['on_conflict', 'resolution'] as const;

function readQueryString(queryString: string, limits: ParseLimits): Input {
  const input = readParameters(queryString, limits);
  if (limits.strict) refuseUnknown(input, [...QUERY_PARAMETERS, ...READ_PARAMETERS, ...CONFLICT_PARAMETERS]);
  return input;
}

function readBodyQuery(query: unknown, limits: ParseLimits): Input {
  const input = readObject(query, 'query');
  if (limits.strict) refuseUnknown(input, [...QUERY_PARAMETERS, ...READ_PARAMETERS]);
  return input;
}

/** The URL of an import; that of an export has no parameters. */
export function checkTransferUrl(queryString: string, limits: ParseLimits, use: 'import' | 'export'): void {
  if (limits.strict) refuseUnknown(readParameters(queryString, limits), use === 'import' ? CONFLICT_PARAMETERS : []);
}

function refuseUnknown(input: Input, names: readonly string[]): void {
  const known = new Set(names);
  const unknown = Object.keys(input).find((name) => !known.has(name));
  if (unknown === undefined) return;
  const hint = didYouMean(unknown, known);
  throw invalidQuery(hint === '' ? `Unknown parameter "${unknown}"` : `Unknown parameter "${unknown}".${hint}`);
}

function readParameters(queryString: string, limits: ParseLimits): Input {
  if (queryString === '') return {};
  const parameters = queryString.split('&');
  if (parameters.length > PARAMETERS) throw invalidQuery(`There are more than ${PARAMETERS} parameters`);
  // The parser would drop this name in silence, and with it a filter.
  if (parameters.some((each) => /\[__proto__\]/.test(decodeName(each))))
    throw invalidQuery('"__proto__" is not a name');
  try {
    return qs.parse(queryString, {
      plainObjects: true,
      depth: limits.bracketDepth,
      strictDepth: true,
      arrayLimit: limits.arrayLength,
      parameterLimit: PARAMETERS,
    });
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const exceeded = { option: 'QUERYSTRING_MAX_PARSE_DEPTH', limit: limits.bracketDepth };
    throw invalidQuery(`Input depth exceeded depth option of ${limits.bracketDepth}`, exceeded);
  }
}

function decodeName(parameter: string): string {
  const [name = ''] = parameter.split('=', 1);
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function readBody(body: unknown): Input {
  if (body === undefined) return {};
  if (!isObject(body)) throw invalidPayload('The body must be an object');
  return body;
}

function readSearch(body: unknown): Input & { readonly query?: Input } {
  const { query, ...rest } = readBody(body);
  if (query === undefined) return rest;
  if (!isObject(query)) throw invalidPayload('"query" must be an object');
  return { ...rest, query };
}
