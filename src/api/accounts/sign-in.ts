/** /auth/login/{provider}: signing in with an OpenID Connect provider. */
import { OpenIdProvider, type PendingSignIn } from '../../access/openid.js';
import { signIn } from '../../accounts/authentication.js';
import type { ResolveUser } from '../../accounts/external-users.js';
import { invalidCredentials, invalidPayload, ServiceError } from '../../base/errors.js';
import type { AuthProvider } from '../../config/provider-options.js';
import type { Exchange } from '../../http/exchange.js';
import type { Reply } from '../../http/reply.js';
import { type ActionResult, type ApiRoute, dataReply, handlerOf, type UncheckedRequest } from '../action.js';
import { clientOf, isAllowedPage, isSameHost, readPage } from '../body-fields.js';
import { type AuthServices, tokenResult } from './auth.js';

export interface SignInServices extends AuthServices {
  readonly resolveUser: ResolveUser;
}

export function signInRoutes(services: SignInServices): ApiRoute[] {
  return services.config.AUTH_PROVIDERS.flatMap((options) => {
    const provider = new OpenIdProvider(options);
    const path = `/auth/login/${options.name}`;
    return [
      { method: 'GET', path, handle: handlerOf((request) => begin(request, provider, services), redirectReply) },
      {
        method: 'GET',
        path: `${path}/callback`,
        handle: handlerOf((request) => finish(request, provider, services), redirectReply),
      },
    ];
  });
}

async function begin(
  { client, queryString }: UncheckedRequest,
  provider: OpenIdProvider,
  services: SignInServices,
): Promise<ActionResult> {
  const redirect = new URLSearchParams(queryString).get('redirect');
  const { name, redirects } = provider.options;
  if (redirect !== null && !isOwnPage(redirect, services) && !isAllowedPage(redirect, redirects))
    throw invalidPayload(
      `"redirect" must be a page of AUTH_${name.toUpperCase()}_REDIRECT_ALLOW_LIST, not "${redirect}"`,
    );
  // As it was parsed, so that a browser cannot read it otherwise.
  const page = redirect === null ? null : new URL(redirect).href;
  const { url, pending } = await provider.begin(callbackOf(provider.options, services), page);
  const cookie = services.cookies.set(client, 'signIn', await services.tokens.signPending(pending));
  return { secret: true, headers: { Location: url, 'Set-Cookie': [cookie] } };
}

async function finish(
  request: UncheckedRequest,
  provider: OpenIdProvider,
  services: SignInServices,
): Promise<ActionResult> {
  const { client } = request;
  const pending = await readPending(client, provider.options, services);
  // It serves once, whatever comes of it.
  const cleared = services.cookies.clear(client, 'signIn');
  try {
    const returned = new URL(`${callbackOf(provider.options, services)}?${request.queryString}`);
    const user = await services.resolveUser(provider.options, await provider.finish(returned, pending));
    const { mode } = provider.options;
    const issued = await signIn(user, mode === 'session' ? 'session' : 'refresh', clientOf(client), services);
    const result = tokenResult(client, mode, issued, services);
    const cookies = [...[result.headers?.['Set-Cookie'] ?? []].flat(), cleared];
    const location = pending.redirect === null ? {} : { Location: pending.redirect };
    return { ...result, headers: { ...result.headers, ...location, 'Set-Cookie': cookies } };
  } catch (error) {
    if (pending.redirect === null || !(error instanceof ServiceError)) throw error;
    const page = new URL(pending.redirect);
    page.searchParams.set('reason', error.code);
    return { secret: true, headers: { Location: page.href, 'Set-Cookie': [cleared] } };
  }
}

/** What the browser kept since it was sent away: without it somebody else may have begun. */
async function readPending(
  client: Exchange,
  { name }: AuthProvider,
  { cookies, tokens }: SignInServices,
): Promise<PendingSignIn> {
  const text = client.cookie(cookies.signInName);
  if (text === '') throw invalidCredentials();
  const pending = await tokens.verifyPending(text);
  if (pending.provider !== name) throw invalidCredentials();
  return pending;
}

/** The Explorer, for one. */
function isOwnPage(page: string, { publicUrl }: SignInServices): boolean {
  const url = readPage(page);
  return url !== null && isSameHost(url, new URL(publicUrl()));
}

function callbackOf({ name }: AuthProvider, { publicUrl }: SignInServices): string {
  return `${publicUrl()}/auth/login/${name}/callback`;
}

function redirectReply(result: ActionResult): Reply {
  const { headers = {} } = result;
  if (headers['Location'] === undefined) return dataReply(result);
  return { status: 302, type: '', body: '', headers, secret: true };
}
