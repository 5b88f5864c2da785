/**
 * Sends deliveries: a worker per webhook claims them and writes their results. Requests are signed as Standard Webhooks prescribes
 * (https://www.standardwebhooks.com). The URL was chosen by an administrator, and the request comes from inside the network of the
 * service: unless local addresses are allowed, it goes only to addresses of the Internet. Redirects are not followed.
 */
import { createHmac } from 'node:crypto';
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { asError, codeOf, elementAt, messageOf } from '../../base/narrow.js';
import { isPublicHost, publicLookup } from '../../server/http/public-addresses.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { claimDeliveries, type Delivery, finishDeliveries, type Result, unclaimDeliveries } from './deliveries.js';
import { secretBytes, type Webhook } from './webhook-hook.js';
import { renderTemplate } from './webhook-template.js';

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

/** Bytes of an answer that are kept, and that are read so that the connection can be used again; and how long reading may take. */
const KEPT_BYTES = 1_024;
const READ_BYTES = 65_536;
const READ_MS = 1_000;

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
      const body = Buffer.from(webhook.template === null ? payload : renderTemplate(webhook.template, payload));
      const post = (): Promise<IncomingMessage> => this.#post(webhook, id, body, deadline);
      const response = await post().catch((error: unknown) => {
        // The receiver closed a connection that was kept. It has not seen the request, or sees it again with the same id.
        if (!(error instanceof StaleConnection) || performance.now() - start > STALE_MS) throw error;
        return post();
      });
      const { statusCode = 0, headers } = response;
      const isDelivered = statusCode >= 200 && statusCode < 300;
      const ms = Math.round(performance.now() - start);
      const answer = await beginningOf(response);
      const retryAfter = waitOf(headers['retry-after']);
      return { isDelivered, status: statusCode, ms, body: answer, error: null, retryAfter };
    } catch (error) {
      return failed(error);
    }
  }

  /** Ends all connections. Attempts under way fail. */
  close(): void {
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }

  #post(webhook: Webhook, id: string, payload: Buffer, deadline: number): Promise<IncomingMessage> {
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

function headersOf({ headers, secrets }: Webhook, id: string, payload: Buffer): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1_000));
  return {
    'User-Agent': 'lateral',
    ...headers,
    'Content-Type': 'application/json',
    'Content-Length': String(payload.length),
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': secrets.map((secret) => signatureOf(secret, id, timestamp, payload)).join(' '),
  };
}

function signatureOf(secret: string, id: string, timestamp: string, payload: Buffer): string {
  const hmac = createHmac('sha256', secretBytes(secret)).update(`${id}.${timestamp}.`).update(payload);
  return `v1,${hmac.digest('base64')}`;
}

