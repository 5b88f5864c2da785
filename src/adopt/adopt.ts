/**
 * Takes over an installation of Directus: its tables stay as they are, and its users, rights and metadata are copied to the
 * tables of the service, in one transaction. A dry run shows what would change. The result lists what is not carried over.
 */
import { StartError } from '../base/errors.js';
import { buildModel } from '../mirror/introspect.js';
import { planRule, readRuleFilter, readValidation } from '../plan/rules.js';
import { loadSchema } from '../postgres/catalog/catalog.js';
import { migrateWithin } from '../postgres/catalog/migrate.js';
import { ANNOUNCE_SCHEMA, LIMIT_LOCK_WAIT, LOCK_SCHEMA } from '../postgres/catalog/schema-lock.js';
import type { Database } from '../postgres/pools/database.js';
import type { Session } from '../postgres/pools/sessions.js';
import { type Fragment, sql } from '../sql/fragment.js';
import { type Copied, type Copy, copyNumbered, copyRows, UNCHANGED } from './copy.js';
import { copyHistory, copySettings, dataCopies, HAS_FITTING_NAME, numberedData } from './data.js';
import { adoptFlows } from './flows.js';
import {
  addOwnColumns,
  collectionRows,
  describesField,
  fieldRows,
  findOwnFields,
  findReferences,
  type OwnField,
  relationRows,
  renameCollections,
} from './metadata.js';
import {
  accessRows,
  checkUsers,
  foreignPermissions,
  permissionRows,
  policyRows,
  rememberAccess,
  rememberUsers,
  removeGoneAccess,
  ringsOf,
  roleRows,
  suspendGoneUsers,
  userRows,
} from './rights.js';
import { count, findInstallations, hasColumn, type Installations, isSystemName, ours, run, theirs } from './source.js';

export interface AdoptOptions {
  readonly system: string | null;
  readonly dryRun: boolean;
  readonly activity: boolean;
  /** Foreign keys of user tables stay on the tables of the other installation, which goes on running. */
  readonly keepReferences: boolean;
  readonly progress: (step: string) => void;
}

export interface AdoptedKind extends Copied {
  readonly name: string;
  readonly removed?: number;
}

export interface Adoption {
  readonly schema: string;
  readonly major: number;
  readonly kinds: readonly AdoptedKind[];
  /** Columns that were added to system tables. */
  readonly columns: readonly string[];
  /** Tables and columns whose foreign keys were created again. */
  readonly references: readonly string[];
  /** Tables whose foreign keys were left unchanged. */
  readonly keptReferences: readonly string[];
  /** Rows of many-to-any junctions that name a system collection. */
  readonly renamed: number;
  readonly suspended: number;
  readonly notes: readonly string[];
  readonly unfit: readonly string[];
}

/** Ends the transaction of a dry run. */
class Undone extends Error {
  constructor(readonly adoption: Adoption) {
    super('dry run');
  }
}

export async function adopt(database: Database, options: AdoptOptions): Promise<Adoption> {
  try {
    return await database.transaction(async (session) => {
      const adoption = await carryOver(session, database, options);
      if (options.dryRun) throw new Undone(adoption);
      return adoption;
    });
  } catch (error) {
    if (error instanceof Undone) return error.adoption;
    throw asStartError(error);
  }
}

/** Errors of PostgreSQL say what is wrong with the database: a right that is missing, a table that is in use. */
function asStartError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof StartError || !('code' in error)) return error;
  const hint = error.code === LOCK_NOT_AVAILABLE ? ': tables are in use by others, try again' : '';
  return new StartError(`nothing was adopted: ${error.message}${hint}`);
}

const LOCK_NOT_AVAILABLE = '55P03';
const LOCK_TIMEOUT = '10s';

