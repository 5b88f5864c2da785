/** Users with their passwords, tokens and second factors, and the settings of the project. */
import { StartError } from '../base/errors.js';
import type { Session } from '../postgres/pools/sessions.js';
import { type Fragment, identifier, join, sql } from '../sql/fragment.js';
import { type Copied, type Copy, UNCHANGED, valuesOf } from './copy.js';
import { oneOf } from './names.js';
import { hasColumn, type Installations, ours, run, theirs } from './source.js';

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

/** Users that this command has made and who are gone there: they must not come in here any more. */
export async function suspendGoneUsers(session: Session, places: Installations): Promise<number> {
  const gone = sql`${ours(places, 'adopted')} adopted where adopted.source = 'users' and adopted.target_key = mine.id::text
    and mine.status <> 'suspended'
    and not exists (select from ${theirs(places, 'users')} old where old.id::text = adopted.source_key)`;
  const [found] = await run<{ count: number }>(
    session,
    sql`select count(*)::int as count from ${ours(places, 'users')} mine, ${gone}`,
  );
  if (!found?.count) return 0;
  await run(session, sql`update ${ours(places, 'users')} mine set status = 'suspended' from ${gone}`);
  return found.count;
}

export async function rememberUsers(session: Session, places: Installations): Promise<void> {
  await run(
    session,
    sql`insert into ${ours(places, 'adopted')} (source, source_key, target_key)
      select 'users', old.id::text, old.id::text from ${theirs(places, 'users')} old on conflict do nothing`,
  );
}

/** Limits of attempts: the number that is theirs by default is nobody's choice. */
const DEFAULT_ATTEMPTS = sql`25`;

export async function copySettings(session: Session, places: Installations): Promise<Copied> {
  const values = valuesOf(places, 'settings', 'settings', {
    id: null,
    auth_login_attempts: sql`case when old.auth_login_attempts > 0 then nullif(old.auth_login_attempts, ${DEFAULT_ATTEMPTS}) end`,
    default_appearance: hasColumn(places, 'directus_settings', 'default_appearance')
      ? oneOf(sql`old.default_appearance`, ['auto', 'light', 'dark'], sql`'auto'`)
      : null,
    public_registration_role: hasColumn(places, 'directus_settings', 'public_registration_role')
      ? sql`(select role.id from ${ours(places, 'roles')} role where role.id = old.public_registration_role)`
      : null,
  });
  const columns = places.tables.get('service_settings');
  const text = (name: string): Fragment => (columns?.get(name)?.type === 'json' ? sql`::text` : sql``);
  // What takes no null keeps what it has.
  const value = (name: string, given: Fragment): Fragment =>
    columns?.get(name)?.required ? sql`coalesce(${given}, mine.${identifier(name)})` : given;
  const differs = join(
    [...values].map(
      ([name, given]) =>
        sql`mine.${identifier(name)}${text(name)} is distinct from (${value(name, given)})${text(name)}`,
    ),
    sql` or `,
  );
  const changes = join(
    [...values].map(([name, given]) => sql`${identifier(name)} := ${value(name, given)}`),
    sql`, `,
  );
  const from = sql`(select * from ${theirs(places, 'settings')} order by id limit 1) old`;
  const [row] = await run<{ differs: boolean }>(
    session,
    sql`select ${differs} as differs from ${ours(places, 'settings')} mine, ${from}`,
  );
  if (!row?.differs) return UNCHANGED;
  await run(session, sql`update ${ours(places, 'settings')} mine set ${changes} from ${from}`);
  return { created: 0, changed: 1 };
}
