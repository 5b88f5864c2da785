/** Roles, policies, who has them, and permissions. Version 10 had no policies: a role becomes a policy of the same key. */
import type { Session } from '../postgres/sessions.js';
import { type Fragment, identifier, join, literal, nothing, sql } from '../sql/fragment.js';
import { type Copied, type Copy, valuesOf } from './copy.js';
import { isShared, isSystemName, renamed, renamedRule } from './names.js';
import { hasColumn, type Installations, ours, run, theirs } from './source.js';

/** The key of the public policy in every installation. */
const PUBLIC_POLICY = literal('abf8a154-5b1c-4a46-ac9c-7300570f4f17');

/** Keys of texts of their application, which is not here. */
const TEXTS: readonly (readonly [string, string])[] = [
  ['$t:public_label', 'Public'],
  ['$t:public_description', 'What requests without a user may do'],
  ['$t:admin_policy_label', 'Administrator'],
  ['$t:admin_description', 'Grants everything'],
];

function translated(text: Fragment): Fragment {
  const cases = TEXTS.map(([key, value]) => sql`when ${literal(key)} then ${literal(value)}`);
  return sql`case ${text} ${join(cases, sql` `)} else ${text} end`;
}

/** A role below itself is no tree: such roles lose the one above them. */
export function ringsOf(places: Installations): Fragment {
  const roles = theirs(places, 'roles');
  return sql`with recursive above (role, parent, depth) as (
      select id, parent, 1 from ${roles} where parent is not null
      union all
      select above.role, roles.parent, above.depth + 1 from above join ${roles} roles on roles.id = above.parent
      where roles.parent is not null and above.parent <> above.role and above.depth < 100
    ) select distinct role from above where parent = role`;
}

export function roleRows(places: Installations): Copy {
  const parent = hasColumn(places, 'directus_roles', 'parent');
  return {
    to: 'roles',
    key: ['id'],
    values: valuesOf(places, 'roles', 'roles', {
      name: translated(sql`old.name`),
      description: translated(sql`old.description`),
      parent: parent ? sql`case when old.id in (${ringsOf(places)}) then null else old.parent end` : null,
    }),
    from: sql`from ${theirs(places, 'roles')} old`,
  };
}

export function policyRows(places: Installations): readonly Copy[] {
  const texts = { name: translated(sql`old.name`), description: translated(sql`old.description`) };
  if (places.major > 10)
    return [
      {
        to: 'policies',
        key: ['id'],
        values: valuesOf(places, 'policies', 'policies', texts),
        from: sql`from ${theirs(places, 'policies')} old`,
      },
    ];
  const publicPolicy = new Map([
    ['id', PUBLIC_POLICY],
    ['name', sql`'Public'`],
    ['icon', sql`'public'`],
  ]);
  return [
    {
      to: 'policies',
      key: ['id'],
      values: valuesOf(places, 'roles', 'policies', texts),
      from: sql`from ${theirs(places, 'roles')} old`,
    },
    { to: 'policies', key: ['id'], values: publicPolicy, from: nothing },
  ];
}

/** The source of access rows: one for each holder. */
function holders(places: Installations): Fragment {
  if (places.major === 10)
    return sql`(select id, id as role, null::uuid as "user", id as policy, 1 as sort from ${theirs(places, 'roles')}
      union all select ${PUBLIC_POLICY}::uuid, null, null, ${PUBLIC_POLICY}::uuid, 1)`;
  const access = theirs(places, 'access');
  return sql`(select id, role, case when role is null then "user" end as "user", policy, sort from ${access}
    union all
    select md5(id::text || ' user')::uuid, null, "user", policy, sort from ${access} where role is not null and "user" is not null)`;
}

export function accessRows(places: Installations): Copy {
  const columns = ['id', 'role', 'user', 'policy', 'sort'];
  return {
    to: 'access',
    key: ['id'],
    values: new Map(columns.map((name) => [name, sql`old.${identifier(name)}`])),
    from: sql`from ${holders(places)} old`,
  };
}

/** Rows that this command has made and whose source is gone: what was taken away there is taken away here. */
export async function removeGoneAccess(session: Session, places: Installations): Promise<number> {
  const adopted = ours(places, 'adopted');
  const gone = sql`from ${adopted} adopted where adopted.source = 'access'
    and not exists (select from ${holders(places)} old where old.id::text = adopted.source_key)`;
  return removeAdopted(session, places, 'access', gone);
}

