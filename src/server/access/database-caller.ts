/**
 * The caller inside the database (DATABASE_CALLER): the settings that a transaction begins with, so that row-level security, triggers and
 * functions see the caller. This is the only place where an identity becomes settings. They are local to the transaction.
 */
import { createHash } from 'node:crypto';
import { forbidden } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { quoteLiteral } from '../../compiler/sql/fragment.js';
import type { Config } from '../config/config.js';
import type { DatabaseSetting } from '../config/database-settings.js';
import type { Identity } from './identity.js';

/** A caller as PostgreSQL sees it in each of its requests. */
interface KnownCaller {
  readonly text: string;
  /** The values of the settings that do not depend on the request. */
  readonly values: readonly string[];
  /** Equal for callers that the database cannot distinguish. */
  readonly digest: string;
  readonly role: DatabaseRole | null;
  /** The settings of the last request. The next one uses them again if it has the same method and path. */
  latest: CallerSettings | null;
}

/** A statement that is sent in front of those of the caller, in the same transaction and the same round trip. */
export class CallerSettings {
  constructor(
    readonly caller: KnownCaller,
    readonly method: string,
    readonly path: string,
  ) {}

  get text(): string {
    return this.caller.text;
  }

  /** The values that all requests of the caller share, in front of those of this request. */
  get leading(): readonly string[] {
    return this.caller.values;
  }

  get parameters(): readonly string[] {
    return [this.method, this.path];
  }

  /** The database role, or null for the role of the service itself. */
  get role(): DatabaseRole | null {
    return this.caller.role;
  }

  /** Equal for requests that the database cannot distinguish: only these may share a statement or a result. */
  get digest(): string {
    return `${this.caller.digest}\0${this.method}\0${this.path}`;
  }

  /** Whether the digests are equal. */
  equals(other: CallerSettings): boolean {
    if (this === other) return true;
    if (this.path !== other.path || this.method !== other.method) return false;
    return this.caller === other.caller || this.caller.digest === other.caller.digest;
  }
}

/** Whether the database cannot distinguish the requests. */
export function haveEqualSettings(one: CallerSettings | null, other: CallerSettings | null): boolean {
  return one === null || other === null ? one === other : one.equals(other);
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
  /** Claims of foreign tokens that `request.jwt.claims` contains. */
  readonly claims: readonly string[];
  /** Settings under other names. */
  readonly settings: readonly DatabaseSetting[];
}

/** The names of PostgREST and our own. The values of the request come last. The role is set last: it decides nothing about the others. */
const OF_CALLER = ['request.jwt.claims', 'lateral.user', 'lateral.role'];
const OF_REQUEST = ['request.method', 'request.path'];

/** The names of the settings that statements of a caller have, in lower case. */
export function knownSettings(
  mode: 'service' | DatabaseCallerOptions['mode'],
  settings: readonly DatabaseSetting[],
): string[] {
  if (mode === 'service') return [];
  return [...OF_CALLER, ...OF_REQUEST, ...settings.map(({ name }) => name)].map((name) => name.toLowerCase());
}

/** It returns no row: PostgreSQL would send every value back. `set_config` returns the value, which is never null. */
function setting(names: readonly string[]): string {
  const calls = names.map((name, index) => ({
    name,
    call: `pg_catalog.set_config(${quoteLiteral(name)}, $${index + 1}, true) is null`,
  }));
  const inOrder = calls.toSorted((one, other) => Number(one.name === 'role') - Number(other.name === 'role'));
  return `select where ${inOrder.map(({ call }) => call).join(' or ')}`;
}

/** Ends the role of the caller, for statements of the service itself in the caller's transaction. */
export const AS_SERVICE = "select pg_catalog.set_config('role', 'none', true)";

export class DatabaseCaller {
  readonly mode: DatabaseCallerOptions['mode'];
  readonly #callers = new WeakMap<Identity, KnownCaller>();
  readonly #roles = new Map<string, DatabaseRole>();

