/**
 * Relations that the foreign keys of a database imply: the list on the other side of each reference, or the one item where
 * the reference is unique, and the two lists of a table that only links. Pure: names are chosen so that they clash with no field of the collection and no
 * other suggestion, and so that a path or a GraphQL document can spell them.
 */

import { groupBy } from '../../base/narrow.js';
import { areUnique, isKey, singleKey } from '../../compiler/model/item-key.js';
import type { Collection, Field, ManyToOne, Model } from '../../compiler/model/model.js';
import type { DdlStatement } from '../../server/schema/change/ddl-statement.js';

export interface Suggestion {
  readonly kind: 'one-to-many' | 'one-to-one' | 'many-to-many';
  /** Where the new field appears, and its name. */
  readonly collection: string;
  readonly field: string;
  /** The reference it is the other side of. */
  readonly manyCollection: string;
  readonly manyField: string;
  /** Where several columns hold the reference: these. The field is then an alias that is created for them. */
  readonly columns: readonly string[] | null;
  /** For a junction: the reference to the other side, its collection, and the column that holds the order. */
  readonly junctionField: string | null;
  readonly target: string;
  readonly sortField: string | null;
  /** Not shown in forms by default: one of the many lists of a hub, or of rows that only note who made them. */
  readonly hidden: boolean;
}

/** A collection with so many lists that showing all of them is useless and reading all of them expensive. */
export interface Hub {
  readonly collection: string;
  readonly lists: number;
}

const MANY_LISTS = 10;

/** Counts the existing lists and the suggested ones. */
export function hubsOf(model: Model, suggestions: readonly Pick<Suggestion, 'collection'>[]): readonly Hub[] {
  const counts = new Map<string, number>();
  const count = (name: string): void => void counts.set(name, (counts.get(name) ?? 0) + 1);
  for (const { name, fields, system } of model.collections.values()) {
    if (!system) for (const { relation } of fields.values()) if (relation?.kind === 'one-to-many') count(name);
  }
  for (const { collection } of suggestions) count(collection);
  return [...counts]
    .filter(([, lists]) => lists >= MANY_LISTS)
    .map(([collection, lists]) => ({ collection, lists }))
    .sort((left, right) => right.lists - left.lists || compare(left.collection, right.collection));
}

/** `created_by`, `updatedBy`, `deleted_user`: who did it, not what it belongs to. */
const AUTHORSHIP = /^(user_)?(created|updated|modified|changed|deleted|edited)(_?by|_?user)?(_?id)?$/i;

/** In the order of the collections that get a field. A reference that has its list already suggests nothing. */
export function suggestRelations(model: Model): readonly Suggestion[] {
  const usedNames = new Map<string, Set<string>>();
  const reserveName = (collection: string, names: readonly string[]): string => {
    const used = usedNames.get(collection) ?? new Set(model.collections.get(collection)?.fields.keys());
    usedNames.set(collection, used);
    const name = pickName(names, used);
    used.add(name);
    return name;
  };
  const references = findReferences(model, reserveName);
  const referred = new Set(references.map(({ one }) => one));
  const drafts: UnnamedSuggestion[] = [];
  for (const [many, own] of groupBy(references, ({ many }) => many.name)) {
    const pair = referred.has(many) ? null : junctionOf(own);
    for (const reference of own) {
      if (reference.hasList) continue;
      drafts.push(pair ? linkDraft(reference, pair, references) : listDraft(reference, own));
    }
  }
  const suggestions = drafts.map(({ names, ...draft }) => ({ ...draft, field: reserveName(draft.collection, names) }));
  const hubs = new Set(hubsOf(model, suggestions).map(({ collection }) => collection));
  const withHidden = suggestions.map((each) =>
    Object.freeze({ ...each, hidden: hubs.has(each.collection) || AUTHORSHIP.test(each.manyField) }),
  );
  return Object.freeze(withHidden.sort((left, right) => compare(left.collection, right.collection)));
}

