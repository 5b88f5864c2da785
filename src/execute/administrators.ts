/**
 * What a change of users, roles and policies must not do: leave nobody who may do everything, or let somebody who may not do
 * everything make others who may, or come in as one of them. That is seen only after the change, so these writes have a look
 * before and one after it, in their transaction and one at a time.
 */
import { readFileSync } from 'node:fs';
import type { Identity } from '../access/identity.js';
import { assertPassword, readPolicy } from '../access/passwords.js';
import { forbidden, invalidPayload, unprocessable } from '../errors.js';
import { packagePath } from '../files.js';
import { Secret } from '../plan/cell.js';
import { readFilter, readValidation } from '../plan/rules.js';
import type { PlannedWrite } from '../plan/write.js';
import type { Session } from './sessions.js';

const ADMINISTRATORS = readFileSync(packagePath('sql', 'administrators.sql'), 'utf8');
const CREDENTIALS = readFileSync(packagePath('sql', 'credentials.sql'), 'utf8');

const TABLES: ReadonlySet<string> = new Set([
  'service_users',
  'service_roles',
  'service_policies',
  'service_access',
  'service_permissions',
  'service_settings',
]);

/** Whether rows of the collection say who may do what, or how they come in. */
export function decidesAccess(collection: string): boolean {
  return TABLES.has(collection);
}

export function concernsAccess({ plan }: PlannedWrite): boolean {
  return [...plan.nodes, ...plan.releases].some(({ collection }) => decidesAccess(collection.name));
}

export async function keepAdministrators<Result>(
  session: Session,
  caller: Identity,
  work: () => Promise<Result>,
): Promise<Result> {
  // Who changes their own password stays in: the trigger that ends their sessions spares this one.
  await session.query(
    "select pg_advisory_xact_lock(hashtextextended('lateral administrators', 0)), set_config('service.session', $1, true)",
    [caller.session ?? ''],
    { prepare: true },
  );
  const before = await administrators(session);
  const known = caller.administrator ? {} : await credentialsOf(before, session);
  const result = await work();
  const after = await administrators(session);
  if (before.some(({ active }) => active) && !after.some(({ active }) => active))
    throw unprocessable('Cannot remove the last admin user from the system');
  if (caller.administrator) return result;
  const isNew = (one: Administrator): boolean =>
    !before.some(({ user, addresses }) => user === one.user && addresses === one.addresses);
  if (after.some(isNew)) throw forbidden();
  // Also of those who are none any more. One who was deleted has none to come in with.
  const credentials = Object.entries(await credentialsOf(before, session));
  if (credentials.some(([user, digest]) => digest !== known[user])) throw forbidden();
  return result;
}

/** One for each user and each list of addresses; the user is null for the public. */
interface Administrator {
  readonly user: string | null;
  readonly addresses: string | null;
  readonly active: boolean;
}

async function administrators(session: Session): Promise<Administrator[]> {
  return JSON.parse(String(await session.cell(ADMINISTRATORS, []))) as Administrator[];
}

async function credentialsOf(holders: readonly Administrator[], session: Session): Promise<Record<string, string>> {
  const users = holders.flatMap(({ user }) => user ?? []);
  return JSON.parse(String(await session.cell(CREDENTIALS, [JSON.stringify(users)]))) as Record<string, string>;
}

/** By collection and field: how the service reads what it has to understand later. Undefined for what it cannot read. */
const READERS: Readonly<Record<string, { readonly read: (value: unknown) => unknown; readonly what: string }>> = {
  'service_permissions permissions': { read: readFilter, what: 'a filter' },
  'service_permissions validation': { read: readValidation, what: 'a filter' },
  'service_settings auth_password_policy': {
    read: (value) => readPolicy(typeof value === 'string' ? value : null),
    what: 'a regular expression',
  },
};

/** A rule that cannot be read would allow nothing, and nobody would be told why. */
export function checkRules({ plan, input }: PlannedWrite): void {
  plan.nodes.forEach(({ collection, columns }, position) => {
    columns.forEach(({ field }, index) => {
      const reader = READERS[`${collection.name} ${field.name}`];
      const wrong = reader && input.nodes[position]?.some((row) => reader.read(row[`c${index}`]) === undefined);
      if (wrong) throw invalidPayload(`"${field.name}" is not ${reader.what}`);
    });
  });
}

/** New passwords of users have to meet the settings. */
export async function checkPasswords({ plan, input }: PlannedWrite, session: Session): Promise<void> {
  const passwords = plan.nodes.flatMap((node, position) =>
    node.collection.name === 'service_users'
      ? (input.nodes[position] ?? []).flatMap((row) => Object.values(row).filter((value) => value instanceof Secret))
      : [],
  );
  if (passwords.length === 0) return;
  const [row] = await session.query('select auth_password_policy as policy from service_settings limit 1');
  for (const { text } of passwords) assertPassword(row?.policy ?? null, text);
}
