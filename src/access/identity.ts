/**
 * Who asks. A token is looked up once and cached until something about users or policies changes, so that a warm request
 * spends no statement on it and is answered at once. What a token allows may depend on the address it comes from.
 */
import { performance } from 'node:perf_hooks';
import { LRUCache } from 'lru-cache';
import { forbidden, invalidCredentials, invalidIp, invalidPayload, ServiceError } from '../errors.js';
import type { Caller } from '../sql/parameter.js';
import { type AddressTest, addressTest, networkOf } from './addresses.js';
import type { SharedScope } from './shared-scope.js';
import { type AccessClaims, type AccessVerifier, digestToken } from './tokens.js';
import { parseViewAs, unknownView, VIEW_AS_HEADER, type ViewKey } from './view-as.js';

/** The user is null for the public. */
export interface Identity extends Caller {
  readonly administrator: boolean;
  /** Whether a policy lets them into an application. */
  readonly application: boolean;
  /** Whether a policy asks for a second factor. */
  readonly enforceTfa: boolean;
  /** The session that their token belongs to, if it belongs to one. */
  readonly session: string | null;
  /** Whether an administrator reads with these permissions: nothing may be written then. */
  readonly isView: boolean;
  /** What they came in by, where that is no account: they see nothing but what is shared. */
  readonly share?: SharedScope;
}

export const PUBLIC: Identity = Object.freeze({
  user: null,
  role: null,
  roles: [],
  policies: [],
  administrator: false,
  application: false,
  enforceTfa: false,
  session: null,
  isView: false,
});

/** The command line: may do everything. */
export const CLI_IDENTITY: Identity = Object.freeze({ ...PUBLIC, administrator: true });

/** A request, as far as it says who sends it. */
export interface RequestCredentials {
  readonly headers: { readonly authorization: string; readonly viewAs: string };
  /** `?access_token=`, or ''. */
  readonly accessToken: string;
  readonly address: string;
  /** When it came, by the clock of `performance`. */
  readonly begun: number;
  cookie(name: string): string;
  /** Set where the session cookie was refused: the response deletes it. */
  cookieRefused: boolean;
  /** The answer says with whose permissions it was read. */
  viewedAs(text: string): void;
}

/** Whom to look up. */
export type LookupKey =
  | ViewKey
  | { readonly kind: 'token'; readonly digest: string }
  | { readonly kind: 'user'; readonly user: string; readonly session: string | null }
  | { readonly kind: 'share'; readonly share: string; readonly session: string | null };

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

export type Lookup = (key: LookupKey) => Promise<Account | null>;

const MAX_CACHED_TOKENS = 50_000;
const MAX_CACHED_VIEWS = 100;
const MAX_ADDRESSES_OF_TOKEN = 100;

/** Told when an administrator begins to read as somebody else. */
export type OnView = (administrator: string | null, as: string) => void;

/** The scheme in any case, then one token. Another scheme carries none. */
export function isBearer(authorization: string): boolean {
  return /^bearer [^\s]+$/i.test(authorization);
}

/** Identifies callers that share a resource: users by their id, others by their network. */
export function callerName({ user }: { readonly user: string | null }, from: { readonly address: string }): string {
  return user ?? `from ${networkOf(from.address)}`;
}

/** For what only administrators may do. */
export function onlyAdministrator(identity: Identity): Identity {
  if (!identity.administrator) throw forbidden();
  return identity;
}

/** For what only somebody known may do. */
export function onlyUser(identity: Identity): User {
  if (!isUser(identity)) throw invalidCredentials();
  // The same object: what is worked out for an identity is remembered by it.
  return identity;
}

type User = Identity & { readonly user: string };

function isUser(identity: Identity): identity is User {
  return identity.user !== null;
}

interface CachedIdentity {
  readonly at: (address: string) => Identity;
  /** Null where the address makes no difference. */
  readonly anywhere: Identity | null;
  readonly session: string | null;
  /** Milliseconds since 1970; infinite where it does not expire. */
  readonly expires: number;
  /** When it has to be looked up again, by the clock of `performance`: a cache that expires by itself would set timers for that. */
  readonly until: number;
}

export class Identities {
  readonly #lookup: Lookup;
  readonly #verifiers: readonly AccessVerifier[];
  readonly #cookieName: string;
  /** For this long a cached identity may outlive a lost notification. */
  readonly #stalenessMs: number;
  /** By the value of an Authorization header that carries the token. */
  readonly #known = new LRUCache<string, CachedIdentity>({ max: MAX_CACHED_TOKENS });
  /** Signatures stay right whatever changes in the database. */
  readonly #verified = new LRUCache<string, AccessClaims>({ max: MAX_CACHED_TOKENS });
  readonly #pending = new Map<string, Promise<CachedIdentity>>();
  /** By the administrator, and whom they view as. */
  readonly #views = new LRUCache<string, CachedIdentity>({ max: MAX_CACHED_VIEWS });
  readonly #onView: OnView;
  #generation = 0;

