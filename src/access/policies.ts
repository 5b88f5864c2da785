/**
 * All policies with their permissions, in memory, so that no request spends a statement on them. The rules of a set of
 * policies are combined once and have a key: the digest of the rules, which is part of every shape compiled for them.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { parseOwnJson } from '../base/narrow.js';
import { APP_PERMISSIONS } from './app-permissions.js';
import type { Identity, ReadConditions, SharedScope } from './identity.js';
import { ConditionedPermissions, type PermissionRow, Permissions, readRules } from './permissions.js';
import { boundTo, SharedPermissions } from './share-permissions.js';

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

  /** Null for administrators. */
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
    const all = policies.some((policy) => policy.app_access) ? [...APP_PERMISSIONS, ...rows] : rows;
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
