/** What users do about their own account: a second factor, and the invitation they came by. */
import { build } from 'fast-json-stringify';
import { type Identities, onlyAdministrator, onlyUser } from '../access/identity.js';
import { acceptInvitation, type InvitationServices, invite } from '../accounts/invitations.js';
import {
  disableSecondFactor,
  enableSecondFactor,
  generateSecondFactor,
  type SecondFactorServices,
} from '../accounts/second-factor.js';
import type { Config } from '../config.js';
import { forbidden, invalidPayload } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import type { Input } from '../request/parse-context.js';
import { asEmail, linkTo, readBody, readText } from './credentials.js';

export interface AccountServices extends SecondFactorServices, InvitationServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly publicUrl: () => string;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function accountRoutes(services: AccountServices): Route[] {
  return [
    { method: 'POST', path: '/users/me/tfa/generate', handle: (exchange) => generate(exchange, services) },
    { method: 'POST', path: '/users/me/tfa/enable', handle: (exchange) => enable(exchange, services) },
    { method: 'POST', path: '/users/me/tfa/disable', handle: (exchange) => disable(exchange, services) },
    { method: 'POST', path: '/users/:key/tfa/disable', handle: (exchange) => disableOther(exchange, services) },
    { method: 'POST', path: '/users/invite', handle: (exchange) => postInvitation(exchange, services) },
    { method: 'POST', path: '/users/invite/accept', handle: (exchange) => postAcceptance(exchange, services) },
  ];
}

const factorBody = build({
  type: 'object',
  properties: {
    data: { type: 'object', properties: { secret: { type: 'string' }, otpauth_url: { type: 'string' } } },
  },
});

async function generate(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const { user, body } = await readRequest(exchange, services);
  const data = await generateSecondFactor(user, readText(body, 'password'), exchange.address, services);
  return { ...jsonText(factorBody({ data })), secret: true };
}

async function enable(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const { user, body } = await readRequest(exchange, services);
  await enableSecondFactor(user, readText(body, 'secret'), readText(body, 'otp'), services);
  return noContent;
}

async function disable(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const { user, body } = await readRequest(exchange, services);
  await disableSecondFactor(user, readText(body, 'otp'), exchange.address, services);
  return noContent;
}

/** For who has lost the device. */
async function disableOther(exchange: Exchange, { identities, logins }: AccountServices): Promise<Reply> {
  const [key = ''] = exchange.parameters;
  onlyAdministrator(await identities.identify(exchange));
  if (!UUID.test(key) || !(await logins.setSecondFactor(key, null))) throw forbidden();
  return noContent;
}

async function readRequest(
  exchange: Exchange,
  { identities }: AccountServices,
): Promise<{ readonly user: string; readonly body: Input }> {
  const { user } = onlyUser(await identities.identify(exchange));
  return { user, body: readBody(await exchange.json()) };
}

async function postInvitation(exchange: Exchange, services: AccountServices): Promise<Reply> {
  onlyAdministrator(await services.identities.identify(exchange));
  const body = readBody(await exchange.json());
  const emails = readEmails(body['email']);
  const role = readText(body, 'role');
  if (!UUID.test(role)) throw invalidPayload('"role" must be the key of a role');
  const linkWith = linkTo(
    body,
    'invite_url',
    services.config.USER_INVITE_URL_ALLOW_LIST,
    () => `${services.publicUrl()}/accept-invite`,
  );
  await invite(emails, role, linkWith, services);
  return noContent;
}

function readEmails(value: unknown): string[] {
  const list = Array.isArray(value) ? value : [value];
  if (list.length === 0) throw invalidPayload('"email" is required');
  return list.map((email) => asEmail(readText({ email }, 'email'), 'email'));
}

async function postAcceptance(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  await acceptInvitation(readText(body, 'token'), readText(body, 'password'), exchange.address, services);
  return noContent;
}