  constructor(
    lookup: Lookup,
    verifiers: readonly AccessVerifier[],
    cookieName: string,
    staleness: number,
    onView: OnView = () => {},
  ) {
    this.#onView = onView;
    this.#lookup = lookup;
    this.#verifiers = verifiers;
    this.#cookieName = cookieName;
    this.#stalenessMs = staleness;
  }

  /** Answers at once for whom it knows; throws, or rejects, for a token that does not count. */
  identify(credentials: RequestCredentials): Identity | Promise<Identity> {
    return credentials.headers.viewAs === '' ? this.#identify(credentials) : this.#view(credentials);
  }

  #identify(credentials: RequestCredentials): Identity | Promise<Identity> {
    const { authorization } = credentials.headers;
    if (authorization !== '' && credentials.accessToken === '') {
      const cached = this.#known.get(authorization);
      if (cached && isValid(cached, credentials)) return identityAt(cached, credentials);
    }
    const carried = this.#carriedBy(credentials);
    const known = this.#known.get(carried);
    if (known && isValid(known, credentials)) return identityAt(known, credentials);
    return this.#find(carried).then(
      (identity) => identityAt(identity, credentials),
      (error: unknown) => {
        const fromCookie = carried !== '' && credentials.accessToken === '' && carried !== authorization;
        credentials.cookieRefused = fromCookie && error instanceof ServiceError && error.status < 500;
        throw error;
      },
    );
  }

  /** Who it was when the database could last be asked; null for whom nobody knew. Only for what is to be answered while it is away. */
  remembered(presented: RequestCredentials): Identity | null {
    if (presented.headers.viewAs !== '') return null;
    const cached = this.#known.get(this.#carriedBy(presented));
    return cached && Date.now() < cached.expires ? identityAt(cached, presented) : null;
  }

  /** Whether whoever sends the same request gets the same answer: it says nothing of its sender, whose address makes no difference. */
  isFromAnybody(credentials: RequestCredentials): boolean {
    const { authorization, viewAs } = credentials.headers;
    return authorization + viewAs + this.#carriedBy(credentials) === '' && Boolean(this.#known.get('')?.anywhere);
  }

  /** Who a user is at an address, without a token. */
  async resolve(user: string, address: string): Promise<Identity> {
    const account = await this.#lookup({ kind: 'user', user, session: null });
    if (!account) throw invalidCredentials();
    return cachedIdentity(account, null, Number.POSITIVE_INFINITY, 0).at(address);
  }

  /** With the permissions of another; nobody but an administrator learns whether there is such a one. */
  async #view(credentials: RequestCredentials): Promise<Identity> {
    const { viewAs } = credentials.headers;
    const { administrator, user } = await this.#identify(credentials);
    if (!administrator) throw forbidden(`Only administrators may send "${VIEW_AS_HEADER}"`);
    const key = parseViewAs(viewAs);
    const name = `${user} ${viewAs}`;
    const cached = this.#views.get(name);
    const viewed = cached && isValid(cached, credentials) ? cached : await this.#findView(key, viewAs, name);
    if (viewed !== cached) this.#onView(user, viewAs);
    credentials.viewedAs(viewAs);
    try {
      return identityAt(viewed, credentials);
    } catch {
      // It is not the administrator whose address is refused.
      throw forbidden(`No policy of "${viewAs}" applies to the client address of this request`);
    }
  }

  async #findView(key: ViewKey, text: string, name: string): Promise<CachedIdentity> {
    const generation = this.#generation;
    const account = await this.#lookup(key);
    if (!account) throw unknownView(text);
    const identity = cachedIdentity(account, null, Number.POSITIVE_INFINITY, this.#stalenessMs, true);
    if (generation === this.#generation) this.#views.set(name, identity);
    return identity;
  }

  /** After a change of anything that decides who may do what. */
  forget(): void {
    this.#generation++;
    this.#pending.clear();
    this.#known.clear();
    this.#views.clear();
  }

  forgetSession(session: string): void {
    this.#generation++;
    this.#pending.clear();
    for (const [key, known] of this.#known) if (known.session === session) this.#known.delete(key);
  }

  /** The token as an Authorization header would carry it; '' for none. */
  #carriedBy(credentials: RequestCredentials): string {
    const { authorization } = credentials.headers;
    const bearer = isBearer(authorization);
    // A request with a malformed Authorization header is not answered as the public.
    if (!bearer && /^bearer(\s|$)/i.test(authorization)) throw invalidCredentials();
    if (credentials.accessToken !== '') {
      if (bearer) throw invalidPayload('The request has two access tokens, in its header and in its URL: send one');
      return `Bearer ${credentials.accessToken}`;
    }
    if (bearer) return authorization;
    const session = credentials.cookie(this.#cookieName);
    return session === '' ? '' : `Bearer ${session}`;
  }

  /** Requests that come together share one look-up. */
  #find(carried: string): Promise<CachedIdentity> {
    const pending = this.#pending.get(carried);
    if (pending) return pending;
    const loading = this.#load(carried).finally(() => {
      if (this.#pending.get(carried) === loading) this.#pending.delete(carried);
    });
    this.#pending.set(carried, loading);
    return loading;
  }

  async #load(carried: string): Promise<CachedIdentity> {
    const generation = this.#generation;
    const token = carried.slice('Bearer '.length);
    const verifier = this.#verifiers.find((each) => each.accepts(token));
    const claims = verifier ? await this.#verify(token, verifier) : null;
    const account = await this.#lookup(lookupKeyOf(token, claims));
    if (!account) throw invalidCredentials();
    const expires = Math.min(claims?.expires ?? Number.POSITIVE_INFINITY, account.expires ?? Number.POSITIVE_INFINITY);
    const known = cachedIdentity(account, claims?.session ?? null, expires, this.#stalenessMs);
    // What was read before a change must not be cached after it.
    if (generation === this.#generation) this.#known.set(carried, known);
    return known;
  }

  async #verify(token: string, verifier: AccessVerifier): Promise<AccessClaims> {
    const verified = this.#verified.get(token);
    if (verified && Date.now() < verified.expires) return verified;
    const claims = await verifier.verifyAccess(token);
    this.#verified.set(token, claims);
    return claims;
  }
}