/** A row that describes the reference already gets the list; what else it says stays. */
export function planSuggestions(suggestions: readonly Suggestion[], model: Model): readonly DdlStatement[] {
  return suggestions.flatMap((suggestion): DdlStatement[] => {
    const { collection, field, manyCollection, manyField, junctionField, sortField } = suggestion;
    const links = suggestion.kind === 'many-to-many';
    const row = model.relationRows.find(
      (each) => each['many_collection'] === manyCollection && each['many_field'] === manyField,
    );
    const many = model.collections.get(manyCollection);
    // A row whose key holds the whole reference cannot be without it.
    const holders = suggestion.columns ?? [manyField];
    const leaves = links || (many && holders.every((name) => isKey(many, many.fields.get(name))));
    const values = {
      one_collection: collection,
      one_field: field,
      junction_field: row?.['junction_field'] ?? junctionField,
      sort_field: row?.['sort_field'] ?? sortField,
      // A row of a junction that links nothing is of no use; any other row outlives the relation.
      one_deselect_action: leaves && !row?.['junction_field'] ? 'delete' : (row?.['one_deselect_action'] ?? 'nullify'),
    };
    const meta = { ...ALIAS_META[suggestion.kind], hidden: suggestion.hidden };
    const manyEnd = { many_collection: manyCollection, many_field: manyField };
    const alias = {
      special: 'm2o',
      interface: 'select-dropdown-m2o',
      options: { columns: suggestion.columns },
    };
    return [
      ...(suggestion.columns
        ? [{ kind: 'save-field', collection: manyCollection, field: manyField, values: alias } as const]
        : []),
      { kind: 'save-field', collection, field, values: meta },
      row
        ? { kind: 'change-relation', collection: manyCollection, field: manyField, values }
        : { kind: 'add-relation', values: { ...values, ...manyEnd } },
    ];
  });
}

const ALIAS_META: Readonly<Record<Suggestion['kind'], { special: string; interface: string | null }>> = {
  'one-to-many': { special: 'o2m', interface: 'list-o2m' },
  'one-to-one': { special: 'o2o', interface: null },
  'many-to-many': { special: 'm2m', interface: 'list-m2m' },
};

/** A foreign key: the field that it goes by, and the columns that hold it. */
interface Reference {
  readonly many: Collection;
  readonly name: string;
  readonly columns: readonly Field[];
  /** Whether the field is an alias that is yet to be made. */
  readonly isNew: boolean;
  readonly one: string;
  /** The list on the other side already exists. */
  readonly hasList: boolean;
}

/** A suggestion whose name is still to be chosen: the first of `names` that is free. */
interface UnnamedSuggestion extends Omit<Suggestion, 'field' | 'hidden'> {
  readonly names: readonly string[];
}

type ReserveName = (collection: string, names: readonly string[]) => string;

function findReferences(model: Model, reserveName: ReserveName): Reference[] {
  const references: Reference[] = [];
  for (const many of model.collections.values()) {
    if (many.system) continue;
    for (const field of many.fields.values()) {
      const { relation } = field;
      if (relation?.kind !== 'many-to-one' || !isForeignKey(field, relation)) continue;
      if (model.collections.get(relation.oneCollection)?.system !== false) continue;
      references.push({
        many,
        name: field.name,
        columns: [field],
        isNew: false,
        one: relation.oneCollection,
        hasList: relation.oneField !== null,
      });
    }
  }
  for (const many of model.collections.values())
    if (!many.system) references.push(...compositeReferences(many, model, reserveName));
  return references;
}

/** A relation that was declared without a foreign key is taken as complete. */
function isForeignKey({ column }: Field, relation: ManyToOne): boolean {
  return column?.foreign_keys[0]?.collection === relation.oneCollection;
}

interface Junction {
  readonly first: Reference;
  readonly second: Reference;
  readonly sortField: string | null;
}

/** A table with two references and no other data, or whose key or name consists of both sides. */
function junctionOf(references: readonly Reference[]): Junction | null {
  const [first, second, ...others] = references;
  if (!first || !second || others.length > 0) return null;
  const { many } = first;
  const sole = singleKey(many);
  const links = [...first.columns, ...second.columns];
  const isLink = (field: Field): boolean => links.includes(field);
  if (sole && isLink(sole)) return null;
  const rest = [...many.fields.values()].filter((field) => field.column && field !== sole && !isLink(field));
  const isKeyed = many.key.length > 1 && many.key.every(isLink) && links.every((field) => isKey(many, field));
  if (!isKeyed && !rest.every(isIncidental) && !isNamedAfter(many.name, first.one, second.one)) return null;
  const [order, ...more] = rest.filter(isOrder);
  return { first, second, sortField: order && more.length === 0 ? order.name : null };
}

function isIncidental(field: Field): boolean {
  const { column, type } = field;
  const stamped = (type === 'timestamp' || type === 'dateTime' || type === 'date') && column?.default_expression;
  return isOrder(field) || Boolean(stamped) || column?.is_generated === true || column?.is_primary_key === true;
}

function isOrder({ name, type, column }: Field): boolean {
  return type === 'integer' && column?.is_unique === false && ORDERS.has(name.toLowerCase());
}

const ORDERS: ReadonlySet<string> = new Set(['sort', 'sort_order', 'position', 'order', 'ordinal', 'rank', 'sequence']);

/** `articles_tags`, `article_tag`, `TagsOfArticles`: singular and plural alike. */
function isNamedAfter(name: string, one: string, other: string): boolean {
  const text = flatten(name);
  return one !== other && text.includes(singular(flatten(one))) && text.includes(singular(flatten(other)));
}

