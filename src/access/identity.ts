/**
 * Who asks. A static token is looked up once and remembered until something about users or policies changes, so that a warm
 * request spends no statement on it. Tokens are stored and compared as digests: a leaked table opens no door.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { forbidden, invalidCredentials } from '../errors.js';
import type { Caller } from '../sql/parameter.js';

/** The user is null for the public. */
export interface Identity extends Caller {
  readonly administrator: boolean;
}

export const PUBLIC: Identity = Object.freeze({
  user: null,
  role: null,
  roles: [],
  policies: [],
  administrator: false,
});

/** Whoever works on the machine itself: the command line. */
export const OPERATOR: Identity = Object.freeze({ ...PUBLIC, administrator: true });

/** The longest a remembered identity outlives a lost notification. */
const REMEMBERED = 60_000;

export function digestToken(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}

/** For what only administrators may do. */
export function onlyAdministrator(identity: Identity): Identity {
  if (!identity.administrator) throw forbidden();
  return identity;
}

export type Lookup = (digest: string) => Promise<Identity | null>;

export class Identities {
  readonly #lookup: Lookup;
  readonly #known = new LRUCache<string, Identity>({ max: 10_000, ttl: REMEMBERED });
  #generation = 0;

  constructor(lookup: Lookup) {
    this.#lookup = lookup;
  }

  /** Answers at once for a known token; throws for a wrong one. */
  identify(authorization: string): Identity | Promise<Identity> {
    const token = bearerToken(authorization);
    if (token === null) return PUBLIC;
    return this.#known.get(token) ?? this.#find(token);
  }

  forget(): void {
    this.#generation++;
    this.#known.clear();
  }

  async #find(token: string): Promise<Identity> {
    const generation = this.#generation;
    const identity = await this.#lookup(digestToken(token));
    if (!identity) throw invalidCredentials();
    // What was read before a change must not be remembered after it.
    if (generation === this.#generation) this.#known.set(token, identity);
    return identity;
  }
}

/** `Bearer <token>`, the scheme in any case; anything else carries no token. */
function bearerToken(authorization: string): string | null {
  if (authorization === '') return null;
  const match = /^bearer ([^\s]+)$/i.exec(authorization);
  return match?.[1] ?? null;
}
