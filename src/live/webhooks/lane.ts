/**
 * The deliveries of one webhook: some at a time, so that a slow receiver delays only itself. For a fast receiver it claims more than it
 * sends at once, and writes many results with one statement.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { elementAt } from '../../base/narrow.js';
import type { Webhook } from '../../engine/system-collections/webhooks.js';
import type { Database } from '../../postgres/pools/database.js';
import { claimDeliveries, type Delivery, finishDeliveries, type Result, unclaimDeliveries } from './deliveries.js';
import type { Attempt, Sender } from './sender.js';

/** Shared by the lanes of a thread. */
export interface LaneServices {
  readonly database: Database;
  readonly sender: Sender;
  /** Names the claims of this thread. */
  readonly claimant: string;
  /** Slots for requests of all webhooks. */
  readonly slots: { free: number };
  readonly stats: DeliveryStats;
}

export interface DeliveryStats {
  delivered: number;
  /** Attempts. */
  failed: number;
  dead: number;
}

export interface LaneLimits {
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

/** Attempts are spread: receivers that were away do not get everything at once. */
const JITTER = 0.1;

interface Queued {
  readonly delivery: Delivery;
  /** Until when it may be sent. */
  readonly until: number;
}

export class Lane {
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
    private readonly limits: LaneLimits,
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
      await finishDeliveries(this.services.database, results, this.services.claimant);
    } catch (error) {
      this.#results = [...results, ...this.#results].slice(0, MAX_UNWRITTEN);
      throw error;
    }
  }

  /** If this fails, the deliveries are claimed again when their claims end. */
  async #return(): Promise<void> {
    const ids = this.#returned;
    this.#returned = [];
    if (ids.length > 0) await unclaimDeliveries(this.services.database, ids, this.services.claimant);
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
    this.#claimedAt = start;
    this.#delivered = 0;
    const { database, claimant: by } = this.services;
    const leaseMs = this.limits.timeout + LEASE_MARGIN_MS;
    const claimed = await claimDeliveries(database, this.webhook.id, { count, leaseMs, by });
    const until = start + LEASE_MARGIN_MS / 2;
    this.#queue.push(...claimed.map((delivery) => ({ delivery, until })));
    this.#fill();
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
