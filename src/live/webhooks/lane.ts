/** The deliveries of one webhook: some at a time, so that a slow receiver delays only itself. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Webhook } from '../../engine/system-collections/webhooks.js';
import type { Database } from '../../postgres/pools/database.js';
import { claimDeliveries, type Delivery, finishDeliveries, type Result } from './deliveries.js';
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

/** Milliseconds that a claim lasts longer than an attempt may take: the result has to be written. */
const LEASE_MARGIN_MS = 10_000;

/** Milliseconds that results wait for others, so that one statement writes them. */
const GATHER_MS = 5;

const SOON_MS = 1_000;

/** Attempts are spread: receivers that were away do not get everything at once. */
const JITTER = 0.1;

export class Lane {
  #sending = 0;
  #results: Result[] = [];
  #running: Promise<void> | null = null;
  #again = false;
  #isStopped = false;
  /** After a failed attempt, one delivery at a time finds out whether the receiver is back. */
  #isFailing = false;

  constructor(
    /** Replaced when its row changes. */
    public webhook: Webhook,
    private readonly services: LaneServices,
    private readonly limits: LaneLimits,
    private readonly onError: (error: unknown) => void,
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
      .catch(this.onError)
      .finally(() => {
        this.#running = null;
        // A result may have arrived at the end of the run.
        if (this.#again && !this.#isStopped) setImmediate(() => this.wake());
      });
  }

  /** Claims nothing more. Resolves when the results of the deliveries under way are written, or after so many milliseconds. */
  async stop(milliseconds: number): Promise<void> {
    this.#isStopped = true;
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

  async #claim(): Promise<void> {
    const { database, claimant: by, slots } = this.services;
    const most = this.#isFailing ? 1 : this.limits.concurrency;
    const count = Math.min(most - this.#sending, slots.free);
    if (count <= 0) return;
    const start = performance.now();
    const leaseMs = this.limits.timeout + LEASE_MARGIN_MS;
    // Taken before the claim, so that other lanes do not claim for the same slots.
    slots.free -= count;
    this.#sending += count;
    let claimed: readonly Delivery[] = [];
    try {
      claimed = await claimDeliveries(database, this.webhook.id, { count, leaseMs, by });
    } finally {
      slots.free += count - claimed.length;
      this.#sending -= count - claimed.length;
    }
    const isLate = performance.now() - start > LEASE_MARGIN_MS / 2;
    for (const delivery of claimed) void this.#send(delivery, isLate);
  }

  /** A claim that was slow may end before the attempt does: the delivery is left to the next claim. */
  async #send(delivery: Delivery, isLate: boolean): Promise<void> {
    const { sender, slots } = this.services;
    try {
      if (isLate) return;
      const attempt = await sender.send(this.webhook, delivery.id, delivery.payload);
      this.#results.push(this.#resultOf(delivery, attempt));
    } finally {
      slots.free++;
      this.#sending--;
      this.wake();
    }
  }

  #resultOf({ id, attempts }: Delivery, attempt: Attempt): Result {
    const { isDelivered, status, ms, body, error, retryAfter } = attempt;
    const { stats } = this.services;
    this.#isFailing = !isDelivered;
    const delay = isDelivered ? null : (this.limits.delays[attempts] ?? null);
    if (isDelivered) stats.delivered++;
    else stats.failed++;
    const outcome = isDelivered ? 'delivered' : delay === null ? 'dead' : 'pending';
    if (outcome === 'dead') stats.dead++;
    const spread = (delay ?? 0) * (1 + JITTER * (2 * Math.random() - 1));
    const wait = Math.max(spread, retryAfter ?? 0);
    // Longer ones are found by looking for what is due.
    if (outcome === 'pending' && wait < SOON_MS) setTimeout(() => this.wake(), wait + GATHER_MS).unref();
    return { id, outcome, status, ms, body, error, delay: wait };
  }
}

/** Results that are kept while the database does not take them. */
const MAX_UNWRITTEN = 10_000;
