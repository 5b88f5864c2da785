/** The privileges that the role of the service needs to create its tables, and lacks. */
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import { quoteIdentifier } from '../../../compiler/sql/fragment.js';
import type { Session } from '../pools/sessions.js';

export interface MissingGrant {
  readonly message: string;
  /** SQL for a superuser or the owner. */
  readonly fix: string;
}

interface Rights {
  readonly role: string;
  readonly exists: boolean;
  /** Whether they are granted, or null if the schema does not exist. */
  readonly usage: boolean | null;
  readonly create: boolean | null;
  readonly creates_schemas: boolean;
}

const RIGHTS = withCatalog(`
  select current_user as role, namespace.oid is not null as "exists",
    pg_catalog.has_schema_privilege(namespace.oid, 'usage') as usage,
    pg_catalog.has_schema_privilege(namespace.oid, 'create') as "create",
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create') as creates_schemas
  from (select) one left join pg_catalog.pg_namespace namespace on namespace.nspname = $1`);

/** `schema` is the one of the tables. Returns null if the role may create them. */
export async function findMissingGrant(session: Session, schema: string): Promise<MissingGrant | null> {
  const [found] = await session.query<Rights & Record<string, unknown>>(RIGHTS, [schema]);
  if (!found) return null;
  const role = quoteIdentifier(found.role);
  if (!found.exists)
    return found.creates_schemas
      ? null
      : {
          message: `the schema does not exist, and ${found.role} may not create it`,
          fix: `create schema ${quoteIdentifier(schema)} authorization ${role};`,
        };
  const missing = (['usage', 'create'] as const).filter((each) => !found[each]);
  if (missing.length === 0) return null;
  return {
    message: `${missing.join(' and ')} ${missing.length === 1 ? 'is' : 'are'} not granted`,
    fix: `grant ${missing.join(', ')} on schema ${quoteIdentifier(schema)} to ${role};`,
  };
}
