/**
 * New accounts: self-registration, if the settings allow it, and invitations. Registration must not reveal whether an address is taken:
 * each outcome looks the same, and takes as long. The account is written like any other item, with the permissions that follow
 * from the settings. An administrator invites addresses, and the user who opens the link in the mail chooses a password.
 */

import { forbidden, invalidPayload, ServiceError, unprocessable } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';
import type { PermissionRow } from '../../compiler/access/permissions.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { digestToken } from '../../server/access/tokens.js';
import {
  type AuthenticationServices,
  RESET_LIFETIME_MS,
  signReset,
  stall,
} from '../../server/accounts/authentication.js';
import type { RegistrationSettings } from '../../server/accounts/logins.js';
import { assertPassword, hashPassword, verifyPassword } from '../../server/accounts/passwords.js';
import type { RegistrationLogEvent } from './log-events.js';
import type { RegistrationConfig } from './options.js';

/** Writes users with the permissions of one row alone. */
export interface AccountWriter {
  /** The client's address. */
  readonly address: string;
  create(account: Input, permission: PermissionRow): Promise<void>;
  update(user: string, change: Input, permission: PermissionRow): Promise<void>;
}

export interface RegistrationServices extends Pick<AuthenticationServices, 'tokens' | 'logins' | 'mailer'> {
  readonly config: RegistrationConfig;
  readonly observe: Observer<RegistrationLogEvent>;
}

interface NewAccount extends Input {
  readonly email: string;
  readonly password: string;
}

const LINK_LIFETIME_MS = 604_800_000;

export async function register(
  account: NewAccount,
  linkWith: (token: string) => string,
  writer: AccountWriter,
  services: RegistrationServices,
): Promise<void> {
  const { config, logins } = services;
  const begun = performance.now();
  try {
    const settings = await logins.registration();
    if (!settings) throw forbidden();
    if (settings.unlimited) {
      services.observe({ kind: 'registration-refused', role: settings.role });
      throw forbidden();
    }
    const isNew = await create(account, settings, writer);
    if (settings.verify) {
      if (!isNew) await replace(account, writer, services);
      await sendLink(account, linkWith, writer.address, services);
    }
  } finally {
    await stall(begun, config.REGISTER_STALL_TIME);
  }
}

/** False if the address is taken. */
async function create(
  account: NewAccount,
  { verify, role, filter }: RegistrationSettings,
  writer: AccountWriter,
): Promise<boolean> {
  try {
    await writer.create(account, {
      collection: 'service_users',
      action: 'create',
      permissions: null,
      validation: filter,
      presets: { role, status: verify ? 'unverified' : 'active' },
      fields: 'email,password,first_name,last_name',
    });
    return true;
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'FAILED_VALIDATION') throw error;
    const { field, type } = error.extensions;
    if (type === 'unique') return false;
    // The filter of the settings is confidential.
    throw field === 'email' && type !== 'email' && type !== 'too_long' ? forbidden() : error;
  }
}

/**
 * A second registration before the address is verified may come from another person: the password and the names of the last one count, and
 * earlier links are no longer valid. With the same password it is the same person, whose links all stay good.
 */
async function replace(
  { email, ...account }: NewAccount,
  writer: AccountWriter,
  { logins }: RegistrationServices,
): Promise<void> {
  const existing = await logins.find(email);
  if (existing?.status !== 'unverified' || (await verifyPassword(existing.password, account.password, writer.address)))
    return;
  try {
    await writer.update(
      existing.id,
      { first_name: null, last_name: null, ...account },
      {
        collection: 'service_users',
        action: 'update',
        permissions: { status: { _eq: 'unverified' } },
        validation: null,
        presets: null,
        fields: 'password,first_name,last_name',
      },
    );
  } catch (error) {
    // The address was verified meanwhile: it is taken.
    if (!(error instanceof ServiceError) || error.code !== 'FORBIDDEN') throw error;
  }
}

