/** /auth/login/PROVIDER: signing in with an OpenID Connect provider. */
import { invalidCredentials, invalidPayload, ServiceError } from '../../base/errors.js';
import type { PendingSignIn } from '../../server/access/pending-sign-in.js';
import { signIn } from '../../server/accounts/authentication.js';
import { type AuthServices, tokenResult } from '../../server/api/accounts/auth.js';
import {
  type ActionResult,
  type ApiRoute,
  dataReply,
  handlerOf,
  type UncheckedRequest,
} from '../../server/api/action.js';
import { clientOf, isAllowedPage, isSameHost, readPage } from '../../server/api/body-fields.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Reply } from '../../server/http/reply.js';
import { OpenIdProvider } from './openid.js';
import type { AuthProvider } from './provider-options.js';

export function signInRoutes(services: AuthServices, providers: readonly AuthProvider[]): ApiRoute[] {
  return providers.flatMap((options) => {
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
  services: AuthServices,
): Promise<ActionResult> {
  const redirect = new URLSearchParams(queryString).get('redirect');
  const { name, redirects } = provider.options;
  if (redirect !== null && !isOwnPage(redirect, services) && !isAllowedPage(redirect, redirects))
    throw invalidPayload(
      `"redirect" must be a page of AUTH_${name.toUpperCase()}_REDIRECT_ALLOW_LIST, not "${redirect}"`,
    );
  // The parsed form, so that a browser cannot read it differently.
  const page = redirect === null ? null : new URL(redirect).href;
  const { url, pending } = await provider.begin(callbackOf(provider.options, services), page);
  const cookie = services.cookies.set(client, 'signIn', await services.tokens.signPending(pending));
  return { secret: true, headers: { Location: url, 'Set-Cookie': [cookie] } };
}

async function finish(
  request: UncheckedRequest,
  provider: OpenIdProvider,
  services: AuthServices,
): Promise<ActionResult> {
  const { client } = request;
  const pending = await readPending(client, provider.options, services);
  // It is used once, whether the sign-in succeeds or not.
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

/** The cookie of the browser that began to sign in: without it, another browser may have begun. */
async function readPending(
  client: Exchange,
  { name }: AuthProvider,
  { cookies, tokens }: AuthServices,
): Promise<PendingSignIn> {
  const text = client.cookie(cookies.signInName);
  if (text === '') throw invalidCredentials();
  const pending = await tokens.verifyPending(text);
  if (pending.provider !== name) throw invalidCredentials();
  return pending;
}

/** A page of the service, such as the Explorer. */
function isOwnPage(page: string, { publicUrl }: AuthServices): boolean {
  const url = readPage(page);
  return url !== null && isSameHost(url, new URL(publicUrl()));
}

function callbackOf({ name }: AuthProvider, { publicUrl }: AuthServices): string {
  return `${publicUrl()}/auth/login/${name}/callback`;
}

function redirectReply(result: ActionResult): Reply {
  const { headers = {} } = result;
  if (headers['Location'] === undefined) return dataReply(result);
  return { status: 302, type: '', body: '', headers, secret: true };
}
