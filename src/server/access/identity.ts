/** The caller of a request. */
import { forbidden, invalidCredentials } from '../../base/errors.js';
import type { Filter } from '../../compiler/request/ast.js';
import type { Caller } from '../../compiler/sql/parameter.js';
import { networkOf } from './addresses.js';

/** The user is null for the public. */
export interface Identity extends Caller {
  readonly administrator: boolean;
  /** Whether a policy has `app_access`. */
  readonly application: boolean;
  /** Whether a policy asks for a second factor. */
  readonly enforceTfa: boolean;
  /** The session that their token belongs to, if it belongs to one. */
  readonly session: string | null;
  /** Whether an administrator reads with these permissions: nothing may be written then. */
  readonly isView: boolean;
  /** The identity is looked up again after this time, in milliseconds since 1970. Notifications invalidate it earlier. */
  readonly validUntil: number;
  /** Whether the address of the client decides which policies apply. */
  readonly isAddressBound?: boolean;
  /** The facts that PostgreSQL gets with DATABASE_CALLER; absent for the public and the command line. */
  readonly inDatabase?: DatabaseIdentity;
  /** Conditions of extensions on the rows that this request may read; absent if none were asked for. */
  readonly conditions?: ReadConditions;
  /** The share that the caller opened, if the caller is not a user. Only the shared item is visible. */
  readonly share?: SharedScope;
}

/** Conditions that extensions add to the rules of a caller, for some collections. */
export interface ReadConditions {
  /** Identifies them: callers with the same have the same statements. */
  readonly key: string;
  /** By collection: the filters that a row must meet, which are none for some. */
  readonly filters: ReadonlyMap<string, readonly Filter[]>;
  /** The caller without them. */
  readonly caller: Identity;
}

/** The facts about a caller that only the database uses. */
export interface DatabaseIdentity {
  readonly email: string | null;
  /** The database role of the caller's role, or of its nearest ancestor that has one. */
  readonly role: string | null;
  /** The claims of a foreign token that DATABASE_CLAIMS or DATABASE_SETTINGS names, and `role`; null for other tokens. */
  readonly claims: Readonly<Record<string, unknown>> | null;
}

/** A shared item. */
export interface SharedScope {
  readonly id: string;
  readonly collection: string;
  readonly item: string;
  /** Whether the role of the share has all permissions: then only those of the creator apply. */
  readonly unlimited: boolean;
  /** A share shows only what the user who made it may see. */
  readonly creator: Caller & Pick<Identity, 'administrator' | 'inDatabase'>;
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
  validUntil: Number.POSITIVE_INFINITY,
});

/** The command line: may do everything. */
export const CLI_IDENTITY: Identity = Object.freeze({ ...PUBLIC, administrator: true });

/** Identifies callers that share a resource: users by their id, others by their network. */
export function callerName({ user }: { readonly user: string | null }, from: { readonly address: string }): string {
  return user ?? `from ${networkOf(from.address)}`;
}

/** For actions of administrators. */
export function onlyAdministrator(identity: Identity): Identity {
  if (!identity.administrator) throw forbidden();
  return identity;
}

/** For actions of users who are logged in. */
export function onlyUser(identity: Identity): User {
  if (!isUser(identity)) throw invalidCredentials();
  // The same object: what is worked out for an identity is remembered by it.
  return identity;
}

export type User = Identity & { readonly user: string };

function isUser(identity: Identity): identity is User {
  return identity.user !== null;
}
