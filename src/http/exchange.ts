/**
 * One request and its response. uWebSockets keeps a request only until its handler returns, so everything of it is read
 * here at once; the response may be written at any later time, unless the client has left.
 */
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { invalidPayload, unsupportedMediaType } from '../errors.js';
import { readCookie } from './cookies.js';
import type { Wanted } from './encoding.js';
import type { Network } from './network.js';

export interface Headers {
  readonly authorization: string;
  readonly accept: string;
  readonly contentType: string;
  readonly origin: string;
  readonly requestMethod: string;
  readonly prefer: string;
  readonly ifNoneMatch: string;
  readonly idempotencyKey: string;
  readonly cookie: string;
  /** '' for reads: nothing asks who reads with what. */
  readonly userAgent: string;
  readonly host: string;
  readonly fetchSite: string;
}

/** Names as in the pipeline; sent as Server-Timing. */
export type Stage = 'identify' | 'parse' | 'compile' | 'execute';

export class Exchange {
  readonly method: string;
  /** As sent: percent-encoded, with its query string apart. */
  readonly path: string;
  readonly queryString: string;
  /** Of the query string, which then lacks it: what is logged, cached or shown must not hold it. */
  readonly accessToken: string;
  readonly headers: Headers;
  readonly id: string;
  readonly response: HttpResponse;
  /** Decoded parts of the path that the route names. */
  parameters: readonly string[] = [];
  aborted = false;
  /** The rest of a body that nobody wants is not read: the connection ends with the response. */
  unread = false;
  /** Whether the response was written: from then on nothing may touch it. */
  replied = false;
  timing = '';
  /** How the body of the response is to be compressed; null for not at all. */
  wanted: Wanted | null = null;
  /** The session cookie was no good: the answer tells the client to drop it. */
  cookieRefused = false;
  readonly #network: Network;
  readonly #forwarded: string;
  readonly #forwardedProtocol: string;
  #address: string | null = null;
  readonly #abortListeners: (() => void)[] = [];
  #mark = performance.now();
  #body: Promise<Buffer> | null = null;

  constructor(request: HttpRequest, response: HttpResponse, network: Network) {
    this.method = request.getCaseSensitiveMethod();
    this.path = request.getUrl();
    const query = request.getQuery() ?? '';
    const [queryString, accessToken] = query.includes('access_token=') ? takeAccessToken(query) : [query, ''];
    this.queryString = queryString;
    this.accessToken = accessToken;
    const reads = this.method === 'GET' || this.method === 'HEAD';
    const authorization = request.getHeader('authorization');
    this.headers = {
      authorization,
      accept: request.getHeader('accept'),
      contentType: request.getHeader('content-type'),
      origin: request.getHeader('origin'),
      requestMethod: request.getHeader('access-control-request-method'),
      prefer: request.getHeader('prefer'),
      ifNoneMatch: request.getHeader('if-none-match'),
      idempotencyKey: request.getHeader('idempotency-key'),
      // Every header costs its reading: these are read where they may matter.
      cookie: reads && /^bearer /i.test(authorization) ? '' : request.getHeader('cookie'),
      userAgent: reads ? '' : request.getHeader('user-agent'),
      host: reads ? '' : request.getHeader('host'),
      fetchSite: reads ? '' : request.getHeader('sec-fetch-site'),
    };
    this.#network = network;
    this.#forwarded = network.header === '' ? '' : request.getHeader(network.header);
    this.#forwardedProtocol = network.header === '' ? '' : request.getHeader('x-forwarded-proto');
    this.id = requestId(request.getHeader('x-request-id'));
    this.response = response;
    response.onAborted(() => {
      this.aborted = true;
      for (const listener of this.#abortListeners) listener();
    });
  }

  /** The client's, by what trusted proxies say; '' when the client has left before anybody asked. */
  get address(): string {
    this.#address ??=
      this.aborted || this.replied ? '' : this.#network.addressOf(peerOf(this.response), this.#forwarded);
    return this.#address;
  }

  /** Whether the client came by TLS, which ends at a proxy. */
  get secure(): boolean {
    if (this.#forwardedProtocol === '' || this.aborted || this.replied) return false;
    return /^https$/i.test(this.#forwardedProtocol.trim()) && this.#network.trusts(peerOf(this.response));
  }

  /** The value of a cookie; '' for none. */
  cookie(name: string): string {
    return this.headers.cookie === '' ? '' : readCookie(this.headers.cookie, name);
  }

  /** Takes the body in, up to the given size and time: to be called before anything is awaited, since data that nobody takes is lost. */
  collect(maxBody: number, timeout: number): void {
    if (this.method === 'GET' || this.method === 'HEAD') return;
    this.#body = this.#collect(maxBody, timeout);
    // Whether the route wants the body is known later; a failure before that must not count as unhandled.
    this.#body.catch(() => {});
  }

  /** Calls back when the client leaves; at once if it already has. */
  onAbort(listener: () => void): void {
    if (this.aborted) listener();
    else this.#abortListeners.push(listener);
  }

  /** Ends a stage of the pipeline: what has passed since the last call is its duration. */
  staged(stage: Stage): void {
    const now = performance.now();
    this.timing += `${this.timing === '' ? '' : ', '}${stage};dur=${Math.round((now - this.#mark) * 100) / 100}`;
    this.#mark = now;
  }

  /** The body as JSON; a missing body is `undefined`. */
  async json(): Promise<unknown> {
    const body = await (this.#body ?? Promise.resolve(Buffer.alloc(0)));
    if (body.length === 0) return undefined;
    const type = this.headers.contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
    if (type !== 'application/json' && !/^application\/[a-z0-9.+-]+\+json$/.test(type)) {
      throw unsupportedMediaType(type, 'Content-Type header');
    }
    try {
      return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
    } catch {
      throw invalidPayload('The body is not valid JSON');
    }
  }

  /** Chunks are only lent for the time of the callback: they are copied. */
  #collect(maxBody: number, timeout: number): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      let size = 0;
      const timer = setTimeout(() => {
        this.unread = true;
        reject(invalidPayload(`The body did not arrive within BODY_TIMEOUT (${timeout} ms)`));
      }, timeout).unref();
      this.onAbort(() => {
        clearTimeout(timer);
        reject(invalidPayload('The client left'));
      });
      this.response.onData((chunk, last) => {
        size += chunk.byteLength;
        if (size > maxBody) {
          chunks.length = 0;
          this.unread = true;
          reject(invalidPayload(`The body is larger than MAX_PAYLOAD_SIZE (${maxBody} bytes)`));
          return;
        }
        chunks.push(Buffer.from(Buffer.from(chunk)));
        if (!last) return;
        clearTimeout(timer);
        resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));
      });
    });
  }
}

function peerOf(response: HttpResponse): string {
  return Buffer.from(response.getRemoteAddressAsText()).toString('latin1');
}

/** The query string without its access token, and the token. */
function takeAccessToken(query: string): [queryString: string, accessToken: string] {
  const parameters = query.split('&');
  const carries = (parameter: string): boolean => parameter.startsWith('access_token=');
  const tokens = parameters.filter(carries).map((each) => decodeToken(each.slice('access_token='.length)));
  return [parameters.filter((each) => !carries(each)).join('&'), tokens.find((each) => each !== '') ?? ''];
}

function decodeToken(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

let requests = 0;
const prefix = Math.random().toString(36).slice(2, 8);

/** A caller's id is kept when it is harmless as a header and in a log. */
function requestId(given: string): string {
  return /^[\w.:-]{1,128}$/.test(given) ? given : `${prefix}-${(++requests).toString(36)}`;
}
