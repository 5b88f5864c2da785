/** What users do about their own account: a second factor, and the invitation they came by. */
import type { Identities } from '../../access/identities.js';
import { onlyAdministrator, onlyUser } from '../../access/identity.js';
import { acceptInvitation, type InvitationServices, invite } from '../../accounts/invitations.js';
import {
  disableSecondFactor,
  enableSecondFactor,
  generateSecondFactor,
  type SecondFactorServices,
} from '../../accounts/second-factor.js';
import { forbidden, invalidPayload } from '../../base/errors.js';
import type { Config } from '../../config/config.js';
import type { Route } from '../../http/router.js';
import type { Input } from '../../request/parse-context.js';
import { UUID_PATTERN } from '../../sql/codec.js';
import { type ActionRequest, type ActionResult, actionRoute } from '../action.js';
import { asEmail, linkTo, readBody, readText } from '../body-fields.js';

export interface AccountServices extends SecondFactorServices, InvitationServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly publicUrl: () => string;
}

export function accountRoutes(services: AccountServices): Route[] {
  return [
    actionRoute('POST', '/users/me/tfa/generate', (request) => generate(request, services)),
    actionRoute('POST', '/users/me/tfa/enable', (request) => enable(request, services)),
    actionRoute('POST', '/users/me/tfa/disable', (request) => disable(request, services)),
    actionRoute('POST', '/users/:key/tfa/disable', (request) => disableOther(request, services)),
    actionRoute('POST', '/users/invite', (request) => postInvitation(request, services)),
    actionRoute('POST', '/users/invite/accept', (request) => postAcceptance(request, services)),
  ];
}

async function generate(request: ActionRequest, services: AccountServices): Promise<ActionResult> {
  const { user, body } = await readRequest(request, services);
  const data = await generateSecondFactor(user, readText(body, 'password'), request.client.address, services);
  return { data, secret: true };
}

async function enable(request: ActionRequest, services: AccountServices): Promise<ActionResult> {
  const { user, body } = await readRequest(request, services);
  await enableSecondFactor(user, readText(body, 'secret'), readText(body, 'otp'), services);
  return {};
}

async function disable(request: ActionRequest, services: AccountServices): Promise<ActionResult> {
  const { user, body } = await readRequest(request, services);
  await disableSecondFactor(user, readText(body, 'otp'), request.client.address, services);
  return {};
}

/** For who has lost the device. */
async function disableOther(request: ActionRequest, { identities, logins }: AccountServices): Promise<ActionResult> {
  const [key = ''] = request.parameters;
  onlyAdministrator(await identities.identify(request.client));
  if (!UUID_PATTERN.test(key) || !(await logins.setSecondFactor(key, null))) throw forbidden();
  return {};
}

async function readRequest(
  request: ActionRequest,
  { identities }: AccountServices,
): Promise<{ readonly user: string; readonly body: Input }> {
  const { user } = onlyUser(await identities.identify(request.client));
  return { user, body: readBody(await request.json()) };
}

async function postInvitation(request: ActionRequest, services: AccountServices): Promise<ActionResult> {
  onlyAdministrator(await services.identities.identify(request.client));
  const body = readBody(await request.json());
  const emails = readEmails(body['email']);
  const role = readText(body, 'role');
  if (!UUID_PATTERN.test(role)) throw invalidPayload('"role" must be the key of a role');
  const linkWith = linkTo(
    body,
    'invite_url',
    services.config.USER_INVITE_URL_ALLOW_LIST,
    () => `${services.publicUrl()}/accept-invite`,
  );
  await invite(emails, role, linkWith, services);
  return {};
}

function readEmails(value: unknown): string[] {
  const list = Array.isArray(value) ? value : [value];
  if (list.length === 0) throw invalidPayload('"email" is required');
  return list.map((email) => asEmail(readText({ email }, 'email'), 'email'));
}

async function postAcceptance(request: ActionRequest, services: AccountServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  await acceptInvitation(readText(body, 'token'), readText(body, 'password'), request.client.address, services);
  return {};
}
