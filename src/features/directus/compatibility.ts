/**
 * DIRECTUS_COMPATIBILITY: requests may use the names of Directus for the tables of the service, responses use them, and errors have its codes.
 * This file translates paths, errors and documents of the schema. Values of fields with names of collections are translated by the model
 * (compiler/model/synonyms.ts).
 */
import { isObject, parseJson, writeJson } from '../../base/exact-json.js';
import { listOf } from '../../compiler/model/columns.js';
import { ownName as ownOf, type Synonyms, shownName, synonymsOf } from '../../compiler/model/synonyms.js';
import { type ActionRoute, handlerOf, type RouteAction } from '../../server/api/action.js';
import type { ErrorText, NameMapping, Reply } from '../../server/http/reply.js';
import { systemTables } from '../../server/postgres/catalog/system-tables.js';

/** Not a type of text: then the SDK answers the response itself, which tools read. */
export const DIRECTUS_SDL_TYPE = 'application/graphql';

export const directusNames: Omit<NameMapping, 'cacheHeader'> = {
  parameter: ownName,
  reply: directusReply,
  error: directusError,
  messageOut: (text) => (text.includes(ERRORS) || FAILED_OPERATION.test(text) ? withDirectusErrors(text) : text),
};

const ERRORS = '"errors":[';
/** Over the sockets of GraphQL. */
const FAILED_OPERATION = /^\{"id":"[^"]*","type":"error"/;

/** Errors next to data are those of GraphQL. */
function directusReply(reply: Reply): Reply {
  const { body, type } = reply;
  if (typeof body === 'function' || !/\bjson\b/.test(type) || !body.includes(ERRORS)) return reply;
  return { ...reply, body: withDirectusErrors(body.toString()) };
}

/** Errors are on the outside of an answer: what is called so elsewhere is data. */
function withDirectusErrors(text: string): string {
  const answer = parseJson(text);
  if (!isObject(answer)) return text;
  const { errors, payload } = answer;
  if (Array.isArray(errors) && !('data' in answer) && errors.every(isOfDocument))
    return writeJson({ ...answer, errors: [refusedDocument(errors)] });
  if (Array.isArray(errors)) return writeJson({ ...answer, errors: errors.map(directusEntry) });
  if (Array.isArray(payload)) return writeJson({ ...answer, payload: payload.map(directusEntry) });
  if (!isObject(payload) || !Array.isArray(payload['errors'])) return text;
  return writeJson({ ...answer, payload: { ...payload, errors: payload['errors'].map(directusEntry) } });
}

/** Whether the parser or the validation of GraphQL refused the document. */
function isOfDocument(entry: unknown): boolean {
  return isObject(entry) && Array.isArray(entry['locations']) && !('path' in entry);
}

/** Directus lists these errors in one. */
function refusedDocument(errors: readonly unknown[]): unknown {
  const list = errors.map((entry) =>
    isObject(entry) ? { message: entry['message'], locations: entry['locations'] } : entry,
  );
  return { message: 'GraphQL validation error.', extensions: { errors: list, code: 'GRAPHQL_VALIDATION' } };
}

function directusEntry(entry: unknown): unknown {
  if (!isObject(entry) || !isObject(entry['extensions'])) return entry;
  const { extensions, message: written } = entry;
  const { code, message } = directusError({ code: String(extensions['code']), message: String(written), extensions });
  const { collection, reason } = extensions;
  const place = typeof collection === 'string' ? { collection: directusName(collection) } : {};
  const why = typeof reason === 'string' ? { reason: renamedText(reason) } : {};
  const where = Array.isArray(extensions['path']) ? { path: parentsOf(extensions) } : {};
  return { ...entry, message, extensions: { ...extensions, ...place, ...why, ...where, code } };
}

/** The relations on the path to the item: Directus names neither the field itself nor positions in lists. */
function parentsOf({ path, field }: ErrorText['extensions']): readonly string[] {
  const steps: readonly unknown[] = Array.isArray(path) ? path : [];
  const parents = steps.at(-1) === field ? steps.slice(0, -1) : steps;
  const isPosition = (step: unknown): boolean => /^\d+$/.test(String(step));
  const isList = (step: unknown, next: unknown): boolean =>
    (step === 'create' || step === 'update') && isPosition(next);
  return parents.filter((step, index) => !isPosition(step) && !isList(step, parents[index + 1])).map(String);
}

type Complaint = readonly [code: string, text: (field: string, place: string, value: string) => string];

/** Directus has a code for each error of PostgreSQL, which are types of one code here. */
const COMPLAINTS: Readonly<Record<string, Complaint>> = {
  unique: ['RECORD_NOT_UNIQUE', (field, place, value) => `Value${value}${field}${place} has to be unique.`],
  foreign_key: ['INVALID_FOREIGN_KEY', (field, place, value) => `Invalid foreign key${value}${field}${place}.`],
  nnull: ['NOT_NULL_VIOLATION', (field, place) => `Value${field}${place} can't be null.`],
  too_long: ['VALUE_TOO_LONG', (field, place) => `Value${field}${place} is too long.`],
  out_of_range: ['VALUE_OUT_OF_RANGE', (field, place) => `Numeric value${field}${place} is out of range.`],
};

