/**
 * Identifies callers. A token is looked up once and cached until something about users or policies changes, so that a warm request
 * spends no statement on it and is answered at once. The permissions of a token may depend on the client's address.
 */
import { forbidden, invalidCredentials, invalidPayload, ServiceError, serviceUnavailable } from '../../base/errors.js';
import { growingCache } from '../../base/growing-cache.js';
import { type Account, type CachedIdentity, cachedIdentity } from './account.js';
import { CLI_IDENTITY, type Identity } from './identity.js';
import { type AccessClaims, type AccessVerifier, digestToken } from './tokens.js';
import { parseViewAs, unknownView, VIEW_AS_HEADER, type ViewKey } from './view-as.js';

/** The credentials of a request. */
export interface RequestCredentials {
  readonly headers: { readonly authorization: string; readonly viewAs: string };
  /** `?access_token=`, or ''. */
  readonly accessToken: string;
  readonly address: string;
  /** When it came, by the clock of `performance`. */
  readonly begun: number;
  cookie(name: string): string;
  /** The caller of a request that the program itself sends; its credentials do not matter then. */
  readonly caller?: Identity | null;
  /** Set where the session cookie was refused: the response deletes it. */
  cookieRefused: boolean;
  /** Set if an administrator sends it, also one who views as another user. */
  fromAdministrator: boolean;
  /** Set to the identity whose permissions apply. */
  identity: Identity | null;
  /** Called with the value of `Lateral-View-As`, which the response repeats. */
  viewedAs(text: string): void;
}

/** The account to look up. */
export type LookupKey =
  | ViewKey
  | { readonly kind: 'token'; readonly digest: string }
  | { readonly kind: 'user'; readonly user: string; readonly session: string | null }
  | { readonly kind: 'share'; readonly share: string; readonly session: string | null };

/** A caller by the words of a program. */
export type NamedCaller =
  | ViewKey
  | { readonly kind: 'token'; readonly token: string }
  | { readonly kind: 'administrator' };

/** A program that acts as an administrator without an account. */
const PROGRAM: Identity = Object.freeze({ ...CLI_IDENTITY });

type Lookup = (key: LookupKey) => Promise<Account | null>;

const MAX_CACHED_TOKENS = 50_000;
/** A replay of recorded traffic views as all of its callers. */
const MAX_CACHED_VIEWS = 10_000;

interface IdentityOptions {
  readonly verifiers: readonly AccessVerifier[];
  readonly cookieName: string;
  /** For this long a cached identity may outlive a lost notification. */
  readonly stalenessMs: number;
  /** Why the database cannot be served, or null. */
  readonly served?: { readonly obstacle: string | null };
  /** Called when an administrator begins to read as another user. */
  readonly onView?: (administrator: string | null, as: string) => void;
}

/** The scheme, in upper or lower case, then one token. Another scheme carries none. */
export function isBearer(authorization: string): boolean {
  return /^bearer [^\s]+$/i.test(authorization);
}

export class Identities {
  /** By the value of an Authorization header that carries the token. */
  readonly #known = growingCache<CachedIdentity>(MAX_CACHED_TOKENS);
  /** Signatures stay right whatever changes in the database. */
  readonly #verified = growingCache<AccessClaims>(MAX_CACHED_TOKENS);
  readonly #pending = new Map<string, Promise<CachedIdentity>>();
  /** By the administrator, and whom they view as. */
  readonly #views = growingCache<CachedIdentity>(MAX_CACHED_VIEWS);
  /** By the caller that a program names. */
  readonly #named = growingCache<CachedIdentity>(MAX_CACHED_TOKENS);
  #generation = 0;

  constructor(
    private readonly lookup: Lookup,
    private readonly options: IdentityOptions,
  ) {}

  /** Answers at once for cached callers. Throws, or rejects, for a token that is not valid, and while the database cannot be served. */
  identify(credentials: RequestCredentials): Identity | Promise<Identity> {
    const obstacle = this.options.served?.obstacle ?? null;
    if (obstacle !== null) throw serviceUnavailable('database', obstacle);
    return credentials.headers.viewAs === '' ? this.#identify(credentials) : this.#view(credentials);
  }

