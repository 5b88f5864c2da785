/** The kinds of relations, and the collections, fields and relations of the API that create one (`POST /schema/changes`). */
import type { Collection, Model } from '../model';

export type RelationKind = 'm2o' | 'o2o' | 'o2m' | 'm2m' | 'm2a';

export interface RelationDraft {
  readonly kind: RelationKind;
  /** The field of this collection: a column, or a list. */
  readonly field: string;
  readonly to: string;
  /** The collections of a many-to-any relation. */
  readonly among: readonly string[];
  /** The field of the other collection: a list or an item; for one-to-many the column that holds the reference. */
  readonly back: string;
  readonly junction: string;
  readonly sorted: boolean;
  readonly onDelete: string;
}

export interface NewField {
  readonly collection?: string;
  readonly field: string;
  readonly type: string;
  readonly schema?: Readonly<Record<string, unknown>>;
  readonly meta?: Readonly<Record<string, unknown>>;
}

interface NewCollection {
  readonly collection: string;
  readonly schema: Readonly<Record<string, never>>;
  readonly meta: Readonly<Record<string, unknown>>;
  readonly fields: readonly NewField[];
}

interface NewRelation {
  readonly collection: string;
  readonly field: string;
  readonly related_collection: string | null;
  readonly schema?: Readonly<Record<string, unknown>>;
  readonly meta: Readonly<Record<string, unknown>>;
}

/** The body of `POST /schema/changes`. */
export interface SchemaChanges {
  readonly collections: readonly NewCollection[];
  readonly fields: readonly NewField[];
  readonly relations: readonly NewRelation[];
}

/** The names of a new relation, until the user types others. */
export function suggestedNames(
  { kind, to, field: named }: Pick<RelationDraft, 'kind' | 'to'> & Partial<RelationDraft>,
  collection: Collection,
  model: Model,
): Pick<RelationDraft, 'field' | 'back' | 'junction'> {
  const target = model.get(to);
  const plain = shortName(to);
  const holdsColumn = kind === 'm2o' || kind === 'o2o';
  const field = kind === 'm2a' ? 'items' : holdsColumn ? singular(plain) : plain;
  const back = kind === 'o2m' ? singular(collection.name) : kind === 'm2o' ? '' : collection.name;
  const isOne = kind === 'o2o';
  return {
    field: freeName(field, collection.fields),
    back: back === '' ? '' : freeName(isOne ? singular(back) : back, target?.fields ?? new Map()),
    // A many-to-any list has no second collection to be named after.
    junction: freeName(`${collection.name}_${kind === 'm2a' ? named?.trim() || 'items' : plain}`, model),
  };
}

function shortName(collection: string): string {
  return collection.replace(/^(service|directus)_/, '');
}

function singular(name: string): string {
  return name.length > 3 && /[^s]s$/.test(name) ? name.slice(0, -1) : name;
}

function freeName(name: string, taken: { readonly has: (name: string) => boolean }): string {
  for (let number = 1; ; number++) {
    const candidate = number === 1 ? name : `${name}_${number}`;
    if (!taken.has(candidate)) return candidate;
  }
}

export function planRelation(draft: RelationDraft, collection: Collection, model: Model): SchemaChanges {
  switch (draft.kind) {
    case 'm2o':
    case 'o2o':
      return toOne(draft, collection, model);
    case 'o2m':
      return toMany(draft, collection);
    case 'm2m':
      return throughJunction(draft, collection, model);
    case 'm2a':
      return toAny(draft, collection);
  }
}

function toOne(draft: RelationDraft, { name }: Collection, model: Model): SchemaChanges {
  const isUnique = draft.kind === 'o2o';
  const column = reference(draft.field, model.get(draft.to), isUnique ? { is_unique: true } : {});
  const list = { field: draft.back, type: 'alias', meta: { special: [isUnique ? 'o2o' : 'o2m'] } };
  return {
    collections: [],
    fields: [{ collection: name, ...column }, ...(draft.back === '' ? [] : [{ collection: draft.to, ...list }])],
    relations: [
      {
        collection: name,
        field: draft.field,
        related_collection: draft.to,
        schema: { on_delete: draft.onDelete },
        meta: draft.back === '' ? {} : { one_field: draft.back },
      },
    ],
  };
}

