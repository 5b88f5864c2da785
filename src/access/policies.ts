/**
 * All policies with their permissions, in memory, so that no request spends a statement on them. They are loaded again on
 * each notification; the former ones stay until the new ones are whole. What a set of policies adds up to is worked out
 * once and has a key: the digest of its rules, which is part of every shape compiled for them.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Observer } from '../observe.js';

import type { Identity } from './identity.js';
import { APP_PERMISSIONS } from './minimal.js';
import { type PermissionRow, Permissions, readRules } from './permissions.js';

/** A row of service_policies with those of service_permissions that belong to it. */
export interface PolicyRow {
  readonly id: string;
  readonly name: string;
  readonly ip_access: string | null;
  readonly enforce_tfa: boolean;
  readonly admin_access: boolean;
  readonly app_access: boolean;
  readonly permissions: readonly PermissionRow[];
}

/** What this needs of the database; the driver stays behind it. */
export interface PolicySource {
  load(): Promise<readonly PolicyRow[]>;
  /** Calls back on each notification. Returns how to stop. */
  listen(changed: () => void): Promise<() => Promise<void>>;
}

interface Loaded {
  readonly policies: ReadonlyMap<string, PolicyRow>;
  /** By the names of the policies. */
  readonly access: LRUCache<string, Permissions>;
  readonly byIdentity: WeakMap<Identity, Permissions>;
}

/** Sets of policies whose rules are kept. */
const SETS = 1_000;

/** After a load that failed. */
const RETRY = 1_000;

export class Policies {
  readonly #source: PolicySource;
  readonly #observe: Observer;
  /** What the same rules added up to before: views of the model and compiled shapes stay theirs. */
  readonly #byKey = new LRUCache<string, Permissions>({ max: SETS });
  #loaded: Loaded = index([]);
  #loading: Promise<void> | null = null;
  #again = false;
  #closed = false;
  #stop: (() => Promise<void>) | null = null;

  private constructor(source: PolicySource, observe: Observer) {
    this.#source = source;
    this.#observe = observe;
  }

  static async start(source: PolicySource, observe: Observer): Promise<Policies> {
    const policies = new Policies(source, observe);
    policies.#stop = await source.listen(() => void policies.reload());
    policies.#loaded = index(await source.load());
    return policies;
  }

  /** Null for who may do everything. */
  accessOf(identity: Identity): Permissions | null {
    if (identity.administrator) return null;
    const { byIdentity } = this.#loaded;
    const known = byIdentity.get(identity);
    if (known) return known;
    const access = this.#add(this.policiesOf(identity));
    byIdentity.set(identity, access);
    return access;
  }

  /** In order: what comes later wins where they set the same field. */
  policiesOf(identity: Identity): PolicyRow[] {
    return identity.policies.flatMap((id) => this.#loaded.policies.get(id) ?? []);
  }

  /** Resolves when policies are in place that were read after the call. */
  reload(): Promise<void> {
    this.#again = true;
    this.#loading ??= this.#load();
    return this.#loading;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#stop?.();
    await this.#loading;
  }

  async #load(): Promise<void> {
    while (this.#again && !this.#closed) {
      this.#again = false;
      try {
        this.#loaded = index(await this.#source.load());
      } catch (error) {
        if (this.#closed) break;
        this.#observe({ kind: 'policies-failed', error });
        setTimeout(() => void this.reload(), RETRY).unref();
      }
    }
    this.#loading = null;
  }

  #add(policies: readonly PolicyRow[]): Permissions {
    const name = policies.map(({ id }) => id).join();
    const known = this.#loaded.access.get(name);
    if (known) return known;
    const rows = policies.flatMap((policy) => policy.permissions);
    const all = policies.some((policy) => policy.app_access) ? [...rows, ...APP_PERMISSIONS] : rows;
    const key = createHash('sha256').update(JSON.stringify(all)).digest('base64url').slice(0, 22);
    const access = this.#byKey.get(key) ?? new Permissions(key, readRules(all));
    this.#byKey.set(key, access);
    this.#loaded.access.set(name, access);
    return access;
  }
}

function index(policies: readonly PolicyRow[]): Loaded {
  return {
    policies: new Map(policies.map((policy) => [policy.id, policy])),
    access: new LRUCache({ max: SETS }),
    byIdentity: new WeakMap(),
  };
}
