/** Users, roles and policies, as the API stores them, and the requests that read them. */

import type { Permission } from '../access/policies';
import { call } from '../api';

/** The parts of the page. */
export interface TabProps {
  readonly directory: Directory;
  /** Reads the directory again. */
  readonly onChanged: () => Promise<void>;
}

export const STATUSES = ['active', 'invited', 'unverified', 'draft', 'suspended', 'archived'] as const;

/** A row of service_access: a policy of a role, of a user, or (both null) of the public. */
export interface Assignment {
  readonly id: string;
  readonly role: string | null;
  readonly user: string | null;
  readonly policy: string;
}

export interface Person {
  readonly id: string;
  readonly email: string | null;
  readonly first_name: string | null;
  readonly last_name: string | null;
  readonly status: string;
  readonly role: string | null;
  readonly provider: string;
  readonly last_access: string | null;
  /** The service conceals the values: these are null or a row of asterisks. */
  readonly token: string | null;
  readonly tfa_secret: string | null;
  readonly policies: readonly Pick<Assignment, 'id' | 'policy'>[];
}

export type NewPerson = Pick<Person, 'id' | 'email' | 'role'>;

export interface RoleRow {
  readonly id: string;
  readonly name: string;
  readonly description: string | null;
  readonly parent: string | null;
  readonly policies: readonly Pick<Assignment, 'id' | 'policy'>[];
}

export interface PolicyRow {
  readonly id: string;
  readonly name: string;
  readonly description: string | null;
  readonly admin_access: boolean;
  readonly app_access: boolean;
  readonly enforce_tfa: boolean;
  readonly ip_access: readonly string[] | null;
  readonly permissions: readonly Pick<Permission, 'id'>[];
}

/** All roles, policies and assignments. Users are many: the page reads those that it shows. */
export interface Directory {
  readonly roles: readonly RoleRow[];
  readonly policies: readonly PolicyRow[];
  readonly assignments: readonly Assignment[];
  /** The emails of users who have a policy of their own, by id. */
  readonly emails: ReadonlyMap<string, string>;
}

export async function loadDirectory(): Promise<Directory> {
  const [roles, policies, assignments] = await Promise.all([
    call<RoleRow[]>(
      'GET',
      '/roles?fields=id,name,description,parent,policies.id,policies.policy&sort=name,id&limit=-1',
    ),
    call<PolicyRow[]>(
      'GET',
      '/policies?fields=id,name,description,admin_access,app_access,enforce_tfa,ip_access,permissions.id&sort=name,id&limit=-1',
    ),
    call<(Omit<Assignment, 'user'> & { user: { id: string; email: string | null } | null })[]>(
      'GET',
      '/access?fields=id,role,policy,user.id,user.email&limit=-1',
    ),
  ]);
  return {
    roles: roles.data,
    policies: policies.data,
    assignments: assignments.data.map(({ user, ...rest }) => ({ ...rest, user: user?.id ?? null })),
    emails: new Map(assignments.data.flatMap(({ user }) => (user ? [[user.id, user.email ?? user.id] as const] : []))),
  };
}

const PERSON_FIELDS =
  'id,email,first_name,last_name,status,role,provider,last_access,token,tfa_secret,policies.id,policies.policy'.split(
    ',',
  );

export const USERS_PER_PAGE = 50;

export interface UserQuery {
  readonly search: string;
  readonly status: string;
  readonly role: string;
  readonly page: number;
}

export async function loadUsers(
  { search, status, role, page }: UserQuery,
  signal: AbortSignal,
): Promise<{ readonly users: readonly Person[]; readonly count: number }> {
  const matches = ['email', 'first_name', 'last_name'].map((field) => ({ [field]: { _icontains: search } }));
  const conditions = [
    ...(search === '' ? [] : [{ _or: matches }]),
    ...(status === '' ? [] : [{ status: { _eq: status } }]),
    ...(role === '' ? [] : [{ role: { _eq: role } }]),
  ];
  const query = {
    fields: PERSON_FIELDS,
    sort: ['email', 'id'],
    limit: USERS_PER_PAGE,
    page,
    meta: ['filter_count'],
    ...(conditions.length > 0 ? { filter: { _and: conditions } } : {}),
  };
  const { data, meta } = await call<Person[]>('SEARCH', '/users', { body: { query }, signal });
  return { users: data, count: Number(meta['filter_count'] ?? data.length) };
}

