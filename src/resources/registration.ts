/** /users/register: strangers make accounts of their own, where the settings allow it. */
import { PUBLIC } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import {
  type AccountWriter,
  type RegistrationServices,
  register,
  verifyRegistration,
} from '../accounts/registration.js';
import type { Writes } from '../engine/writes.js';
import { invalidPayload } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import type { Limit } from '../http/limiter.js';
import { noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import type { Input } from '../request/parse-context.js';
import { linkTo, readBody, readEmail, readText } from './credentials.js';
import { writerOf } from './item-writes.js';

interface RouteServices extends RegistrationServices {
  readonly policies: Policies;
  readonly writes: Writes;
  readonly registrationLimit: Limit;
  readonly publicUrl: () => string;
}

const VERIFIED = '/users/register/verified';

export function registrationRoutes(services: RouteServices): Route[] {
  return [
    { method: 'POST', path: '/users/register', handle: (exchange) => postRegistration(exchange, services) },
    { method: 'GET', path: '/users/register/verify-email', handle: (exchange) => getVerification(exchange, services) },
    {
      method: 'GET',
      path: VERIFIED,
      handle: () => ({
        status: 200,
        type: 'text/plain; charset=utf-8',
        body: 'Your address is verified. You can log in now.',
      }),
    },
  ];
}

async function postRegistration(exchange: Exchange, services: RouteServices): Promise<Reply> {
  const body = readBody(await exchange.json());
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
  await services.registrationLimit(exchange.address);
  await register(account, linkWith, accountWriter(exchange, services), services);
  return noContent;
}

function accountWriter(exchange: Exchange, { policies, writes }: RouteServices): AccountWriter {
  const writer = writerOf(exchange, PUBLIC);
  const collection = 'service_users';
  return {
    create: async (account, permission) => {
      const access = policies.permit([permission]);
      const request = { kind: 'create', collection, items: [account], many: false } as const;
      await writes.run({ ...request, idempotencyKey: null, readBack: null }, { ...writer, access }, exchange);
    },
    update: async (user, change, permission) => {
      const access = policies.permit([permission]);
      const request = { kind: 'update-item', collection, key: user, data: change, readBack: null } as const;
      await writes.run(request, { ...writer, access }, exchange);
    },
  };
}

async function getVerification(exchange: Exchange, services: RouteServices): Promise<Reply> {
  const token = new URLSearchParams(exchange.queryString).get('token') ?? '';
  if (token === '') throw invalidPayload('"token" is required');
  const page = await verifyRegistration(token, services);
  const headers = { Location: page ?? `${services.publicUrl()}${VERIFIED}`, 'Referrer-Policy': 'no-referrer' };
  return { status: 302, type: '', body: '', headers, secret: true };
}

function optionalText(body: Input, name: string): Input {
  return body[name] === undefined || body[name] === null || body[name] === '' ? {} : { [name]: readText(body, name) };
}
