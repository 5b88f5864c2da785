/** Callers for the tests of access: users with a static token of their own and policies written for them with plain SQL. */
import { createHash } from 'node:crypto';
import type { Service } from '../../src/app/start.js';
import { get, type Sql, waitFor } from './service.js';

export interface Permission {
  readonly collection: string;
  readonly action: 'create' | 'read' | 'update' | 'delete' | 'share' | 'execute';
  readonly permissions?: object | null;
  readonly validation?: object | null;
  readonly presets?: object | null;
  /** All fields when absent. */
  readonly fields?: readonly string[] | null;
}

export interface Policy {
  readonly permissions?: readonly Permission[];
  readonly admin_access?: boolean;
  readonly app_access?: boolean;
}

export interface MadeCaller {
  readonly token: string;
  readonly user: string;
  readonly role: string | null;
  readonly policies: readonly string[];
}

/** A user whose role holds the policies. */
export async function makeCaller(
  sql: Sql,
  name: string,
  policies: readonly Policy[],
  person: { readonly user?: string; readonly name?: string } = {},
): Promise<MadeCaller> {
  const token = `the-token-of-${name}`;
  const [role] = await sql<{ id: string }[]>`insert into service_roles (name) values (${name}) returning id`;
  const digest = createHash('sha256').update(token).digest('hex');
  const [user] = await sql<{ id: string }[]>`
    insert into service_users (id, first_name, email, token, role)
    values (coalesce(${person.user ?? null}::uuid, gen_random_uuid()), ${person.name ?? name}, ${`${name}@example.com`},
      ${digest}, ${role?.id ?? null}) returning id`;
  const made: string[] = [];
  for (const policy of policies) made.push(await makePolicy(sql, name, policy, { role: role?.id ?? null }));
  return { token, user: user?.id ?? '', role: role?.id ?? null, policies: made };
}

/** Rights that are written with SQL are in force a moment later: until then what they may read is an error. */
export async function inForce(service: Service, { token }: MadeCaller, readable: string): Promise<void> {
  await waitFor(async () => (await get(service, readable, { token })).status === 200, 5_000);
}

/** Without a role and a user the policy is the public's. */
export async function makePolicy(
  sql: Sql,
  name: string,
  { permissions = [], admin_access = false, app_access = false }: Policy,
  holder: { readonly role?: string | null; readonly user?: string | null } = {},
): Promise<string> {
  const [policy] = await sql<{ id: string }[]>`
    insert into service_policies (name, admin_access, app_access) values (${name}, ${admin_access}, ${app_access}) returning id`;
  const id = policy?.id ?? '';
  for (const permission of permissions) await addPermission(sql, id, permission);
  await sql`
    insert into service_access (policy, role, "user", sort)
    values (${id}, ${holder.role ?? null}, ${holder.user ?? null}, (select count(*) from service_access))`;
  return id;
}

export async function addPermission(sql: Sql, policy: string, permission: Permission): Promise<void> {
  const { collection, action, permissions = null, validation = null, presets = null, fields = ['*'] } = permission;
  const json = (value: object | null): string | null => (value === null ? null : JSON.stringify(value));
  await sql`
    insert into service_permissions (policy, collection, action, permissions, validation, presets, fields)
    values (${policy}, ${collection}, ${action}, ${json(permissions)}::text::json, ${json(validation)}::text::json,
      ${json(presets)}::text::json, ${fields?.join() ?? null})`;
}
