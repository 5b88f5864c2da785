/** Lines for the operator: what is not carried over, and why, and permissions that grant nothing here. */

import { buildModel } from '../mirror/introspect.js';
import { planRule, readRuleFilter, readValidation } from '../plan/rules.js';
import { loadSchema } from '../postgres/catalog/catalog.js';
import type { Database } from '../postgres/pools/database.js';
import type { Session } from '../postgres/pools/sessions.js';
import { type Fragment, sql } from '../sql/fragment.js';
import { HAS_FITTING_NAME } from './data.js';
import { describesField } from './metadata.js';
import { foreignPermissions, ringsOf } from './rights.js';
import { count, hasColumn, type Installations, isSystemName, ours, run, theirs } from './source.js';

/** Tables that have no counterpart here, with the reason. */
const LEFT: readonly (readonly [table: string, reason: string])[] = [
  ['flows', 'flows are not offered: what they did on events must be done elsewhere'],
  ['operations', 'they belong to flows'],
  ['webhooks', 'webhooks are not offered'],
  ['extensions', 'extensions are code of the other server: hooks and endpoints do not run here'],
  ['sessions', 'everybody signs in again; static tokens go on working'],
];

export async function notesOf(session: Session, places: Installations): Promise<readonly string[]> {
  const notes: string[] = [];
  for (const [table, reason] of LEFT) {
    if (!places.tables.has(`directus_${table}`) || places.shared.includes(table)) continue;
    const number = await count(session, sql`from ${theirs(places, table)}`);
    if (number > 0)
      notes.push(`${rows(number)} of directus_${table}: ${reason}${await namesIn(session, places, table)}`);
  }
  for (const [from, say] of doubtful(places)) {
    const number = await count(session, from);
    if (number > 0) notes.push(say(number));
  }
  return notes;
}

function rows(number: number): string {
  return number === 1 ? '1 row' : `${number} rows`;
}

/** Names of flows, since without them the behaviour changes. */
async function namesIn(session: Session, places: Installations, table: string): Promise<string> {
  if (table !== 'flows') return '';
  const flows = await run<{ name: string; trigger: string | null; status: string }>(
    session,
    sql`select name, trigger, status from ${theirs(places, 'flows')} order by name limit 20`,
  );
  return ` (${flows.map(({ name, trigger, status }) => `"${name}", ${trigger ?? 'no trigger'}, ${status}`).join('; ')})`;
}

type Doubt = readonly [from: Fragment, say: (number: number) => string];

function doubtful(places: Installations): readonly Doubt[] {
  return [...doubtfulMetadata(places), ...doubtfulUsers(places), ...doubtfulFiles(places), ...doubtfulRules(places)];
}

function doubtfulMetadata(places: Installations): readonly Doubt[] {
  const [fields, relations] = [theirs(places, 'fields'), theirs(places, 'relations')];
  return [
    [
      sql`from ${fields} old where not ${isSystemName(sql`old.collection`)} and not ${describesField(places)}`,
      (number) => `${rows(number)} of directus_fields: their columns are gone`,
    ],
    [
      sql`from (select from ${fields} group by collection, field having count(*) > 1) twice`,
      (number) => `${number} fields are described twice: the older row counts`,
    ],
    [
      sql`from (select from ${relations} group by many_collection, many_field having count(*) > 1) twice`,
      (number) => `${number} relations are described twice: the older row counts`,
    ],
    [
      sql`from ${fields} old where 'encrypt' = any (string_to_array(old.special, ','))`,
      (number) => `${number} fields hold values that the other server has encrypted: they are shown as they are stored`,
    ],
    [
      sql`from ${theirs(places, 'permissions')} old where ${foreignPermissions(places)}`,
      (number) => `${rows(number)} of directus_permissions: about system tables or actions that do not exist here`,
    ],
  ];
}

function doubtfulUsers(places: Installations): readonly Doubt[] {
  const users = theirs(places, 'users');
  return [
    [
      sql`from ${users} old where old.password is not null and old.password not like '$argon2%'`,
      (number) => `${number} users have a password whose hash is not argon2: they must reset it`,
    ],
    [
      sql`from ${users} old where old.tfa_secret is not null and old.tfa_secret !~ '^[A-Z2-7]{16,128}$'`,
      (number) => `${number} users have a second factor that cannot be read: they must set it up again`,
    ],
    [
      sql`from ${users} old where old.provider <> 'default'`,
      (number) =>
        `${number} users sign in with an external provider: AUTH_PROVIDERS must name it here (docs/sign-in.md)`,
    ],
  ];
}

function doubtfulFiles(places: Installations): readonly Doubt[] {
  if (!places.tables.has('directus_files')) return [];
  const stored = sql`from ${theirs(places, 'files')} old where old.filename_disk is not null`;
  return [
    [
      stored,
      (number) =>
        `${rows(number)} of directus_files: the stored bytes are not copied; give STORAGE_LOCATIONS the names, folders and buckets that Directus has (docs/files.md)`,
    ],
    [
      sql`${stored} and not (${HAS_FITTING_NAME})`,
      (number) =>
        `${rows(number)} of directus_files: stored under a name that is not the key; rename what is stored to filename_disk of service_files`,
    ],
  ];
}

function doubtfulRules(places: Installations): readonly Doubt[] {
  const doubts: Doubt[] = [];
  if (hasColumn(places, 'directus_roles', 'parent'))
    doubts.push([
      sql`from (${ringsOf(places)}) ring`,
      (number) => `${number} roles are below themselves: they have no role above them here`,
    ]);
  if (places.major === 12)
    doubts.push([
      sql`from ${theirs(places, 'permissions')} old where coalesce(old.permissions::text, '{}') not in ('{}', 'null')
        or coalesce(old.validation::text, '{}') not in ('{}', 'null') or coalesce(old.presets::text, '{}') not in ('{}', 'null')
        or not '*' = any (string_to_array(coalesce(old.fields, ''), ','))`,
      (number) =>
        `${rows(number)} of directus_permissions have rules of their own, which version 12 ignores without a licence: they apply here, so that users may gain access`,
    ]);
  return doubts;
}

interface Rule {
  readonly policy: string;
  readonly collection: string;
  readonly action: string;
  readonly permissions: unknown;
  readonly validation: unknown;
}

/** Permissions whose rules do not fit the fields here. Read in the transaction that has written them. */
export async function unfitRules(
  session: Session,
  database: Database,
  places: Installations,
): Promise<readonly string[]> {
  const model = buildModel((await loadSchema(session, database)).document, 0, database, false);
  const rules = await run<Rule>(
    session,
    sql`select policy.name as policy, rule.collection, rule.action, rule.permissions, rule.validation
      from ${ours(places, 'permissions')} rule join ${ours(places, 'policies')} policy on policy.id = rule.policy
      join ${ours(places, 'adopted')} adopted on adopted.source = 'permissions' and adopted.target_key = rule.id::text
      order by policy.name, rule.collection, rule.action`,
  );
  return rules.flatMap(({ policy, collection: name, action, permissions, validation }) => {
    const label = `policy "${policy}", ${action} "${name}"`;
    const collection = model.collections.get(name);
    if (!collection) return model.folders.has(name) ? [] : [`${label}: there is no such collection`];
    const [where, valid] = [readRuleFilter(permissions), readValidation(validation)];
    const fits = (filter: typeof where): boolean =>
      filter !== undefined && planRule(filter, collection, model) !== null;
    return fits(where) && fits(valid) ? [] : [`${label}: its rule does not fit the fields, so it grants nothing`];
  });
}
