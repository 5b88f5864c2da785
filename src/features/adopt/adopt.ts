/**
 * Takes over an installation of Directus: its tables stay as they are, and its users, rights and metadata are copied to the
 * tables of the service, in one transaction. A dry run shows what would change. The result lists what is not carried over.
 */
import { StartError } from '../../base/errors.js';
import { buildModel } from '../../compiler/model/introspect.js';
import { planRule, readRuleFilter, readValidation } from '../../compiler/plan/rules.js';
import { type Fragment, identifier, literal, sql } from '../../compiler/sql/fragment.js';
import { loadSchema } from '../../server/postgres/catalog/catalog.js';
import { migrateWithin } from '../../server/postgres/catalog/migrate.js';
import { ANNOUNCE_SCHEMA, LIMIT_LOCK_WAIT, LOCK_SCHEMA } from '../../server/postgres/catalog/schema-lock.js';
import { isSystemField } from '../../server/postgres/catalog/system-tables.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { readSql } from '../../server/postgres/read-sql.js';
import { type Copied, type Copy, copyNumbered, copyRows, UNCHANGED, valuesOf } from './copy.js';
import { adoptFlows, copyHistory, copySettings, dataCopies, HAS_FITTING_NAME, numberedData } from './data.js';
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
import {
  constant,
  count,
  findInstallations,
  hasColumn,
  type Installations,
  isShared,
  isSystemName,
  oneOf,
  ours,
  renamed,
  renamedList,
  run,
  theirs,
} from './source.js';

interface AdoptOptions {
  readonly system: string | null;
  readonly dryRun: boolean;
  readonly activity: boolean;
  /** Foreign keys of user tables stay on the tables of the other installation, which goes on running. */
  readonly keepReferences: boolean;
  readonly progress: (step: string) => void;
}

