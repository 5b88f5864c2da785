/** What users do about their own account: a second factor, and the invitation they came by. */
import type { Identities } from '../../access/identities.js';
import type { User } from '../../access/identity.js';
import { acceptInvitation, type InvitationServices, invite } from '../../accounts/invitations.js';
import {
  disableSecondFactor,
  enableSecondFactor,
  generateSecondFactor,
  type SecondFactorServices,
} from '../../accounts/second-factor.js';
import { forbidden, invalidPayload } from '../../base/errors.js';
import type { Config } from '../../config/config.js';
import { UUID_PATTERN } from '../../sql/codec.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../action.js';
import { asEmail, linkTo, readBody, readText } from '../body-fields.js';
import { EMAIL, either, list, object, STRING, UUID } from '../openapi/json-schema.js';
import { NEW_PASSWORD, SINGLE_USE } from './auth.js';

export interface AccountServices extends SecondFactorServices, InvitationServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly publicUrl: () => string;
}

export function accountRoutes(services: AccountServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('POST /users/me/tfa/generate', generate, {
      summary: 'Generate the secret of a second factor',
      allow: 'users',
      body: object({ password: STRING }, ['password']),
      data: object({ secret: STRING, otpauth_url: STRING }),
      graphql: { name: 'users_me_tfa_generate', type: 'users_me_tfa_generate_data', once: true },
    }),
    action('POST /users/me/tfa/enable', enable, {
      summary: 'Enable the second factor',
      allow: 'users',
      body: object({ secret: STRING, otp: STRING }, ['secret', 'otp']),
      graphql: { name: 'users_me_tfa_enable', once: true },
    }),
    action('POST /users/me/tfa/disable', disable, {
      summary: 'Disable the second factor',
      allow: 'users',
      body: object({ otp: STRING }, ['otp']),
      graphql: { name: 'users_me_tfa_disable', once: true },
    }),
    action('POST /users/:key/tfa/disable', disableOther, {
      summary: 'Disable the second factor of a user',
      allow: 'administrators',
    }),
    action('POST /users/invite', postInvitation, {
      summary: 'Invite users by email',
      allow: 'administrators',
      body: object({ email: either(EMAIL, list(EMAIL)), role: UUID, invite_url: STRING }, ['email', 'role']),
      graphql: { name: 'users_invite' },
    }),
    action('POST /users/invite/accept', postAcceptance, {
      summary: `Accept an invitation. ${SINGLE_USE}`,
      body: NEW_PASSWORD,
      graphql: { name: 'users_invite_accept', once: true },
    }),
  ];
}

async function generate(request: ActionRequest<User>, services: AccountServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  const { user } = request.caller;
  const data = await generateSecondFactor(user, readText(body, 'password'), request.client.address, services);
  return { data, secret: true };
}

async function enable(request: ActionRequest<User>, services: AccountServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  await enableSecondFactor(request.caller.user, readText(body, 'secret'), readText(body, 'otp'), services);
  return {};
}

async function disable(request: ActionRequest<User>, services: AccountServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  await disableSecondFactor(request.caller.user, readText(body, 'otp'), request.client.address, services);
  return {};
}

/** For users who have lost their device. */
async function disableOther({ parameters }: ActionRequest, { logins }: AccountServices): Promise<ActionResult> {
  const [key = ''] = parameters;
  if (!UUID_PATTERN.test(key) || !(await logins.setSecondFactor(key, null))) throw forbidden();
  return {};
}

async function postInvitation(request: ActionRequest, services: AccountServices): Promise<ActionResult> {
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
