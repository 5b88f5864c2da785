/**
 * Policies in a snapshot: their permissions, and the roles and users who have them, by name. Names identify policies, as they do in
 * functions. A snapshot contains no secret: users are only named.
 */

import { invalidPayload, unprocessable } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Model } from '../../compiler/model/model.js';
import { requireObject } from '../../compiler/request/write.js';
import { checkAddresses, checkRule } from '../../server/access/policy-checks.js';
import { readSql } from '../../server/postgres/read-sql.js';
import type { Draft } from '../../server/schema/change/change.js';
import type { DdlStatement, PolicyPermission } from '../../server/schema/change/ddl-statement.js';

const POLICIES = readSql('features', 'snapshots', 'policy-snapshot.sql');
const HOLDERS = readSql('features', 'snapshots', 'policy-holders.sql');
const ADMINISTRATORS = readSql('server', 'administrators.sql');

export interface PolicyEntry {
  readonly name: string;
  readonly icon: string;
  readonly description: string | null;
  readonly admin_access: boolean;
  readonly app_access: boolean;
  readonly enforce_tfa: boolean;
  readonly ip_access: readonly string[] | null;
  /** Whether the public has it. */
  readonly public: boolean;
  /** Names of roles. */
  readonly roles: readonly string[];
  /** Email addresses of users. */
  readonly users: readonly string[];
  readonly permissions: readonly PolicyPermission[];
}

export async function readPolicyRows(draft: Draft): Promise<string> {
  return String(await draft.ownCell(POLICIES, []));
}

/** A row of sql/features/snapshots/policy-snapshot.sql, as far as it differs from an entry: lists are texts with commas. */
interface PolicyRow {
  readonly ip_access: string | null;
  readonly permissions: readonly { readonly fields: string | null }[];
}

/** The rows as entries. Two policies with one name cannot be distinguished in another database. */
export function policyEntries(text: string): PolicyEntry[] {
  const entries = parseOwnJson<PolicyRow[]>(text).map((row, position) =>
    readPolicyEntry(
      {
        ...row,
        ip_access: listOf(row.ip_access),
        permissions: row.permissions.map((permission) => ({
          ...permission,
          fields: listOf(permission.fields),
        })),
      },
      position,
    ),
  );
  const twice = entries.find(({ name }, position) => entries[position + 1]?.name === name);
  if (twice) throw unprocessable(`Two policies have the name "${twice.name}". Rename one, so that names identify them`);
  return entries;
}

function listOf(text: string | null): readonly string[] | null {
  return text !== null ? text.split(',').flatMap((each) => each.trim() || []) : null;
}

const ACTIONS = ['create', 'read', 'update', 'delete', 'share', 'execute'] as const;

const MAX_NAME_LENGTH = 255;

export function readPolicyEntry(value: unknown, position = 0): PolicyEntry {
  const path = `policies[${position}]`;
  const { name, icon = 'badge', description = null, ip_access = null, ...rest } = requireObject(value, `"${path}"`);
  const { admin_access = false, app_access = false, enforce_tfa = false, public: open = false, ...others } = rest;
  const { roles = [], users = [], permissions = [], ...unknown } = others;
  const [first] = Object.keys(unknown);
  if (first !== undefined) throw invalidPayload(`"${path}.${first}" is not a property of a policy`);
  if (typeof name !== 'string' || name === '' || [...name].length > MAX_NAME_LENGTH)
    throw invalidPayload(`"${path}.name" must be a name of at most ${MAX_NAME_LENGTH} characters`);
  if (typeof icon !== 'string') throw invalidPayload(`"${path}.icon" must be a string`);
  if (description !== null && typeof description !== 'string')
    throw invalidPayload(`"${path}.description" must be a string`);
  if (!Array.isArray(permissions)) throw invalidPayload(`"${path}.permissions" must be a list`);
  const addresses = ip_access === null ? [] : readTexts(ip_access, `${path}.ip_access`);
  checkAddresses({ ip_access: addresses.join(',') });
  return {
    name,
    icon,
    description: description === '' ? null : description,
    admin_access: readFlag(admin_access, `${path}.admin_access`),
    app_access: readFlag(app_access, `${path}.app_access`),
    enforce_tfa: readFlag(enforce_tfa, `${path}.enforce_tfa`),
    ip_access: addresses.length === 0 ? null : addresses,
    public: readFlag(open, `${path}.public`),
    roles: distinct(readTexts(roles, `${path}.roles`)),
    users: distinct(readTexts(users, `${path}.users`).map((email) => email.toLowerCase())),
    permissions: permissions
      .map((each, at) => readPermission(each, `${path}.permissions[${at}]`))
      .sort((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1)),
  };
}

