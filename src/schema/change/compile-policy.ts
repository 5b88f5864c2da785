/** The steps that write policies as SQL. Policies, roles and users are found by their names. */
import { type Fragment, identifier, join, parameter, sql } from '../../sql/fragment.js';
import type { PolicyStep } from './ddl-statement.js';

/** `table` gives the names of system tables, with their schema. */
export function compilePolicyStep(step: PolicyStep, table: (name: string) => Fragment): readonly Fragment[] {
  const policies = table('service_policies');
  const name = constant(step.name);
  switch (step.kind) {
    case 'create-policy':
      return [insertPolicy(step, policies)];
    case 'change-policy':
      return [
        sql`update ${policies} policy set ${join(Object.keys(step.values).map(assign))}
        from pg_catalog.json_populate_record(null::${policies}, ${constant(JSON.stringify(step.values))}::json) given
        where policy.name = ${name}::text`,
      ];
    case 'drop-policy':
      return [sql`delete from ${policies} where name = ${name}::text`];
    case 'save-policy-permissions':
      return savePermissions(step, table('service_permissions'), policies);
    case 'save-policy-holders':
      return saveHolders(step, table);
  }
}

function assign(name: string): Fragment {
  return sql`${identifier(name)} := given.${identifier(name)}`;
}

function constant(value: string): Fragment {
  return parameter({ kind: 'constant', value });
}

function insertPolicy({ name, values }: PolicyStep & { kind: 'create-policy' }, policies: Fragment): Fragment {
  return sql`insert into ${policies} (name, icon, description, admin_access, app_access, enforce_tfa, ip_access)
    select given.name, given.icon, given.description, given.admin_access, given.app_access, given.enforce_tfa, given.ip_access
    from pg_catalog.json_populate_record(null::${policies}, ${constant(JSON.stringify({ ...values, name }))}::json) given`;
}

function savePermissions(
  { name, permissions }: PolicyStep & { kind: 'save-policy-permissions' },
  table: Fragment,
  policies: Fragment,
): readonly Fragment[] {
  const rows = permissions.map((each) => ({ ...each, fields: each.fields?.join(',') ?? null }));
  return [
    sql`delete from ${table} permission using ${policies} policy
      where policy.name = ${constant(name)}::text and permission.policy = policy.id`,
    sql`insert into ${table} (policy, collection, action, permissions, validation, presets, fields)
      select policy.id, given.collection, given.action, given.permissions, given.validation, given.presets, given.fields
      from ${policies} policy, pg_catalog.json_populate_recordset(null::${table}, ${constant(JSON.stringify(rows))}::json) given
      where policy.name = ${constant(name)}::text`,
  ];
}

/** Links that stay keep their order. */
function saveHolders(
  { name, holders }: PolicyStep & { kind: 'save-policy-holders' },
  table: (name: string) => Fragment,
): readonly Fragment[] {
  const [access, policies, roles, users] = [
    table('service_access'),
    table('service_policies'),
    table('service_roles'),
    table('service_users'),
  ];
  const user = identifier('user');
  const policy = sql`policy.name = ${constant(name)}::text and link.policy = policy.id`;
  const listed = (names: readonly string[]): Fragment => sql`${constant(JSON.stringify(names))}::jsonb`;
  return [
    sql`delete from ${access} link using ${policies} policy, ${roles} role where ${policy} and link.role = role.id
      and not pg_catalog.jsonb_exists(${listed(holders.roles)}, role.name)`,
    sql`delete from ${access} link using ${policies} policy, ${users} holder where ${policy} and link.${user} = holder.id
      and not pg_catalog.jsonb_exists(${listed(holders.users)}, coalesce(pg_catalog.lower(holder.email), ''))`,
    ...(holders.public
      ? []
      : [
          sql`delete from ${access} link using ${policies} policy where ${policy} and link.role is null and link.${user} is null`,
        ]),
    sql`insert into ${access} (policy, role) select policy.id, role.id from ${policies} policy, ${roles} role
      where policy.name = ${constant(name)}::text and pg_catalog.jsonb_exists(${listed(holders.roles)}, role.name)
      and not exists (select from ${access} link where link.policy = policy.id and link.role = role.id)`,
    sql`insert into ${access} (policy, ${user}) select policy.id, holder.id from ${policies} policy, ${users} holder
      where policy.name = ${constant(name)}::text
      and pg_catalog.jsonb_exists(${listed(holders.users)}, coalesce(pg_catalog.lower(holder.email), ''))
      and not exists (select from ${access} link where link.policy = policy.id and link.${user} = holder.id)`,
    ...(holders.public
      ? [
          sql`insert into ${access} (policy) select policy.id from ${policies} policy where policy.name = ${constant(name)}::text
            and not exists (select from ${access} link where link.policy = policy.id and link.role is null and link.${user} is null)`,
        ]
      : []),
  ];
}
