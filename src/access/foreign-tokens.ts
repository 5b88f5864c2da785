/**
 * Tokens of foreign issuers. Their signature is checked with the keys that the issuer publishes, which are fetched again when a
 * token names a key that is not known, so that an issuer may change its keys at any time.
 */
import { createRemoteJWKSet, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose';
import { invalidToken, ServiceError, serviceUnavailable, tokenExpired } from '../base/errors.js';
import type { JwtIssuer } from '../config/issuer-options.js';
import { claimText, type ExternalUser, userOfClaims } from './external-user.js';
import { type AccessClaims, type AccessVerifier, issuerOf } from './tokens.js';

/** Finds the user, or creates one; rejects where there is none. */
type ResolveIssued = (issuer: JwtIssuer, user: ExternalUser) => Promise<string>;

/** Keys that are secret on both sides, and no signature at all, are out of the question. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

const KEYS = { timeoutDuration: 5_000, cooldownDuration: 5_000, cacheMaxAge: 600_000 };
/** A token is verified again after this long: its key may have been withdrawn. */
const VERIFIED_MS = 600_000;
const CLOCK_TOLERANCE_SECONDS = 5;

interface KnownIssuer {
  readonly options: JwtIssuer;
  readonly keys: JWTVerifyGetKey;
}

export class ForeignTokens implements AccessVerifier {
  readonly #issuers: ReadonlyMap<string, KnownIssuer>;
  readonly #resolve: ResolveIssued;

  /** `kept` are the names of the claims that the database may learn. */
  constructor(
    issuers: readonly JwtIssuer[],
    resolve: ResolveIssued,
    private readonly kept: readonly string[] = [],
  ) {
    this.#issuers = new Map(
      issuers.map((options) => [options.issuer, { options, keys: createRemoteJWKSet(new URL(options.jwksUrl), KEYS) }]),
    );
    this.#resolve = resolve;
  }

  accepts(token: string): boolean {
    return this.#issuers.size > 0 && this.#issuers.has(issuerOf(token) ?? '');
  }

  async verifyAccess(token: string): Promise<AccessClaims> {
    const issuer = this.#issuers.get(issuerOf(token) ?? '');
    if (!issuer) throw invalidToken();
    const payload = await verify(token, issuer);
    const user = await this.#resolve(issuer.options, externalUser(payload, issuer.options));
    const expires = Math.min(Number(payload.exp) * 1_000, Date.now() + VERIFIED_MS);
    const claims = Object.fromEntries(
      this.kept.flatMap((name) => (payload[name] === undefined ? [] : [[name, payload[name]]])),
    );
    return { user, session: null, expires, claims };
  }
}

async function verify(token: string, { options, keys }: KnownIssuer): Promise<JWTPayload> {
  const { issuer, audience } = options;
  try {
    const { payload } = await jwtVerify(token, keys, {
      algorithms: ALGORITHMS,
      issuer,
      audience: [...audience],
      requiredClaims: ['exp', 'sub'],
      clockTolerance: CLOCK_TOLERANCE_SECONDS,
    });
    return payload;
  } catch (error) {
    if (error instanceof errors.JWTExpired) throw tokenExpired();
    if (error instanceof errors.JOSEError && !isUnreachable(error)) throw invalidToken();
    throw serviceUnavailable('jwks', `The keys of the issuer "${issuer}" cannot be read`);
  }
}

/** The keys are not there, or are none: that says nothing of the token. */
function isUnreachable(error: errors.JOSEError): boolean {
  return (
    error instanceof errors.JWKSTimeout || error instanceof errors.JWKSInvalid || error.code === 'ERR_JOSE_GENERIC'
  );
}

function externalUser(claims: JWTPayload, { trustEmail, roleClaim }: JwtIssuer): ExternalUser {
  const role = roleClaim === null ? undefined : claims[roleClaim];
  if (role !== undefined && role !== null && claimText(role) === null)
    throw new ServiceError('INVALID_TOKEN', `The claim "${roleClaim}" must be the id or the name of a role`);
  const user = userOfClaims(claims, trustEmail, claimText(role));
  if (user === null) throw invalidToken();
  return user;
}
