/**
 * Signing in with an OpenID Connect provider: the browser is sent to the provider's page with a challenge, and comes back with a code
 * that is exchanged for a signed statement of the identity. A signed cookie has what the way back needs.
 */
import type { Configuration } from 'openid-client';
import { invalidCredentials, type ServiceError, serviceUnavailable } from '../../base/errors.js';
import { claimText, type ExternalUser, userOfClaims } from '../../server/access/external-user.js';
import type { PendingSignIn } from '../../server/access/pending-sign-in.js';
import type { AuthProvider } from './provider-options.js';

type Claims = Readonly<Record<string, unknown>>;

const TIMEOUT_SECONDS = 10;

/** Loaded when the first user signs in: most services have no provider. */
const loadClient = (): Promise<typeof import('openid-client')> => import('openid-client');

export class OpenIdProvider {
  #configuration: Promise<Configuration> | null = null;

  constructor(readonly options: AuthProvider) {}

  /** Where the browser is sent, and what to keep until it comes back. */
  async begin(callback: string, redirect: string | null): Promise<{ url: string; pending: PendingSignIn }> {
    const client = await loadClient();
    const configuration = await this.#discover();
    const [state, nonce, verifier] = [client.randomState(), client.randomNonce(), client.randomPKCECodeVerifier()];
    const url = client.buildAuthorizationUrl(configuration, {
      ...this.options.parameters,
      redirect_uri: callback,
      scope: this.options.scope,
      code_challenge: await client.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
      state,
      nonce,
    });
    return { url: url.href, pending: { provider: this.options.name, state, nonce, verifier, redirect } };
  }

  /** The user that the provider names. `returned` is the URL that the browser came back with. */
  async finish(returned: URL, { state, nonce, verifier }: PendingSignIn): Promise<ExternalUser> {
    const client = await loadClient();
    const configuration = await this.#discover();
    try {
      const tokens = await client.authorizationCodeGrant(configuration, returned, {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      });
      const idToken: Claims = tokens.claims() ?? {};
      const subject = claimText(idToken['sub']) ?? '';
      const hasUserInfo = configuration.serverMetadata().userinfo_endpoint !== undefined;
      // The client refuses a userinfo answer with another `sub`.
      const userInfo = hasUserInfo ? await client.fetchUserInfo(configuration, tokens.access_token, subject) : {};
      return this.#externalUser(mergeClaims(idToken, userInfo));
    } catch (error) {
      if (isUnreachable(error)) throw this.#unreachable();
      // The reason would help only to forge.
      throw invalidCredentials();
    }
  }

  #externalUser(claims: Claims): ExternalUser {
    const { trustEmail, groupClaim, roleOfGroup } = this.options;
    const named = claims[groupClaim];
    const groups = new Set<unknown>(Array.isArray(named) ? named : [named]);
    const [, role = null] = [...roleOfGroup].find(([group]) => groups.has(group)) ?? [];
    const user = userOfClaims(claims, trustEmail, role);
    if (user === null) throw invalidCredentials();
    return user;
  }

  /** Asked for when the first user signs in, and again after a failure. */
  async #discover(): Promise<Configuration> {
    const { issuerUrl, clientId, clientSecret } = this.options;
    const url = new URL(issuerUrl);
    const { allowInsecureRequests, discovery, enableNonRepudiationChecks } = await loadClient();
    // By default the client trusts the connection to the provider, and does not check the signature of an id token.
    const execute = [enableNonRepudiationChecks, ...(url.protocol === 'http:' ? [allowInsecureRequests] : [])];
    this.#configuration ??= discovery(url, clientId, clientSecret ?? undefined, undefined, {
      execute,
      timeout: TIMEOUT_SECONDS,
    });
    try {
      return await this.#configuration;
    } catch {
      this.#configuration = null;
      throw this.#unreachable();
    }
  }

  #unreachable(): ServiceError {
    return serviceUnavailable('auth', `The provider "${this.options.name}" cannot be reached`);
  }
}

/**
 * The claims of the id token and of the userinfo endpoint, where the id token wins. `email` and `email_verified` come from the same
 * source: the statement that one address is verified must not apply to another one.
 */
function mergeClaims(idToken: Claims, userInfo: Claims): Claims {
  const { email, email_verified: isVerified } = idToken;
  const hasAddress = email !== undefined && (isVerified !== undefined || email !== userInfo['email']);
  const source = hasAddress ? idToken : userInfo;
  return { ...userInfo, ...idToken, email: source['email'], email_verified: source['email_verified'] };
}

/** Whether the provider did not answer, or answered with a fault of its own. Such an error says nothing about the user. */
function isUnreachable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, cause } = error as Error & { code?: unknown };
  if (code === 'OAUTH_TIMEOUT') return true;
  if (cause instanceof Response) return cause.status >= 500;
  return error instanceof TypeError && cause instanceof Error;
}
