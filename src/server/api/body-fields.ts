/** Fields, pages and clients of requests about accounts. */

import { invalidPayload } from '../../base/errors.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { requireObject } from '../../compiler/request/write.js';
import type { LoginClient } from '../accounts/logins.js';
import type { Exchange } from '../http/exchange.js';

export function readBody(body: unknown): Input {
  if (body === undefined) throw invalidPayload('A body is required');
  return requireObject(body, 'The body');
}

export function readText(body: Input, name: string): string {
  const value = body[name];
  if (value === undefined || value === null || value === '') throw invalidPayload(`"${name}" is required`);
  // PostgreSQL has no character 0.
  if (typeof value !== 'string' || value.includes('\0')) throw invalidPayload(`"${name}" must be a string`);
  return value;
}

/** Returns null if it is left out. */
export function readOptionalText(body: Input, name: string): string | null {
  return body[name] === undefined || body[name] === null ? null : readText(body, name);
}

export function readEmail(body: Input, name = 'email'): string {
  return asEmail(readText(body, name), name);
}

export function asEmail(text: string, name: string): string {
  if (text.length > 255 || !/^[^\s@]+@[^\s@]+$/.test(text)) throw invalidPayload(`"${name}" must be an address`);
  return text;
}

export function readChoice<Choice extends string>(
  body: Input,
  name: string,
  choices: readonly Choice[],
): Choice | undefined {
  const value = body[name];
  if (value === undefined || value === null) return undefined;
  const choice = choices.find((each) => each === value);
  if (!choice) throw invalidPayload(`"${name}" must be one of ${choices.join(', ')}`);
  return choice;
}

/** Returns a function that links to a page with a token: the page that the request names, if it is allowed, or the usual one. */
export function linkTo(body: Input, name: string, allowed: string, usual: () => string): (token: string) => string {
  const requestedPage = readOptionalText(body, name);
  if (requestedPage !== null && !isAllowedPage(requestedPage, allowed))
    throw invalidPayload(
      `"${name}" is not an allowed page: an option whose name ends with URL_ALLOW_LIST must list it`,
    );
  const page = new URL(requestedPage ?? usual());
  return (token) => {
    page.searchParams.set('token', token);
    return page.href;
  };
}

/** A list of the configuration, and the pages of features. */
export function allowedPages(
  list: string,
  { pages, publicUrl }: { readonly pages: () => readonly string[]; readonly publicUrl: () => string },
): string {
  return [list, ...pages().map((page) => publicUrl() + page)].join();
}

/** Scheme, host and path must be equal: a prefix would allow other sites' pages. */
export function isAllowedPage(page: string, list: string): boolean {
  const requested = readPage(page);
  if (requested === null) return false;
  return list
    .split(',')
    .map((each) => readPage(each.trim()))
    .some((each) => each !== null && isSameHost(each, requested) && each.pathname === requested.pathname);
}

/**
 * The URL of a page, or null if it is none. Browsers and servers disagree about backslashes, and user info makes one host look like
 * another: a URL with either is refused.
 */
export function readPage(text: string): URL | null {
  if (text.includes('\\') || !URL.canParse(text)) return null;
  const url = new URL(text);
  return url.username === '' && url.password === '' ? url : null;
}

/** Does not compare `origin`: all URLs with the scheme of an application have the origin `null`, and a `blob:` URL has that of its page. */
export function isSameHost(one: URL, other: URL): boolean {
  return one.protocol === other.protocol && one.host === other.host;
}

export function clientOf(exchange: Exchange): LoginClient {
  const { userAgent, origin } = exchange.headers;
  return {
    ip: exchange.address,
    userAgent,
    origin,
    get aborted() {
      return exchange.aborted;
    },
  };
}
