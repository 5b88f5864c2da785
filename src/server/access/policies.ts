/**
 * All policies with their permissions, in memory, so that no request spends a statement on them. The rules of a set of
 * policies are combined once and have a key: the digest of the rules, which is part of every shape compiled for them.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { isObject } from '../../base/exact-json.js';
import { parseOwnJson } from '../../base/narrow.js';
import {
  ConditionedPermissions,
  type PermissionRow,
  Permissions,
  readRules,
} from '../../compiler/access/permissions.js';
import { keyNames } from '../../compiler/model/item-key.js';
import type { Collection, Field, Model } from '../../compiler/model/model.js';
import { splitKey } from '../../compiler/sql/key-text.js';
import type { Caller } from '../../compiler/sql/parameter.js';
import type { Identity, ReadConditions, SharedScope } from './identity.js';

/** A row of service_policies with those of service_permissions that belong to it. */
interface PolicyRow {
  readonly id: string;
  readonly name: string;
  readonly ip_access: string | null;
  readonly enforce_tfa: boolean;
  readonly admin_access: boolean;
  readonly app_access: boolean;
  readonly permissions: readonly PermissionRow[];
}

interface Loaded {
  readonly policies: ReadonlyMap<string, PolicyRow>;
  /** By the names of the policies. */
  readonly access: LRUCache<string, Permissions>;
  readonly byIdentity: WeakMap<Identity, Permissions>;
}

/** Sets of policies whose rules are kept. */
const MAX_CACHED_SETS = 1_000;

export class Policies {
  /** Permissions by the digest of their rules: the same rules keep their views of the model and their compiled shapes. */
  readonly #byKey = new LRUCache<string, Permissions>({ max: MAX_CACHED_SETS });
  #loaded: Loaded = index([]);
  readonly #listeners: (() => void)[] = [];
  #appPermissions: readonly PermissionRow[] = [];
  #roleOf: (identity: Identity) => string | null = () => null;

  /** The rows of all policies, as JSON, in place of those there were. */
  apply(text: string): void {
    this.#loaded = index(parseOwnJson<PolicyRow[]>(text));
    for (const listener of this.#listeners) listener();
  }

  /** Called when others are in force. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Returns null for administrators, who have all permissions. */
  accessOf(identity: Identity): Permissions | null {
    if (identity.conditions) return this.#conditioned(identity, identity.conditions);
    if (identity.administrator) return null;
    const { byIdentity } = this.#loaded;
    const cached = byIdentity.get(identity);
    if (cached) return cached;
    const access = identity.share
      ? this.#share(identity, identity.share)
      : this.#ofRole(this.#add(this.policiesOf(identity)), this.#roleOf(identity));
    byIdentity.set(identity, access);
    return access;
  }

  /** Administrators have all permissions, within the conditions. */
  #conditioned(identity: Identity, { key, filters, caller }: ReadConditions): Permissions | null {
    const { byIdentity } = this.#loaded;
    const cached = byIdentity.get(identity);
    if (cached) return cached;
    const given = this.accessOf(caller);
    // Without conditions the statements are those of the caller.
    if ([...filters.values()].every(({ length }) => length === 0)) return given;
    const name = `${given?.key ?? 'all'} if ${digestOf(key)}`;
    const access = this.#byKey.get(name) ?? new ConditionedPermissions(name, given, filters);
    this.#byKey.set(name, access);
    byIdentity.set(identity, access);
    return access;
  }

  /** Adds what tables of features allow to users with `app_access`. */
  allowApp(rows: readonly PermissionRow[]): void {
    this.#appPermissions = rows;
  }

  /** From now on permissions grant nothing that the database role of the caller may not do. */
  limitByRole(roleOf: (identity: Identity) => string | null): void {
    this.#roleOf = roleOf;
  }

  #ofRole(access: Permissions, role: string | null): Permissions {
    if (role === null) return access;
    const key = `${access.key}@${role}`;
    const limited = this.#byKey.get(key) ?? access.forRole(role);
    this.#byKey.set(key, limited);
    return limited;
  }

  /** In order: what comes later wins where they set the same field. */
  policiesOf(identity: Identity): PolicyRow[] {
    return identity.policies.flatMap((id) => this.#loaded.policies.get(id) ?? []);
  }

  #share(identity: Identity, { collection, item, unlimited, creator }: SharedScope): Permissions {
    const reads = (policies: readonly string[]): PermissionRow[] =>
      policies
        .flatMap((id) => this.#loaded.policies.get(id)?.permissions ?? [])
        .filter(({ action }) => action === 'read');
    const role = unlimited ? null : reads(identity.policies);
    const limit = creator.administrator ? null : boundTo(creator, reads(creator.policies));
    const databaseRole = this.#roleOf(identity);
    const key = digestOf([collection, item, role, limit, databaseRole]);
    const access =
      this.#byKey.get(key) ?? new SharedPermissions(key, { collection, item }, [role, limit], databaseRole);
    this.#byKey.set(key, access);
    return access;
  }

  #add(policies: readonly PolicyRow[]): Permissions {
    const name = policies.map(({ id }) => id).join();
    const cached = this.#loaded.access.get(name);
    if (cached) return cached;
    const rows = policies.flatMap((policy) => policy.permissions);
    const all = policies.some((policy) => policy.app_access)
      ? [...APP_PERMISSIONS, ...this.#appPermissions, ...rows]
      : rows;
    const access = this.permit(all);
    this.#loaded.access.set(name, access);
    return access;
  }

  /** The permissions of these rows. */
  permit(rows: readonly PermissionRow[]): Permissions {
    const key = digestOf(rows);
    const access = this.#byKey.get(key) ?? new Permissions(key, readRules(rows));
    this.#byKey.set(key, access);
    return access;
  }
}

