/** The metadata of collections, fields and relations in bodies: which properties there are, and what each may hold. */
import { assertNever } from '../../base/assert-never.js';
import { invalidPayload } from '../../base/errors.js';
import { requireObject } from '../../request/write.js';

/** By column of the metadata table; lists already joined by commas. */
export type Meta = Readonly<Record<string, unknown>>;

type Kind = 'name' | 'text' | 'boolean' | 'integer' | 'json' | 'array' | 'list' | readonly string[];

interface Property {
  readonly kind: Kind;
  readonly nullable: boolean;
}

export type Properties = ReadonlyMap<string, Property>;

const needed = (kind: Kind): Property => ({ kind, nullable: false });
const optional = (kind: Kind): Property => ({ kind, nullable: true });

export const COLLECTION_META: Properties = new Map([
  ['icon', optional('name')],
  ['note', optional('text')],
  ['color', optional('name')],
  ['display_template', optional('name')],
  ['hidden', needed('boolean')],
  ['singleton', needed('boolean')],
  ['translations', optional('array')],
  ['archive_field', optional('name')],
  ['archive_app_filter', needed('boolean')],
  ['archive_value', optional('name')],
  ['unarchive_value', optional('name')],
  ['sort_field', optional('name')],
  ['search_field', optional('name')],
  ['accountability', optional(['all', 'activity'])],
  ['item_duplication_fields', optional('array')],
  ['sort', optional('integer')],
  ['group', optional('name')],
  ['collapse', needed(['open', 'closed', 'locked'])],
  ['preview_url', optional('name')],
  ['versioning', needed('boolean')],
  ['status', needed(['active', 'inactive'])],
  ['autosave_revision_interval', optional('integer')],
  ['primary_key', optional('name')],
  ['schema', optional('name')],
  ['table', optional('name')],
]);

export const FIELD_META: Properties = new Map([
  ['special', optional('list')],
  ['interface', optional('name')],
  ['options', optional('json')],
  ['display', optional('name')],
  ['display_options', optional('json')],
  ['readonly', needed('boolean')],
  ['required', optional('boolean')],
  ['hidden', needed('boolean')],
  ['sort', optional('integer')],
  ['width', optional(['half', 'half-left', 'half-right', 'half-space', 'full', 'fill'])],
  ['translations', optional('array')],
  ['note', optional('text')],
  ['group', optional('name')],
  ['conditions', optional('array')],
  ['validation', optional('json')],
  ['validation_message', optional('text')],
  ['searchable', needed('boolean')],
]);

export const RELATION_META: Properties = new Map([
  ['one_field', optional('name')],
  ['one_collection_field', optional('name')],
  ['one_allowed_collections', optional('list')],
  ['junction_field', optional('name')],
  ['sort_field', optional('name')],
  ['one_deselect_action', needed(['nullify', 'delete'])],
]);

/** Names of the object itself: clients send them back with what they read. */
const IGNORED: ReadonlySet<string> = new Set([
  'id',
  'collection',
  'field',
  'many_collection',
  'many_field',
  'one_collection',
  'system',
]);

/** Unknown properties are refused, so that a typo does not silently drop a setting. */
export function readMeta(input: unknown, properties: Properties, path: string): Meta | undefined {
  if (input === undefined || input === null) return undefined;
  const meta: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(requireObject(input, `"${path}"`))) {
    const property = properties.get(name);
    if (property) {
      if (value !== undefined) meta[name] = readProperty(value, property, `${path}.${name}`);
    } else if (!IGNORED.has(name)) {
      throw invalidPayload(`"${path}.${name}" is not allowed: use one of ${[...properties.keys()].join(', ')}`);
    }
  }
  return meta;
}

const MAX_NAME_LENGTH = 255;
const MAX_INTEGER = 2_147_483_647;

function readProperty(value: unknown, { kind, nullable }: Property, path: string): unknown {
  if (value === null) {
    if (nullable) return null;
    throw invalidPayload(`"${path}" cannot be null`);
  }
  if (typeof kind !== 'string') {
    if (typeof value === 'string' && kind.includes(value)) return value;
    throw invalidPayload(`"${path}" must be one of ${kind.join(', ')}`);
  }
  switch (kind) {
    case 'boolean':
      if (typeof value !== 'boolean') throw invalidPayload(`"${path}" must be true or false`);
      return value;
    case 'integer':
      if (typeof value !== 'number' || !Number.isInteger(value) || Math.abs(value) > MAX_INTEGER)
        throw invalidPayload(`"${path}" must be a whole number`);
      return value;
    case 'name':
    case 'text':
      if (typeof value !== 'string') throw invalidPayload(`"${path}" must be a string`);
      if (kind === 'name' && [...value].length > MAX_NAME_LENGTH)
        throw invalidPayload(`"${path}" must have at most ${MAX_NAME_LENGTH} characters`);
      return requireStorable(value, path);
    case 'list':
      return readList(value, path);
    case 'array':
      if (!Array.isArray(value)) throw invalidPayload(`"${path}" must be a list`);
      return requireStorable(value, path);
    case 'json':
      return requireStorable(value, path);
    default:
      return assertNever(kind);
  }
}

/** Stored as text: an empty list becomes null. */
function readList(value: unknown, path: string): string | null {
  const entries = typeof value === 'string' ? value.split(',') : value;
  const isEntry = (entry: unknown): entry is string => typeof entry === 'string' && !entry.includes(',');
  if (!Array.isArray(entries) || !entries.every(isEntry))
    throw invalidPayload(`"${path}" must be a list of strings without commas`);
  const names = entries.map((entry) => entry.trim()).filter((entry) => entry !== '');
  return names.length === 0 ? null : requireStorable(names.join(','), path);
}

/** PostgreSQL stores no NUL character, and no unpaired surrogate in JSON. */
function requireStorable<Value>(value: Value, path: string): Value {
  const text = JSON.stringify(value);
  if (/(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/i.test(text))
    throw invalidPayload(`"${path}" contains characters that cannot be stored`);
  return value;
}