interface AdoptedKind extends Copied {
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

/** A field that a project has added to a system table. */
interface OwnField {
  /** The name that Directus uses. */
  readonly collection: string;
  readonly field: string;
  readonly column: boolean;
}

/** Columns and lists that were added to system tables that we have as well. */
async function findOwnFields(session: Session, places: Installations): Promise<readonly OwnField[]> {
  const rows = await run<{ collection: string; field: string }>(
    session,
    sql`select distinct collection, field from ${theirs(places, 'fields')} old
      where ${isShared(places, sql`collection`)} order by collection, field`,
  );
  return rows
    .filter(({ collection, field }) => !isSystemField(`service_${collection.slice(9)}`, field))
    .map(({ collection, field }) => ({
      collection,
      field,
      column: places.tables.get(collection)?.has(field) === true,
    }));
}

/** Collections that both installations serve. Foreign keys to their system tables, and names of these in rows, become ours. */
function collectionRows(places: Installations): Copy {
  const parents = theirs(places, 'collections');
  return {
    to: 'collections',
    key: ['collection'],
    values: valuesOf(places, 'collections', 'collections', {
      accountability: oneOf(sql`old.accountability`, ['all', 'activity'], sql`null`),
      collapse: oneOf(sql`old.collapse`, ['open', 'closed', 'locked'], sql`'open'`),
      status: places.major === 12 ? oneOf(sql`old.status`, ['active', 'inactive'], sql`'active'`) : null,
      autosave_revision_interval: places.major === 12 ? sql`round(old.autosave_revision_interval)` : null,
      group: sql`(select parent.collection from ${parents} parent
        where parent.collection = old."group" and not ${isSystemName(sql`parent.collection`)})`,
      primary_key: null,
      schema: null,
      table: null,
      search_field: null,
    }),
    from: sql`from ${parents} old where not ${isSystemName(sql`old.collection`)}`,
  };
}

const WIDTHS = ['half', 'half-left', 'half-right', 'half-space', 'full', 'fill'];

/** Marks of fields that have no column. */
const ALIASES = ['alias', 'no-data', 'group', 'o2m', 'm2m', 'm2a', 'o2a', 'files', 'translations'];

/** Whether a row of fields describes a column that exists, or a field without one. */
function describesField({ schema }: Installations): Fragment {
  const marks = literal(`{${ALIASES.join(',')}}`);
  return sql`(string_to_array(replace(coalesce(old.special, ''), ' ', ''), ',') && ${marks}::text[]
    or exists (select from information_schema.columns where table_schema = ${constant(schema)}
      and table_name = old.collection and column_name = old.field))`;
}

function fieldRows(places: Installations, own: readonly OwnField[]): Copy {
  const added = constant(JSON.stringify(own.map(({ collection, field }) => [collection, field])));
  return {
    to: 'fields',
    key: ['collection', 'field'],
    values: valuesOf(places, 'fields', 'fields', {
      id: null,
      collection: renamed(places, sql`old.collection`),
      width: oneOf(sql`old.width`, WIDTHS, sql`null`),
    }),
    from: sql`from ${theirs(places, 'fields')} old where ${describesField(places)}
      and (not ${isSystemName(sql`old.collection`)}
        or exists (select from json_array_elements(${added}::json) own where own ->> 0 = old.collection and own ->> 1 = old.field))`,
    first: sql`old.id`,
  };
}

function relationRows(places: Installations): Copy {
  return {
    to: 'relations',
    key: ['many_collection', 'many_field'],
    keyWhere: sql`not (many_collection = 'service_access' and many_field = 'policy')`,
    values: valuesOf(places, 'relations', 'relations', {
      id: null,
      many_collection: renamed(places, sql`old.many_collection`),
      one_collection: renamed(places, sql`old.one_collection`),
      one_allowed_collections: renamedList(places, sql`old.one_allowed_collections`),
      one_deselect_action: oneOf(sql`old.one_deselect_action`, ['nullify', 'delete'], sql`'nullify'`),
    }),
    from: sql`from ${theirs(places, 'relations')} old
      where not ${isSystemName(sql`old.many_collection`)} or ${isShared(places, sql`old.many_collection`)}`,
    first: sql`old.id`,
  };
}

const OWN_COLUMNS = readSql('features', 'adopt', 'own-columns.sql');
const REFERENCES = readSql('features', 'adopt', 'references.sql');

/** Adds the columns that a project has added to system tables of Directus, and returns their names. */
async function addOwnColumns(
  session: Session,
  { schema, system, tables }: Installations,
  own: readonly OwnField[],
): Promise<readonly string[]> {
  const missing = own.filter(
    ({ collection, field, column }) => column && !tables.get(`service_${collection.slice(9)}`)?.has(field),
  );
  if (missing.length === 0) return [];
  const wanted = missing.map(({ collection, field }) => ({ table: collection, column: field }));
  const rows = await session.query<{ statement: string }>(OWN_COLUMNS, [schema, system, JSON.stringify(wanted)]);
  for (const row of rows) await session.query(row.statement);
  return missing.map(({ collection, field }) => `service_${collection.slice(9)}.${field}`);
}

interface Reference {
  /** `own`: of a column that a project has added to a system table. */
  readonly kind: 'switch' | 'own';
  /** Table and column. */
  readonly field: string;
  readonly statement: string;
}

function findReferences(
  session: Session,
  { schema, system, shared }: Installations,
  own: readonly OwnField[],
): Promise<Reference[]> {
  const added = own.map(({ collection, field }) => ({ table: collection, column: field }));
  return session.query<Reference>(REFERENCES, [schema, system, JSON.stringify(shared), JSON.stringify(added)]);
}

/** Junctions of many-to-any relations name collections in their rows; returns how many rows were changed. */
async function renameCollections(session: Session, places: Installations): Promise<number> {
  const junctions = await run<{ table: string; column: string }>(
    session,
    sql`select distinct old.many_collection as "table", old.one_collection_field as "column"
      from ${theirs(places, 'relations')} old
      cross join lateral pg_catalog.unnest(string_to_array(old.one_allowed_collections, ',')) allowed (name)
      join information_schema.columns found on found.table_schema = ${constant(places.schema)}
        and found.table_name = old.many_collection and found.column_name = old.one_collection_field
      where ${isShared(places, sql`trim(allowed.name)`)}`,
  );
  let count = 0;
  for (const { table, column } of junctions) {
    const name = identifier(column);
    const changed = await run(
      session,
      sql`update ${identifier(places.schema, table)} set ${name} := ${renamed(places, name)} where ${isShared(places, name)} returning 1`,
    );
    count += changed.length;
  }
  return count;
}
