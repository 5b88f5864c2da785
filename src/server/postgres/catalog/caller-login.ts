/** Whether the login of the service can act for callers (DATABASE_CALLER): row-level security must bind it, and it must be a member of their roles. */
import { codeOf, messageOf } from '../../../base/narrow.js';
import type { DatabaseSetting } from '../../config/database-settings.js';
import type { Database } from '../pools/database.js';

interface LoginFacts {
  readonly login: string;
  readonly superuser: boolean;
  readonly bypassrls: boolean;
  /** Tables with row-level security from which their owner, the login, is exempt. */
  readonly exempt: readonly string[];
  /** Roles of the options that the login may not become. */
  readonly missing: readonly string[];
}

const LOGIN = `
  select role.rolname as login, role.rolsuper as superuser, role.rolbypassrls as bypassrls,
    coalesce((
      select pg_catalog.json_agg(pg_catalog.format('%I.%I', namespace.nspname, class.relname) order by namespace.nspname, class.relname)
      from pg_catalog.pg_class class
      join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
      where class.relrowsecurity and not class.relforcerowsecurity
        and namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
        and pg_catalog.pg_has_role(class.relowner, 'usage')
    ), '[]') as exempt,
    coalesce((
      select pg_catalog.json_agg(wanted.name)
      from pg_catalog.json_array_elements_text($2::json) wanted (name)
      left join pg_catalog.pg_roles other on other.rolname = wanted.name
      where other.oid is null or not pg_catalog.pg_has_role(other.oid, 'member')
    ), '[]') as missing
  from pg_catalog.pg_roles role where role.rolname = current_user`;

/** The reason why the login will not do, with the SQL that helps; null if there is none. */
export async function loginObstacle(database: Database, roles: readonly string[]): Promise<string | null> {
  const [facts] = await database.rows<LoginFacts>(LOGIN, [JSON.stringify(database.schemas), JSON.stringify(roles)]);
  if (!facts) return null;
  const { login, superuser, bypassrls, exempt, missing } = facts;
  if (superuser) return `row-level security does not bind "${login}", a superuser: connect as another role`;
  if (bypassrls) return `row-level security does not bind "${login}": alter role "${login}" nobypassrls`;
  if (exempt.length > 0)
    return `row-level security does not bind "${login}", which owns ${exempt.join(', ')}: alter table ${exempt[0]} force row level security`;
  if (missing.length > 0) return `"${login}" cannot become "${missing[0]}": grant "${missing[0]}" to "${login}"`;
  return null;
}

/** The reason why a setting of DATABASE_SETTINGS cannot be set, or null. An extension may reserve the first part of its name. */
export async function settingObstacle(
  database: Database,
  settings: readonly DatabaseSetting[],
): Promise<string | null> {
  for (const { name } of settings) {
    try {
      await database.rows("select pg_catalog.set_config($1, '', true)", [name]);
    } catch (error) {
      if (!/^(22|42)/.test(codeOf(error))) throw error;
      return `PostgreSQL refuses ${name}: ${messageOf(error)}`;
    }
  }
  return null;
}

const UNREADABLE = `
  select pg_catalog.format('%I.%I', namespace.nspname, class.relname) as name
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where class.relkind in ('r', 'p', 'v', 'm', 'f') and not class.relispartition
    and namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
    and not pg_catalog.has_any_column_privilege(class.oid, 'select')
  order by namespace.nspname, class.relname`;

/**
 * Tables that the login may not read. With DATABASE_CALLER=role, requests of administrators without a database role run as the login: if it
 * does not inherit the privileges of its roles, it reads no table.
 */
export async function unreadableTables(database: Database): Promise<readonly string[]> {
  const rows = await database.rows<{ name: string }>(UNREADABLE, [JSON.stringify(database.schemas)]);
  return rows.map(({ name }) => name);
}
