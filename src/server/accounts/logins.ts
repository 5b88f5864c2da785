/** The statements of logins: attempts, sessions, passwords and second factors. Each step is one statement. */

import { ServiceError } from '../../base/errors.js';
import { CLI_IDENTITY } from '../access/identity.js';
import type { Database } from '../postgres/pools/database.js';
import { readSql } from '../postgres/read-sql.js';
import { REGISTRATION, watchAdministrators } from './administrators.js';

const ACCOUNT = statement('account');
const FAIL = statement('fail');
const BEGIN = statement('begin');
const REFRESH = statement('refresh');
const RENEW = statement('renew');

/** A user, as far as logins need it. */
export interface LoginAccount {
  readonly id: string;
  readonly email: string;
  readonly password: string | null;
  readonly tfa_secret: string | null;
  readonly status: string;
  /** Too many attempts were refused a moment ago. */
  readonly locked: boolean;
}

export interface RegistrationSettings {
  readonly open: boolean;
  /** Whether a new user has to open a link in a mail first. */
  readonly verify: boolean;
  readonly role: string | null;
  /** Whether that role has every right: nobody gets it by registering. */
  readonly unlimited: boolean;
  /** The filter that an address must meet. */
  readonly filter: unknown;
}

export type SessionKind = 'refresh' | 'session';

/** A user, or a share. */
export interface SessionHolder {
  readonly user: string | null;
  readonly share: string | null;
  /** The role of the share. */
  readonly role: string | null;
}

/** The client that logs in or uses a session. */
export interface LoginClient {
  readonly ip: string;
  readonly userAgent: string;
  readonly origin: string;
  /** Whether the client has disconnected. */
  readonly aborted: boolean;
}

export interface NewSession {
  readonly user: string;
  readonly kind: SessionKind;
  readonly digest: string;
  readonly family: string;
  /** Milliseconds. */
  readonly lifetime: number;
  readonly otpStep: number | null;
  readonly client: LoginClient;
}

/** Called when users or sessions were changed; a request is answered after caches have followed. */
interface LoginListener {
  usersChanged(): Promise<void>;
  sessionsEnded(digests: readonly string[]): Promise<void>;
}

export class Logins {
  constructor(
    private readonly database: Database,
    /** For this long a session which has ended is kept, to know it when it comes back. */
    private readonly keptMs: number,
    private readonly listener: LoginListener,
  ) {}

  find(email: string): Promise<LoginAccount | null> {
    return this.#row<LoginAccount>(ACCOUNT, [email]);
  }

