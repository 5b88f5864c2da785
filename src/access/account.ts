/** What the database knows of the owner of a token, and who they are at an address. */
import { LRUCache } from 'lru-cache';
import { invalidIp } from '../base/errors.js';
import { type AddressTest, addressTest } from './addresses.js';
import { type Identity, PUBLIC } from './identity.js';

const MAX_ADDRESSES_OF_TOKEN = 100;

/** The lists of roles and of policies that callers have: most have the same as others, and there may be ten thousand of them. */
const lists = new LRUCache<string, readonly string[]>({ max: 1_000 });

function listOf(ids: readonly string[]): readonly string[] {
  const key = ids.join();
  const known = lists.get(key);
  if (known) return known;
  const list = Object.freeze([...ids]);
  lists.set(key, list);
  return list;
}

interface AssignedPolicy {
  readonly id: string;
  readonly ip_access: string | null;
  readonly admin_access: boolean;
  readonly app_access: boolean;
  readonly enforce_tfa: boolean;
}

/** What the database knows of the owner of a token. */
export interface Account {
  readonly user: string | null;
  readonly role: string | null;
  readonly roles: readonly string[];
  readonly policies: readonly AssignedPolicy[];
  /** When the session ends, in milliseconds since 1970; null without one. */
  readonly expires: number | null;
  /** Of who comes in by a share, with the account of its creator. */
  readonly share?: {
    readonly id: string;
    readonly collection: string;
    readonly item: string;
    readonly creator: Account;
  };
}

export interface CachedIdentity {
  /** Who it is; where the address makes a difference, who it is at one. */
  readonly identity: Identity | ((address: string) => Identity);
  readonly session: string | null;
  /** Milliseconds since 1970; infinite where it does not expire. */
  readonly expires: number;
  /** When it has to be looked up again, by the clock of `performance`: a cache that expires by itself would set timers for that. */
  readonly until: number;
}

export function cachedIdentity(
  account: Account,
  session: string | null,
  expires: number,
  staleness: number,
  isView = false,
): CachedIdentity {
  const until = performance.now() + staleness;
  // How long an administrator stays one, who views as somebody, is not known here.
  const use: Use = { session, isView, validUntil: isView ? 0 : Math.min(expires, Date.now() + staleness) };
  const tests = account.policies.map((policy) => testOf(policy));
  if (tests.every((test) => test === null)) {
    const identity = identityOf(account, account.policies, use);
    return { identity, session, expires, until };
  }
  const byAddress = new LRUCache<string, Identity>({ max: MAX_ADDRESSES_OF_TOKEN });
  const identityAt = (address: string): Identity => {
    const cached = byAddress.get(address);
    if (cached) return cached;
    const policies = account.policies.filter((_, position) => tests[position]?.(address) ?? true);
    if (policies.length === 0 && account.user !== null) throw invalidIp();
    const identity = identityOf(account, policies, use);
    byAddress.set(address, identity);
    return identity;
  };
  return { identity: identityAt, session, expires, until };
}

function testOf({ ip_access: list }: AssignedPolicy): AddressTest | null {
  return list === null || list.trim() === '' ? null : addressTest(list);
}

/** What of an identity depends on how it is asked for, not on whose it is. */
type Use = Pick<Identity, 'session' | 'isView' | 'validUntil'>;

function identityOf(account: Account, policies: readonly AssignedPolicy[], use: Use): Identity {
  const { share } = account;
  const unlimited = policies.some((policy) => policy.admin_access);
  if (share) return sharedIdentity(account, share, policies, unlimited, use);
  const roles = listOf(account.roles);
  return Object.freeze({
    user: account.user,
    role: roles.find((role) => role === account.role) ?? account.role,
    roles,
    policies: listOf(policies.map((policy) => policy.id)),
    administrator: unlimited,
    application: policies.some((policy) => policy.app_access || policy.admin_access),
    enforceTfa: policies.some((policy) => policy.enforce_tfa),
    ...use,
  });
}

/** Policies of the creator that depend on an address are left out: it is not the creator's. */
function sharedIdentity(
  { role, roles }: Account,
  { creator, ...item }: NonNullable<Account['share']>,
  policies: readonly AssignedPolicy[],
  unlimited: boolean,
  use: Use,
): Identity {
  const granted = creator.policies.filter((policy) => testOf(policy) === null);
  const { user, role: creatorRole, roles: creatorRoles } = creator;
  return Object.freeze({
    ...PUBLIC,
    ...use,
    role,
    roles: listOf(roles),
    policies: listOf(policies.map(({ id }) => id)),
    share: Object.freeze({
      ...item,
      unlimited,
      creator: {
        user,
        role: creatorRole,
        roles: creatorRoles,
        policies: granted.map(({ id }) => id),
        administrator: granted.some((policy) => policy.admin_access),
      },
    }),
  });
}