async function removeAdopted(session: Session, places: Installations, table: string, gone: Fragment): Promise<number> {
  const keys = await run<{ source_key: string; target_key: string }>(
    session,
    sql`select source_key, target_key ${gone}`,
  );
  if (keys.length === 0) return 0;
  const removed = await run(
    session,
    sql`delete from ${ours(places, table)} mine using (select target_key ${gone}) gone where mine.id::text = gone.target_key returning 1`,
  );
  await run(
    session,
    sql`delete from ${ours(places, 'adopted')} mine using (select source, source_key ${gone}) gone
    where mine.source = gone.source and mine.source_key = gone.source_key`,
  );
  return removed.length;
}

/** Remembers which rows came from there. */
export async function rememberAccess(session: Session, places: Installations): Promise<void> {
  await run(
    session,
    sql`insert into ${ours(places, 'adopted')} (source, source_key, target_key)
      select 'access', old.id::text, old.id::text from ${holders(places)} old on conflict do nothing`,
  );
}

const ACTIONS = sql`('create', 'read', 'update', 'delete', 'share')`;

/** Permissions that have no meaning here: on system tables that we do not have, or for actions that do not exist any more. */
export function foreignPermissions(places: Installations): Fragment {
  return sql`(old.action not in ${ACTIONS} or ${isSystemName(sql`old.collection`)} and not ${isShared(places, sql`old.collection`)})`;
}

function permissions(places: Installations): Fragment {
  const policy = places.major === 10 ? sql`coalesce(old.role, ${PUBLIC_POLICY}::uuid)` : sql`old.policy`;
  return sql`select old.id, ${policy} as policy, ${renamed(places, sql`old.collection`)} as collection, old.action,
      ${renamedRule(places, sql`old.permissions`)} as permissions, ${renamedRule(places, sql`old.validation`)} as validation,
      old.presets::json as presets, old.fields
    from ${theirs(places, 'permissions')} old where not ${foreignPermissions(places)}`;
}

/** Their keys are numbers, which may be taken here: `service_adopted` knows which row is which. */
export async function copyPermissions(
  session: Session,
  places: Installations,
): Promise<Copied & { readonly removed: number }> {
  const [given, target, adopted] = [permissions(places), ours(places, 'permissions'), ours(places, 'adopted')];
  const pairs = sql`(${given}) given
    join ${adopted} adopted on adopted.source = 'permissions' and adopted.source_key = given.id::text
    join ${target} mine on mine.id::text = adopted.target_key`;
  const gone = sql`from ${adopted} adopted where adopted.source = 'permissions'
    and not exists (select from (${given}) given where given.id::text = adopted.source_key)`;
  const removed = await removeAdopted(session, places, 'permissions', gone);
  const columns = ['policy', 'collection', 'action', 'permissions', 'validation', 'presets', 'fields'];
  const differs = join(
    columns.map((name) => sql`mine.${identifier(name)}::text is distinct from given.${identifier(name)}::text`),
    sql` or `,
  );
  const changes = join(
    columns.map((name) => sql`${identifier(name)} = given.${identifier(name)}`),
    sql`, `,
  );
  const different = await run<{ id: number }>(session, sql`select mine.id from ${pairs} where ${differs}`);
  if (different.length > 0)
    await run(
      session,
      sql`update ${target} mine set ${changes} from (${given}) given
        join ${adopted} adopted on adopted.source = 'permissions' and adopted.source_key = given.id::text
        where mine.id::text = adopted.target_key and (${differs})`,
    );
  const missing = sql`(${given}) given where not exists (
    select from ${adopted} adopted join ${target} mine on mine.id::text = adopted.target_key
    where adopted.source = 'permissions' and adopted.source_key = given.id::text)`;
  const [found] = await run<{ count: number }>(session, sql`select count(*)::int as count from ${missing}`);
  const created = found?.count ?? 0;
  if (created > 0)
    await run(
      session,
      sql`with fresh as materialized (
          select nextval(pg_get_serial_sequence(${literal(`"${places.system.replaceAll('"', '""')}".service_permissions`)}, 'id')) as target, ordered.*
          from (select given.* from ${missing} order by given.id) ordered
        ), made as (
          insert into ${target} (id, policy, collection, action, permissions, validation, presets, fields)
          select target, policy, collection, action, permissions, validation, presets, fields from fresh
        )
        insert into ${adopted} (source, source_key, target_key) select 'permissions', id::text, target::text from fresh
        on conflict (source, source_key) do update set target_key = excluded.target_key`,
    );
  return { created, changed: different.length, removed };
}
