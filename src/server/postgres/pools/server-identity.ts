/**
 * Identifies the database behind a connection, by the system identifier of the cluster and the oid of the database. A standby has the
 * same two numbers as its primary. A pooler passes them on, even if it calls the database by another name.
 */
import { codeOf } from '../../../base/narrow.js';
import type { Pool } from './pool.js';
import type { Session } from './sessions.js';

export interface ServerIdentity {
  /** The system identifier, or null if the role may not call pg_control_system(). */
  readonly system: string | null;
  readonly database: string;
}

export const SYSTEM = '(select system_identifier::text from pg_catalog.pg_control_system())';
export const DATABASE =
  '(select oid::text from pg_catalog.pg_database where datname operator(pg_catalog.=) pg_catalog.current_database())';

/** How the other one differs from the one that is wanted, or null if it does not. */
export function differenceOf(wanted: ServerIdentity, other: ServerIdentity): 'cluster' | 'database' | null {
  if (wanted.system !== null && other.system !== null && wanted.system !== other.system) return 'cluster';
  return wanted.database === other.database ? null : 'database';
}

/** Identifies the server that the connections lead to now. */
export async function identityOf({ own }: { readonly own: Pool<Session> }): Promise<ServerIdentity> {
  const ask = (system: string): Promise<ServerIdentity[]> =>
    own.use((session) => session.query<ServerIdentity>(`select ${system} as system, ${DATABASE} as database`, []));
  const [identity] = await ask(SYSTEM).catch((error: unknown) => {
    if (!isDenied(error)) throw error;
    return ask('null');
  });
  if (!identity) throw new Error('a statement without a condition gave no row');
  return identity;
}

/** The role lacks a privilege. */
export function isDenied(error: unknown): boolean {
  return codeOf(error) === '42501';
}