function lookupKeyOf(token: string, claims: AccessClaims | null): LookupKey {
  if (token === '') return { kind: 'public' };
  if (claims?.share !== undefined) return { kind: 'share', share: claims.share, session: claims.session };
  if (claims) return { kind: 'user', user: claims.user ?? '', session: claims.session };
  return { kind: 'token', digest: digestToken(token) };
}

function isValid({ expires, until }: CachedIdentity, { begun }: RequestCredentials): boolean {
  return begun < until && (expires === Number.POSITIVE_INFINITY || Date.now() < expires);
}

function identityAt(known: CachedIdentity, credentials: RequestCredentials): Identity {
  return known.anywhere ?? known.at(credentials.address);
}

function cachedIdentity(
  account: Account,
  session: string | null,
  expires: number,
  staleness: number,
  isView = false,
): CachedIdentity {
  const until = performance.now() + staleness;
  const tests = account.policies.map((policy) => testOf(policy));
  if (tests.every((test) => test === null)) {
    const identity = identityOf(account, account.policies, session, isView);
    return { at: () => identity, anywhere: identity, session, expires, until };
  }
  const byAddress = new LRUCache<string, Identity>({ max: MAX_ADDRESSES_OF_TOKEN });
  const at = (address: string): Identity => {
    const cached = byAddress.get(address);
    if (cached) return cached;
    const policies = account.policies.filter((_, position) => tests[position]?.(address) ?? true);
    if (policies.length === 0 && account.user !== null) throw invalidIp();
    const identity = identityOf(account, policies, session, isView);
    byAddress.set(address, identity);
    return identity;
  };
  return { at, anywhere: null, session, expires, until };
}

function testOf({ ip_access: list }: AssignedPolicy): AddressTest | null {
  return list === null || list.trim() === '' ? null : addressTest(list);
}

function identityOf(
  account: Account,
  policies: readonly AssignedPolicy[],
  session: string | null,
  isView: boolean,
): Identity {
  const { share } = account;
  const unlimited = policies.some((policy) => policy.admin_access);
  if (share) return sharedIdentity(account, share, policies, unlimited, session);
  return Object.freeze({
    user: account.user,
    role: account.role,
    roles: Object.freeze([...account.roles]),
    policies: Object.freeze(policies.map((policy) => policy.id)),
    administrator: unlimited,
    application: policies.some((policy) => policy.app_access || policy.admin_access),
    enforceTfa: policies.some((policy) => policy.enforce_tfa),
    session,
    isView,
  });
}

/** Policies of the creator that depend on an address are left out: it is not the creator's. */
function sharedIdentity(
  { role, roles }: Account,
  { creator, ...item }: NonNullable<Account['share']>,
  policies: readonly AssignedPolicy[],
  unlimited: boolean,
  session: string | null,
): Identity {
  const granted = creator.policies.filter((policy) => testOf(policy) === null);
  const { user, role: creatorRole, roles: creatorRoles } = creator;
  return Object.freeze({
    ...PUBLIC,
    role,
    roles: Object.freeze([...roles]),
    policies: Object.freeze(policies.map(({ id }) => id)),
    session,
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
