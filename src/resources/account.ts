/** What users do about their own way in: a second factor, and the invitation they came by. */
import { build } from 'fast-json-stringify';
import { type Identities, onlyAdministrator, onlyUser } from '../access/identity.js';
import type { Mailer } from '../access/mailer.js';
import { isSecret, makeSecondFactor, stepOf } from '../access/otp.js';
import { assertPassword, hashPassword, verifyPassword } from '../access/passwords.js';
import type { Tokens } from '../access/tokens.js';
import type { LoginAccount, Logins } from '../accounts/logins.js';
import type { Config } from '../config.js';
import { forbidden, invalidCredentials, invalidPayload } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import type { LoginLimit } from '../http/limiter.js';
import { jsonText, noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import type { Input } from '../request/parse-context.js';
import { asEmail, linkTo, readBody, readText } from './credentials.js';

export interface AccountServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly tokens: Tokens;
  readonly logins: Logins;
  readonly loginLimit: LoginLimit;
  readonly mailer: Mailer;
  readonly publicUrl: () => string;
}

/** Milliseconds that an invitation is good. */
const INVITE_LIFETIME = 604_800_000;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function accountRoutes(services: AccountServices): Route[] {
  return [
    { method: 'POST', path: '/users/me/tfa/generate', handle: (exchange) => generate(exchange, services) },
    { method: 'POST', path: '/users/me/tfa/enable', handle: (exchange) => enable(exchange, services) },
    { method: 'POST', path: '/users/me/tfa/disable', handle: (exchange) => disable(exchange, services) },
    { method: 'POST', path: '/users/:key/tfa/disable', handle: (exchange) => disableOther(exchange, services) },
    { method: 'POST', path: '/users/invite', handle: (exchange) => invite(exchange, services) },
    { method: 'POST', path: '/users/invite/accept', handle: (exchange) => acceptInvite(exchange, services) },
  ];
}

const factorBody = build({
  type: 'object',
  properties: {
    data: { type: 'object', properties: { secret: { type: 'string' }, otpauth_url: { type: 'string' } } },
  },
});

/** Nothing is stored yet: the secret counts once its owner has shown to hold it. */
async function generate(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const { account, body } = await ask(exchange, services);
  const password = readText(body, 'password');
  await services.loginLimit.attempt(exchange.address);
  if (!(await verifyPassword(account.password, password))) throw invalidCredentials();
  await services.loginLimit.forgive(exchange.address);
  if (account.tfa_secret !== null) throw invalidPayload('A second factor is in use already');
  return { ...jsonText(factorBody({ data: makeSecondFactor('Lateral', account.email) })), secret: true };
}

async function enable(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const { account, body } = await ask(exchange, services);
  const secret = readText(body, 'secret');
  const otp = readText(body, 'otp');
  if (account.tfa_secret !== null) throw invalidPayload('A second factor is in use already');
  if (!isSecret(secret)) throw invalidPayload('"secret" must be one that was generated');
  if (stepOf(secret, otp) === null) throw invalidPayload('"otp" is wrong');
  await services.logins.setSecondFactor(account.id, secret);
  return noContent;
}

async function disable(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const { account, body } = await ask(exchange, services);
  const otp = readText(body, 'otp');
  if (account.tfa_secret === null) throw invalidPayload('There is no second factor');
  await services.loginLimit.attempt(exchange.address);
  const step = stepOf(account.tfa_secret, otp);
  if (step === null || !(await services.logins.useStep(account.id, step))) throw invalidPayload('"otp" is wrong');
  await services.loginLimit.forgive(exchange.address);
  await services.logins.setSecondFactor(account.id, null);
  return noContent;
}

/** For who has lost the device. */
async function disableOther(exchange: Exchange, { identities, logins }: AccountServices): Promise<Reply> {
  const [key = ''] = exchange.parameters;
  onlyAdministrator(await identities.identify(exchange));
  if (!UUID.test(key) || !(await logins.setSecondFactor(key, null))) throw forbidden();
  return noContent;
}

async function ask(
  exchange: Exchange,
  { identities, logins }: AccountServices,
): Promise<{ readonly account: LoginAccount; readonly body: Input }> {
  const { user } = onlyUser(await identities.identify(exchange));
  const body = readBody(await exchange.json());
  const account = await logins.get(user);
  if (!account) throw invalidCredentials();
  return { account, body };
}

/** Who is there already is left alone; who was invited before gets another link. */
async function invite(exchange: Exchange, services: AccountServices): Promise<Reply> {
  const { config, identities, logins, tokens, mailer: post } = services;
  onlyAdministrator(await identities.identify(exchange));
  const body = readBody(await exchange.json());
  const emails = readEmails(body['email']);
  const role = readText(body, 'role');
  if (!UUID.test(role)) throw invalidPayload('"role" must be the key of a role');
  const page = linkTo(
    body,
    'invite_url',
    config.USER_INVITE_URL_ALLOW_LIST,
    () => `${services.publicUrl()}/accept-invite`,
  );
  const invited = await logins.invite(emails, role).catch((error: unknown) => {
    const unknownRole = error instanceof Error && 'code' in error && error.code === '23503';
    throw unknownRole ? invalidPayload('"role" must be the key of a role') : error;
  });
  for (const { id, email } of invited) {
    const link = page(await tokens.signMail('invite', { email, mark: id }, INVITE_LIFETIME));
    const text = `You are invited. Choose a password here:\n\n${link}\n\nThe link works once, for seven days.`;
    void post({ to: email, subject: 'You are invited', text, link });
  }
  return noContent;
}

function readEmails(value: unknown): string[] {
  const list = Array.isArray(value) ? value : [value];
  if (list.length === 0) throw invalidPayload('"email" is required');
  return list.map((email) => asEmail(readText({ email }, 'email'), 'email'));
}

async function acceptInvite(exchange: Exchange, { tokens, logins, loginLimit }: AccountServices): Promise<Reply> {
  const body = readBody(await exchange.json());
  const token = readText(body, 'token');
  const password = readText(body, 'password');
  await loginLimit.attempt(exchange.address);
  const { email, mark } = await tokens.verifyMail('invite', token);
  await assertPassword(await logins.passwordPolicy(), password);
  if (!(await logins.acceptInvite(email, mark, await hashPassword(password)))) {
    throw invalidPayload('The invitation has been used or taken back');
  }
  await loginLimit.forgive(exchange.address);
  return noContent;
}
