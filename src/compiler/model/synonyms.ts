/**
 * Other names of the service's own collections, with DIRECTUS_COMPATIBILITY: requests may use both, answers have the other ones. Plain data,
 * since it is a part of parameters of statements. Only fields that hold names of collections have them: values of others are data.
 */
export interface Synonyms {
  /** The name that a collection has, by its other one. */
  readonly own: Readonly<Record<string, string>>;
  /** The name that is shown, by the one it has. */
  readonly shown: Readonly<Record<string, string>>;
}

const OURS = 'service_';
const THEIRS = 'directus_';

export function synonymsOf(tables: Iterable<string>): Synonyms {
  const pairs = [...tables].map((name) => [name, THEIRS + name.slice(OURS.length)] as const);
  return Object.freeze({
    own: Object.freeze(Object.fromEntries(pairs.map(([own, shown]) => [shown, own]))),
    shown: Object.freeze(Object.fromEntries(pairs)),
  });
}

/** A name of a request as the model has it. */
export function ownName(synonyms: Synonyms | undefined, name: string): string {
  return synonyms !== undefined && Object.hasOwn(synonyms.own, name) ? String(synonyms.own[name]) : name;
}

export function shownName(synonyms: Synonyms | undefined, name: string): string {
  return synonyms !== undefined && Object.hasOwn(synonyms.shown, name) ? String(synonyms.shown[name]) : name;
}

/** Columns of the service's own tables that hold names of collections. */
const NAMING: ReadonlySet<string> = new Set([
  'service_collections.collection',
  'service_fields.collection',
  'service_relations.many_collection',
  'service_relations.one_collection',
  'service_permissions.collection',
  'service_activity.collection',
  'service_revisions.collection',
  'service_presets.collection',
  'service_comments.collection',
  'service_notifications.collection',
  'service_versions.collection',
  'service_shares.collection',
]);

/** Columns of 64 bits that have 32 in Directus: their values are numbers there, where others of 64 bits are texts. */
const NUMBERS: ReadonlySet<string> = new Set([
  'service_activity.id',
  'service_revisions.id',
  'service_revisions.activity',
  'service_revisions.parent',
]);

/** The type that Directus has for a column of the service, or null if it has the one of the column. */
export function numberType(
  table: { readonly name: string; readonly system: boolean },
  field: string,
): 'integer' | null {
  return table.system && NUMBERS.has(`${table.name}.${field}`) ? 'integer' : null;
}

/** The fields of a table that hold names of collections: also those by which many-to-any relations find their items. */
export function namesCollections(
  table: { readonly name: string; readonly system: boolean },
  field: string,
  relations: ReadonlyMap<string, { readonly kind: string; readonly collectionField?: string }> | undefined,
): boolean {
  if (table.system && NAMING.has(`${table.name}.${field}`)) return true;
  return [...(relations?.values() ?? [])].some(
    (relation) => relation.kind === 'many-to-any' && relation.collectionField === field,
  );
}

/** A value of a payload that may be a name. */
export function ownValue(synonyms: Synonyms | undefined, value: unknown): unknown {
  return typeof value === 'string' ? ownName(synonyms, value) : value;
}
