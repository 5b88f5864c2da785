/**
 * Users with their passwords, tokens and second factors; roles, policies, their holders, and permissions. Version 10 had
 * no policies: a role becomes a policy of the same key.
 */

import { StartError } from '../../base/errors.js';
import { type Fragment, identifier, join, literal, nothing, sql } from '../../compiler/sql/fragment.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { type Copy, removeAdopted, valuesOf } from './copy.js';
import {
  count,
  hasColumn,
  type Installations,
  isShared,
  isSystemName,
  oneOf,
  ours,
  renamed,
  renamedRule,
  run,
  theirs,
} from './source.js';

/** The key of the public policy in every installation. */
const PUBLIC_POLICY = literal('abf8a154-5b1c-4a46-ac9c-7300570f4f17');

/** Keys of texts of their application, which is not here. */
const TEXTS: readonly (readonly [string, string])[] = [
  ['$t:public_label', 'Public'],
  ['$t:public_description', 'Permissions of requests without a user'],
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

/** Tables that give access: `access` gives it to roles and users, `shares` to the holders of a link. */
function accessSources(places: Installations): readonly { readonly table: string; readonly rows: Fragment }[] {
  const access = { table: 'access', rows: holders(places) };
  return places.tables.has('directus_shares')
    ? [access, { table: 'shares', rows: theirs(places, 'shares') }]
    : [access];
}

/** Rows that this command has made and whose source was deleted: rights that were revoked there are revoked here. */
export async function removeGoneAccess(session: Session, places: Installations): Promise<number> {
  let removed = 0;
  for (const { table, rows } of accessSources(places)) {
    const gone = sql`from ${ours(places, 'adopted')} adopted where adopted.source = ${literal(table)}
      and not exists (select from ${rows} old where old.id::text = adopted.source_key)`;
    removed += await removeAdopted(session, places, table, gone);
  }
  return removed;
}

/** Remembers which rows came from there. */
export async function rememberAccess(session: Session, places: Installations): Promise<void> {
  for (const { table, rows } of accessSources(places))
    await run(
      session,
      sql`insert into ${ours(places, 'adopted')} (source, source_key, target_key)
        select ${literal(table)}, old.id::text, old.id::text from ${rows} old on conflict do nothing`,
    );
}

const ACTIONS = sql`('create', 'read', 'update', 'delete', 'share')`;

/** Permissions that have no meaning here: on system tables that we do not have, or for actions that no longer exist. */
export function foreignPermissions(places: Installations): Fragment {
  return sql`(old.action not in ${ACTIONS} or ${isSystemName(sql`old.collection`)} and not ${isShared(places, sql`old.collection`)})`;
}

export function permissionRows(places: Installations): Copy {
  return {
    to: 'permissions',
    key: ['id'],
    values: valuesOf(places, 'permissions', 'permissions', {
      policy: places.major === 10 ? sql`coalesce(old.role, ${PUBLIC_POLICY}::uuid)` : sql`old.policy`,
      collection: renamed(places, sql`old.collection`),
      permissions: renamedRule(places, sql`old.permissions`),
      validation: renamedRule(places, sql`old.validation`),
    }),
    from: sql`from ${theirs(places, 'permissions')} old where not ${foreignPermissions(places)}`,
  };
}

const STATES = ['draft', 'invited', 'unverified', 'active', 'suspended', 'archived'];

/** Written where a user is new: the service changes them with every request. */
const LAST_SEEN = new Set(['last_access', 'last_page']);

/** Static tokens are plain texts there and digests here; hashes of passwords hold their own parameters. */
export function userRows(places: Installations): Copy {
  const appearance = hasColumn(places, 'directus_users', 'appearance')
    ? sql`old.appearance`
    : hasColumn(places, 'directus_users', 'theme') && sql`old.theme`;
  return {
    to: 'users',
    key: ['id'],
    values: valuesOf(places, 'users', 'users', {
      password: sql`case when old.password like '$argon2%' then old.password end`,
      token: sql`encode(sha256(convert_to(nullif(old.token, ''), 'UTF8')), 'hex')`,
      tfa_secret: sql`case when old.tfa_secret ~ '^[A-Z2-7]{16,128}$' then old.tfa_secret end`,
      status: oneOf(sql`old.status`, STATES, sql`'suspended'`),
      ...(appearance ? { appearance } : {}),
    }),
    from: sql`from ${theirs(places, 'users')} old`,
    once: LAST_SEEN,
  };
}

/** Two users must not have the same address, token or external key: who is who only the operator knows. */
export async function checkUsers(session: Session, places: Installations): Promise<void> {
  const [users, mine] = [theirs(places, 'users'), ours(places, 'users')];
  const twice = await run<{ email: string }>(
    session,
    sql`select string_agg(email, ', ' order by email) as email from ${users} where email is not null group by lower(email) having count(*) > 1 limit 10`,
  );
  if (twice.length > 0)
    throw new StartError(
      `nothing was adopted: addresses of users differ in case only, which is one address here: ${twice.map(({ email }) => email).join('; ')}`,
    );
  const clash = (name: string, left: Fragment, right: Fragment): Fragment =>
    sql`select ${identifier(name)}.* from (select old.email as theirs, mine.email as mine, '' as reason
      from ${users} old join ${mine} mine on mine.id <> old.id and ${left} = ${right}) ${identifier(name)}`;
  const taken = await run<{ theirs: string | null; mine: string | null }>(
    session,
    sql`${join(
      [
        clash('email', sql`lower(old.email)`, sql`lower(mine.email)`),
        clash('token', sql`encode(sha256(convert_to(nullif(old.token, ''), 'UTF8')), 'hex')`, sql`mine.token`),
        clash('external', sql`(old.provider, old.external_identifier)`, sql`(mine.provider, mine.external_identifier)`),
      ],
      sql` union `,
    )} limit 10`,
  );
  if (taken.length > 0)
    throw new StartError(
      `nothing was adopted: users of this service have the address, the token or the external identifier of a user who would be adopted (${taken
        .map((each) => each.mine ?? each.theirs ?? 'without an address')
        .join(', ')}). Change or delete them first; best adopt before the first start, which makes an administrator`,
    );
}

/** Users that this command has made and that were deleted there must not sign in here. */
export async function suspendGoneUsers(session: Session, places: Installations): Promise<number> {
  const gone = sql`${ours(places, 'adopted')} adopted where adopted.source = 'users' and adopted.target_key = mine.id::text
    and mine.status <> 'suspended'
    and not exists (select from ${theirs(places, 'users')} old where old.id::text = adopted.source_key)`;
  const suspended = await count(session, sql`from ${ours(places, 'users')} mine, ${gone}`);
  if (suspended > 0)
    await run(session, sql`update ${ours(places, 'users')} mine set status = 'suspended' from ${gone}`);
  return suspended;
}

export async function rememberUsers(session: Session, places: Installations): Promise<void> {
  await run(
    session,
    sql`insert into ${ours(places, 'adopted')} (source, source_key, target_key)
      select 'users', old.id::text, old.id::text from ${theirs(places, 'users')} old on conflict do nothing`,
  );
}
