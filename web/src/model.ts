/** The schema that the caller may see: collections, fields, and the targets of relations. */
import { call, setSystemPrefix } from './api';

export interface Column {
  readonly data_type: string;
  readonly default_value: unknown;
  readonly max_length: number | null;
  readonly numeric_precision: number | null;
  readonly numeric_scale: number | null;
  readonly is_generated: boolean;
  readonly is_nullable: boolean;
  readonly is_unique: boolean;
  readonly is_indexed: boolean;
  readonly is_primary_key: boolean;
  readonly has_auto_increment: boolean;
  readonly foreign_key_table: string | null;
  /** The labels of an enum, or the values that a check lists. */
  readonly choices: readonly string[] | null;
  readonly comment: string | null;
}

/** A value that a field may have, and its name for users. */
export interface Choice {
  readonly value: unknown;
  readonly text: string;
}

interface FieldObject {
  readonly collection: string;
  readonly field: string;
  readonly type: string;
  readonly schema: Column | null;
  readonly meta: Readonly<Record<string, unknown>> | null;
}

interface CollectionObject {
  readonly collection: string;
  readonly meta: Readonly<Record<string, unknown>> | null;
  readonly schema: { readonly schema: string; readonly kind: string; readonly comment: string | null } | null;
}

interface RelationObject {
  readonly collection: string;
  readonly field: string;
  readonly related_collection: string | null;
  readonly meta: Readonly<Record<string, unknown>>;
}

export type Relation =
  /** One item of `to`. For a one-to-one relation, `by` is the field there that holds the reference. */
  | { readonly kind: 'one'; readonly to: string; readonly by: string | null }
  /**
   * The items of `to` whose field `by` is the key. For a many-to-many relation they are rows of the junction, and `far` leads to the
   * other side, to items of `farTo` (null if they may be of several collections). Items removed from the relation are deleted if `deletes` is set. Otherwise their reference becomes null.
   */
  | {
      readonly kind: 'many';
      readonly to: string;
      readonly by: string;
      readonly far: string | null;
      readonly farTo: string | null;
      readonly deletes: boolean;
    }
  /** One item of one of the collections. The field `by` names its collection. */
  | { readonly kind: 'any'; readonly among: readonly string[]; readonly by: string | null };

export interface Field {
  readonly collection: string;
  readonly name: string;
  readonly type: string;
  /** The column's definition, or null if the field has no column. */
  readonly column: Column | null;
  readonly relation: Relation | null;
  /** The columns of a composite reference. */
  readonly columns: readonly string[];
  readonly isKey: boolean;
  readonly note: string | null;
  readonly hidden: boolean;
  readonly readonly: boolean;
  /** The values of an enum, of a check or of `meta.options.choices`; empty if any value is allowed. */
  readonly choices: readonly Choice[];
  /** Whether values that `choices` does not list are allowed too. */
  readonly allowsOther: boolean;
}

export interface Collection {
  readonly name: string;
  readonly fields: ReadonlyMap<string, Field>;
  /** The key column, or null if the table has no key of one column. */
  readonly key: string | null;
  /** The columns of its key; empty for a table without one. */
  readonly keys: readonly string[];
  readonly singleton: boolean;
  /** Whether it is a view: each read runs its query. */
  readonly isView: boolean;
  readonly note: string | null;
  readonly system: boolean;
  /** Whether the API has a route for its items: some tables of the service have none. */
  readonly hasItems: boolean;
  /** Whether the API creates, changes and deletes its items. */
  readonly isWritable: boolean;
  /** Whether its items may have content versions. */
  readonly versioning: boolean;
  /** Whether changes of its items are recorded as revisions. */
  readonly hasRevisions: boolean;
}

export type Model = ReadonlyMap<string, Collection>;

export async function loadModel(): Promise<Model> {
  const [collections, fields, relations] = await Promise.all([
    call<CollectionObject[]>('GET', '/collections'),
    call<FieldObject[]>('GET', '/fields'),
    call<RelationObject[]>('GET', '/relations'),
  ]);
  knownCollections = collections.text;
  return makeModel(collections.data, fields.data, relations.data);
}

let knownCollections = '';

/** Whether collections were added, changed or removed since the model was loaded. This is cheaper than loading it. */
export async function haveCollectionsChanged(): Promise<boolean> {
  return (await call('GET', '/collections')).text !== knownCollections;
}

