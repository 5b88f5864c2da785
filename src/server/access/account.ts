/** The owner of a token as the database knows them, and their identity at an address. */
import { LRUCache } from 'lru-cache';
import { invalidIp } from '../../base/errors.js';
import { type AddressTest, addressTest } from './addresses.js';
import { type DatabaseIdentity, type Identity, PUBLIC, type SharedScope } from './identity.js';

const MAX_ADDRESSES_OF_TOKEN = 100;

/** The lists of roles and of policies that callers have: most have the same as others, and there may be ten thousand of them. */
const lists = new LRUCache<string, readonly string[]>({ max: 1_000 });

function listOf(ids: readonly string[]): readonly string[] {
  const key = ids.join();
  const list = lists.get(key) ?? Object.freeze([...ids]);
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

/** The owner of a token, as the database knows them. */
export interface Account {
  readonly user: string | null;
  readonly role: string | null;
  readonly roles: readonly string[];
  readonly email: string | null;
  readonly database_role: string | null;
  readonly policies: readonly AssignedPolicy[];
  /** When the session ends, in milliseconds since 1970; null without one. */
  readonly expires: number | null;
  /** For callers who come in by a share, with the account of its creator. */
  readonly share?: {
    readonly id: string;
    readonly collection: string;
    readonly item: string;
    readonly creator: Account;
  };
}

export interface CachedIdentity {
  /** The identity, or a function of the address if the address makes a difference. */
  readonly identity: Identity | ((address: string) => Identity);
  readonly session: string | null;
  /** Milliseconds since 1970; infinite if it does not expire. */
  readonly expires: number;
  /** When it has to be looked up again, by the clock of `performance`: a cache that expires by itself would set timers for that. */
  readonly until: number;
}

/** How an identity is asked for. */
interface Presented {
  readonly session: string | null;
  readonly expires: number;
  /** For this long, in milliseconds, the identity may be cached. */
  readonly staleness: number;
  readonly isView?: boolean;
  /** The claims of a foreign token. */
  readonly claims?: DatabaseIdentity['claims'];
}

export function cachedIdentity(
  account: Account,
  { session, expires, staleness, isView = false, claims = null }: Presented,
): CachedIdentity {
  const cached = { session, expires, until: performance.now() + staleness };
  // How long an administrator who views as somebody stays one is not known here.
  const validUntil = isView ? 0 : Math.min(expires, Date.now() + staleness);
  const use: Use = { session, isView, validUntil, ...databaseIdentity(account, claims) };
  const tests = account.policies.map((policy) => testOf(policy));
  if (tests.every((test) => test === null)) return { identity: identityOf(account, account.policies, use), ...cached };
  const byAddress = new LRUCache<string, Identity>({ max: MAX_ADDRESSES_OF_TOKEN });
  const identityAt = (address: string): Identity => {
    const known = byAddress.get(address);
    if (known) return known;
    const policies = account.policies.filter((_, position) => tests[position]?.(address) ?? true);
    if (policies.length === 0 && account.user !== null) throw invalidIp();
    const identity = identityOf(account, policies, { ...use, isAddressBound: true });
    byAddress.set(address, identity);
    return identity;
  };
  return { identity: identityAt, ...cached };
}

function testOf({ ip_access: list }: AssignedPolicy): AddressTest | null {
  return list === null || list.trim() === '' ? null : addressTest(list);
}

/** The part of an identity that depends on how it is asked for. */
type Use = Pick<Identity, 'session' | 'isView' | 'validUntil' | 'inDatabase' | 'isAddressBound'>;

function databaseIdentity(
  { email, database_role: role }: Account,
  claims: DatabaseIdentity['claims'],
): Pick<Identity, 'inDatabase'> {
  return email === null && role === null && claims === null ? {} : { inDatabase: { email, role, claims } };
}

function identityOf(account: Account, policies: readonly AssignedPolicy[], use: Use): Identity {
  const roles = listOf(account.roles);
  const granted = {
    ...use,
    role: roles.find((role) => role === account.role) ?? account.role,
    roles,
    policies: listOf(policies.map((policy) => policy.id)),
  };
  const administrator = policies.some((policy) => policy.admin_access);
  if (account.share) return Object.freeze({ ...PUBLIC, ...granted, share: sharedScope(account.share, administrator) });
  return Object.freeze({
    user: account.user,
    ...granted,
    administrator,
    application: policies.some((policy) => policy.app_access || policy.admin_access),
    enforceTfa: policies.some((policy) => policy.enforce_tfa),
  });
}

/** Policies of the creator that depend on an address are left out: it is not the creator's. */
function sharedScope({ creator, ...item }: NonNullable<Account['share']>, unlimited: boolean): SharedScope {
  const policies = creator.policies.filter((policy) => testOf(policy) === null);
  return Object.freeze({
    ...item,
    unlimited,
    creator: {
      user: creator.user,
      role: creator.role,
      roles: creator.roles,
      policies: policies.map(({ id }) => id),
      administrator: policies.some((policy) => policy.admin_access),
      ...databaseIdentity(creator, null),
    },
  });
}
