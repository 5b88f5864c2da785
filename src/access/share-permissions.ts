/**
 * The permissions of a share: the item, and the rows that its relations lead to, as far as both the role of the share and the user who made
 * it may see them. Nothing can be written.
 */
import { isObject } from '../base/exact-json.js';
import { keyNames } from '../mirror/item-key.js';
import type { Collection, Field, Model } from '../mirror/model.js';
import { splitKey } from '../sql/key-text.js';
import type { Caller } from '../sql/parameter.js';
import { type PermissionRow, Permissions, readRules } from './permissions.js';

interface SharedItem {
  readonly collection: string;
  readonly item: string;
}

/** Rows about reading; null for everything. */
type ReadRows = readonly PermissionRow[] | null;

export class SharedPermissions extends Permissions {
  readonly #shared: SharedItem;
  readonly #sides: readonly [ReadRows, ReadRows];
  readonly #byModel = new WeakMap<Model, Permissions>();

  /** `sides` are the permissions of the share's role and those of its creator. */
  constructor(key: string, shared: SharedItem, sides: readonly [ReadRows, ReadRows], databaseRole: string | null) {
    super(key, new Map(), databaseRole);
    this.#shared = shared;
    this.#sides = sides;
  }

  /** Which rows belong to the item depends on the relations of the model. */
  override view(model: Model): Model {
    const known =
      this.#byModel.get(model) ?? new Permissions(this.key, readRules(this.#rows(model)), this.databaseRole);
    this.#byModel.set(model, known);
    return known.view(model);
  }

  #rows(model: Model): PermissionRow[] {
    const rows: PermissionRow[] = [];
    for (const [collection, filters] of scopesOf(this.#shared, model)) {
      const scope = { _or: filters };
      const [role, creator] = this.#sides.map((side) => rowsAbout(side, collection));
      for (const one of role ?? [])
        for (const other of creator ?? [])
          rows.push({
            ...one,
            permissions: bothAnd(scope, one, other),
            fields: commonFields(one.fields, other.fields),
          });
    }
    return rows;
  }
}

function rowsAbout(side: ReadRows, collection: string): readonly PermissionRow[] {
  const all = { collection, action: 'read', permissions: null, validation: null, presets: null, fields: '*' };
  return side === null ? [all] : side.filter((row) => row.collection === collection);
}

function bothAnd(scope: object, ...rows: readonly PermissionRow[]): object {
  const given = rows.map(({ permissions }) => permissions).filter((each) => !isNothing(each));
  return { _and: [scope, ...given] };
}

function isNothing(filter: unknown): boolean {
  return filter === null || filter === undefined || (isObject(filter) && Object.keys(filter).length === 0);
}

function commonFields(one: string | null, other: string | null): string {
  const [left, right] = [one, other].map((names) => (names ?? '').split(',').map((name) => name.trim()));
  if (!left || !right) return '';
  if (left.includes('*')) return right.join();
  return (right.includes('*') ? left : left.filter((name) => right.includes(name))).join();
}

type Filters = Map<string, object[]>;

/** Relations are followed no further, and in no more ways: a filter for each way is part of the statement. */
const MAX_STEPS = 4;
const MAX_FILTERS = 100;

/** By collection, which of its rows belong to the item; each filter alone suffices. */
function scopesOf({ collection: name, item }: SharedItem, model: Model): Filters {
  const filters: Filters = new Map();
  const collection = model.collections.get(name);
  const names = collection ? keyNames(collection) : [];
  const parts = names.length === 1 ? [item] : splitKey(item, names.length);
  if (!collection || !parts || names.length === 0) return filters;
  const isItem = { _and: names.map((key, position) => ({ [key]: { _eq: parts[position] } })) };
  filters.set(name, [isItem]);
  /** From rows of the collection, along its fields; never back to where the way came from. */
  const follow = (from: Collection, filter: object, way: readonly string[]): void => {
    if (way.length > MAX_STEPS) return;
    for (const field of from.fields.values()) {
      for (const { target, by } of stepsOf(field, from, model)) {
        const next = model.collections.get(target);
        if (!next || way.includes(target)) continue;
        if ([...filters.values()].flat().length >= MAX_FILTERS) return;
        const reached = { [by]: filter };
        filters.set(target, [...(filters.get(target) ?? []), reached]);
        if (!next.system) follow(next, reached, [...way, target]);
      }
    }
  };
  follow(collection, isItem, [name]);
  return filters;
}

interface Step {
  readonly target: string;
  /** The key of a filter on the target that leads back. */
  readonly by: string;
}

function stepsOf({ name, column, relation }: Field, { name: from }: Collection, model: Model): Step[] {
  switch (relation?.kind) {
    case 'many-to-one':
      return column ? [{ target: relation.oneCollection, by: `$FOLLOW(${from},${name})` }] : [];
    case 'many-to-any': {
      const by = `$FOLLOW(${from},${name},${relation.collectionField})`;
      return relation.allowedCollections.map((target) => ({ target, by }));
    }
    case 'one-to-many':
    case 'one-to-one': {
      const many = model.collections.get(relation.manyCollection);
      // A reference to one of several collections would have to name this one; tables of the service are no part of an item.
      const isPlain = many?.fields.get(relation.manyField)?.relation?.kind === 'many-to-one';
      return many && isPlain && !many.system ? [{ target: many.name, by: relation.manyField }] : [];
    }
    default:
      return [];
  }
}

/** Variables in the rules of the creator mean the creator, not the reader. A rule that needs more than a key grants nothing. */
export function boundTo(creator: Caller, rows: readonly PermissionRow[]): PermissionRow[] {
  return rows.flatMap((row) => {
    try {
      return [{ ...row, permissions: bindVariables(row.permissions, creator) }];
    } catch {
      return [];
    }
  });
}

function bindVariables(value: unknown, creator: Caller): unknown {
  if (Array.isArray(value)) return value.map((each) => bindVariables(each, creator));
  if (isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, bindVariables(each, creator)]));
  if (typeof value !== 'string' || !value.startsWith('$CURRENT_')) return value;
  const variables: Readonly<Record<string, unknown>> = {
    $CURRENT_USER: creator.user,
    $CURRENT_ROLE: creator.role,
    $CURRENT_ROLES: creator.roles,
    $CURRENT_POLICIES: creator.policies,
  };
  if ((variables[value] ?? null) === null) throw new Error('it is not known here');
  return variables[value];
}
