/**
 * Fetches a file from a URL that a caller names. Such a request comes from inside the network of the service, so it is made only to
 * origins of FILES_IMPORT_ALLOW_LIST, and only to public addresses: a name is resolved once, each of its addresses is checked, and the
 * connection goes to one of those. A private address counts as allowed only where the list itself names it as an address. Redirects are
 * followed by the same rules.
 */
import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import { isIP } from 'node:net';
import { isPublicAddress, publicLookup } from '../access/public-addresses.js';
import { forbidden, invalidPayload, ServiceError, serviceUnavailable } from '../base/errors.js';
import { ANY_ORIGIN } from '../config/option-kinds.js';

interface RemoteFile {
  readonly bytes: AsyncIterable<Buffer>;
  readonly type: string;
  /** The last part of the path. */
  readonly name: string;
}

interface RemoteOptions {
  readonly allowed: readonly string[];
  /** For the whole download, redirects included. */
  readonly timeoutMs: number;
}

/** When the download must end. */
interface Deadline {
  readonly at: number;
  readonly limit: number;
}

const MAX_REDIRECTS = 3;

/** A server may be silent for so long, and never for longer than the whole download may take. */
const SILENCE_MS = 10_000;

export async function fetchRemote(text: string, options: RemoteOptions): Promise<RemoteFile> {
  if (options.allowed.length === 0) throw forbidden('Importing files from a URL is off (FILES_IMPORT_ALLOW_LIST).');
  let url = parseUrl(text);
  const deadline: Deadline = { at: performance.now() + options.timeoutMs, limit: options.timeoutMs };
  for (let redirects = 0; ; redirects++) {
    const response = await request(url, options.allowed, deadline);
    const { statusCode = 0, headers } = response;
    if (statusCode === 200)
      return {
        bytes: bytesOf(response, deadline),
        type: headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '',
        name: nameOf(url),
      };
    response.destroy();
    if (![301, 302, 303, 307, 308].includes(statusCode) || headers.location === undefined)
      throw unreachable(`The server of the URL answered with status ${statusCode}`);
    if (redirects === MAX_REDIRECTS) throw unreachable(`The URL redirects more than ${MAX_REDIRECTS} times`);
    url = parseUrl(headers.location, url);
  }
}

function parseUrl(text: string, base?: URL): URL {
  const url = URL.canParse(text, base?.href) ? new URL(text, base) : null;
  if (!url || !/^https?:$/.test(url.protocol))
    throw invalidPayload('"url" must be a URL that begins with http or https');
  if (url.username !== '' || url.password !== '') throw invalidPayload('"url" must not have credentials');
  return url;
}

/** A refusal looks the same for every reason, so that the network cannot be mapped by the answers. */
function refused(): ServiceError {
  return forbidden('Files may not be imported from this URL.');
}

const lookupPublic = publicLookup(refused);

function request(url: URL, allowed: readonly string[], deadline: Deadline): Promise<IncomingMessage> {
  const isNamed = allowed.includes(url.origin);
  if (!isNamed && !allowed.includes(ANY_ORIGIN)) throw refused();
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // Addresses are not looked up, and one that the list itself names is what its operator wants.
  if (isIP(host) !== 0 && !isNamed && !isPublicAddress(host)) throw refused();
  return new Promise((resolve, reject) => {
    const get = url.protocol === 'https:' ? getHttps : getHttp;
    const sent = get(url, { agent: false, lookup: lookupPublic, headers: { 'User-Agent': 'lateral' } }, resolve);
    const timer = setTimeout(() => sent.destroy(tooSlow(deadline)), silenceOf(deadline)).unref();
    sent.on('response', () => clearTimeout(timer));
    sent.on('error', (error) => {
      clearTimeout(timer);
      reject(error instanceof ServiceError ? error : unreachable('The URL cannot be fetched'));
    });
  });
}

async function* bytesOf(response: IncomingMessage, deadline: Deadline): AsyncIterable<Buffer> {
  const stop = (): void => void response.destroy(tooSlow(deadline));
  let silence: NodeJS.Timeout | undefined;
  const whole = setTimeout(stop, Math.max(0, deadline.at - performance.now())).unref();
  const wait = (): void => {
    silence = setTimeout(stop, silenceOf(deadline)).unref();
  };
  try {
    wait();
    for await (const piece of response) {
      clearTimeout(silence);
      yield piece as Buffer;
      wait();
    }
  } catch (error) {
    throw error instanceof ServiceError ? error : unreachable('The file did not arrive completely');
  } finally {
    clearTimeout(silence);
    clearTimeout(whole);
    response.destroy();
  }
}

function silenceOf({ at }: Deadline): number {
  return Math.max(0, Math.min(SILENCE_MS, at - performance.now()));
}

function tooSlow({ limit }: Deadline): ServiceError {
  return serviceUnavailable('url', 'The download took too long', { option: 'FILES_IMPORT_TIMEOUT', limit });
}

function unreachable(reason: string): ServiceError {
  return serviceUnavailable('url', reason);
}

function nameOf({ pathname }: URL): string {
  const last = pathname.split('/').at(-1) ?? '';
  try {
    return decodeURIComponent(last);
  } catch {
    return last;
  }
}
