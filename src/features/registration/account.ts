/** /users beyond its items: the second factor, invitations, and self-registration if the settings allow it. */

import { forbidden, invalidPayload } from '../../base/errors.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import type { Identities } from '../../server/access/identities.js';
import { PUBLIC, type User } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import {
  disableSecondFactor,
  enableSecondFactor,
  generateSecondFactor,
  type SecondFactorServices,
} from '../../server/accounts/second-factor.js';
import { NEW_PASSWORD, SINGLE_USE } from '../../server/api/accounts/auth.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes, route } from '../../server/api/action.js';
import { allowedPages, asEmail, linkTo, readBody, readEmail, readText } from '../../server/api/body-fields.js';
import { writerOf } from '../../server/api/items/item-writes.js';
import {
  EMAIL,
  either,
  INTEGER,
  list,
  object,
  oneOf,
  queryParameter,
  STRING,
  TEXT,
  UUID,
} from '../../server/api/openapi/json-schema.js';
import { createUser, updateUser } from '../../server/execute/system-collections/user-writes.js';
import type { Writes } from '../../server/execute/writes/writes.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Limit } from '../../server/http/limiter.js';
import type { Reply } from '../../server/http/reply.js';
import type { RegistrationConfig } from './options.js';
import {
  type AccountWriter,
  acceptInvitation,
  type InvitationServices,
  invite,
  issuePasswordToken,
  type RegistrationServices,
  register,
  verifyRegistration,
} from './registration.js';

interface AccountServices extends SecondFactorServices, InvitationServices {
  readonly config: RegistrationConfig;
  readonly identities: Identities;
  readonly publicUrl: () => string;
  readonly pages: () => readonly string[];
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
    action('PATCH /users/me/track/page', trackPage, {
      summary: 'Store the page that an application showed last',
      allow: 'users',
      body: object({ last_page: STRING }, ['last_page']),
    }),
    action('POST /users/:key/tfa/disable', disableOther, {
      summary: 'Disable the second factor of a user',
      allow: 'administrators',
    }),
    action('POST /users/:key/password-token', postPasswordToken, {
      summary: 'Issue a token with which an invited or active user chooses a password',
      allow: 'administrators',
      data: object({ token: STRING, purpose: oneOf('invite', 'reset'), expires: INTEGER }),
      graphql: { name: 'users_password_token', parameters: ['id'], once: true },
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

const PAGE_LENGTH = 255;

async function trackPage(request: ActionRequest<User>, { logins }: AccountServices): Promise<ActionResult> {
  const page = readText(readBody(await request.json()), 'last_page');
  if (page.length > PAGE_LENGTH) throw invalidPayload(`"last_page" must have at most ${PAGE_LENGTH} characters`);
  await logins.trackPage(request.caller.user, page);
  return {};
}

/** For users who have lost their device. */
async function disableOther({ parameters }: ActionRequest, { logins }: AccountServices): Promise<ActionResult> {
  const [key = ''] = parameters;
  if (!UUID_PATTERN.test(key) || !(await logins.setSecondFactor(key, null))) throw forbidden();
  return {};
}

/** Sends no mail: the administrator passes the link to the user. */
async function postPasswordToken({ parameters }: ActionRequest, services: AccountServices): Promise<ActionResult> {
  const [key = ''] = parameters;
  const data = UUID_PATTERN.test(key) ? await issuePasswordToken(key, services) : null;
  if (!data) throw forbidden();
  return { data, secret: true };
}

async function postInvitation(request: ActionRequest, services: AccountServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  const emails = readEmails(body['email']);
  const role = readText(body, 'role');
  if (!UUID_PATTERN.test(role)) throw invalidPayload('"role" must be the key of a role');
  const linkWith = linkTo(
    body,
    'invite_url',
    allowedPages(services.config.USER_INVITE_URL_ALLOW_LIST, services),
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

interface RouteServices extends RegistrationServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly writes: Writes;
  readonly registrationLimit: Limit;
  readonly publicUrl: () => string;
  readonly pages: () => readonly string[];
}

const VERIFIED = '/users/register/verified';

const REGISTRATION = object(
  { email: EMAIL, password: STRING, first_name: STRING, last_name: STRING, verification_url: STRING },
  ['email', 'password'],
);

export function registrationRoutes(services: RouteServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('POST /users/register', postRegistration, {
      summary: 'Register an account',
      body: REGISTRATION,
      graphql: { name: 'users_register', once: true },
    }),
    action('GET /users/register/verify-email', getVerification, {
      summary: 'Verify the email address of a new account',
      parameters: [{ ...queryParameter('token', STRING, 'From the link in the email.'), required: true }],
      answers: [{ status: 302, description: 'Redirects to the page of the project.' }],
      graphql: { name: 'users_register_verify', mutation: true, once: true },
      reply: redirect,
    }),
    route(
      `GET ${VERIFIED}`,
      () => ({
        status: 200,
        type: 'text/plain; charset=utf-8',
        body: 'Your address is verified. You can log in now.',
      }),
      { summary: 'Confirmation page after verification', answers: [TEXT] },
    ),
  ];
}

async function postRegistration(request: ActionRequest, services: RouteServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  const account = {
    email: readEmail(body),
    password: readText(body, 'password'),
    ...optionalText(body, 'first_name'),
    ...optionalText(body, 'last_name'),
  };
  const linkWith = linkTo(
    body,
    'verification_url',
    services.config.USER_REGISTER_URL_ALLOW_LIST,
    () => `${services.publicUrl()}/users/register/verify-email`,
  );
  await services.registrationLimit(request.client.address);
  await register(account, linkWith, accountWriter(request.client, services), services);
  return {};
}

function accountWriter(exchange: Exchange, { policies, writes }: RouteServices): AccountWriter {
  const writer = writerOf(exchange, PUBLIC);
  return {
    address: exchange.address,
    create: (account, permission) =>
      createUser(writes, account, { writer: { ...writer, access: policies.permit([permission]) }, client: exchange }),
    update: (user, change, permission) =>
      updateUser(writes, user, change, {
        writer: { ...writer, access: policies.permit([permission]) },
        client: exchange,
      }),
  };
}

async function getVerification(request: ActionRequest, services: RouteServices): Promise<ActionResult> {
  const token = new URLSearchParams(request.queryString).get('token') ?? '';
  if (token === '') throw invalidPayload('"token" is required');
  const page = await verifyRegistration(token, services);
  const headers = { Location: page ?? `${services.publicUrl()}${VERIFIED}`, 'Referrer-Policy': 'no-referrer' };
  return { headers, secret: true };
}

function redirect({ headers = {} }: ActionResult): Reply {
  return { status: 302, type: '', body: '', headers, secret: true };
}

function optionalText(body: Input, name: string): Input {
  return body[name] === undefined || body[name] === null || body[name] === '' ? {} : { [name]: readText(body, name) };
}
