/**
 * The caller inside the database (DATABASE_CALLER): the settings that a transaction begins with, so that row-level security, triggers and
 * functions see the caller. This is the only place where an identity becomes settings. They are local to the transaction.
 */
import { createHash } from 'node:crypto';
import { forbidden } from '../base/errors.js';
import type { Identity } from './identity.js';

/** A statement that is sent in front of those of the caller, in the same transaction and the same round trip. */
export interface CallerSettings {
  readonly text: string;
  readonly parameters: readonly string[];
  /** Equal for requests that the database cannot distinguish: only these may share a statement or a result. */
  readonly digest: string;
  /** The database role, or null for the role of the service itself. */
  readonly role: DatabaseRole | null;
}

interface DatabaseRole {
  readonly name: string;
  /**
   * Ends the texts of its statements. PostgreSQL plans a prepared statement again when the role differs, and a plan may contain functions
   * that only one role may call: each role has prepared statements of its own.
   */
  readonly mark: string;
  /** Texts with the mark, by those without: a new text would be hashed for each statement. */
  readonly texts: Map<string, string>;
}

const MAX_TEXTS_PER_ROLE = 1_000;

interface DatabaseCallerOptions {
  readonly mode: 'claims' | 'role';
  /** Roles that a foreign token may name. */
  readonly roles: readonly string[];
  /** The role of callers who are not logged in, or null. */
  readonly anonRole: string | null;
}

/** The names of PostgREST, then our own. The role comes last: it decides nothing about the others. */
const SETTINGS = ['request.jwt.claims', 'request.method', 'request.path', 'lateral.user', 'lateral.role'] as const;
const SET_CLAIMS = setting(SETTINGS);
const SET_ROLE = setting([...SETTINGS, 'role']);

/** It returns no row: PostgreSQL would send every value back. `set_config` returns the value, which is never null. */
function setting(names: readonly string[]): string {
  const calls = names.map((name, index) => `pg_catalog.set_config('${name}', $${index + 1}, true) is null`);
  return `select where ${calls.join(' or ')}`;
}

/** Ends the role of the caller, for statements of the service itself in the caller's transaction. */
export const AS_SERVICE = "select pg_catalog.set_config('role', 'none', true)";

export class DatabaseCaller {
  readonly mode: DatabaseCallerOptions['mode'];
  readonly #claims = new WeakMap<Identity, string>();
  readonly #roles = new Map<string, DatabaseRole>();

  constructor(private readonly options: DatabaseCallerOptions) {
    this.mode = options.mode;
  }

  /** Throws if the statement would need a database role and the caller has none. */
  settingsOf(caller: Identity, { method, path }: { readonly method: string; readonly path: string }): CallerSettings {
    const role = this.mode === 'role' ? this.#roleOf(caller) : null;
    const { user, role: ownRole } = knownAs(caller);
    const parameters = [this.#claimsOf(caller), method, path, user ?? '', ownRole ?? ''];
    if (role !== null) parameters.push(role.name);
    return { text: role === null ? SET_CLAIMS : SET_ROLE, parameters, digest: parameters.join('\0'), role };
  }

  /** Administrators without a database role have that of the service, which row-level security binds as well. */
  #roleOf(caller: Identity): DatabaseRole | null {
    const name = this.roleNameOf(caller);
    if (name === null && knownAs(caller).administrator) return null;
    if (name === null) throw forbidden('The role of the caller has no database role');
    const known = this.#roles.get(name);
    if (known) return known;
    const mark = ` /* role ${createHash('sha256').update(name).digest('hex').slice(0, 16)} */`;
    const role = { name, mark, texts: new Map<string, string>() };
    this.#roles.set(name, role);
    return role;
  }

  /** The database role of a caller, or null if there is none. */
  roleNameOf(caller: Identity): string | null {
    const { user, inDatabase, administrator } = knownAs(caller);
    const claimed = inDatabase?.claims?.['role'];
    if (typeof claimed === 'string' && this.options.roles.includes(claimed)) return claimed;
    return inDatabase?.role ?? (user === null && !administrator ? this.options.anonRole : null);
  }

  #claimsOf(caller: Identity): string {
    const known = this.#claims.get(caller);
    if (known !== undefined) return known;
    const { user: sub, inDatabase } = knownAs(caller);
    const { role: _, ...claimed } = inDatabase?.claims ?? {};
    const [role, email] = [this.roleNameOf(caller), inDatabase?.email ?? null];
    const own = Object.entries({ sub, role, email }).filter(([, value]) => value !== null);
    const claims = JSON.stringify({ ...Object.fromEntries(own), ...claimed });
    this.#claims.set(caller, claims);
    return claims;
  }
}

/** The identity for PostgreSQL. A share shows what its creator may see, so a request through a share has the creator's identity. */
function knownAs(caller: Identity): Pick<Identity, 'user' | 'role' | 'administrator' | 'inDatabase'> {
  return caller.share?.creator ?? caller;
}

/** The text under which the role of the settings prepares a statement. */
export function textFor(text: string, settings: CallerSettings | null): string {
  const role = settings?.role;
  if (!role) return text;
  const known = role.texts.get(text);
  if (known !== undefined) return known;
  if (role.texts.size >= MAX_TEXTS_PER_ROLE) role.texts.clear();
  const marked = text + role.mark;
  role.texts.set(text, marked);
  return marked;
}
