/** Users as the database knows them: who holds a token, and the first administrator. */

import type { Account } from '../access/account.js';
import type { LookupKey } from '../access/identities.js';
import { digestToken } from '../access/tokens.js';
import { assertNever } from '../base/assert-never.js';
import { isTermination } from '../postgres/pools/conflicts.js';
import type { Database } from '../postgres/pools/database.js';
import { readSql } from '../sql/read-sql.js';
import { hashPassword } from './passwords.js';

const IDENTITY = readSql('identity.sql');
const ADMINISTRATOR = readSql('administrator.sql');

/** Of an account; by a share see shares.ts. */
type AccountKey = Exclude<LookupKey, { readonly kind: 'share' }>;

export async function findAccount(database: Database, key: AccountKey): Promise<Account | null> {
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

/** Calls back with each session that has ended; where some were missed, the listener for changes of access is called. */
export function listenForSessions(database: Database, ended: (session: string) => void): Promise<() => Promise<void>> {
  const suffix = ` ${database.system}`;
  return database.listener.listen('service_sessions', {
    heard: (payload) => {
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

/** Whether the account was made: false where users exist already. */
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
