/**
 * What FAMILY_COMPATIBILITY changes: requests may call the tables of the service as Directus does, answers do, and errors have its codes.
 * It is done at the edge, for every route alike; behind it everything has its own name.
 */
import { parseJson, writeJson } from '../digits.js';
import type { ServiceError } from '../errors.js';
import type { EdgeNames, Produce, Reply } from '../http/reply.js';
import { listOf } from '../mirror/columns.js';
import type { Model } from '../mirror/model.js';
import { type ActionRoute, actionRoute, type RouteAction } from './action.js';
import {
  familyName,
  namingFields,
  ownName,
  type Rename,
  renamed,
  renamedJson,
  renamedQuery,
  renamedText,
} from './family-names.js';

export function familyNames(model: () => Model): EdgeNames {
  const fields = (): ReadonlySet<string> => namingFields(model());
  const out = (text: string): string => (text.includes('service_') ? renamedJson(text, fields()) : text);
  return {
    parameter: ownName,
    query: (queryString) => renamedQuery(queryString, fields()),
    body: (value) => renamed(value, fields(), ownName),
    reply: (reply) => renamedReply(reply, out),
    error: familyError,
    messageIn: (text) => (text.includes('directus_') ? renamedMessage(text, fields()) : text),
    messageOut: out,
  };
}

/** Items as JSON: a file that was asked for has them as they are stored. */
function renamedReply(reply: Reply, rename: Rename): Reply {
  const { body, type, status } = reply;
  if (!/\bjson\b|^text\/event-stream/.test(type)) return reply;
  if (typeof body === 'function') return { ...reply, body: renamedStream(body, rename) };
  if (!body.includes('service_')) return reply;
  const text = body.toString();
  return { ...reply, body: status >= 400 ? renamedText(text) : rename(text) };
}

/** Each piece is one or more whole items. */
function renamedStream(produce: Produce, rename: Rename): Produce {
  return (sink) =>
    produce({
      write: (piece) => sink.write(piece.includes('service_') ? Buffer.from(rename(piece.toString())) : piece),
      onAbort: (listener) => sink.onAbort(listener),
      address: sink.address,
    });
}

/** A message that is not JSON is refused by who reads it. */
function renamedMessage(text: string, fields: ReadonlySet<string>): string {
  try {
    return writeJson(renamed(parseJson(text), fields, ownName));
  } catch {
    return text;
  }
}

type Complaint = readonly [code: string, text: (field: string, place: string) => string];

/** What PostgreSQL refuses has codes there of which ours are types of one. */
const COMPLAINTS: Readonly<Record<string, Complaint>> = {
  unique: ['RECORD_NOT_UNIQUE', (field, place) => `Value${field}${place} has to be unique.`],
  foreign_key: ['INVALID_FOREIGN_KEY', (field, place) => `Invalid foreign key${field}${place}.`],
  nnull: ['NOT_NULL_VIOLATION', (field, place) => `Value${field}${place} can't be null.`],
  too_long: ['VALUE_TOO_LONG', (field, place) => `Value${field}${place} is too long.`],
  out_of_range: ['VALUE_OUT_OF_RANGE', (field, place) => `Numeric value${field}${place} is out of range.`],
};

function familyError({ code, message, extensions }: ServiceError): { code: string; message: string } {
  const { type, field, collection } = extensions;
  const complaint = code === 'FAILED_VALIDATION' ? COMPLAINTS[String(type)] : undefined;
  if (!complaint) return { code, message };
  const named = typeof field === 'string' ? ` for field "${field}"` : '';
  const place = typeof collection === 'string' ? ` in collection "${collection}"` : '';
  return { code: complaint[0], message: complaint[1](named, place) };
}

/** The schema has more places for names than items have, and `meta.special` is a list. */
export function withFamilySchema(routes: readonly ActionRoute[]): ActionRoute[] {
  return routes.map((route) => ({
    ...route,
    // GraphQL calls the action: its type of `special` is a text.
    action: translated(route.action, false),
    handle: actionRoute(route.method, route.path, translated(route.action, true)).handle,
  }));
}

function translated(action: RouteAction, lists: boolean): RouteAction {
  return async (request) => {
    const result = await action({
      client: request.client,
      queryString: request.queryString,
      parameters: request.parameters.map(ownName),
      json: async (parse) => schemaNames(await request.json(parse), ownName),
    });
    if (result.data === undefined) return result;
    const data = schemaNames(result.data, familyName);
    return { ...result, data: lists ? withLists(data) : data };
  };
}

const SCHEMA_FIELDS: ReadonlySet<string> = new Set([
  'collection',
  'related_collection',
  'many_collection',
  'one_collection',
  'one_allowed_collections',
  'foreign_key_table',
  'table',
  'keys',
]);

/** What applications have put there is theirs. */
const OPAQUE: ReadonlySet<string> = new Set(['options', 'display_options', 'conditions', 'validation', 'translations']);

export function schemaNames(value: unknown, rename: Rename, property = ''): unknown {
  return changed(value, property, (text, name) => (SCHEMA_FIELDS.has(name) ? rename(text) : text));
}

export function withLists(value: unknown): unknown {
  return changed(value, '', (text, name) => (name === 'special' ? listOf(text) : text));
}

function changed(value: unknown, property: string, change: (text: string, property: string) => unknown): unknown {
  if (typeof value === 'string') return change(value, property);
  if (Array.isArray(value)) return value.map((each) => changed(each, property, change));
  if (value === null || typeof value !== 'object' || OPAQUE.has(property)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, changed(each, name, change)]));
}
