/**
 * /users/register: strangers make accounts of their own, where the settings allow it. Whether an address is taken must not show: each
 * answer is the same, and takes as long. The account is written like any other item, with permissions that the settings amount to.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { PUBLIC } from '../access/identity.js';
import type { Mailer } from '../access/mailer.js';
import { verifyPassword } from '../access/passwords.js';
import type { Policies } from '../access/policies.js';
import { digestToken, type Tokens } from '../access/tokens.js';
import type { Logins, RegistrationSettings } from '../accounts/logins.js';
import type { Config } from '../config.js';
import type { Writes } from '../engine/writes.js';
import { forbidden, invalidPayload, ServiceError } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import type { Limit } from '../http/limiter.js';
import { noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import type { Observer } from '../observe.js';
import type { Input } from '../request/parse-context.js';
import { linkTo, readBody, readEmail, readText } from './credentials.js';
import { writerOf } from './item-writes.js';

export interface RegistrationServices {
  readonly config: Config;
  readonly tokens: Tokens;
  readonly logins: Logins;
  readonly policies: Policies;
  readonly writes: Writes;
  readonly registrationLimit: Limit;
  readonly mailer: Mailer;
  readonly publicUrl: () => string;
  readonly observe: Observer;
}

/** Milliseconds that the link in the mail is good. */
const LINK_LIFETIME = 604_800_000;
const VERIFIED = '/users/register/verified';

export function registrationRoutes(services: RegistrationServices): Route[] {
  return [
    { method: 'POST', path: '/users/register', handle: (exchange) => register(exchange, services) },
    { method: 'GET', path: '/users/register/verify-email', handle: (exchange) => verify(exchange, services) },
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

async function register(exchange: Exchange, services: RegistrationServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  const { config, logins } = services;
  const account = {
    email: readEmail(body),
    password: readText(body, 'password'),
    ...optionalText(body, 'first_name'),
    ...optionalText(body, 'last_name'),
  };
  const page = linkTo(
    body,
    'verification_url',
    config.USER_REGISTER_URL_ALLOW_LIST,
    () => `${services.publicUrl()}/users/register/verify-email`,
  );
  await services.registrationLimit(exchange.address);
  const begun = performance.now();
  try {
    const settings = await logins.registration();
    if (!settings) throw forbidden();
    if (settings.unlimited) {
      services.observe({ kind: 'registration-refused', role: settings.role });
      throw forbidden();
    }
    const made = await create(exchange, services, settings, account);
    if (settings.verify) {
      if (!made) await replace(exchange, services, account);
      await sendLink(account, page, services);
    }
  } finally {
    const left = config.REGISTER_STALL_TIME - (performance.now() - begun);
    if (left > 0) await sleep(left);
  }
  return noContent;
}

interface NewAccount extends Input {
  readonly email: string;
  readonly password: string;
}

/** Answers false where the address is taken. */
async function create(
  exchange: Exchange,
  { policies, writes }: RegistrationServices,
  { verify: unverified, role, filter }: RegistrationSettings,
  account: NewAccount,
): Promise<boolean> {
  const access = policies.permit([
    {
      collection: 'service_users',
      action: 'create',
      permissions: null,
      validation: filter,
      presets: { role, status: unverified ? 'unverified' : 'active' },
      fields: 'email,password,first_name,last_name',
    },
  ]);
  const writer = { ...writerOf(exchange, PUBLIC), access };
  const request = { kind: 'create', collection: 'service_users', items: [account], many: false } as const;
  try {
    await writes.run({ ...request, idempotencyKey: null, readBack: null }, writer, exchange);
    return true;
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'FAILED_VALIDATION') throw error;
    const { field, type } = error.extensions;
    if (type === 'unique') return false;
    // What the filter of the settings asks for is nobody's business.
    throw field === 'email' && type !== 'email' && type !== 'too_long' ? forbidden() : error;
  }
}

/**
 * Who registers again before the address is verified may be another person: the password and the names of the last one count, and the
 * links of those before verify nothing any more. With the same password it is the same person, whose links all stay good.
 */
async function replace(
  exchange: Exchange,
  { logins, policies, writes }: RegistrationServices,
  { email, ...account }: NewAccount,
): Promise<void> {
  const found = await logins.find(email);
  if (found?.status !== 'unverified' || (await verifyPassword(found.password, account.password))) return;
  const access = policies.permit([
    {
      collection: 'service_users',
      action: 'update',
      permissions: { status: { _eq: 'unverified' } },
      validation: null,
      presets: null,
      fields: 'password,first_name,last_name',
    },
  ]);
  const writer = { ...writerOf(exchange, PUBLIC), access };
  const data = { first_name: null, last_name: null, ...account };
  try {
    const request = { kind: 'update-item', collection: 'service_users', key: found.id, data, readBack: null } as const;
    await writes.run(request, writer, exchange);
  } catch (error) {
    // The address was verified meanwhile: it is taken.
    if (!(error instanceof ServiceError) || error.code !== 'FORBIDDEN') throw error;
  }
}

/** To who has registered now, or before without having opened the link. It verifies the address for this password alone. */
async function sendLink(
  { email: address, password }: NewAccount,
  page: (token: string) => string,
  { logins, tokens, mailer: post }: RegistrationServices,
): Promise<void> {
  const account = await logins.find(address);
  if (account?.status !== 'unverified' || account.password === null) return;
  // Somebody else has registered the address in between.
  if (!(await verifyPassword(account.password, password))) return;
  const { email } = account;
  const claims = { email, mark: digestToken(account.password) };
  const link = page(await tokens.signMail('registration', claims, LINK_LIFETIME));
  const text = `Open this link to verify your address:\n\n${link}\n\nIt works for seven days. If you did not register, ignore this mail.`;
  void post({ to: email, subject: 'Verify your address', text, link });
}

/** A link may be opened twice: programs that look for viruses open it before its reader does. */
async function verify(exchange: Exchange, { logins, tokens, publicUrl }: RegistrationServices): Promise<Reply> {
  const token = new URLSearchParams(exchange.queryString).get('token') ?? '';
  if (token === '') throw invalidPayload('"token" is required');
  const { email, mark } = await tokens.verifyMail('registration', token);
  if (!(await logins.verifyAddress(email, mark))) throw forbidden();
  const project = (await logins.projectUrl()) ?? '';
  const page = /^https?:$/.test(URL.canParse(project) ? new URL(project).protocol : '') ? project : null;
  const headers = { Location: page ?? `${publicUrl()}${VERIFIED}`, 'Referrer-Policy': 'no-referrer' };
  return { status: 302, type: '', body: '', headers, secret: true };
}

function optionalText(body: Input, name: string): Input {
  return body[name] === undefined || body[name] === null || body[name] === '' ? {} : { [name]: readText(body, name) };
}