/** The first bytes of an answer. The status has decided already: a body that is long, slow or broken is not read to its end. */
async function beginningOf(response: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  let kept = 0;
  const timer = setTimeout(() => response.destroy(), READ_MS);
  try {
    for await (const piece of response) {
      const buffer = Buffer.from(piece);
      if (kept < KEPT_BYTES) pieces.push(buffer.subarray(0, KEPT_BYTES - kept));
      kept = Math.min(KEPT_BYTES, kept + buffer.length);
      bytes += buffer.length;
      if (bytes > READ_BYTES) break;
    }
  } catch {
    // The bytes before the failure are kept.
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(pieces).toString().replaceAll('\0', '');
}

/** A number of seconds, or the time at which the receiver is back. */
function waitOf(header = ''): number | null {
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? null : Math.min(Math.max(0, ms), MAX_RETRY_AFTER_MS);
}

/** Shared by the workers of a thread. */
interface LaneServices {
  readonly database: Database;
  readonly sender: Sender;
  /** Names the claims of this thread. */
  readonly claimant: string;
  /** Shared by all webhooks: slots for requests, and bytes of payloads. */
  readonly slots: { free: number; bytes: number };
  readonly stats: DeliveryStats;
}

export interface DeliveryStats {
  delivered: number;
  /** Attempts. */
  failed: number;
  dead: number;
}

export interface DeliveryLimits {
  readonly concurrency: number;
  readonly timeout: number;
  /** Milliseconds after each failed attempt. */
  readonly delays: readonly number[];
}

interface LaneEvents {
  readonly failed: (error: unknown) => void;
  /** The receiver answered that it wants no more deliveries. */
  readonly isGone: () => Promise<void>;
}

const GONE = 410;

/** Milliseconds that a claim lasts longer than an attempt may take: the result has to be written. */
const LEASE_MARGIN_MS = 10_000;

/** Milliseconds that results wait for others, so that one statement writes them. */
const GATHER_MS = 5;

const SOON_MS = 1_000;

/** Deliveries are claimed so many milliseconds ahead, as fast as the receiver takes them; and how many at most. */
const AHEAD_MS = 300;
const MAX_AHEAD = 500;

/** Bytes of payloads that one statement claims. */
const MAX_CLAIM_BYTES = 8_388_608;

/** Attempts are spread: receivers that were away do not get everything at once. */
const JITTER = 0.1;

interface Queued {
  readonly delivery: Delivery;
  /** Until when it may be sent. */
  readonly until: number;
}

/**
 * The deliveries of one webhook: some at a time, so that a slow receiver delays only itself. For a fast receiver it claims more than it
 * sends at once, and writes many results with one statement.
 */
export class DeliveryWorker {
  #sending = 0;
  /** Deliveries that are claimed and not sent yet. */
  #queue: Queued[] = [];
  /** Ids of deliveries that are claimed and will not be sent. */
  #returned: string[] = [];
  #results: Result[] = [];
  #running: Promise<void> | null = null;
  #again = false;
  #isStopped = false;
  /** How many were delivered since the last claim, and when that was. */
  #delivered = 0;
  #claimedAt = performance.now();
  /** After a failed attempt, one delivery at a time finds out whether the receiver is back. */
  #isFailing = false;
  /** Nothing is sent before, because the receiver asked for it. */
  #restsUntil = 0;

  constructor(
    /** Replaced when its row changes. */
    public webhook: Webhook,
    private readonly services: LaneServices,
    private readonly limits: DeliveryLimits,
    private readonly events: LaneEvents,
  ) {}

  get isIdle(): boolean {
    return this.#sending === 0 && this.#running === null && this.#results.length === 0;
  }

  /** Whether results could not be written yet. */
  get hasResults(): boolean {
    return this.#results.length > 0;
  }

  /** Sends what is due. Returns at once. */
  wake(): void {
    this.#again = true;
    this.#running ??= this.#run()
      .catch(this.events.failed)
      .finally(() => {
        this.#running = null;
        // A result may have arrived at the end of the run.
        if (this.#again && !this.#isStopped) setImmediate(() => this.wake());
      });
  }

  /** Sends none of the deliveries that are claimed: the webhook is paused, or the receiver fails. */
  drop(): void {
    if (this.#queue.length === 0) return;
    this.#returned.push(...this.#queue.map(({ delivery }) => delivery.id));
    for (const { delivery } of this.#queue) this.services.slots.bytes += delivery.bytes;
    this.#queue = [];
    this.wake();
  }

  /** Claims nothing more. Resolves when the results of the deliveries under way are written, or after so many milliseconds. */
  async stop(milliseconds: number): Promise<void> {
    this.#isStopped = true;
    this.drop();
    const deadline = performance.now() + milliseconds;
    while (!this.isIdle && performance.now() < deadline) {
      if (this.#results.length > 0) this.wake();
      await sleep(GATHER_MS);
    }
  }

  async #run(): Promise<void> {
    while (this.#again) {
      this.#again = false;
      await this.#report();
      await this.#return();
      if (!this.#isStopped) await this.#claim();
    }
  }

  /** If this fails, the results are written by a later run. If their claims have ended by then, they are sent again. */
  async #report(): Promise<void> {
    if (this.#results.length === 0) return;
    if (this.#sending > 0) await sleep(GATHER_MS);
    const results = this.#results;
    this.#results = [];
    try {
      await finishDeliveries(this.services.database, this.webhook.id, results, this.services.claimant);
    } catch (error) {
      this.#results = [...results, ...this.#results].slice(0, MAX_UNWRITTEN);
      throw error;
    }
  }

  /** If this fails, the deliveries are claimed again when their claims end. */
  async #return(): Promise<void> {
    const ids = this.#returned;
    this.#returned = [];
    if (ids.length > 0) await unclaimDeliveries(this.services.database, this.webhook.id, ids, this.services.claimant);
  }

  /** How many may be sent at the same time. */
  get #most(): number {
    return this.#isFailing ? 1 : this.limits.concurrency;
  }

  /** One is sent, even if other webhooks use all slots. */
  get #hasSlot(): boolean {
    return this.#sending < this.#most && (this.services.slots.free > 0 || this.#sending === 0);
  }

  async #claim(): Promise<void> {
    const start = performance.now();
    if (start < this.#restsUntil) return;
    const rate = this.#delivered / Math.max(1, start - this.#claimedAt);
    const ahead = this.#isFailing ? 0 : Math.min(MAX_AHEAD, Math.floor(rate * AHEAD_MS));
    const isIdle = this.#queue.length === 0 && this.#hasSlot;
    if (!isIdle && this.#queue.length >= ahead / 2) return;
    const count = this.#most - this.#sending + ahead - this.#queue.length;
    const { slots } = this.services;
    // One is claimed, even if other webhooks use all of the memory.
    if (slots.bytes <= 0 && this.#sending + this.#queue.length > 0) return;
    this.#claimedAt = start;
    this.#delivered = 0;
    const until = start + LEASE_MARGIN_MS / 2;
    const claimed = await this.#claimSome(count);
    this.#queue.push(...claimed.map((delivery) => ({ delivery, until })));
    this.#fill();
  }

  async #claimSome(count: number): Promise<readonly Delivery[]> {
    const { database, claimant: by, slots } = this.services;
    const leaseMs = this.limits.timeout + LEASE_MARGIN_MS;
    const bytes = Math.max(0, Math.min(MAX_CLAIM_BYTES, slots.bytes));
    slots.bytes -= bytes;
    try {
      const claimed = await claimDeliveries(database, this.webhook.id, { count, bytes, leaseMs, by });
      for (const delivery of claimed) slots.bytes -= delivery.bytes;
      return claimed;
    } finally {
      slots.bytes += bytes;
    }
  }

  /** A delivery that was claimed long ago is left to the next claim: the claim may end before the attempt does. */
  #fill(): void {
    while (this.#queue.length > 0 && this.#hasSlot) {
      const { delivery, until } = elementAt(this.#queue, 0);
      if (this.#isStopped || performance.now() > until) {
        this.drop();
        return;
      }
      this.#queue.shift();
      void this.#send(delivery);
    }
  }

  async #send(delivery: Delivery): Promise<void> {
    const { sender, slots } = this.services;
    slots.free--;
    this.#sending++;
    try {
      const attempt = await sender.send(this.webhook, delivery.id, delivery.payload);
      this.#results.push(this.#resultOf(delivery, attempt));
      if (attempt.status === GONE) await this.events.isGone();
    } finally {
      slots.free++;
      slots.bytes += delivery.bytes;
      this.#sending--;
      this.#fill();
      this.wake();
    }
  }

  #resultOf({ id, attempts }: Delivery, attempt: Attempt): Result {
    const { isDelivered, status, ms, body, error, retryAfter } = attempt;
    const { stats } = this.services;
    this.#isFailing = !isDelivered;
    if (isDelivered) this.#delivered++;
    else this.drop();
    const delay = isDelivered ? null : (this.limits.delays[attempts] ?? null);
    if (isDelivered) stats.delivered++;
    else stats.failed++;
    const outcome = isDelivered ? 'delivered' : delay === null ? 'dead' : 'pending';
    if (outcome === 'dead') stats.dead++;
    const spread = (delay ?? 0) * (1 + JITTER * (2 * Math.random() - 1));
    const wait = Math.max(spread, retryAfter ?? 0);
    if (!isDelivered) this.#restsUntil = Math.max(this.#restsUntil, performance.now() + (retryAfter ?? 0));
    // Longer ones are found by looking for what is due.
    if (outcome === 'pending' && wait < SOON_MS) setTimeout(() => this.wake(), wait + GATHER_MS).unref();
    return { id, outcome, status, ms, body, error, delay: wait };
  }
}

/** Results that are kept while the database does not take them. */
const MAX_UNWRITTEN = 10_000;
