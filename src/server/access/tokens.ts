/**
 * Signed tokens: those of the service, and those of foreign issuers. The service signs with HS256 and SECRET, and nothing else. Each kind names its purpose, so that a link in a mail never opens the
 * API and an access token never sets a password.
 */
import { createHash, createSecretKey, randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createRemoteJWKSet, decodeJwt, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify, SignJWT } from 'jose';
import { invalidToken, ServiceError, serviceUnavailable, tokenExpired } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import type { JwtIssuer } from '../config/issuer-options.js';
import { claimText, type ExternalUser, userOfClaims } from './external-user.js';
import { type PendingSignIn, SIGN_IN_LIFETIME_MS } from './pending-sign-in.js';

const ISSUER = 'service';
const ALGORITHM = 'HS256';

export interface AccessClaims {
  /** The user, or null if the caller uses a share. */
  readonly user: string | null;
  readonly share?: string;
  /** The session that has to exist for the token to count; null for tokens that only expire. */
  readonly session: string | null;
  /** Milliseconds since 1970. */
  readonly expires: number;
  /** The claims of a foreign token that the database may learn. */
  readonly claims?: Readonly<Record<string, unknown>>;
}

/** Judges access tokens of one kind. */
export interface AccessVerifier {
  /** Whether a token claims to be of that kind: any other text may be a static token. */
  accepts(token: string): boolean;
  verifyAccess(token: string): Promise<AccessClaims>;
}

/** Claims about the user for the client's own use. The service itself reads them from the database. */
interface Description {
  readonly role: string | null;
  readonly app_access: boolean;
  readonly admin_access: boolean;
  readonly enforce_tfa?: true;
}

type MailPurpose = 'password-reset' | 'invite' | 'registration';

interface MailClaims {
  readonly email: string;
  /** The digest of the password that the link replaces, so that it works once; or the key of the user who is invited or has registered. */
  readonly mark: string;
}

export class Tokens implements AccessVerifier {
  readonly #key: ReturnType<typeof createSecretKey>;

  constructor(secret: string) {
    this.#key = createSecretKey(Buffer.from(secret, 'utf8'));
  }

  accepts(token: string): boolean {
    return issuerOf(token) === ISSUER;
  }

  signAccess(user: string, session: string | null, description: Description, lifetime: number): Promise<string> {
    const { role, app_access, admin_access } = description;
    const claims = { id: user, role, app_access, admin_access };
    return this.#sign(
      {
        ...claims,
        ...(session === null ? {} : { session }),
        ...(description.enforce_tfa ? { enforce_tfa: true } : {}),
      },
      lifetime,
    );
  }

  /** For callers who come in by a share: there is no user. */
  signShare(share: string, role: string | null, session: string | null, lifetime: number): Promise<string> {
    const claims = { share, role, app_access: false, admin_access: false };
    return this.#sign({ ...claims, ...(session === null ? {} : { session }) }, lifetime);
  }

  async verifyAccess(token: string): Promise<AccessClaims> {
    const { id, share, session, scope, exp } = await this.#verify(token);
    const holder = share ?? id;
    if (typeof holder !== 'string' || !UUID_PATTERN.test(holder) || scope !== undefined) throw invalidToken();
    if (session !== undefined && !isDigest(session)) throw invalidToken();
    const rest = { session: session ?? null, expires: Number(exp) * 1_000 };
    return share === undefined ? { user: holder, ...rest } : { user: null, share: holder, ...rest };
  }

  signMail(purpose: MailPurpose, { email, mark }: MailClaims, lifetime: number): Promise<string> {
    return this.#sign({ scope: purpose, email, mark }, lifetime);
  }

  async verifyMail(purpose: MailPurpose, token: string): Promise<MailClaims> {
    const { scope, email, mark } = await this.#verify(token);
    if (scope !== purpose || typeof email !== 'string' || email.includes('\0')) throw invalidToken();
    if (typeof mark !== 'string' || !(purpose === 'invite' ? UUID_PATTERN.test(mark) : isDigest(mark)))
      throw invalidToken();
    return { email, mark };
  }

  /** The conditions that a sign-in must meet when the browser comes back. */
  signPending(pending: PendingSignIn): Promise<string> {
    return this.#sign({ ...pending, scope: 'sign-in' }, SIGN_IN_LIFETIME_MS);
  }

  async verifyPending(token: string): Promise<PendingSignIn> {
    const { scope, provider, state, nonce, verifier, redirect } = await this.#verify(token);
    if (scope !== 'sign-in' || ![provider, state, nonce, verifier].every((each) => typeof each === 'string'))
      throw invalidToken();
    return {
      provider: String(provider),
      state: String(state),
      nonce: String(nonce),
      verifier: String(verifier),
      redirect: typeof redirect === 'string' ? redirect : null,
    };
  }

  #sign(claims: JWTPayload, lifetime: number): Promise<string> {
    const now = Math.floor(Date.now() / 1_000);
    return new SignJWT(claims)
      .setProtectedHeader({ alg: ALGORITHM, typ: 'JWT' })
      .setIssuer(ISSUER)
      .setIssuedAt(now)
      .setExpirationTime(now + Math.ceil(lifetime / 1_000))
      .sign(this.#key);
  }

  async #verify(token: string): Promise<JWTPayload> {
    try {
      const options = { algorithms: [ALGORITHM], issuer: ISSUER, requiredClaims: ['exp'] };
      return (await jwtVerify(token, this.#key, options)).payload;
    } catch (error) {
      // The signature is checked before the claims: only a token that the service signed can be expired.
      throw error instanceof errors.JWTExpired ? tokenExpired() : invalidToken();
    }
  }
}