function digestOf(rules: unknown): string {
  return createHash('sha256').update(JSON.stringify(rules)).digest('base64url').slice(0, 22);
}

function index(policies: readonly PolicyRow[]): Loaded {
  return {
    policies: new Map(policies.map((policy) => [policy.id, policy])),
    access: new LRUCache({ max: MAX_CACHED_SETS }),
    byIdentity: new WeakMap(),
  };
}

const OWN_FIELDS = [
  'first_name',
  'last_name',
  'email',
  'password',
  'location',
  'title',
  'description',
  'tags',
  'avatar',
  'language',
  'appearance',
  'theme_light',
  'theme_dark',
  'theme_light_overrides',
  'theme_dark_overrides',
  'email_notifications',
  'last_page',
];
const SETTINGS = [
  'id',
  'project_name',
  'project_descriptor',
  'project_url',
  'project_color',
  'public_note',
  'default_language',
  'default_appearance',
  'auth_password_policy',
];

const IS_OWN_PRESET = { user: { _eq: '$CURRENT_USER' } };
const IS_OWN_COMMENT = { user_created: { _eq: '$CURRENT_USER' } };
const IS_RECIPIENT = { recipient: { _eq: '$CURRENT_USER' } };
/** The user's own presets, those of the user's role, and those for everybody. */
const IS_SHOWN_PRESET = {
  _or: [
    IS_OWN_PRESET,
    { user: { _null: true }, role: { _eq: '$CURRENT_ROLE' } },
    { user: { _null: true }, role: { _null: true } },
  ],
};

/**
 * The permissions of users with `app_access` in addition to their policies: see and change their own account, know the names of their roles
 * and the settings and texts that a screen needs, keep views of their own, comment on what they may read, and read what was sent to
 * them.
 */
const APP_PERMISSIONS: readonly PermissionRow[] = [
  allow('service_users', 'read', { id: { _eq: '$CURRENT_USER' } }, [
    ...OWN_FIELDS,
    'id',
    'status',
    'role',
    'tfa_secret',
    'provider',
    'last_access',
  ]),
  allow('service_users', 'update', { id: { _eq: '$CURRENT_USER' } }, OWN_FIELDS),
  allow('service_roles', 'read', { id: { _in: '$CURRENT_ROLES' } }, ['id', 'name', 'icon', 'description', 'parent']),
  allow('service_settings', 'read', null, SETTINGS),
  allow('service_activity', 'read', { user: { _eq: '$CURRENT_USER' } }, ['*']),
  allow('service_translations', 'read', null, ['*']),
  allow('service_presets', 'read', IS_SHOWN_PRESET, ['*']),
  // Without a user it would be the view of everybody.
  { ...allow('service_presets', 'create', null, ['*']), validation: IS_OWN_PRESET, presets: { user: '$CURRENT_USER' } },
  { ...allow('service_presets', 'update', IS_OWN_PRESET, ['*']), validation: IS_OWN_PRESET },
  allow('service_presets', 'delete', IS_OWN_PRESET, ['*']),
  allow('service_comments', 'read', IS_OWN_COMMENT, ['*']),
  // On items that they may read (execute/hooks/write-hooks.ts).
  allow('service_comments', 'create', null, ['id', 'collection', 'item', 'comment']),
  allow('service_comments', 'update', IS_OWN_COMMENT, ['comment']),
  allow('service_comments', 'delete', IS_OWN_COMMENT, ['*']),
  allow('service_notifications', 'read', IS_RECIPIENT, ['*']),
  allow('service_notifications', 'update', IS_RECIPIENT, ['status']),
];

function allow(
  collection: string,
  action: string,
  permissions: Record<string, unknown> | null,
  fields: readonly string[],
): PermissionRow {
  return { collection, action, permissions, validation: null, presets: null, fields: fields.join() };
}

interface SharedItem {
  readonly collection: string;
  readonly item: string;
}

/** Rows about reading; null for everything. */
type ReadRows = readonly PermissionRow[] | null;

/**
 * The permissions of a share: the item, and the rows that its relations lead to, as far as both the role of the share and the user who made
 * it may see them. Nothing can be written.
 */
class SharedPermissions extends Permissions {
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
function boundTo(creator: Caller, rows: readonly PermissionRow[]): PermissionRow[] {
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
