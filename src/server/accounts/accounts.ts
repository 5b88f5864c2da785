/** Users and shares as the database knows them: the holder of a token, the sessions of shares, and the first administrator. */

import { randomBytes } from 'node:crypto';
import { assertNever } from '../../base/assert-never.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import type { Account } from '../access/account.js';
import type { LookupKey } from '../access/identities.js';
import { digestToken } from '../access/tokens.js';
import type { Config } from '../config/config.js';
import { OPTIONS } from '../config/option-table.js';
import { isTermination } from '../postgres/pools/conflicts.js';
import type { Database } from '../postgres/pools/database.js';
import { readSql } from '../postgres/read-sql.js';
import { clientColumns, type NewSession } from './logins.js';
import { hashPassword, verifyPassword } from './passwords.js';

const IDENTITY = readSql('server', 'identity.sql');
const ADMINISTRATOR = readSql('server', 'administrator.sql');
const FIND_SHARE = readSql('server', 'shares', 'find.sql');
const BEGIN_SHARE = readSql('server', 'shares', 'begin.sql');

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

type AccountKey = Exclude<LookupKey, { readonly kind: 'share' }>;

async function findAccount(database: Database, key: AccountKey): Promise<Account | null> {
  const find = (): Promise<Account[]> => database.rows<Account>(IDENTITY, parametersOf(key));
  // As with other reads: a connection that an administrator or a failover has ended is no reason to refuse somebody.
  const [row] = await find().catch(async (error: unknown) => {
    if (isTermination(error) || (await database.recovers(error))) return find();
    throw error;
  });
  return row ?? null;
}

function parametersOf(key: AccountKey): (string | null)[] {
  switch (key.kind) {
    case 'public':
      return [null, null, null, null];
    case 'token':
      return [key.digest, null, null, null];
    case 'user':
      return [null, key.user, key.session, null];
    case 'role':
      return [null, null, null, key.role];
    default:
      return assertNever(key);
  }
}

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
  /** When the share or the session expires, in milliseconds since 1970, or null for never. */
  readonly expires: number | null;
}

/** Returns null if there is no share that is open now, or if the session has ended. */
export async function findShare(
  database: Database,
  share: string,
  session: string | null = null,
): Promise<OpenShare | null> {
  if (!UUID_PATTERN.test(share)) return null;
  const [row] = await database.rows<OpenShare>(FIND_SHARE, [share, session]);
  return row ?? null;
}

/** Whether it has begun: not where the share is used up, has another password by now, or its creator was deleted. */
export async function beginShare(
  database: Database,
  { id, password }: OpenShare,
  { digest, kind, family, lifetime, client }: Omit<NewSession, 'user' | 'otpStep'>,
): Promise<boolean> {
  const parameters = [id, digest, kind, family, String(lifetime), ...clientColumns(client), password];
  return (await database.rows(BEGIN_SHARE, parameters)).length > 0;
}

/** Calls back with each session that has ended; where some were missed, the listener for changes of access is called. */
export function listenForSessions(database: Database, ended: (session: string) => void): Promise<() => Promise<void>> {
  return database.listener.listen('service_sessions', {
    heard: (payload) => {
      const suffix = ` ${database.system}`;
      if (payload.endsWith(suffix)) ended(payload.slice(0, -suffix.length));
    },
    missed: () => {},
    stale: () => {},
  });
}

export interface Credentials {
  readonly email: string;
  readonly password: string;
  readonly token: string;
}

export interface MadeAdministrator {
  /** The account that the first start creates: only that can show the password and the token; null if users exist. */
  readonly administrator: Credentials | null;
  /** Options of the first start that are set and describe no user. */
  readonly unused: readonly string[];
}

export async function makeAdministrator(config: Config, database: Database): Promise<MadeAdministrator> {
  const administrator: Credentials = {
    email: config.ADMIN_EMAIL,
    password: config.ADMIN_PASSWORD ?? randomBytes(12).toString('base64url'),
    token: config.ADMIN_TOKEN ?? randomBytes(24).toString('base64url'),
  };
  if (await createAdministrator(database, administrator)) return { administrator, unused: [] };
  return { administrator: null, unused: await findUnused(config, database) };
}

/** The options of the first administrator that differ from the stored users. */
async function findUnused(config: Config, database: Database): Promise<string[]> {
  const { ADMIN_EMAIL: email, ADMIN_PASSWORD: password, ADMIN_TOKEN: token } = config;
  const isDefault = email === OPTIONS.ADMIN_EMAIL.initial;
  if (isDefault && password === null && token === null) return [];
  const digest = token === null ? null : digestToken(token);
  const [found] = await database.rows<{ known: boolean; hash: string | null; holds: boolean }>(
    `select exists (select from service_users where lower(email) = lower($1)) as known,
       (select password from service_users where lower(email) = lower($1) limit 1) as hash,
       exists (select from service_users where token = $2) as holds`,
    [email, digest],
  );
  return [
    ...(isDefault || found?.known ? [] : ['ADMIN_EMAIL']),
    ...(password === null || (await verifyPassword(found?.hash ?? null, password, '')) ? [] : ['ADMIN_PASSWORD']),
    ...(token === null || found?.holds ? [] : ['ADMIN_TOKEN']),
  ];
}

/** Whether the account was made: false if users exist already. */
export async function createAdministrator(database: Database, credentials: Credentials): Promise<boolean> {
  const [{ hasUsers } = { hasUsers: true }] = await database.rows<{ hasUsers: boolean }>(
    'select exists (select from service_users) as "hasUsers"',
  );
  if (hasUsers) return false;
  const hash = await hashPassword(credentials.password, '');
  const created = await database.transaction(async (session) => {
    // Instances that start together must not both see an empty table.
    await session.query(database.qualified('lock table service_users in share row exclusive mode'));
    return session.query(database.qualified(ADMINISTRATOR), [credentials.email, hash, digestToken(credentials.token)]);
  });
  return created.length > 0;
}
