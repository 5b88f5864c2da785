/**
 * The names of Directus for the tables of the service: `directus_users` is `service_users`. Nothing but the name of such a table is
 * changed, and it only where the model says that a collection is named: values of others may say whatever they like.
 */
import { isObject, parseJson, writeJson } from '../digits.js';
import type { Model } from '../mirror/model.js';
import { systemTables } from '../postgres/system-tables.js';

const THEIRS = 'directus_';
const OURS = 'service_';

export type Rename = (name: string) => string;

export function ownName(name: string): string {
  const own = name.startsWith(THEIRS) ? OURS + name.slice(THEIRS.length) : name;
  return systemTables().has(own) ? own : name;
}

export function familyName(name: string): string {
  return systemTables().has(name) ? THEIRS + name.slice(OURS.length) : name;
}

/** Fields of the service's own tables whose values are names of collections. */
const SYSTEM_FIELDS = ['collection', 'many_collection', 'one_collection', 'one_allowed_collections'];

const known = new WeakMap<Model, ReadonlySet<string>>();

/** The fields whose values are names of collections: those of the service, and those by which many-to-any relations find their items. */
export function namingFields(model: Model): ReadonlySet<string> {
  const cached = known.get(model);
  if (cached) return cached;
  const fields = new Set(SYSTEM_FIELDS);
  for (const collection of model.collections.values())
    for (const { relation } of collection.fields.values())
      if (relation?.kind === 'many-to-any') fields.add(relation.collectionField);
  known.set(model, fields);
  return fields;
}

/** What is below a key that is no operator belongs to that field. */
function fieldOf(key: string, outer: string): string {
  return key.startsWith('_') || /^\d*$/.test(key) ? outer : key;
}

/** A value with the names in it changed, whether it is a payload, a filter or an answer. */
export function renamed(value: unknown, fields: ReadonlySet<string>, rename: Rename, field = ''): unknown {
  if (typeof value === 'string') return fields.has(field) ? renamedList(value, rename) : value;
  if (Array.isArray(value)) return value.map((each) => renamed(each, fields, rename, field));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [
      renamedPath(key, rename),
      renamed(each, fields, rename, fieldOf(key, field)),
    ]),
  );
}

/** One name, or several with commas between them. */
export function renamedList(text: string, rename: Rename): string {
  return text.split(',').map(rename).join(',');
}

/** Paths name collections in `item:collection` and in `$FOLLOW(collection, field)`. */
export function renamedPath(text: string, rename: Rename): string {
  if (!text.includes(':') && !text.includes('(')) return text;
  return text.replace(/(:|\$FOLLOW\(\s*)(\w+)/g, (_, before: string, name: string) => before + rename(name));
}

/** Parameters whose values are paths of fields. */
const PATHS = /^(?:fields|sort|groupBy|aggregate|alias|deep)\b/;

export function renamedQuery(queryString: string, fields: ReadonlySet<string>): string {
  if (!queryString.includes(THEIRS)) return queryString;
  return queryString
    .split('&')
    .map((parameter) => (parameter.includes(THEIRS) ? renamedParameter(parameter, fields) : parameter))
    .join('&');
}

function renamedParameter(parameter: string, fields: ReadonlySet<string>): string {
  const at = parameter.indexOf('=');
  const name = decode(at < 0 ? parameter : parameter.slice(0, at));
  const value = at < 0 ? null : decode(parameter.slice(at + 1));
  // What cannot be decoded is refused by who reads it.
  if (name === null || (at >= 0 && value === null)) return parameter;
  const keys = name.split(/[[\]]+/).filter((key) => key !== '');
  const field = keys.reduce((outer, key) => fieldOf(key, outer), '');
  const written = encodeURIComponent(renamedPath(name, ownName)).replace(/%5B/gi, '[').replace(/%5D/gi, ']');
  return value === null ? written : `${written}=${encodeURIComponent(renamedValue(value, name, field, fields))}`;
}

function renamedValue(value: string, name: string, field: string, fields: ReadonlySet<string>): string {
  if (/^\s*[{[]/.test(value)) {
    try {
      return writeJson(renamed(parseJson(value), fields, ownName, field));
    } catch {
      return value;
    }
  }
  if (fields.has(field)) return renamedList(value, ownName);
  return PATHS.test(name) ? renamedPath(value, ownName) : value;
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return null;
  }
}

const patterns = new WeakMap<ReadonlySet<string>, RegExp>();

/**
 * Of JSON as text, since answers come as PostgreSQL has written them: names that are values of such a field, or of an operator below
 * it, names that are keys, and paths in keys. A quote inside of a string has a backslash before it, so no string is taken for one of these.
 */
export function renamedJson(text: string, fields: ReadonlySet<string>): string {
  let pattern = patterns.get(fields);
  if (!pattern) {
    const names = [...fields].map((name) => JSON.stringify(name).replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')).join('|');
    const value = String.raw`(?:${names})\s*:\s*(?:\{\s*"_\w+"\s*:\s*)?(?:"[^"\\]*"|\[[^\][\\]*\])`;
    const key = String.raw`"(?:service_\w+|[^"\\:]+:service_\w+|\$FOLLOW\(\s*service_\w+[^"\\]*)"(?=\s*:)`;
    pattern = new RegExp(String.raw`(?<!\\)(?:${value}|${key})`, 'g');
    patterns.set(fields, pattern);
  }
  return text.replace(pattern, (found) => found.replace(/(?<=["(:,]\s*)service_\w+/g, familyName));
}

/** Of a text that is no data: every name in it. */
export function renamedText(text: string): string {
  return text.replace(/\bservice_\w+/g, familyName);
}
