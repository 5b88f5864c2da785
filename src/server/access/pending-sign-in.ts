/** A sign-in that goes on with another provider, until the browser comes back. */

/** The conditions that a sign-in must meet when the browser comes back. */
export interface PendingSignIn {
  readonly provider: string;
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
  /** The page that it leads back to; null for an answer in JSON. */
  readonly redirect: string | null;
}

/** The longest time that a user may spend on the page of the provider. */
export const SIGN_IN_LIFETIME_MS = 600_000;
