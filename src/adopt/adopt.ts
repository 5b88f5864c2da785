/**
 * Takes over an installation of Directus: its tables stay as they are, its users, rights and knowledge of the collections are
 * written to the tables of the service. All of it is one transaction: a failure leaves nothing, and a run that changes nothing can show
 * what it would change.
 */
import { StartError } from '../base/errors.js';
import { migrateWithin } from '../postgres/catalog/migrate.js';
import { ANNOUNCE_SCHEMA, LIMIT_LOCK_WAIT, LOCK_SCHEMA } from '../postgres/catalog/schema-lock.js';
import type { Database } from '../postgres/pools/database.js';
import type { Session } from '../postgres/pools/sessions.js';
import { type Copied, type Copy, copyNumbered, copyRows, UNCHANGED } from './copy.js';
import { copyHistory, copySettings, dataCopies, numberedData } from './data.js';
import {
  addOwnColumns,
  collectionRows,
  fieldRows,
  findOwnFields,
  findReferences,
  type OwnField,
  relationRows,
  renameCollections,
} from './metadata.js';
import { notesOf, unfitRules } from './notes.js';
import {
  accessRows,
  checkUsers,
  permissionRows,
  policyRows,
  rememberAccess,
  rememberUsers,
  removeGoneAccess,
  roleRows,
  suspendGoneUsers,
  userRows,
} from './rights.js';
import { findInstallations, type Installations } from './source.js';

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
  /** Of these the foreign keys were left. */
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
    kinds,
    columns,
    references: carried.map(({ field }) => field),
    keptReferences: references.filter((each) => !carried.includes(each)).map(({ field }) => field),
    renamed,
    suspended,
    notes: await notesOf(session, places),
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
