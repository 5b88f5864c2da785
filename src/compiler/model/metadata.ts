/** The properties of the metadata of collections, fields and relations: which values each may hold, and its default. */

/** By column of the metadata table; lists already joined by commas. */
export type Meta = Readonly<Record<string, unknown>>;

type Kind = 'name' | 'text' | 'boolean' | 'integer' | 'json' | 'array' | 'list' | readonly string[];

export interface Property {
  readonly kind: Kind;
  readonly nullable: boolean;
  /** The default of the column. */
  readonly initial: unknown;
}

export type Properties = ReadonlyMap<string, Property>;

const needed = (kind: Kind, initial: unknown): Property => ({ kind, nullable: false, initial });
const optional = (kind: Kind, initial: unknown = null): Property => ({ kind, nullable: true, initial });

export const COLLECTION_META: Properties = new Map([
  ['icon', optional('name')],
  ['note', optional('text')],
  ['color', optional('name')],
  ['display_template', optional('name')],
  ['hidden', needed('boolean', false)],
  ['singleton', needed('boolean', false)],
  ['translations', optional('array')],
  ['archive_field', optional('name')],
  ['archive_app_filter', needed('boolean', true)],
  ['archive_value', optional('name')],
  ['unarchive_value', optional('name')],
  ['sort_field', optional('name')],
  ['search_field', optional('name')],
  ['accountability', optional(['all', 'activity'], 'all')],
  ['cache', optional(['off'])],
  ['item_duplication_fields', optional('array')],
  ['sort', optional('integer')],
  ['group', optional('name')],
  ['collapse', needed(['open', 'closed', 'locked'], 'open')],
  ['preview_url', optional('name')],
  ['versioning', needed('boolean', false)],
  ['status', needed(['active', 'inactive'], 'active')],
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
  ['readonly', needed('boolean', false)],
  ['required', optional('boolean', false)],
  ['hidden', needed('boolean', false)],
  ['sort', optional('integer')],
  ['width', optional(['half', 'half-left', 'half-right', 'half-space', 'full', 'fill'], 'full')],
  ['translations', optional('array')],
  ['note', optional('text')],
  ['group', optional('name')],
  ['conditions', optional('array')],
  ['validation', optional('json')],
  ['validation_message', optional('text')],
  ['searchable', needed('boolean', true)],
]);

export const RELATION_META: Properties = new Map([
  ['one_field', optional('name')],
  ['one_collection_field', optional('name')],
  ['one_allowed_collections', optional('list')],
  ['junction_field', optional('name')],
  ['sort_field', optional('name')],
  ['one_deselect_action', needed(['nullify', 'delete'], 'nullify')],
]);

/** A new row of metadata. */
export function defaultMeta(properties: Properties): Meta {
  return Object.fromEntries([...properties].map(([name, { initial }]) => [name, initial]));
}