/** The issuer that the token claims, unchecked, or null if it is no JWT. */
function issuerOf(token: string): string | null {
  if (token.split('.', 4).length !== 3) return null;
  try {
    return decodeJwt(token).iss ?? null;
  } catch {
    return null;
  }
}

/** Tokens are stored and compared as digests, so a leaked table contains no usable token. */
export function digestToken(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}

function isDigest(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);
}

const FAMILY_BYTES = 16;
const TOKEN_BYTES = 48;

/** 64 characters, of which the first part stays the same while the token is renewed: so a used token can be distinguished from an unknown one. */
export function makeRefreshToken(family: Buffer = randomBytes(FAMILY_BYTES)): string {
  return Buffer.concat([family, randomBytes(TOKEN_BYTES - FAMILY_BYTES)]).toString('base64url');
}

/** Returns null if the text cannot be a refresh token. */
export function familyOf(refreshToken: string): Buffer | null {
  if (!/^[\w-]{64}$/.test(refreshToken)) return null;
  return Buffer.from(refreshToken, 'base64url').subarray(0, FAMILY_BYTES);
}

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

/**
 * Tokens of foreign issuers. Their signature is checked with the keys that the issuer publishes, which are fetched again when a
 * token names a key that is not known, so that an issuer may change its keys at any time.
 */
export class ForeignTokens implements AccessVerifier {
  readonly #issuers: ReadonlyMap<string, KnownIssuer>;
  readonly #resolve: ResolveIssued;

  /** `kept` are the names of the claims that the service passes to the database. */
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

const FILE_NAME = 'lateral.secret';
/** A shorter key could be guessed from a token. */
const MIN_SECRET_LENGTH = 16;

/**
 * The key that signs tokens: configured, or generated once and stored next to the embedded database. `directory` is null if the service
 * has no directory of its own.
 */
export async function openSecret(chosen: string | null, directory: string | null, observe: Observer): Promise<string> {
  if (chosen !== null) {
    if (chosen.length < MIN_SECRET_LENGTH) observe({ kind: 'secret-short' });
    return chosen;
  }
  const secret = randomBytes(32).toString('base64url');
  if (directory === null) {
    observe({ kind: 'secret-made-up' });
    return secret;
  }
  const path = join(directory, FILE_NAME);
  try {
    await writeFile(path, secret, { flag: 'wx', mode: 0o600 });
    return secret;
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    const stored = (await readFile(path, 'utf8')).trim();
    if (stored.length >= MIN_SECRET_LENGTH) return stored;
    // An interrupted start left an incomplete file.
    await writeFile(path, secret, { mode: 0o600 });
    return secret;
  }
}
