/** Converts a query to REST (a URL, the body of a SEARCH, a curl command, a call of the SDK), and back from the first two. */
import { base, itemsPath } from '../api';
import type { Model } from '../model';
import { fromQueryJson, objectOf, type Query, type QueryJson, toQueryJson } from './query';

export function toUrl(query: Query): string {
  const parts = Object.entries(toQueryJson(query)).flatMap(([name, value]) => parameter(name, value));
  return `GET ${base}${itemsPath(query.collection)}${parts.length > 0 ? `?${parts.join('&')}` : ''}`;
}

function parameter(name: string, value: unknown): string[] {
  if (name === 'filter' || name === 'deep') return [`${name}=${readable(JSON.stringify(value))}`];
  if (name === 'aggregate')
    return Object.entries(value as QueryJson).map(([key, fields]) => `aggregate[${key}]=${readable(String(fields))}`);
  return [`${name}=${readable(String(value))}`];
}

/** Encodes only the necessary characters, so that the rest stays readable. */
function readable(text: string): string {
  return text.replace(/[%&#+\s]|[^\x20-\x7e]/g, (each) => encodeURIComponent(each));
}

export function toSearch(query: Query): string {
  const body = JSON.stringify({ query: toQueryJson(query) }, null, 2);
  return `SEARCH ${base}${itemsPath(query.collection)}\n\n${body}`;
}

export function toCurl(query: Query): string {
  const url = `${location.origin}${toUrl(query).slice('GET '.length)}`;
  return `curl -g -H "Authorization: Bearer $TOKEN" \\\n  ${quoted(url)}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function toSdk(query: Query): string {
  const { aggregate, groupBy, ...rest } = toQueryJson(query);
  const isGrouped = aggregate !== undefined || groupBy !== undefined;
  const options = isGrouped ? { aggregate, groupBy, ...(Object.keys(rest).length > 0 ? { query: rest } : {}) } : rest;
  const name = isGrouped ? 'aggregate' : 'readItems';
  return `import { createDirectus, ${name}, rest, staticToken } from '@directus/sdk';

const client = createDirectus('${location.origin}${base}').with(staticToken(token)).with(rest());
const items = await client.request(
  ${name}('${query.collection}', ${JSON.stringify(options, null, 2).replaceAll('\n', '\n  ')}),
);`;
}

/** Throws a message that names the unsupported part. */
export function fromUrl(text: string, model: Model): Query {
  const [, path = '', search = ''] = /^\s*(?:GET\s+)?([^?\s]*)\??(.*)$/s.exec(text.trim()) ?? [];
  const collection = collectionOf(path, model);
  const json: Record<string, unknown> = {};
  for (const part of search.split('&')) {
    if (part === '') continue;
    const at = part.indexOf('=');
    const name = decodeURIComponent(at < 0 ? part : part.slice(0, at));
    const value = decodeURIComponent((at < 0 ? '' : part.slice(at + 1)).replaceAll('+', ' '));
    const [, root = name, rest = ''] = /^(\w+)((?:\[[^\]]*\])*)$/.exec(name) ?? [];
    place(
      json,
      [root, ...[...rest.matchAll(/\[([^\]]*)\]/g)].map(([, key]) => String(key))],
      rest === '' ? parsed(value) : value,
    );
  }
  refuseUnknown(json);
  return fromQueryJson(collection, json, model);
}

const PARAMETERS = new Set(['fields', 'filter', 'search', 'sort', 'limit', 'deep', 'aggregate', 'groupBy']);
const DEEP_PARAMETERS = new Set(['_filter', '_search', '_sort', '_limit']);

/** Refuses parts that the tree cannot show: the next change would lose them. */
function refuseUnknown(json: QueryJson): void {
  const unknown = Object.keys(json).find((name) => !PARAMETERS.has(name)) ?? unknownDeep(objectOf(json['deep']));
  if (unknown !== undefined) throw new Error(`The parameter "${unknown}" cannot be shown in the tree`);
}

function unknownDeep(deep: QueryJson): string | undefined {
  const names = Object.keys(deep);
  const own = names.find((name) => name.startsWith('_') && !DEEP_PARAMETERS.has(name));
  if (own !== undefined) return own;
  return names.flatMap((name) => (name.startsWith('_') ? [] : (unknownDeep(objectOf(deep[name])) ?? [])))[0];
}

function parsed(value: string): unknown {
  if (!/^[[{]/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    throw new Error('A parameter is not valid JSON');
  }
}

function place(json: Record<string, unknown>, [name = '', ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0 || (rest.length === 1 && rest[0] === '')) {
    json[name] = rest.length === 0 ? value : [...((json[name] as unknown[] | undefined) ?? []), value];
    return;
  }
  const known = json[name];
  const inner = typeof known === 'object' && known !== null ? (known as Record<string, unknown>) : {};
  json[name] = inner;
  place(inner, rest, value);
}

export function fromSearch(text: string, model: Model): Query {
  const [, path = '', body = ''] = /^\s*SEARCH\s+(\S+)\s*(.*)$/s.exec(text) ?? [];
  const collection = collectionOf(path, model);
  const json: unknown = body.trim() === '' ? {} : JSON.parse(body);
  const { query = {} } = json as { query?: QueryJson };
  refuseUnknown(query);
  return fromQueryJson(collection, query, model);
}

function collectionOf(path: string, model: Model): string {
  const [, name = ''] = /\/items\/([^/?]+)\/?$/.exec(path) ?? [];
  const collection = decodeURIComponent(name);
  if (!model.has(collection))
    throw new Error(
      collection === '' ? 'The path must be /items/{collection}' : `There is no collection "${collection}"`,
    );
  return collection;
}
