/** JWT_ISSUERS: the issuers whose tokens are accepted, and how their claims name a user. */
import { isRecord } from '../../base/narrow.js';
import type { Option } from './option-kinds.js';

/** How the claims of a foreign token name a user. */
export interface UserMapping {
  /** The value of `provider` of its users. */
  readonly name: string;
  /** Which claim names the user: `sub`, as `external_identifier`, or `email`. */
  readonly user: 'subject' | 'email';
  /** Whether an address counts without `email_verified`. */
  readonly trustEmail: boolean;
  /** Whether a user who is not known is created. */
  readonly create: boolean;
  /** The role of users who are created, where no claim names another. */
  readonly role: string | null;
}

export interface JwtIssuer extends UserMapping {
  /** The `iss` claim of its tokens. */
  readonly issuer: string;
  readonly jwksUrl: string;
  /** One of these must stand in the `aud` claim. */
  readonly audience: readonly string[];
  /** The claim that holds the id or the name of the user's role. */
  readonly roleClaim: string | null;
}

const MEMBERS: ReadonlySet<string> = new Set([
  'issuer',
  'name',
  'jwks_url',
  'audience',
  'user',
  'trust_email',
  'create',
  'role',
  'role_claim',
]);

export function jwtIssuers(about: string): Option<readonly JwtIssuer[]> {
  return { initial: '[]', about, parse: parseIssuers };
}

function parseIssuers(text: string): readonly JwtIssuer[] {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    throw new Error('must be a JSON list of objects');
  }
  if (!Array.isArray(list)) throw new Error('must be a JSON list of objects');
  const issuers = list.map(parseIssuer);
  for (const member of ['issuer', 'name'] as const) {
    if (new Set(issuers.map((each) => each[member])).size < issuers.length)
      throw new Error(`must name each "${member}" once`);
  }
  return issuers;
}

function parseIssuer(entry: unknown): JwtIssuer {
  if (!isRecord(entry)) throw new Error('must be a JSON list of objects');
  const unknownMember = Object.keys(entry).find((each) => !MEMBERS.has(each));
  if (unknownMember !== undefined) throw new Error(`has an unknown member "${unknownMember}"`);
  const issuer = textOf(entry, 'issuer');
  // The name of the service itself in tokens that it signs.
  if (issuer === 'service') throw new Error('"issuer" must not be "service"');
  const user = entry['user'] ?? 'subject';
  if (user !== 'subject' && user !== 'email') throw new Error('"user" must be "subject" or "email"');
  const name = entry['name'] === undefined ? issuer : textOf(entry, 'name');
  // The provider of users who have a password here.
  if (name === 'default') throw new Error('"name" must not be "default"');
  return {
    issuer,
    name,
    jwksUrl: keysUrlOf(entry),
    audience: audienceOf(entry['audience']),
    user,
    trustEmail: booleanOf(entry, 'trust_email'),
    create: booleanOf(entry, 'create'),
    role: entry['role'] === undefined ? null : textOf(entry, 'role'),
    roleClaim: entry['role_claim'] === undefined ? null : textOf(entry, 'role_claim'),
  };
}

/** An attacker who could change the keys in transit could sign in as any user. */
function keysUrlOf(entry: Readonly<Record<string, unknown>>): string {
  const text = textOf(entry, 'jwks_url');
  if (!URL.canParse(text) || !isSafeUrl(new URL(text)))
    throw new Error('"jwks_url" must begin with https:// (http:// only on this machine)');
  return text;
}

function audienceOf(value: unknown): readonly string[] {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  const texts = list.filter((each) => typeof each === 'string' && each !== '').map(String);
  if (texts.length === 0 || texts.length < list.length)
    throw new Error('"audience" must be a string or a list of strings');
  return texts;
}

function textOf(entry: Readonly<Record<string, unknown>>, member: string): string {
  const value = entry[member];
  if (typeof value !== 'string' || value === '' || value.length > 255 || value.includes('\0'))
    throw new Error(`"${member}" must be a string of 1 to 255 characters`);
  return value;
}

function booleanOf(entry: Readonly<Record<string, unknown>>, member: string): boolean {
  const value = entry[member] ?? false;
  if (typeof value !== 'boolean') throw new Error(`"${member}" must be true or false`);
  return value;
}

export function isSafeUrl({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || (protocol === 'http:' && /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname));
}