function directusError({ code, message, extensions }: ErrorText): { code: string; message: string } {
  const { type, field, collection } = extensions;
  const complaint = code === 'FAILED_VALIDATION' && !isOwnCheck(extensions) ? COMPLAINTS[String(type)] : undefined;
  if (!complaint && code === 'FAILED_VALIDATION' && STANDARD.test(message))
    return { code, message: validationMessage(extensions) ?? renamedText(message) };
  if (!complaint) return { code, message: renamedText(message) };
  const named = typeof field === 'string' ? ` for field "${field}"` : '';
  const place = typeof collection === 'string' ? ` in collection "${directusName(collection)}"` : '';
  const value = extensions['value'] === undefined ? '' : ` "${extensions['value']}"`;
  return { code: complaint[0], message: complaint[1](named, place, value) };
}

/** Others are those of a field's `validation_message`, or of a trigger. */
const STANDARD = /^Validation failed\. Value for field /;

/** The texts of Directus for its types of validations. */
const REQUIREMENTS: Readonly<Record<string, (value: string) => string>> = {
  eq: (value) => `has to be ${value}`,
  lt: (value) => `has to be less than ${value}`,
  lte: (value) => `has to be less than or equal to ${value}`,
  gt: (value) => `has to be greater than ${value}`,
  gte: (value) => `has to be greater than or equal to ${value}`,
  in: (value) => `has to be one of ${value}`,
  neq: (value) => `can't be ${value}`,
  nin: (value) => `can't be one of ${value}`,
  contains: (value) => `has to contain ${value}`,
  icontains: (value) => `has to contain ${value}`,
  ncontains: (value) => `can't contain ${value}`,
  null: () => 'has to be null',
  nnull: () => "can't be null",
  empty: () => 'has to be empty',
  nempty: () => "can't be empty",
  required: () => 'is required',
  regex: () => "doesn't have the correct format",
  email: () => 'has to be a valid email address',
};

function validationMessage(extensions: ErrorText['extensions']): string | null {
  const { type, field, valid, invalid, substring } = extensions;
  const requirement = REQUIREMENTS[String(type)];
  if (!requirement) return null;
  const values = [valid ?? substring ?? invalid ?? ''].flat().map((each) => `"${each}"`);
  const parents = parentsOf(extensions);
  const place = parents.length > 0 ? ` at "${parents.join('.')}"` : '';
  return `Validation failed for field "${field}"${place}. Value ${requirement(values.join(', '))}.`;
}

/** Directus validates nulls by itself too, and its database only sees others. PostgreSQL knows no path into the payload. */
function isOwnCheck({ type, path }: ErrorText['extensions']): boolean {
  return type === 'nnull' && Array.isArray(path) && path.length > 0;
}

/** The schema has more places for names than items have, and `meta.special` is a list. */
export function withDirectusSchema(routes: readonly ActionRoute[]): ActionRoute[] {
  return routes.map((route) => ({
    ...route,
    // GraphQL calls the action: its type of `special` is a text.
    action: translated(route.action, false),
    handle: handlerOf(translated(route.action, true)),
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
    const data = schemaNames(result.data, directusName);
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

/** Values that belong to applications. */
const OPAQUE: ReadonlySet<string> = new Set(['options', 'display_options', 'conditions', 'validation', 'translations']);

/** A collection's `meta.table` names a table of the database. The name may be equal to a synonym of a system table. */
export function schemaNames(value: unknown, rename: Rename, property = ''): unknown {
  return changed(value, property, (text, name, parent) =>
    SCHEMA_FIELDS.has(name) && !(name === 'table' && parent === 'meta') ? rename(text) : text,
  );
}

export function withLists(value: unknown): unknown {
  return changed(value, '', (text, name) => (name === 'special' ? listOf(text) : text));
}

type Change = (text: string, property: string, parent: string) => unknown;

function changed(value: unknown, property: string, change: Change, parent = ''): unknown {
  if (typeof value === 'string') return change(value, property, parent);
  if (Array.isArray(value)) return value.map((each) => changed(each, property, change, parent));
  if (value === null || typeof value !== 'object' || OPAQUE.has(property)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, changed(each, name, change, property)]));
}

/** The version of Directus whose API is spoken: tools compare it. */
export const DIRECTUS_VERSION = '12.4.1';

type Rename = (name: string) => string;

/** The names of Directus for the tables of the service, outside of the model. */
let synonyms: Synonyms | null = null;

/** Built with the first use: the names are read from the migrations. */
export function directusSynonyms(): Synonyms {
  synonyms ??= synonymsOf(systemTables());
  return synonyms;
}

export function ownName(name: string): string {
  return ownOf(directusSynonyms(), name);
}

export function directusName(name: string): string {
  return shownName(directusSynonyms(), name);
}

/** Renames every name in a text that is no data. */
function renamedText(text: string): string {
  return text.replace(/\bservice_\w+/g, directusName);
}
