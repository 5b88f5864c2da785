/** The users that foreign issuers and providers name: found by what the issuer calls them or by their address, and created where that is wanted. */

import { forbidden, invalidCredentials, ServiceError } from '../../base/errors.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import type { ExternalUser } from '../access/external-user.js';
import type { UserMapping } from '../config/issuer-options.js';
import type { Database } from '../postgres/pools/database.js';

/** Writes users with every right, as the service itself. */
export interface UserStore {
  create(user: Input): Promise<void>;
  update(user: string, change: Input): Promise<void>;
}

/** Finds the user whom a foreign token names, or creates one; rejects where there is none. */
export type ResolveUser = (mapping: UserMapping, user: ExternalUser) => Promise<string>;

interface KnownUser {
  readonly id: string;
  readonly role: string | null;
  readonly provider: string;
}

const BY_SUBJECT = withCatalog(
  'select id, role, provider from service_users where provider = $1::text and external_identifier = $2::text',
);
const BY_EMAIL = withCatalog('select id, role, provider from service_users where lower(email) = lower($1::text)');
const ROLE = withCatalog('select id from service_roles where id::text = lower($1::text) or name = $1::text limit 2');

/** The id of the user. The named role applies to users who were created here because of their provider. */
export async function resolveExternalUser(
  mapping: UserMapping,
  user: ExternalUser,
  database: Database,
  store: UserStore,
): Promise<string> {
  const role = user.role === null ? null : await findRole(user.role, database);
  const known = (await find(mapping, user, database)) ?? (await create(mapping, { ...user, role }, database, store));
  if (role !== null && known.provider === mapping.name && known.role !== role) await store.update(known.id, { role });
  return known.id;
}

async function find(mapping: UserMapping, user: ExternalUser, database: Database): Promise<KnownUser | null> {
  if (mapping.user === 'subject') {
    const [row] = await database.rows<KnownUser>(BY_SUBJECT, [mapping.name, user.subject]);
    return row ?? null;
  }
  // An address that the issuer has not verified may be anybody's.
  if (user.email === null) throw invalidCredentials();
  const [row] = await database.rows<KnownUser>(BY_EMAIL, [user.email]);
  return row ?? null;
}

/** `user.role` is the id of a role, or null. */
async function create(
  mapping: UserMapping,
  user: ExternalUser,
  database: Database,
  store: UserStore,
): Promise<KnownUser> {
  if (!mapping.create) throw invalidCredentials();
  try {
    await store.create({
      provider: mapping.name,
      external_identifier: user.subject,
      ...(user.email !== null && { email: user.email }),
      first_name: user.firstName,
      last_name: user.lastName,
      role: user.role ?? (mapping.role === null ? null : await findRole(mapping.role, database)),
      status: 'active',
    });
  } catch (error) {
    const isTaken = error instanceof ServiceError && error.extensions['type'] === 'unique';
    if (!isTaken) throw error;
  }
  // Another request, or another instance, may have been first.
  const created = await find(mapping, user, database);
  if (!created) throw forbidden('Another user has the address or the external identifier of this token');
  return created;
}

async function findRole(role: string, database: Database): Promise<string> {
  const rows = await database.rows<{ id: string }>(ROLE, [role]);
  const [only] = rows;
  if (!only || (rows.length > 1 && !UUID_PATTERN.test(role)))
    throw forbidden(
      `The token names the role "${role}", ${only ? 'a name that several roles have' : 'which does not exist'}`,
    );
  return only.id;
}