function toMany(draft: RelationDraft, collection: Collection): SchemaChanges {
  return {
    collections: [],
    fields: [
      { collection: draft.to, ...reference(draft.back, collection) },
      { collection: collection.name, field: draft.field, type: 'alias', meta: { special: ['o2m'] } },
    ],
    relations: [
      {
        collection: draft.to,
        field: draft.back,
        related_collection: collection.name,
        schema: { on_delete: draft.onDelete },
        meta: { one_field: draft.field },
      },
    ],
  };
}

/** The rows of a junction are deleted with the items that they connect, and when an item leaves the list. */
const WITH_ITEMS = { schema: { on_delete: 'CASCADE' } };
const LEAVES = { one_deselect_action: 'delete' };

function throughJunction(draft: RelationDraft, collection: Collection, model: Model): SchemaChanges {
  const target = model.get(draft.to);
  const [here, there] = junctionColumns(collection.name, draft.to);
  const list = (of: string, field: string): NewField => ({
    collection: of,
    field,
    type: 'alias',
    meta: { special: ['m2m'] },
  });
  const side = { ...LEAVES, ...(draft.sorted ? { sort_field: 'sort' } : {}) };
  return {
    collections: [
      newJunction(draft, [
        reference(here, collection, { is_indexed: true }),
        reference(there, target, { is_indexed: true }),
      ]),
    ],
    fields: [list(collection.name, draft.field), ...(draft.back === '' ? [] : [list(draft.to, draft.back)])],
    relations: [
      {
        collection: draft.junction,
        field: here,
        related_collection: collection.name,
        ...WITH_ITEMS,
        meta: { one_field: draft.field, junction_field: there, ...side },
      },
      {
        collection: draft.junction,
        field: there,
        related_collection: draft.to,
        ...WITH_ITEMS,
        meta: { junction_field: here, ...(draft.back === '' ? {} : { one_field: draft.back, ...LEAVES }) },
      },
    ],
  };
}

function toAny(draft: RelationDraft, collection: Collection): SchemaChanges {
  const here = `${shortName(collection.name)}_id`;
  return {
    collections: [
      newJunction(draft, [
        reference(here, collection, { is_indexed: true }),
        { field: 'item', type: 'string' },
        { field: 'collection', type: 'string' },
      ]),
    ],
    fields: [{ collection: collection.name, field: draft.field, type: 'alias', meta: { special: ['m2a'] } }],
    relations: [
      {
        collection: draft.junction,
        field: here,
        related_collection: collection.name,
        ...WITH_ITEMS,
        meta: {
          one_field: draft.field,
          junction_field: 'item',
          ...LEAVES,
          ...(draft.sorted ? { sort_field: 'sort' } : {}),
        },
      },
      {
        collection: draft.junction,
        field: 'item',
        related_collection: null,
        meta: { one_collection_field: 'collection', one_allowed_collections: draft.among, junction_field: here },
      },
    ],
  };
}

function newJunction({ junction, sorted }: RelationDraft, columns: readonly NewField[]): NewCollection {
  return {
    collection: junction,
    schema: {},
    meta: { hidden: true },
    fields: [
      { field: 'id', type: 'integer', schema: { is_primary_key: true, has_auto_increment: true } },
      ...columns,
      ...(sorted ? [{ field: 'sort', type: 'integer' }] : []),
    ],
  };
}

function junctionColumns(one: string, other: string): readonly [string, string] {
  const [here, there] = [`${shortName(one)}_id`, `${shortName(other)}_id`];
  return here === there ? [here, `related_${there}`] : [here, there];
}

/** A column for the key of an item. */
function reference(field: string, target: Collection | undefined, schema: Record<string, unknown> = {}): NewField {
  const key = target?.key ? target.fields.get(target.key) : undefined;
  return { field, type: key?.type ?? 'integer', schema, meta: { special: ['m2o'] } };
}
