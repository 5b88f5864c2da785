/** Policies and their holders, as they are stored. */
import { call } from '../api';
import type { FilterJson } from '../filter/filter';

export const ACTIONS = ['create', 'read', 'update', 'delete'] as const;
export type Action = (typeof ACTIONS)[number];

/** The label of `app_access`. */
export const APP_ACCESS = 'App access: may read the schema and use the Explorer';

export interface Permission {
  readonly id: number;
  readonly policy: string;
  readonly collection: string;
  readonly action: Action;
  /** The row rule, or null if it grants all rows. */
  readonly permissions: FilterJson | null;
  readonly validation: FilterJson | null;
  readonly presets: Readonly<Record<string, unknown>> | null;
  /** The fields, with `*` for all, or null if there are none. */
  readonly fields: readonly string[] | null;
}

export interface Policy {
  readonly id: string;
  readonly name: string;
  readonly admin_access: boolean;
  readonly permissions: readonly Permission[];
  readonly users: readonly { readonly user: string | null; readonly role: string | null }[];
}

export interface Role {
  readonly id: string;
  readonly name: string;
  readonly parent: string | null;
}

export interface User {
  readonly id: string;
  readonly email: string | null;
  readonly role: string | null;
}

export interface Access {
  readonly policies: readonly Policy[];
  readonly roles: readonly Role[];
  readonly users: readonly User[];
}

export async function loadAccess(): Promise<Access> {
  const [policies, roles, users] = await Promise.all([
    call<Policy[]>(
      'GET',
      '/policies?fields=id,name,admin_access,permissions.*,users.user,users.role&sort=name&limit=-1',
    ),
    call<Role[]>('GET', '/roles?fields=id,name,parent&limit=-1'),
    call<User[]>('GET', '/users?fields=id,email,role&sort=email&limit=200'),
  ]);
  return { policies: policies.data, roles: roles.data, users: users.data };
}

/** Finds a user by email or id, also one that is not in the list. */
export async function findUser(name: string, { users }: Access): Promise<User> {
  const listedUser = users.find(({ id, email }) => email === name || id === name);
  if (listedUser) return listedUser;
  const query = { fields: ['id', 'email', 'role'], filter: { email: { _eq: name } }, limit: 1 };
  const { data } = await call<User[]>('SEARCH', '/users', { body: { query } });
  const [found] = data;
  if (!found) throw new Error(`There is no user ${name}.`);
  return found;
}

/** Represents the policy of the public until it exists: the first permission creates it. */
export const NO_PUBLIC: Policy = {
  id: '',
  name: 'Public',
  admin_access: false,
  permissions: [],
  users: [{ user: null, role: null }],
};

/** The public's policies come first, because they apply to everybody. */
export function listed({ policies }: Access): Policy[] {
  const open = policies.filter(isPublic);
  return [...(open.length > 0 ? open : [NO_PUBLIC]), ...policies.filter((each) => !isPublic(each))];
}

export function isPublic({ users }: Policy): boolean {
  return users.some(({ user, role }) => user === null && role === null);
}

/** Describes the holders of a policy. */
export function holders(policy: Policy, { roles, users }: Access): string {
  const names = policy.users.map(({ user, role }) => {
    if (user !== null) return users.find((each) => each.id === user)?.email ?? 'a user';
    if (role !== null) return `role ${roles.find((each) => each.id === role)?.name ?? role}`;
    return 'requests without a login';
  });
  return names.length === 0 ? 'nobody' : names.join(', ');
}

export type Extent = 'none' | 'some' | 'all';

export function extentOf(permissions: readonly Permission[]): Extent {
  if (permissions.length === 0) return 'none';
  const isWhole = permissions.some(
    ({ permissions: rule, fields, validation, action }) =>
      (rule === null || Object.keys(rule).length === 0) &&
      (validation === null || Object.keys(validation).length === 0) &&
      (action === 'delete' || fields?.includes('*')),
  );
  return isWhole ? 'all' : 'some';
}

/** The caller's roles: their own first, then its parents. */
export function rolesOf(user: User | null, roles: readonly Role[]): string[] {
  const found: string[] = [];
  let next = user?.role ?? null;
  while (next !== null && !found.includes(next)) {
    found.push(next);
    next = roles.find((each) => each.id === next)?.parent ?? null;
  }
  return found;
}

/** The policies that apply to a user, or to the public if the user is null. */
export function policiesOf(user: User | null, { policies, roles }: Access): Policy[] {
  const own = rolesOf(user, roles);
  return policies.filter((policy) =>
    policy.users.some((each) => {
      if (each.user !== null) return each.user === user?.id;
      if (each.role !== null) return own.includes(each.role);
      return own.length === 0;
    }),
  );
}