export async function loadUser(id: string): Promise<Person> {
  const { data } = await call<Person>('GET', `/users/${encodeURIComponent(id)}?fields=${PERSON_FIELDS.join(',')}`);
  return data;
}

export function nameOf({ first_name, last_name, email, id }: Omit<Person, 'policies'>): string {
  const name = [first_name, last_name].filter(Boolean).join(' ');
  return name === '' ? (email ?? id) : name;
}

export function roleName(id: string | null, { roles }: Directory): string {
  return id === null ? 'no role' : (roles.find((role) => role.id === id)?.name ?? id);
}

/** The names of the holders of a policy. */
export function holdersOf(policy: string, directory: Directory): string[] {
  return directory.assignments
    .filter((each) => each.policy === policy)
    .map(({ role, user }) => {
      if (user !== null) return directory.emails.get(user) ?? user;
      return role === null ? 'the public' : `role ${roleName(role, directory)}`;
    });
}

export interface Branch {
  readonly role: RoleRow;
  readonly depth: number;
}

/** Roles below their parents, in the order in which a tree is read. A circle of parents stays visible at the top. */
export function treeOf(roles: readonly RoleRow[]): Branch[] {
  const known = new Set(roles.map(({ id }) => id));
  const placed = new Set<string>();
  const below = (parent: string | null, depth: number): Branch[] =>
    roles
      .filter((role) => (parent === null ? role.parent === null || !known.has(role.parent) : role.parent === parent))
      .flatMap((role) => {
        if (placed.has(role.id)) return [];
        placed.add(role.id);
        return [{ role, depth }, ...below(role.id, depth + 1)];
      });
  const tree = below(null, 0);
  return [...tree, ...roles.filter(({ id }) => !placed.has(id)).map((role) => ({ role, depth: 0 }))];
}

/** The roles as a tree, for a select. */
export function roleOptions(
  { roles }: Directory,
  without: ReadonlySet<string> = new Set(),
): { readonly value: string; readonly label: string }[] {
  const shown = treeOf(roles).filter(({ role }) => !without.has(role.id));
  return [
    { value: '', label: 'none' },
    ...shown.map(({ role, depth }) => ({ value: role.id, label: `${'\u2003'.repeat(depth)}${role.name}` })),
  ];
}

/** The payload that assigns the chosen policies and withdraws the others. Undefined if nothing changes. */
export function policyChanges(
  current: readonly Pick<Assignment, 'id' | 'policy'>[],
  chosen: readonly string[],
): { readonly create: readonly object[]; readonly delete: readonly string[] } | undefined {
  const create = chosen.filter((id) => !current.some(({ policy }) => policy === id)).map((policy) => ({ policy }));
  const removed = current.filter(({ policy }) => !chosen.includes(policy)).map(({ id }) => id);
  return create.length + removed.length === 0 ? undefined : { create, delete: removed };
}

/** A role and all roles below it: none of them can become its parent. */
export function withDescendants(id: string, roles: readonly RoleRow[]): ReadonlySet<string> {
  const found = new Set([id]);
  for (let before = 0; before !== found.size; ) {
    before = found.size;
    for (const role of roles) if (role.parent !== null && found.has(role.parent)) found.add(role.id);
  }
  return found;
}

/** 32 random characters. The service stores only a digest of a token. */
export function makeToken(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_');
}

export interface PasswordLink {
  readonly url: string;
  readonly purpose: 'invite' | 'reset';
  readonly days: number;
}

/** A link with which the user chooses a password. The part after # is not sent to any server. */
export async function makePasswordLink(user: string): Promise<PasswordLink> {
  const { data } = await call<{ token: string; purpose: PasswordLink['purpose']; expires: number }>(
    'POST',
    `/users/${encodeURIComponent(user)}/password-token`,
  );
  const url = `${passwordPage(data.purpose)}?token=${encodeURIComponent(data.token)}`;
  return { url, purpose: data.purpose, days: Math.round(data.expires / 86_400_000) };
}

/** The page of the Explorer on which a user chooses a password. */
export function passwordPage(purpose: PasswordLink['purpose']): string {
  return `${location.origin}${location.pathname}#/choose-password/${purpose}`;
}
