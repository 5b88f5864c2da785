/**
 * Guards changes of users, roles and policies. At least one administrator must remain, and only administrators may make, remove or
 * delete administrators, or change their credentials. That is known only after the change, so these writes compare the
 * administrators before and after it, in their transaction and one at a time.
 */

import { failedValidation, forbidden, invalidPayload, unprocessable } from '../../base/errors.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Model } from '../../compiler/model/model.js';
import { planRule, readValidation } from '../../compiler/plan/rules.js';
import type { Payload } from '../../compiler/plan/write/payload-row.js';
import type { PlannedWrite } from '../../compiler/plan/write/write.js';
import type { Identity } from '../access/identity.js';
import { checkAddresses, checkRule } from '../access/policy-checks.js';
import type { Database } from '../postgres/pools/database.js';
import type { Session } from '../postgres/pools/sessions.js';
import { readSql } from '../postgres/read-sql.js';
import { readPolicy } from './passwords.js';

const ADDRESS = /^[^\s@]+@[^\s@]+$/;

const ADMINISTRATORS = readSql('server', 'administrators.sql');
const CREDENTIALS = readSql('server', 'credentials.sql');
export const REGISTRATION = readSql('server', 'auth', 'registration.sql');

const TABLES: ReadonlySet<string> = new Set([
  'service_users',
  'service_roles',
  'service_policies',
  'service_access',
  'service_permissions',
  'service_settings',
]);

/** Whether a write of rows of the collection can change permissions or credentials, directly or through foreign keys. */
export function concernsAccess(collection: string, isDeleted: boolean, model: Model): boolean {
  if (TABLES.has(collection)) return true;
  if (!isDeleted) return false;
  const known = DELETING.get(model) ?? collectionsBehindAccess(model);
  DELETING.set(model, known);
  return known.has(collection);
}

const DELETING = new WeakMap<Model, ReadonlySet<string>>();

/** The tables above, those whose rows PostgreSQL changes there when it deletes them, and those whose deletion deletes these. */
function collectionsBehindAccess({ collections }: Model): ReadonlySet<string> {
  const found = new Set(TABLES);
  // The loop also visits entries that it adds.
  for (const name of found) {
    const collection = collections.get(name);
    if (!collection) continue;
    const keys = [...collection.fields.values()].flatMap(({ column }) => column?.foreign_keys ?? []);
    for (const { collection: target, on_delete } of [...keys, ...collection.references]) {
      const isChanged = on_delete === 'CASCADE' || (TABLES.has(name) && on_delete.startsWith('SET'));
      if (target !== null && isChanged) found.add(target);
    }
  }
  return found;
}

/** Answers a function that compares the administrators after the change with those before it, and throws if that is refused. */
export async function watchAdministrators(
  database: Database,
  session: Session,
  caller: Identity,
): Promise<() => Promise<void>> {
  // Users who change their own password stay logged in: the trigger that ends their sessions keeps this one.
  await session.query(
    database.qualified(
      "select pg_advisory_xact_lock(hashtextextended('lateral administrators', 0)), set_config('service.session', $1, true)",
    ),
    [caller.session ?? ''],
    { prepare: true },
  );
  const ask: Ask = async (text, ...parameters) =>
    parseOwnJson(String(await session.cell(database.qualified(text), parameters)));
  const before = await administrators(ask);
  const known = caller.administrator ? {} : await credentialsOf(before, ask);
  return async () => {
    const after = await administrators(ask);
    if (!caller.administrator) await refuseChanges(before, after, known, ask);
    if (before.some(({ active }) => active) && !after.some(({ active }) => active))
      throw unprocessable('Cannot remove the last admin user from the system');
  };
}

/** Only administrators make, remove and delete administrators, or change what these sign in with. */
async function refuseChanges(
  before: readonly Administrator[],
  after: readonly Administrator[],
  known: Readonly<Record<string, string>>,
  ask: Ask,
): Promise<void> {
  const isMissing = (one: Administrator, others: readonly Administrator[]): boolean =>
    !others.some(({ user, addresses }) => user === one.user && addresses === one.addresses);
  if (after.some((one) => isMissing(one, before)) || before.some((one) => isMissing(one, after))) throw forbidden();
  const credentials = await credentialsOf(before, ask);
  if (Object.entries(known).some(([user, digest]) => credentials[user] !== digest)) throw forbidden();
}

/** A role with every right is given to nobody who registers: such a setting would only let nobody register. */
export async function checkRegistration({ plan }: PlannedWrite, database: Database, session: Session): Promise<void> {
  const names = plan.nodes.flatMap(({ collection, columns }) =>
    collection.name === 'service_settings' ? columns.map(({ field }) => field.name) : [],
  );
  if (!names.includes('public_registration_role')) return;
  const [settings] = await session.query(database.qualified(REGISTRATION));
  if (settings?.['unlimited']) throw invalidPayload('"public_registration_role" must be a role without admin access');
}

/** One for each user and each list of addresses; the user is null for the public. */
interface Administrator {
  readonly user: string | null;
  readonly addresses: string | null;
  readonly active: boolean;
}

/** A statement of our own that answers with a document. */
type Ask = <Document>(text: string, ...parameters: string[]) => Promise<Document>;

function administrators(ask: Ask): Promise<Administrator[]> {
  return ask(ADMINISTRATORS);
}

function credentialsOf(holders: readonly Administrator[], ask: Ask): Promise<Record<string, string>> {
  const users = holders.flatMap(({ user }) => user ?? []);
  return ask(CREDENTIALS, JSON.stringify(users));
}

/** Checks of users, roles, policies and settings that their columns cannot express. */
export function checkAccess(planned: PlannedWrite): void {
  const { model } = planned;
  for (const row of writtenRows(planned, 'service_permissions')) checkRule(row, model);
  for (const row of writtenRows(planned, 'service_policies')) checkAddresses(row);
  for (const row of writtenRows(planned, 'service_users')) checkEmail(row);
  for (const row of writtenRows(planned, 'service_settings')) checkSettings(row, model);
}

/** The values that a write gives the rows of a collection, by the names of fields. */
function* writtenRows({ plan, input }: PlannedWrite, name: string): Generator<Payload> {
  for (const [position, { collection, columns }] of plan.nodes.entries()) {
    if (collection.name !== name) continue;
    for (const row of input.nodes[position] ?? []) {
      const values = columns.map(({ field }, index) => [field.name, row[`c${index}`]] as const);
      // A field may have a column for new rows and one for changed rows: the first value counts.
      yield Object.fromEntries(values.filter(([, value]) => value !== undefined).reverse());
    }
  }
}

/** Email addresses identify users. A row may leave out what another has. */
function checkEmail({ email }: Payload): void {
  if (email !== undefined && !(typeof email === 'string' && ADDRESS.test(email)))
    throw failedValidation({ collection: 'service_users', name: 'email' }, 'email', 'email');
}

/** With a pattern that cannot be parsed no password would pass, and with such a filter nobody could register. */
function checkSettings({ auth_password_policy: pattern, ...settings }: Payload, model: Model): void {
  const users = model.collections.get('service_users');
  const filter = readValidation(settings['public_registration_email_filter']);
  if (filter === undefined || (users && !planRule(filter, users, model)))
    throw invalidPayload('"public_registration_email_filter" must be a filter on users');
  if (readPolicy(typeof pattern === 'string' ? pattern : null) === undefined)
    throw invalidPayload('"auth_password_policy" must be a regular expression');
}
