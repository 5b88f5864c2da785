/** Invitations: an administrator names addresses, and who opens the link in the mail chooses a password. */

import type { Tokens } from '../access/tokens.js';
import { invalidPayload } from '../base/errors.js';
import type { LoginLimit } from './login-backoff.js';
import type { Logins } from './logins.js';
import type { Mailer } from './mailer.js';
import { assertPassword, hashPassword } from './passwords.js';

export interface InvitationServices {
  readonly tokens: Tokens;
  readonly logins: Logins;
  readonly loginLimit: LoginLimit;
  readonly mailer: Mailer;
}

const INVITE_LIFETIME_MS = 604_800_000;

/** Users that exist already are left as they are; who was invited before gets another link. */
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
    const link = linkWith(await tokens.signMail('invite', { email, mark: id }, INVITE_LIFETIME_MS));
    const text = `You have been invited. Choose a password here:\n\n${link}\n\nThe link works once and expires in seven days.`;
    void mailer({ to: email, subject: 'You have been invited', text, link });
  }
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