async function carryOver(session: Session, database: Database, options: AdoptOptions): Promise<Adoption> {
  await session.query(LOCK_SCHEMA, [database.schema]);
  await session.query(LIMIT_LOCK_WAIT, [LOCK_TIMEOUT]);
  await migrateWithin(session, database, options.system);
  // Users have pictures, which are files, and files belong to users.
  await session.query('set constraints all deferred');
  const found = await findInstallations(session, database);
  const own = await findOwnFields(session, found);
  const columns = await addOwnColumns(session, found, own);
  const places = columns.length === 0 ? found : await findInstallations(session, database);
  await checkUsers(session, places);
  const { kinds, suspended } = await copyAll(session, places, own, options);
  options.progress('flows');
  const flows = await adoptFlows(session, places, options.keepReferences);
  options.progress('references');
  const references = await findReferences(session, places, own);
  const carried = references.filter(({ kind }) => kind === 'own' || !options.keepReferences);
  // A dry run must not stop the tables of others, not even for a moment.
  if (!options.dryRun) for (const { statement } of carried) await session.query(statement);
  const renamed = options.keepReferences ? 0 : await renameCollections(session, places);
  if (columns.length + carried.length > 0) await session.query(database.qualified(ANNOUNCE_SCHEMA), [database.schema]);
  options.progress('notes');
  return {
    schema: places.schema,
    major: places.major,
    kinds: flows.copied.created === 0 ? kinds : [...kinds, { name: 'webhooks', ...flows.copied }],
    columns,
    references: carried.map(({ field }) => field),
    keptReferences: references.filter((each) => !carried.includes(each)).map(({ field }) => field),
    renamed,
    suspended,
    notes: [...flows.notes, ...(await notesOf(session, places))],
    unfit: await unfitRules(session, database, places),
  };
}

async function copyAll(
  session: Session,
  places: Installations,
  own: readonly OwnField[],
  { activity, progress }: AdoptOptions,
): Promise<Pick<Adoption, 'kinds' | 'suspended'>> {
  const kinds: AdoptedKind[] = [];
  const copy = async (name: string, ...copies: readonly Copy[]): Promise<void> => {
    progress(name);
    let [created, changed] = [0, 0];
    for (const each of copies) {
      const copied = await copyRows(session, places, each);
      created += copied.created;
      changed += copied.changed;
    }
    kinds.push({ name, created, changed });
  };
  const copyByNumber = async (rows: Copy): Promise<void> => {
    progress(rows.to);
    kinds.push({ name: rows.to, ...(await copyNumbered(session, places, rows)) });
  };
  await copy('collections', collectionRows(places));
  await copy('fields', fieldRows(places, own));
  await copy('relations', relationRows(places));
  await copy('roles', roleRows(places));
  await copy('policies', ...policyRows(places));
  await copy('users', userRows(places));
  const suspended = await suspendGoneUsers(session, places);
  const removed = await removeGoneAccess(session, places);
  await copy('access', accessRows(places));
  if (removed > 0) kinds.push({ name: 'access taken away', ...UNCHANGED, removed });
  await copyByNumber(permissionRows(places));
  kinds.push({ name: 'settings', ...(await copySettings(session, places)) });
  for (const { name, copies } of dataCopies(places)) await copy(name, ...copies);
  for (const rows of numberedData(places)) await copyByNumber(rows);
  await session.query('set constraints all immediate');
  await rememberUsers(session, places);
  await rememberAccess(session, places);
  if (activity && places.tables.has('directus_activity') && places.tables.has('directus_revisions')) {
    progress('activity and revisions');
    const copied = await copyHistory(session, places);
    kinds.push({ name: 'activity', created: copied.activity, changed: 0 });
    kinds.push({ name: 'revisions', created: copied.revisions, changed: 0 });
  }
  return { kinds, suspended };
}

/** Tables that have no counterpart here, with the reason. */
const LEFT: readonly (readonly [table: string, reason: string])[] = [
  ['extensions', 'extensions are code of the other server: hooks and endpoints do not run here'],
  ['sessions', 'everybody signs in again; static tokens go on working'],
];

/** Lines for the operator: what is not carried over, and why. */
async function notesOf(session: Session, places: Installations): Promise<readonly string[]> {
  const notes: string[] = [];
  for (const [table, reason] of LEFT) {
    if (!places.tables.has(`directus_${table}`) || places.shared.includes(table)) continue;
    const number = await count(session, sql`from ${theirs(places, table)}`);
    if (number > 0) notes.push(`${rows(number)} of directus_${table}: ${reason}`);
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

type Doubt = readonly [from: Fragment, say: (number: number) => string];

function doubtful(places: Installations): readonly Doubt[] {
  return [...doubtfulMetadata(places), ...doubtfulUsers(places), ...doubtfulFiles(places), ...doubtfulRules(places)];
}

function doubtfulMetadata(places: Installations): readonly Doubt[] {
  const [fields, relations] = [theirs(places, 'fields'), theirs(places, 'relations')];
  return [
    [
      sql`from ${fields} old where not ${isSystemName(sql`old.collection`)} and not ${describesField(places)}`,
      (number) => `${rows(number)} of directus_fields: their columns no longer exist`,
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
async function unfitRules(session: Session, database: Database, places: Installations): Promise<readonly string[]> {
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