  #identify(credentials: RequestCredentials): Identity | Promise<Identity> {
    if (credentials.caller) {
      credentials.fromAdministrator = credentials.caller.administrator;
      credentials.identity = credentials.caller;
      return credentials.caller;
    }
    const { authorization } = credentials.headers;
    if (authorization !== '' && credentials.accessToken === '') {
      const cached = this.#known.get(authorization);
      if (cached && isValid(cached, credentials)) return senderAt(cached, credentials);
    }
    const carried = this.#carriedBy(credentials);
    const known = this.#known.get(carried);
    if (known && isValid(known, credentials)) return senderAt(known, credentials);
    return this.#find(carried).then(
      (identity) => senderAt(identity, credentials),
      (error: unknown) => {
        const fromCookie = carried !== '' && credentials.accessToken === '' && carried !== authorization;
        credentials.cookieRefused = fromCookie && error instanceof ServiceError && error.status < 500;
        throw error;
      },
    );
  }

  /** The identity when the database could last be read, or null if it is not cached. Only for responses while the database is unavailable. */
  remembered(presented: RequestCredentials): Identity | null {
    if (presented.headers.viewAs !== '') return null;
    if (presented.caller) return presented.caller;
    const cached = this.#known.get(this.#carriedBy(presented));
    return cached && Date.now() < cached.expires ? identityAt(cached, presented) : null;
  }

  /** Whether all clients get the same response to the request: it has no credentials, and the address makes no difference. */
  isFromAnybody(credentials: RequestCredentials): boolean {
    const { authorization, viewAs } = credentials.headers;
    if (credentials.caller) return false;
    return (
      authorization + viewAs + this.#carriedBy(credentials) === '' && typeof this.#known.get('')?.identity === 'object'
    );
  }

  /** The identity of a user at an address, without a token. */
  async resolve(user: string, address: string): Promise<Identity> {
    const account = await this.lookup({ kind: 'user', user, session: null });
    if (!account) throw invalidCredentials();
    return identityAt(cachedIdentity(account, { session: null, expires: Number.POSITIVE_INFINITY, staleness: 0 }), {
      address,
    });
  }

  /** The caller that a program names. Throws if there is no such user, role or token. */
  async named(caller: NamedCaller, address: string): Promise<Identity> {
    if (caller.kind === 'administrator') return PROGRAM;
    if (caller.kind === 'token') return identityAt(await this.#find(`Bearer ${caller.token}`), { address });
    const name = JSON.stringify(caller);
    const cached = this.#named.get(name);
    if (cached && performance.now() < cached.until) return identityAt(cached, { address });
    const generation = this.#generation;
    const account = await this.lookup(caller);
    if (!account) throw invalidCredentials();
    const staleness = this.options.stalenessMs;
    const identity = cachedIdentity(account, { session: null, expires: Number.POSITIVE_INFINITY, staleness });
    if (generation === this.#generation) this.#named.set(name, identity);
    return identityAt(identity, { address });
  }

  /** With the permissions of another user. Only administrators learn whether the user exists. */
  async #view(credentials: RequestCredentials): Promise<Identity> {
    const { viewAs } = credentials.headers;
    const { administrator, user } = await this.#identify(credentials);
    if (!administrator) throw forbidden(`Only administrators may send "${VIEW_AS_HEADER}"`);
    const key = parseViewAs(viewAs);
    const name = `${user} ${viewAs}`;
    const cached = this.#views.get(name);
    const viewed = cached && isValid(cached, credentials) ? cached : await this.#findView(key, viewAs, name);
    if (viewed !== cached) this.options.onView?.(user, viewAs);
    credentials.viewedAs(viewAs);
    try {
      credentials.identity = identityAt(viewed, credentials);
      return credentials.identity;
    } catch {
      // The address of the viewed user is refused, not that of the administrator.
      throw forbidden(`No policy of "${viewAs}" applies to the client address of this request`);
    }
  }

  async #findView(key: ViewKey, text: string, name: string): Promise<CachedIdentity> {
    const generation = this.#generation;
    const account = await this.lookup(key);
    if (!account) throw unknownView(text);
    const staleness = this.options.stalenessMs;
    const presented = { session: null, expires: Number.POSITIVE_INFINITY, staleness, isView: true };
    const identity = cachedIdentity(account, presented);
    if (generation === this.#generation) this.#views.set(name, identity);
    return identity;
  }

  /** Changes whenever somebody may have become another caller. */
  get generation(): number {
    return this.#generation;
  }

  /** After a change of anything that decides who may do what. */
  forget(): void {
    this.#generation++;
    this.#pending.clear();
    this.#known.clear();
    this.#views.clear();
    this.#named.clear();
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
    const session = credentials.cookie(this.options.cookieName);
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
    const verifier = this.options.verifiers.find((each) => each.accepts(token));
    const claims = verifier ? await this.#verify(token, verifier) : null;
    const account = await this.lookup(lookupKeyOf(token, claims));
    if (!account) throw invalidCredentials();
    const expires = Math.min(claims?.expires ?? Number.POSITIVE_INFINITY, account.expires ?? Number.POSITIVE_INFINITY);
    const known = cachedIdentity(account, {
      session: claims?.session ?? null,
      expires,
      staleness: this.options.stalenessMs,
      claims: claims?.claims ?? null,
    });
    // A result that was read before a change must not be cached after it.
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

/** Resolves the address of the client only if the identity depends on it, because that takes time. */
function identityAt({ identity }: CachedIdentity, from: Pick<RequestCredentials, 'address'>): Identity {
  return typeof identity === 'function' ? identity(from.address) : identity;
}

/** As `identityAt`, and stores the identity in the request. */
function senderAt(cached: CachedIdentity, credentials: RequestCredentials): Identity {
  const identity = identityAt(cached, credentials);
  credentials.fromAdministrator = identity.administrator;
  credentials.identity = identity;
  return identity;
}
