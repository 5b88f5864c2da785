/** /users/register: self-registration, where the settings allow it. */
import type { Identities } from '../../access/identities.js';
import { PUBLIC } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import {
  type AccountWriter,
  type RegistrationServices,
  register,
  verifyRegistration,
} from '../../accounts/registration.js';
import { invalidPayload } from '../../base/errors.js';
import { createUser, updateUser } from '../../engine/system-collections/user-writes.js';
import type { Writes } from '../../engine/writes/writes.js';
import type { Exchange } from '../../http/exchange.js';
import type { Limit } from '../../http/limiter.js';
import type { Reply } from '../../http/reply.js';
import type { Input } from '../../request/parse-context.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes, route } from '../action.js';
import { linkTo, readBody, readEmail, readText } from '../body-fields.js';
import { writerOf } from '../items/item-writes.js';
import { EMAIL, object, STRING, TEXT } from '../openapi/json-schema.js';
import { queryParameter } from '../openapi/parameters.js';

interface RouteServices extends RegistrationServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly writes: Writes;
  readonly registrationLimit: Limit;
  readonly publicUrl: () => string;
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
