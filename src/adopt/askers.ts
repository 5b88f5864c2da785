/** Who asks both servers: the public, an administrator, and for each role somebody with a static token. */
import { digestToken } from '../access/tokens.js';
import { StartError } from '../base/errors.js';
import { isObject } from '../base/exact-json.js';
import type { Session } from '../postgres/pools/sessions.js';
import { sql } from '../sql/fragment.js';
import type { Asker } from './compare.js';
import { constant } from './names.js';
import { type Installations, ours, run, theirs } from './source.js';

export interface Askers {
  readonly askers: readonly Asker[];
  /** Names of roles of whose users none has a static token. */
  readonly silent: readonly string[];
}

/** `shown` are the keys of permissions that the other server shows, and so applies. */
export async function findAskers(
  session: Session,
  places: Installations,
  token: string,
  shown: ReadonlySet<number>,
): Promise<Askers> {
  const [known] = await run<{ count: number }>(
    session,
    sql`select count(*)::int as count from ${ours(places, 'users')} where token = ${constant(digestToken(token))}`,
  );
  if (!known?.count)
    throw new StartError('--token must be a static token of a user that was adopted: run lateral adopt first');
  const users = await run<{
    role: string | null;
    name: string | null;
    email: string | null;
    token: string;
    user: string;
  }>(
    session,
    sql`select distinct on (coalesce(users.role, users.id)) users.role, role.name, users.email, users.token, users.id as "user"
      from ${theirs(places, 'users')} users left join ${theirs(places, 'roles')} role on role.id = users.role
      where users.status = 'active' and users.token <> '' and users.token <> ${constant(token)}
      order by coalesce(users.role, users.id), users.email`,
  );
  const silent = await run<{ name: string }>(
    session,
    sql`select role.name from ${theirs(places, 'roles')} role where not exists (
        select from ${theirs(places, 'users')} users where users.role = role.id and users.status = 'active' and users.token <> '')
      order by role.name`,
  );
  const limits = (role: string | null, user: string | null): Promise<Limits> =>
    findLimits(session, places, shown, role, user);
  const asked = users.map(async (each) => ({
    name: each.name === null ? `the user ${each.email ?? each.user}` : `the role "${each.name}"`,
    token: each.token,
    ...(await limits(each.role, each.user)),
  }));
  return {
    askers: [
      { name: 'an administrator', token, ...limitsOf([], shown) },
      { name: 'the public', token: null, ...(await limits(null, null)) },
      ...(await Promise.all(asked)),
    ],
    silent: silent.map(({ name }) => name),
  };
}

async function findLimits(
  session: Session,
  places: Installations,
  shown: ReadonlySet<number>,
  role: string | null,
  user: string | null,
): Promise<Limits> {
  const rules = await run<Rule>(
    session,
    sql`with recursive above (id) as (
        select ${constant(role ?? '')}::text
        union
        select roles.parent::text from ${ours(places, 'roles')} roles join above on above.id = roles.id::text where roles.parent is not null
      )
      select adopted.source_key::int as id, rule.collection, rule.action = 'read' as reads, rule.fields::text as fields,
        coalesce(rule.permissions::text, '{}') as filter
      from ${ours(places, 'permissions')} rule
      join ${ours(places, 'adopted')} adopted on adopted.source = 'permissions' and adopted.target_key = rule.id::text
      join ${ours(places, 'access')} access on access.policy = rule.policy
      where access.role::text in (select id from above) or access."user"::text = ${constant(user ?? '')}
        or (access.role is null and access."user" is null and ${constant(role ?? '')} = '')`,
  );
  return limitsOf(rules, shown);
}

type Limits = Pick<Asker, 'ignored' | 'limited' | 'related' | 'uneven'>;

interface Rule {
  readonly id: number;
  readonly collection: string;
  readonly reads: boolean;
  readonly fields: string | null;
  readonly filter: string;
}

function limitsOf(rules: readonly Rule[], shown: ReadonlySet<number>): Limits {
  const collectionsOf = (some: readonly Rule[]): ReadonlySet<string> =>
    new Set(some.map(({ collection }) => collection));
  const limited = rules.filter(({ reads, filter }) => reads && filter !== '{}' && filter !== 'null');
  const differs = ({ collection, fields }: Rule): boolean =>
    rules.some((other) => other.reads && other.collection === collection && other.fields !== fields);
  return {
    ignored: collectionsOf(rules.filter(({ id }) => !shown.has(id))),
    limited: collectionsOf(limited),
    related: collectionsOf(limited.filter(({ filter }) => leadsElsewhere(JSON.parse(filter)))),
    uneven: collectionsOf(limited.filter(differs)),
  };
}

/** Whether a rule has a condition on a field of a related item. */
function leadsElsewhere(rule: unknown, isBelowField = false): boolean {
  if (Array.isArray(rule)) return rule.some((each) => leadsElsewhere(each, isBelowField));
  if (!isObject(rule)) return false;
  return Object.entries(rule).some(([name, each]) => {
    const isField = !name.startsWith('_');
    return (isField && isBelowField) || leadsElsewhere(each, isBelowField || isField);
  });
}