/** For users who have registered and have not opened a link. The link verifies the address for this password only. */
async function sendLink(
  { email: address, password }: NewAccount,
  linkWith: (token: string) => string,
  clientAddress: string,
  { logins, tokens, mailer }: RegistrationServices,
): Promise<void> {
  const account = await logins.find(address);
  if (account?.status !== 'unverified' || account.password === null) return;
  // Another person has registered the address in between.
  if (!(await verifyPassword(account.password, password, clientAddress))) return;
  const { email } = account;
  const claims = { email, mark: digestToken(account.password) };
  const link = linkWith(await tokens.signMail('registration', claims, LINK_LIFETIME_MS));
  const text = `Open this link to verify your email address:\n\n${link}\n\nThe link expires in seven days. If you did not register, ignore this email.`;
  void mailer({ to: email, subject: 'Verify your email address', text, link });
}

/** Returns the page of the project, where one is set. A link may be opened twice: virus scanners open it before its reader does. */
export async function verifyRegistration(
  token: string,
  { logins, tokens }: Pick<RegistrationServices, 'logins' | 'tokens'>,
): Promise<string | null> {
  const { email, mark } = await tokens.verifyMail('registration', token);
  if (!(await logins.verifyAddress(email, mark))) throw forbidden();
  const project = (await logins.projectUrl()) ?? '';
  return /^https?:$/.test(URL.canParse(project) ? new URL(project).protocol : '') ? project : null;
}

export type InvitationServices = Pick<AuthenticationServices, 'tokens' | 'logins' | 'loginLimit' | 'mailer'>;

/** Users that exist already are left as they are. Users who were invited before get another link. */
export async function invite(
  emails: readonly string[],
  role: string,
  linkWith: (token: string) => string,
  { logins, tokens, mailer }: InvitationServices,
): Promise<void> {
  const invited = await logins.invite(emails, role).catch((error: unknown) => {
    const unknownRole = error instanceof Error && 'code' in error && error.code === '23503';
    throw unknownRole ? invalidPayload('"role" must be the key of a role') : error;
  });
  for (const { id, email } of invited) {
    const link = linkWith(await tokens.signMail('invite', { email, mark: id }, LINK_LIFETIME_MS));
    const text = `You have been invited. Choose a password here:\n\n${link}\n\nThe link works once and expires in seven days.`;
    void mailer({ to: email, subject: 'You have been invited', text, link });
  }
}

/** A token that the user sends back with a new password, and the route that takes it. */
interface PasswordToken {
  readonly token: string;
  readonly purpose: 'invite' | 'reset';
  /** Milliseconds. */
  readonly expires: number;
}

/** For an administrator who passes the link on instead of a mail. Returns null if there is no such user. */
export async function issuePasswordToken(
  user: string,
  { logins, tokens }: Pick<InvitationServices, 'logins' | 'tokens'>,
): Promise<PasswordToken | null> {
  const named = await logins.get(user);
  if (!named) return null;
  const account = named.email ? await logins.find(named.email) : null;
  if (!account) throw unprocessable('The user has no email address, or signs in with another provider');
  const { id, email, status } = account;
  if (status === 'invited') {
    const token = await tokens.signMail('invite', { email, mark: id }, LINK_LIFETIME_MS);
    return { token, purpose: 'invite', expires: LINK_LIFETIME_MS };
  }
  if (status !== 'active') throw unprocessable('Only invited and active users can choose a password');
  return { token: await signReset(account, tokens), purpose: 'reset', expires: RESET_LIFETIME_MS };
}

/** `token` is that of the link in the mail. */
export async function acceptInvitation(
  token: string,
  password: string,
  address: string,
  { tokens, logins, loginLimit }: InvitationServices,
): Promise<void> {
  await loginLimit.attempt(address);
  const { email, mark } = await tokens.verifyMail('invite', token);
  await assertPassword(await logins.passwordPolicy(), password);
  if (!(await logins.acceptInvite(email, mark, await hashPassword(password, address)))) {
    throw invalidPayload('The invitation was already used or revoked');
  }
  await loginLimit.forgive(address);
}