function flatten(name: string): string {
  return name.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '');
}

function singular(name: string): string {
  return name.replace(/ies$/, '').replace(/(?<=[^s])s$/, '');
}

function listDraft(reference: Reference, siblings: readonly Reference[]): UnnamedSuggestion {
  const { many, name, columns, one } = reference;
  const alone = siblings.filter((sibling) => sibling.one === one).length === 1;
  const qualified = `${many.name}_by_${referenceStem(reference)}`;
  const itself = many.name === one;
  const names = itself
    ? [...(/^parent/i.test(name) ? ['children'] : []), qualified]
    : alone
      ? [many.name, qualified]
      : [qualified];
  return {
    kind: areUnique(many, namesOf(columns)) ? 'one-to-one' : 'one-to-many',
    collection: one,
    manyCollection: many.name,
    manyField: name,
    columns: newColumns(reference),
    junctionField: null,
    target: many.name,
    sortField: null,
    names,
  };
}

function namesOf(fields: readonly Field[]): string[] {
  return fields.map(({ name }) => name);
}

function newColumns({ columns, isNew }: Reference): readonly string[] | null {
  return isNew ? namesOf(columns) : null;
}

/** Foreign keys of several columns. A foreign key with an alias field needs no further fields. */
function compositeReferences(many: Collection, model: Model, reserveName: ReserveName): Reference[] {
  const aliasOf = (columns: readonly string[], one: string): Field | undefined =>
    [...many.fields.values()].find(
      ({ relation }) =>
        relation?.kind === 'many-to-one' &&
        relation.oneCollection === one &&
        relation.columns.length === columns.length &&
        relation.columns.every(({ column }) => columns.includes(column)),
    );
  return many.references.flatMap(({ collection: one, columns: pairs }): Reference[] => {
    if (model.collections.get(one)?.system !== false) return [];
    const names = pairs.map(({ column }) => column);
    const columns = names.flatMap((name) => many.fields.get(name) ?? []);
    const alias = aliasOf(names, one);
    if (alias) return [{ many, name: alias.name, columns, isNew: false, one, hasList: true }];
    const alone = many.references.filter(({ collection }) => collection === one).length === 1;
    const qualified = `${one}_by_${names.map(withoutIdSuffix).join('_')}`;
    const name = reserveName(many.name, alone && many.name !== one ? [one, qualified] : [qualified]);
    return [{ many, name, columns, isNew: true, one, hasList: false }];
  });
}

/** The list of one side of a junction is named after what it leads to, unless that refers to this side by itself too. */
function linkDraft(reference: Reference, junction: Junction, all: readonly Reference[]): UnnamedSuggestion {
  const { many, name, one } = reference;
  const leading = reference === junction.first;
  const other = leading ? junction.second : junction.first;
  const qualified = `${many.name}_by_${referenceStem(reference)}`;
  const direct = one !== other.one && !all.some((each) => each.many.name === other.one && each.one === one);
  return {
    kind: 'many-to-many',
    collection: one,
    manyCollection: many.name,
    manyField: name,
    columns: newColumns(reference),
    junctionField: other.name,
    target: other.one,
    // One column holds one order: that of the side named first.
    sortField: leading ? junction.sortField : null,
    names: one === other.one ? [qualified] : direct ? [other.one, many.name, qualified] : [many.name, qualified],
  };
}

function referenceStem({ columns }: Reference): string {
  return namesOf(columns).map(withoutIdSuffix).join('_');
}

/** `author_id` and `authorId` become `author`. */
function withoutIdSuffix(name: string): string {
  return name.replace(/(?<=.)[ _-](?:id|fk|key|code|uuid)$/i, '').replace(/(?<=[a-z])Id$/, '');
}

function pickName(names: readonly string[], used: ReadonlySet<string>): string {
  const sanitized = names.map(sanitizeName);
  const free = sanitized.find((name) => !used.has(name));
  if (free !== undefined) return free;
  const last = sanitized.at(-1) ?? '';
  for (let number = 2; ; number++) {
    const name = `${shorten(last, MAX_NAME_BYTES - 1 - String(number).length)}_${number}`;
    if (!used.has(name)) return name;
  }
}

const MAX_NAME_BYTES = 63;

/** Dots, brackets and signs would end or change a path; leading underscores belong to GraphQL. */
function sanitizeName(name: string): string {
  const plain = name.replace(/[^\p{L}\p{N}_]+/gu, '_').replace(/^_+|_+$/g, '');
  return shorten(plain === '' ? 'items' : plain, MAX_NAME_BYTES);
}

/** To so many bytes, never inside a character. */
function shorten(name: string, bytes: number): string {
  let short = name;
  while (Buffer.byteLength(short) > bytes) short = [...short].slice(0, -1).join('');
  return short;
}

function compare(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
