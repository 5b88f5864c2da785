/**
 * Posts deliveries, signed as Standard Webhooks prescribes (https://www.standardwebhooks.com). The URL was chosen by an administrator, and the
 * request comes from inside the network of the service: unless local addresses are allowed, it goes only to addresses of the
 * Internet. Redirects are not followed.
 */
import { createHmac } from 'node:crypto';
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { isPublicHost, publicLookup } from '../../access/public-addresses.js';
import { asError, codeOf, messageOf } from '../../base/narrow.js';
import { renderTemplate } from '../../engine/system-collections/webhook-template.js';
import { secretBytes, type Webhook } from '../../engine/system-collections/webhooks.js';

/** The result of one attempt. */
export interface Attempt {
  readonly isDelivered: boolean;
  /** The status of the answer, or null if there was none. */
  readonly status: number | null;
  readonly ms: number;
  /** The beginning of the answer. */
  readonly body: string;
  /** Why there was no answer, or null. */
  readonly error: string | null;
  /** Milliseconds that the receiver asks to wait, or null. */
  readonly retryAfter: number | null;
}

interface SenderOptions {
  readonly timeout: number;
  readonly allowLocal: boolean;
}

/** Bytes of an answer that are kept, and that are read so that the connection can be used again. */
const KEPT_BYTES = 1_024;
const READ_BYTES = 65_536;

const MAX_FREE_SOCKETS = 16;

/** Milliseconds: if a kept connection is lost later, the receiver may be at work on the request. */
const STALE_MS = 1_000;

/** Milliseconds: more than that a receiver does not get by `Retry-After`. */
const MAX_RETRY_AFTER_MS = 3_600_000;

export class Sender {
  readonly #agents = {
    'http:': new HttpAgent({ keepAlive: true, maxFreeSockets: MAX_FREE_SOCKETS }),
    'https:': new HttpsAgent({ keepAlive: true, maxFreeSockets: MAX_FREE_SOCKETS }),
  };

  constructor(private readonly options: SenderOptions) {}

  /** Never fails. */
  async send(webhook: Webhook, id: string, payload: string): Promise<Attempt> {
    const start = performance.now();
    const failed = (error: unknown): Attempt => {
      const ms = Math.round(performance.now() - start);
      return { isDelivered: false, status: null, ms, body: '', error: messageOf(error), retryAfter: null };
    };
    try {
      if (!this.options.allowLocal && !isPublicHost(webhook.url)) return failed(localAddress());
      const deadline = start + this.options.timeout;
      const body = webhook.template === null ? payload : renderTemplate(webhook.template, payload);
      const post = (): Promise<IncomingMessage> => this.#post(webhook, id, body, deadline);
      const response = await post().catch((error: unknown) => {
        // The receiver closed a connection that was kept. It has not seen the request, or sees it again with the same id.
        if (!(error instanceof StaleConnection) || performance.now() - start > STALE_MS) throw error;
        return post();
      });
      const { statusCode = 0, headers } = response;
      const answer = await beginningOf(response);
      const isDelivered = statusCode >= 200 && statusCode < 300;
      const ms = Math.round(performance.now() - start);
      return {
        isDelivered,
        status: statusCode,
        ms,
        body: answer,
        error: null,
        retryAfter: waitOf(headers['retry-after']),
      };
    } catch (error) {
      return failed(error);
    }
  }

  /** Ends all connections. Attempts under way fail. */
  close(): void {
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }

  #post(webhook: Webhook, id: string, payload: string, deadline: number): Promise<IncomingMessage> {
    const { url } = webhook;
    const { timeout, allowLocal } = this.options;
    const isSecure = url.protocol === 'https:';
    const options = {
      method: 'POST',
      agent: this.#agents[isSecure ? 'https:' : 'http:'],
      ...(allowLocal ? {} : { lookup: lookupPublic }),
      headers: headersOf(webhook, id, payload),
    };
    return new Promise((resolve, reject) => {
      const request = isSecure ? requestHttps(url, options) : requestHttp(url, options);
      const timer = setTimeout(
        () => request.destroy(new Error(`no complete answer within ${timeout} ms`)),
        Math.max(0, deadline - performance.now()),
      );
      request.on('response', resolve);
      request.on('close', () => clearTimeout(timer));
      request.on('error', (error) => {
        const isStale = request.reusedSocket && codeOf(error) === 'ECONNRESET';
        reject(isStale ? new StaleConnection(error.message) : asError(error));
      });
      request.end(payload);
    });
  }
}

class StaleConnection extends Error {}

function localAddress(): Error {
  return new Error('the URL leads to a local address (WEBHOOKS_ALLOW_LOCAL)');
}

const lookupPublic = publicLookup(localAddress);

function headersOf({ headers, secrets }: Webhook, id: string, payload: string): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1_000));
  return {
    'User-Agent': 'lateral',
    ...headers,
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(payload)),
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': secrets.map((secret) => signatureOf(secret, id, timestamp, payload)).join(' '),
  };
}

function signatureOf(secret: string, id: string, timestamp: string, payload: string): string {
  const digest = createHmac('sha256', secretBytes(secret)).update(`${id}.${timestamp}.${payload}`).digest('base64');
  return `v1,${digest}`;
}

/** The first bytes of an answer. A long one is not read to its end. */
async function beginningOf(response: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  let kept = 0;
  for await (const piece of response) {
    const buffer = Buffer.from(piece);
    if (kept < KEPT_BYTES) pieces.push(buffer.subarray(0, KEPT_BYTES - kept));
    kept = Math.min(KEPT_BYTES, kept + buffer.length);
    bytes += buffer.length;
    if (bytes > READ_BYTES) break;
  }
  return Buffer.concat(pieces).toString().replaceAll('\0', '');
}

/** A number of seconds, or the time at which the receiver is back. */
function waitOf(header = ''): number | null {
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? null : Math.min(Math.max(0, ms), MAX_RETRY_AFTER_MS);
}