export function isSameModel(one: Model, other: Model): boolean {
  return textOf(one) === textOf(other);
}

function textOf(model: Model): string {
  return JSON.stringify([...model.values()].map(({ fields, ...rest }) => [rest, [...fields.values()]]));
}

function makeModel(
  collections: readonly CollectionObject[],
  fields: readonly FieldObject[],
  relations: readonly RelationObject[],
): Model {
  const leads = relationsByField(relations);
  const byCollection = new Map<string, Map<string, Field>>();
  for (const field of fields) {
    const lead = leads.get(id(field.collection, field.field)) ?? null;
    const known = byCollection.get(field.collection) ?? new Map<string, Field>();
    byCollection.set(field.collection, known);
    known.set(field.field, describeField(field, lead));
  }
  for (const own of byCollection.values()) nameCollections(own);
  const model = new Map<string, Collection>();
  const prefix = setSystemPrefix(collections.map(({ collection }) => collection));
  const ordered = [...collections].sort((one, other) => NAMES_ORDER.compare(one.collection, other.collection));
  for (const { collection, meta, schema } of ordered) {
    const own = byCollection.get(collection);
    if (!schema || !own) continue;
    const declared = typeof meta?.['primary_key'] === 'string' ? meta['primary_key'] : null;
    const found = [...own.values()].filter((field) => field.isKey).map(({ name }) => name);
    const keys = found.length > 0 ? found : declared && own.has(declared) ? [declared] : [];
    const resource = collection.startsWith(prefix) ? collection.slice(prefix.length) : null;
    const hasItems = resource === null || RESOURCES.has(resource);
    model.set(collection, {
      name: collection,
      fields: own,
      key: keys.length === 1 ? (keys[0] ?? null) : null,
      keys,
      singleton: meta?.['singleton'] === true,
      isView: schema.kind === 'view',
      note: text(meta?.['note']) ?? schema.comment,
      system: resource !== null,
      hasItems,
      isWritable: hasItems && keys.length > 0 && !(resource !== null && READ_ONLY.has(resource)),
      versioning: meta?.['versioning'] === true,
      hasRevisions: meta === null || meta['accountability'] === 'all',
    });
  }
  return model;
}

/** The field that names the collection of a many-to-any item has the allowed collections as choices. */
function nameCollections(fields: Map<string, Field>): void {
  for (const { relation } of [...fields.values()]) {
    const named = relation?.kind === 'any' ? fields.get(relation.by ?? '') : undefined;
    if (relation?.kind === 'any' && named && named.choices.length === 0)
      fields.set(named.name, { ...named, choices: relation.among.map((value) => ({ value, text: value })) });
  }
}

/** The tables of the service that the API serves as items. */
const RESOURCES = new Set(
  `users roles policies access permissions functions presets comments notifications translations folders files dashboards panels
  versions shares webhooks webhook_deliveries activity revisions settings`.split(/\s+/),
);
const READ_ONLY = new Set(['webhook_deliveries', 'activity', 'revisions']);

/** Sorts `table_9` before `table_10`. */
const NAMES_ORDER = new Intl.Collator('en', { numeric: true });

function describeField({ collection, field, type, schema, meta }: FieldObject, relation: Relation | null): Field {
  return {
    collection,
    name: field,
    type,
    column: schema,
    relation:
      isOneToOne(meta) && relation?.kind === 'many' ? { kind: 'one', to: relation.to, by: relation.by } : relation,
    columns: columnsOf(meta),
    isKey: schema?.is_primary_key ?? false,
    note: text(meta?.['note']) ?? schema?.comment ?? null,
    hidden: meta?.['hidden'] === true,
    readonly: (schema?.is_generated ?? false) || (!schema && relation === null),
    ...choicesOf(schema, meta),
  };
}

function choicesOf(schema: Column | null, meta: FieldObject['meta']): Pick<Field, 'choices' | 'allowsOther'> {
  const { choices, allowOther } = (meta?.['options'] ?? {}) as { choices?: unknown; allowOther?: unknown };
  // The database refuses other values, whatever the options say.
  if (schema?.choices) return { choices: schema.choices.map((value) => ({ value, text: value })), allowsOther: false };
  const listed = Array.isArray(choices) ? choices.flatMap(readChoice) : [];
  return { choices: listed, allowsOther: allowOther === true };
}

