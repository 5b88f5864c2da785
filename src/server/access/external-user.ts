/** The user that a foreign issuer or provider names. */

export interface ExternalUser {
  readonly subject: string;
  /** The verified address, or null if there is none. */
  readonly email: string | null;
  readonly firstName: string | null;
  readonly lastName: string | null;
  /** The id or the name of a role, or null if none is named. */
  readonly role: string | null;
}

const MAX_CHARACTERS = 255;

/** Returns null if the value is not a text, or if no column of users can store it. */
export function claimText(value: unknown): string | null {
  const isText = typeof value === 'string' && value !== '' && value.length <= MAX_CHARACTERS && !value.includes('\0');
  return isText ? value : null;
}

/** Returns null if the claims have no subject. An address counts where the issuer has verified it, or is trusted with it. */
export function userOfClaims(
  claims: Readonly<Record<string, unknown>>,
  trustEmail: boolean,
  role: string | null,
): ExternalUser | null {
  const subject = claimText(claims['sub']);
  if (subject === null) return null;
  return {
    subject,
    email: trustEmail || claims['email_verified'] === true ? claimText(claims['email']) : null,
    firstName: claimText(claims['given_name']),
    lastName: claimText(claims['family_name']),
    role,
  };
}