  readonly #setClaims: string;
  readonly #setRole: string;

  constructor(private readonly options: DatabaseCallerOptions) {
    this.mode = options.mode;
    const names = [...OF_CALLER, ...options.settings.map(({ name }) => name)];
    this.#setClaims = setting([...names, ...OF_REQUEST]);
    this.#setRole = setting([...names, 'role', ...OF_REQUEST]);
  }

  /** Null with DATABASE_CALLER=service. */
  static of(config: Config): DatabaseCaller | null {
    const { DATABASE_CALLER: mode, DATABASE_ROLES: roles, DATABASE_ANON_ROLE: anonRole } = config;
    const { DATABASE_CLAIMS: claims, DATABASE_SETTINGS: settings } = config;
    return mode === 'service' ? null : new DatabaseCaller({ mode, roles, anonRole, claims, settings });
  }

  /** Throws if the statement would need a database role and the caller has none. */
  settingsOf(caller: Identity, { method, path }: { readonly method: string; readonly path: string }): CallerSettings {
    const known = this.#callers.get(caller) ?? this.#know(caller);
    const { latest } = known;
    if (latest !== null && latest.path === path && latest.method === method) return latest;
    const settings = new CallerSettings(known, method, path);
    known.latest = settings;
    return settings;
  }

  #know(caller: Identity): KnownCaller {
    const role = this.mode === 'role' ? this.#roleOf(caller) : null;
    const { user, role: ownRole } = knownAs(caller);
    const values = [this.#claimsOf(caller), user ?? '', ownRole ?? '', ...this.#settingsOf(caller)];
    if (role !== null) values.push(role.name);
    const text = role === null ? this.#setClaims : this.#setRole;
    const known = { text, values, digest: values.join('\0'), role, latest: null };
    this.#callers.set(caller, known);
    return known;
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
    const claims = knownAs(caller).inDatabase?.claims ?? {};
    const listed = this.options.claims.filter((name) => name !== 'role' && Object.hasOwn(claims, name));
    return JSON.stringify({
      ...this.#ownClaims(caller),
      ...Object.fromEntries(listed.map((name) => [name, claims[name]])),
    });
  }

  /** The claims that each user has, with any token. */
  #ownClaims(caller: Identity): Readonly<Record<string, unknown>> {
    const { user: sub, inDatabase } = knownAs(caller);
    const [role, email] = [this.roleNameOf(caller), inDatabase?.email ?? null];
    return Object.fromEntries(Object.entries({ sub, role, email }).filter(([, value]) => value !== null));
  }

  #settingsOf(caller: Identity): string[] {
    const { user, role, inDatabase } = knownAs(caller);
    const claims = { ...this.#ownClaims(caller), ...inDatabase?.claims };
    return this.options.settings.map(({ name, source }) => {
      if (source.kind === 'text') return source.text;
      if (source.kind !== 'claim') return (source.kind === 'user' ? user : role) ?? '';
      const text = claimText(source.path.reduce<unknown>(memberOf, claims));
      if (text.includes('\0')) throw forbidden(`The claim for the setting ${name} contains a null character`);
      return text;
    });
  }
}

function memberOf(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

/** Texts as they are, other values as JSON. A claim that the token does not have is an empty text, to which PostgreSQL resets a setting. */
function claimText(value: unknown): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
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

/** The claims of foreign tokens that the database may learn. */
export function databaseClaims(config: Config): readonly string[] {
  const { DATABASE_CALLER, DATABASE_CLAIMS, DATABASE_SETTINGS, DATABASE_ROLES } = config;
  if (DATABASE_CALLER === 'service') return [];
  const ofSettings = DATABASE_SETTINGS.flatMap(({ source }) => (source.kind === 'claim' ? [source.path[0]] : []));
  return [...new Set([...DATABASE_CLAIMS, ...ofSettings, ...(DATABASE_ROLES.length > 0 ? ['role'] : [])])];
}