function readChoice(choice: unknown): Choice[] {
  if (typeof choice === 'string' || typeof choice === 'number') return [{ value: choice, text: String(choice) }];
  if (typeof choice !== 'object' || choice === null || !('value' in choice)) return [];
  const { text: name } = choice as { readonly text?: unknown };
  return [{ value: choice.value, text: text(name) ?? String(choice.value) }];
}

function isOneToOne(meta: FieldObject['meta']): boolean {
  return [meta?.['special']].flat().includes('o2o');
}

function columnsOf(meta: FieldObject['meta']): string[] {
  const { columns } = (meta?.['options'] ?? {}) as { readonly columns?: unknown };
  return Array.isArray(columns) ? columns.map(String) : [];
}

function relationsByField(relations: readonly RelationObject[]): ReadonlyMap<string, Relation> {
  const found = new Map<string, Relation>();
  const targets = new Map(relations.map((each) => [id(each.collection, each.field), each.related_collection]));
  for (const { collection, field, related_collection: to, meta } of relations) {
    const among = meta['one_allowed_collections'];
    if (to !== null) found.set(id(collection, field), { kind: 'one', to, by: null });
    else if (Array.isArray(among))
      found.set(id(collection, field), {
        kind: 'any',
        among: among.map(String),
        by: text(meta['one_collection_field']),
      });
    const one = text(meta['one_field']);
    if (to !== null && one !== null)
      found.set(id(to, one), {
        kind: 'many',
        to: collection,
        by: field,
        far: text(meta['junction_field']),
        farTo: targets.get(id(collection, text(meta['junction_field']) ?? '')) ?? null,
        deletes: meta['one_deselect_action'] === 'delete',
      });
  }
  return found;
}

function id(collection: string, field: string): string {
  return JSON.stringify([collection, field]);
}

function text(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

const NAMES = [
  'name',
  'title',
  'label',
  'subject',
  'headline',
  'email',
  'username',
  'full_name',
  'last_name',
  'slug',
  'code',
];

/** The field that identifies an item for users, or the key if there is none. */
export function titleField(collection: Collection | undefined): string | null {
  if (!collection) return null;
  const fields = [...collection.fields.values()].filter((field) => field.column && !field.relation);
  // The title of a user is a job title.
  if (collection.system && collection.fields.has('email')) return 'email';
  for (const name of NAMES) {
    const field = collection.fields.get(name);
    if (field?.column && !field.relation) return name;
  }
  const isOf = (wanted: string): string | undefined =>
    fields.find(({ type, isKey }) => type === wanted && !isKey)?.name;
  return isOf('string') ?? isOf('text') ?? collection.keys[0] ?? null;
}

/** The fields whose values together name an item: a person has a first name too. */
export function titleFields(collection: Collection | undefined): string[] {
  const title = titleField(collection);
  if (title === null) return [];
  const given = title === 'last_name' ? collection?.fields.get('first_name') : undefined;
  return given?.column && !given.relation ? [given.name, title] : [title];
}

const NUMBERS = new Set(['integer', 'bigInteger', 'float', 'decimal']);
const MOMENTS = new Set(['timestamp', 'dateTime', 'date', 'time']);

export function isNumber(field: Field): boolean {
  return NUMBERS.has(field.type);
}

/** The API has no name for array types. */
export function isArray({ column }: Field): boolean {
  return column?.data_type.endsWith('[]') ?? false;
}

/** The API has no name for ranges either. */
export function isRange({ column }: Field): boolean {
  return /^(int4|int8|num|date|ts|tstz)range$/.test(column?.data_type ?? '');
}

export function isMoment(field: Field): boolean {
  return MOMENTS.has(field.type);
}

/** The field at the end of a path such as `author.name`. */
export function fieldAt(model: Model, collection: string, path: string): Field | null {
  let current: string | null = collection;
  let found: Field | null = null;
  for (const name of path.split('.')) {
    const field: Field | null = (current === null ? undefined : model.get(current)?.fields.get(name)) ?? null;
    if (!field) return null;
    found = field;
    current = field.relation && field.relation.kind !== 'any' ? field.relation.to : null;
  }
  return found;
}

/** The type in PostgreSQL, or the kind of relation. */
export function typeLabel(field: Field): string {
  if (field.relation?.kind === 'many') return `${field.relation.farTo ?? field.relation.to}[]`;
  if (field.relation?.kind === 'one') return field.relation.to;
  if (field.relation?.kind === 'any') return field.relation.among.join(' | ');
  return field.column?.data_type ?? field.type;
}