  get(user: string): Promise<LoginAccount | null> {
    return this.#row<LoginAccount>(
      'select id, email, password, tfa_secret, status, false as locked from service_users where id = $1::uuid',
      [user],
    );
  }

  async fail(email: string): Promise<void> {
    const failed = await this.#row<{ user: string; excessive: boolean | null }>(FAIL, [email]);
    if (failed?.excessive) await this.#suspend(failed.user);
  }

  /** The last administrator only has to wait (see account.sql): else anybody could lock everybody out. */
  async #suspend(user: string): Promise<void> {
    const suspend = this.database.qualified(
      "update service_users set status = 'suspended' where id = $1::uuid and status = 'active'",
    );
    try {
      await this.database.transaction(async (session) => {
        const checkAdministrators = await watchAdministrators(this.database, session, CLI_IDENTITY);
        await session.query(suspend, [user]);
        await checkAdministrators();
      });
      await this.listener.usersChanged();
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === 'UNPROCESSABLE_CONTENT')) throw error;
    }
  }

  /** False if the one-time password was used before, or the user has been suspended meanwhile. */
  async begin({ user, kind, digest, family, lifetime, otpStep, client }: NewSession): Promise<boolean> {
    const step = otpStep === null ? null : String(otpStep);
    const parameters = [
      user,
      step,
      digest,
      kind,
      family,
      String(lifetime),
      ...clientColumns(client),
      String(this.keptMs),
    ];
    return (await this.database.rows(BEGIN, parameters)).length > 0;
  }

  /** The holder of the refresh token that was exchanged, or null if it was not valid. */
  refresh(
    old: { readonly digest: string; readonly family: string },
    digest: string,
    lifetime: number,
    client: LoginClient,
  ): Promise<SessionHolder | null> {
    const parameters = [old.digest, old.family, digest, String(lifetime), ...clientColumns(client)];
    return this.#row<SessionHolder>(REFRESH, parameters);
  }

  /** The session that follows the given one, which is not always the offered one: see renew.sql. */
  async renew(
    old: string,
    offered: string,
    times: { readonly lifetime: number; readonly grace: number },
    client: LoginClient,
  ): Promise<(SessionHolder & { readonly token: string }) | null> {
    const parameters = [old, offered, String(times.lifetime), String(times.grace), ...clientColumns(client)];
    const renewed = await this.#row<SessionHolder & { token: string }>(RENEW, parameters);
    // It ends earlier now.
    if (renewed) await this.listener.sessionsEnded([old]);
    return renewed;
  }

  /** Ends a session, with all that came from the same login. */
  async end(digest: string): Promise<void> {
    const ended = await this.database.rows<{ token: string; kind: SessionKind }>(
      `delete from service_sessions
       where family in (select family from service_sessions where token = $1::text) returning token, kind`,
      [digest],
    );
    // Nobody remembers refresh tokens.
    const sessions = ended.filter(({ kind }) => kind === 'session');
    if (sessions.length > 0) await this.listener.sessionsEnded(sessions.map(({ token }) => token));
  }

  /** Whether the password was set: `mark` is the digest of the one it replaces. */
  resetPassword(email: string, mark: string, hash: string): Promise<boolean> {
    return this.#change(
      `update service_users set password = $3::text
       where lower(email) = lower($1::text) and status = 'active'
         and encode(sha256(convert_to(coalesce(password, ''), 'utf8')), 'hex') = $2::text
       returning id`,
      [email, mark, hash],
    );
  }

  async passwordPolicy(): Promise<string | null> {
    const text = 'select auth_password_policy from service_settings';
    return (await this.#row<{ auth_password_policy: string | null }>(text))?.auth_password_policy ?? null;
  }

  setSecondFactor(user: string, secret: string | null): Promise<boolean> {
    return this.#change('update service_users set tfa_secret = $2::text where id = $1::uuid returning id', [
      user,
      secret,
    ]);
  }

  /** Applications send it with each page that they show. It is no change for the activity. */
  async trackPage(user: string, page: string): Promise<void> {
    await this.database.rows(
      "update service_users set last_page = $2::text where id = $1::uuid and coalesce(last_page, '') <> $2::text",
      [user, page],
    );
  }

  /** Marks the one-time password of this time step as used. Returns false if it was used before. */
  async useStep(user: string, step: number): Promise<boolean> {
    const rows = await this.database.rows(
      `insert into service_logins as login ("user", otp_step) values ($1::uuid, $2::bigint)
       on conflict ("user") do update set otp_step = excluded.otp_step
       where login.otp_step is null or login.otp_step < excluded.otp_step
       returning "user"`,
      [user, String(step)],
    );
    return rows.length > 0;
  }

  /** Makes users who have yet to choose a password; answers those who are invited now, made before or not. */
  async invite(emails: readonly string[], role: string | null): Promise<{ id: string; email: string }[]> {
    const list = JSON.stringify(emails);
    return this.database.rows<{ id: string; email: string }>(
      `with wanted as (
         select distinct on (lower(email)) email from json_array_elements_text($1::json) email
       ), made as (
         insert into service_users (email, role, status) select email, $2::uuid, 'invited' from wanted
         on conflict ((lower(email))) do nothing
         returning id, email
       )
       select id, email from made
       union all
       select holder.id, holder.email from service_users holder
       join wanted on lower(holder.email) = lower(wanted.email) where holder.status = 'invited'`,
      [list, role],
    );
  }

  acceptInvite(email: string, user: string, hash: string): Promise<boolean> {
    return this.#change(
      `update service_users set password = $3::text, status = 'active'
       where id = $2::uuid and lower(email) = lower($1::text) and status = 'invited' returning id`,
      [email, user, hash],
    );
  }

  /** The settings that registration goes by, or null if it is off. */
  async registration(): Promise<RegistrationSettings | null> {
    const settings = await this.#row<RegistrationSettings>(REGISTRATION);
    return settings?.open ? settings : null;
  }

  /** Whether the address is verified now, or was before: `mark` is the digest of the password that was registered. */
  async verifyAddress(email: string, mark: string): Promise<boolean> {
    const rows = await this.database.rows<{ changed: boolean }>(
      `with registered as (
         select id, status from service_users
         where lower(email) = lower($1::text) and encode(sha256(convert_to(password, 'utf8')), 'hex') = $2::text
         for update
       ), verified as (
         update service_users set status = 'active'
         where id in (select id from registered where status = 'unverified') returning id
       )
       select true as changed from verified
       union all
       select false from registered where status = 'active'`,
      [email, mark],
    );
    if (rows.some(({ changed }) => changed)) await this.listener.usersChanged();
    return rows.length > 0;
  }

  /** The page of the project, where one is set. */
  async projectUrl(): Promise<string | null> {
    const text = 'select project_url from service_settings';
    return (await this.#row<{ project_url: string | null }>(text))?.project_url ?? null;
  }

  async #row<Row>(text: string, parameters: (string | null)[] = []): Promise<Row | null> {
    const [row] = await this.database.rows<Row>(text, parameters);
    return row ?? null;
  }

  /** Whether the statement changed a user. */
  async #change(text: string, parameters: (string | null)[]): Promise<boolean> {
    const rows = await this.database.rows(text, parameters);
    if (rows.length > 0) await this.listener.usersChanged();
    return rows.length > 0;
  }
}

/** Deletes sessions that ended so long ago. */
export async function forgetSessions(database: Database, keptMs: number): Promise<void> {
  await database.rows(
    "delete from service_sessions where expires < (now() - ($1::float8 * interval '1 millisecond'))",
    [String(keptMs)],
  );
}

/** The texts of a client may be anything, of any length. */
export function clientColumns({ ip, userAgent, origin }: LoginClient): (string | null)[] {
  return [ip || null, userAgent.slice(0, 1_000) || null, origin.slice(0, 255) || null];
}

function statement(name: string): string {
  return readSql('server', 'auth', `${name}.sql`);
}
