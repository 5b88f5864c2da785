/** Shares as the database knows them, and the sessions that they begin. Each step is one statement. */
import type { Account } from '../access/account.js';
import type { LookupKey } from '../access/identities.js';
import type { Database } from '../postgres/pools/database.js';
import { UUID_PATTERN } from '../sql/codec.js';
import { readSql } from '../sql/read-sql.js';
import { findAccount } from './accounts.js';
import { clientColumns, type NewSession } from './logins.js';

const FIND = readSql('shares', 'find.sql');
const BEGIN = readSql('shares', 'begin.sql');

/** A share that is open now. */
interface OpenShare {
  readonly id: string;
  readonly collection: string;
  readonly item: string;
  readonly role: string | null;
  /** Its hash. */
  readonly password: string | null;
  readonly creator: string | null;
  readonly times_used: number;
  readonly max_uses: number | null;
  readonly date_start: string | null;
  readonly date_end: string | null;
  /** Of the share, or of the session: milliseconds since 1970; null for never. */
  readonly expires: number | null;
}

/** Null if there is none, or none that is open now; with a session, if that has ended. */
export async function findShare(
  database: Database,
  share: string,
  session: string | null = null,
): Promise<OpenShare | null> {
  if (!UUID_PATTERN.test(share)) return null;
  const [row] = await database.rows<OpenShare>(FIND, [share, session]);
  return row ?? null;
}

/** Whether it has begun: not where the share is used up, has another password by now, or its creator was deleted. */
export async function beginShare(
  database: Database,
  { id, password }: OpenShare,
  { digest, kind, family, lifetime, client }: Omit<NewSession, 'user' | 'otpStep'>,
): Promise<boolean> {
  const parameters = [id, digest, kind, family, String(lifetime), ...clientColumns(client), password];
  return (await database.rows(BEGIN, parameters)).length > 0;
}

/** The holder of a token: a user or a share. */
export async function lookUpAccount(database: Database, key: LookupKey): Promise<Account | null> {
  if (key.kind !== 'share') return findAccount(database, key);
  const share = await findShare(database, key.share, key.session);
  if (!share || share.creator === null) return null;
  const creator = await findAccount(database, { kind: 'user', user: share.creator, session: null });
  const { role } = share;
  const holder = await findAccount(database, role === null ? { kind: 'public' } : { kind: 'role', role });
  if (!creator || !holder) return null;
  const { id, collection, item, expires } = share;
  return { ...holder, user: null, expires, share: { id, collection, item, creator } };
}
