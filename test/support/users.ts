/** People for the tests of identity: users with a password, and what they send. */
import { createHash, createHmac } from 'node:crypto';
import { hash } from '@node-rs/argon2';
import { TOTP } from 'otpauth';
import type t from 'tap';
import { type Answer, type RequestOptions, request, type Sql } from './service.js';

export type Test = typeof t;

export const SECRET = 'the-secret-that-signs-the-tokens-of-tests';
export const PASSWORD = 'correct horse';

interface Place {
  readonly url: string;
}

export interface MadeUser {
  readonly id: string;
  readonly email: string;
  readonly token: string;
}

let hashed: Promise<string> | null = null;

/** A user who may read everything, with PASSWORD and a static token; `role` null for one without a role. */
export async function makeUser(sql: Sql, name: string): Promise<MadeUser> {
  hashed ??= hash(PASSWORD);
  const email = `${name}@example.com`;
  const token = `the-token-of-${name}`;
  const [user] = await sql<{ id: string }[]>`
    insert into service_users (email, password, token, role)
    select ${email}, ${await hashed}, ${createHash('sha256').update(token).digest('hex')}, id
    from service_roles where name = 'Administrator' returning id`;
  return { id: user?.id ?? '', email, token };
}

export function post(place: Place, path: string, body: unknown, options: RequestOptions = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json', ...options.headers };
  return request(place, 'POST', path, { token: null, ...options, headers, body: JSON.stringify(body) });
}

export interface Granted {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly expires: number;
}

export function login(place: Place, email: string, more: object = {}, options: RequestOptions = {}): Promise<Answer> {
  return post(place, '/auth/login', { email, password: PASSWORD, ...more }, options);
}

/** The tokens of an answer that has to be good. */
export function granted(answer: Answer): Granted {
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
  return (answer.json as { data: Granted }).data;
}

/** The `name=value` of the cookie that an answer sets. */
export function cookieOf(answer: Answer): string {
  return answer.headers['set-cookie']?.[0]?.split(';', 1)[0] ?? '';
}

/** A code that was not used before: each call takes the next step that is still accepted. */
export function codeOf(secret: string, steps = 0): string {
  const totp = new TOTP({ secret, algorithm: 'SHA1', digits: 6, period: 30 });
  return totp.generate({ timestamp: Date.now() + steps * 30_000 });
}

export function failure(status: number, code: string): { status: number; json: unknown } {
  return { status, json: { errors: [{ message: /./, extensions: { code } }] } };
}

/** A token made by hand, as an attacker would. */
export function forge(header: object, claims: object, secret: string | null, digest = 'sha256'): string {
  const encode = (part: object): string => Buffer.from(JSON.stringify(part)).toString('base64url');
  const signed = `${encode(header)}.${encode(claims)}`;
  const signature = secret === null ? '' : createHmac(digest, secret).update(signed).digest('base64url');
  return `${signed}.${signature}`;
}

export function claimsOf(token: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString());
}