/** The order of the properties is the order in which permissions are sorted. */
function readPermission(value: unknown, path: string): PolicyPermission {
  const { collection, action, fields = null, ...rules } = requireObject(value, `"${path}"`);
  const { permissions, validation, presets, ...unknown } = rules;
  const [first] = Object.keys(unknown);
  if (first !== undefined) throw invalidPayload(`"${path}.${first}" is not a property of a permission`);
  if (typeof collection !== 'string') throw invalidPayload(`"${path}.collection" must be a string`);
  const known = ACTIONS.find((each) => each === action);
  if (!known) throw invalidPayload(`"${path}.action" must be one of ${ACTIONS.join(', ')}`);
  const names = fields === null ? null : readTexts(fields, `${path}.fields`);
  if (names?.some((each) => each.includes(','))) throw invalidPayload(`"${path}.fields" must list names of fields`);
  return {
    collection,
    action: known,
    fields: names,
    permissions: readRule(permissions, `${path}.permissions`),
    validation: readRule(validation, `${path}.validation`),
    presets: readRule(presets, `${path}.presets`),
  };
}

/** An empty object and null mean the same. */
function readRule(value: unknown, path: string): Readonly<Record<string, unknown>> | null {
  if (value === undefined || value === null) return null;
  if (!isObject(value)) throw invalidPayload(`"${path}" must be an object`);
  return Object.keys(value).length === 0 ? null : value;
}

function readFlag(value: unknown, path: string): boolean {
  if (typeof value !== 'boolean') throw invalidPayload(`"${path}" must be true or false`);
  return value;
}

function readTexts(value: unknown, path: string): string[] {
  if (!Array.isArray(value) || !value.every((each) => typeof each === 'string' && each !== '' && !each.includes('\0')))
    throw invalidPayload(`"${path}" must be a list of strings`);
  return value.map(String);
}

function distinct(texts: readonly string[]): string[] {
  return [...new Set(texts)].sort();
}

/** Without `wanted`, all policies stay as they are. */
export function planPolicies(
  current: readonly PolicyEntry[],
  wanted: readonly PolicyEntry[] = current,
): DdlStatement[] {
  const former = new Map(current.map((entry) => [entry.name, entry]));
  const names = new Set(wanted.map(({ name }) => name));
  return [
    ...current.flatMap(({ name }) => (names.has(name) ? [] : [{ kind: 'drop-policy', name } as const])),
    ...wanted.flatMap((entry) => savePolicy(entry, former.get(entry.name))),
  ];
}

/** Parts that do not differ keep their rows. */
function savePolicy(entry: PolicyEntry, former: PolicyEntry | undefined): DdlStatement[] {
  const { name, permissions, public: open, roles, users, ip_access, ...flags } = entry;
  const values = { ...flags, ip_access: ip_access?.join(',') ?? null };
  const holders = { public: open, roles, users };
  const differs = (pick: (policy: PolicyEntry) => unknown): boolean =>
    !former || JSON.stringify(pick(former)) !== JSON.stringify(pick(entry));
  return [
    ...(former ? [] : [{ kind: 'create-policy', name, values } as const]),
    ...(former && differs(({ permissions: _, public: __, roles: ___, users: ____, ...rest }) => rest)
      ? [{ kind: 'change-policy', name, values } as const]
      : []),
    ...(differs((policy) => policy.permissions)
      ? [{ kind: 'save-policy-permissions', name, permissions } as const]
      : []),
    ...(differs((policy) => [policy.public, policy.roles, policy.users])
      ? [{ kind: 'save-policy-holders', name, holders } as const]
      : []),
  ];
}

export function concernsPolicies(steps: readonly DdlStatement[]): boolean {
  return steps.some(({ kind }) => kind.includes('-policy'));
}

/** Refuses holders that do not exist. Roles with one name cannot be distinguished. */
export async function checkHolders(draft: Draft, steps: readonly DdlStatement[]): Promise<void> {
  const holders = steps.flatMap((step) => (step.kind === 'save-policy-holders' ? [step.holders] : []));
  const names = (pick: 'roles' | 'users'): string =>
    JSON.stringify([...new Set(holders.flatMap((each) => each[pick]))]);
  if (holders.length === 0) return;
  const cell = await draft.ownCell(HOLDERS, [names('roles'), names('users')]);
  const missing = parseOwnJson<{ roles: string[]; users: string[] }>(String(cell));
  const [role] = missing.roles;
  if (role !== undefined)
    throw invalidPayload(
      `There is no role "${role}", or several. Create it, or rename the others, then apply the policies`,
    );
  const [user] = missing.users;
  if (user !== undefined)
    throw invalidPayload(`There is no user "${user}". Invite the user, or remove it from the policies of the snapshot`);
}

/** A rule that names an unknown field would allow nothing without an error. */
export function checkPermissions(steps: readonly DdlStatement[], model: Model): void {
  for (const step of steps)
    if (step.kind === 'save-policy-permissions')
      for (const permission of step.permissions) checkRule({ ...permission }, model);
}

/** Answers a function that refuses the changes if no administrator is left. */
export async function watchLastAdministrator(draft: Draft): Promise<() => Promise<void>> {
  // The same lock as for writes of users, roles and policies.
  await draft.ownCell(
    "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral administrators', 0))::text",
    [],
  );
  const isLeft = async (): Promise<boolean> =>
    parseOwnJson<{ active: boolean }[]>(String(await draft.ownCell(ADMINISTRATORS, []))).some(({ active }) => active);
  const before = await isLeft();
  return async () => {
    if (before && !(await isLeft())) throw unprocessable('Cannot remove the last admin user from the system');
  };
}
