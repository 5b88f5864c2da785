/**
 * The life cycle of all subscriptions: their callers are resolved at the beginning, after every change of users, policies or the
 * schema, and when a token expires or a session ends.
 */
import { callerName } from '../access/identity.js';
import { isPassing, isRefusal } from '../base/errors.js';
import type { Rights, Subscriber } from './subscriber.js';
import { SubscriptionCounts, type SubscriptionLimits } from './subscription-counts.js';

/** Milliseconds in which changes of rights are gathered. */
const GATHER_MS = 50;
/** Subscriptions that are resolved at the same time after a change of rights: more would delay requests. */
const MAX_RESOLVING = 50;
/** Milliseconds until a caller is resolved again after a temporary failure. */
const RETRY_MS = 1_000;
/** Milliseconds in which a sweep checks every subscription once, and between two of its steps. */
const ROUND_MS = 500;
const STEP_MS = 20;
/** Rounds of the sweep between two pings: proxies close connections that seem dead. */
const PING_ROUNDS = 40;

export class Subscribers implements Rights {
  generation = 0;
  readonly counts: SubscriptionCounts;
  readonly #all = new Set<Subscriber>();
  readonly #sweep = new Sweep(this.#all, (each) => {
    // An identity expires without any message.
    if (each.isResolved && !each.isBusy && (each.caller?.validUntil ?? 0) <= Date.now()) this.#recheck(each);
  });
  #gathering: NodeJS.Timeout | null = null;
  #added = 0;

  /** Calls `onEmpty` when the last subscription has ended. */
  constructor(
    limits: SubscriptionLimits,
    private readonly onEmpty: () => void,
  ) {
    this.counts = new SubscriptionCounts(limits);
  }

  /** Resolves when the caller is resolved; `begin` runs before. A subscription that fails is closed. */
  async add(subscriber: Subscriber, begin: () => Promise<void>): Promise<void> {
    this.counts.enter();
    subscriber.phase = ++this.#added;
    this.#all.add(subscriber);
    subscriber.isResolving = true;
    try {
      await begin();
      await this.#resolve(subscriber);
    } catch (error) {
      this.close(subscriber);
      throw error;
    }
  }

  start(): void {
    this.#sweep.start();
  }

  stop(): void {
    this.#sweep.stop();
    if (this.#gathering) clearTimeout(this.#gathering);
    this.#gathering = null;
  }

  close(subscriber: Subscriber): void {
    if (subscriber.isClosed) return;
    subscriber.isClosed = true;
    subscriber.invalidate(false);
    this.#all.delete(subscriber);
    subscriber.onClosed();
    this.counts.leave(subscriber.owner);
    if (this.counts.total === 0) this.onEmpty();
  }

  /** The error is null if the service stops. */
  end(subscriber: Subscriber, error: unknown): void {
    if (subscriber.isClosed) return;
    this.close(subscriber);
    subscriber.end(error);
  }

  endAll(): void {
    for (const subscriber of [...this.#all]) this.end(subscriber, null);
  }

  /** Users, roles, policies, tokens or the schema have changed. */
  rightsChanged(): void {
    this.generation++;
    for (const subscriber of this.#all) subscriber.invalidate(false);
    this.#gathering ??= setTimeout(() => {
      this.#gathering = null;
      const left = this.#all.values();
      const lane = async (): Promise<void> => {
        for (const subscriber of left) await this.#resolveAgain(subscriber);
      };
      for (let count = 0; count < MAX_RESOLVING; count++) void lane();
    }, GATHER_MS);
  }

  /** Some callers may have been signed out. */
  sessionsEnded(): void {
    for (const subscriber of [...this.#all]) {
      if (subscriber.isResolved) this.#recheck(subscriber);
      // An attempt that runs may have found the session before it ended.
      else subscriber.invalidate(true);
    }
  }

  /** Resolves the caller again; until then nothing is sent. */
  renew(subscriber: Subscriber): void {
    subscriber.invalidate(true);
    void this.#resolveAgain(subscriber);
  }

  /** The caller could not be resolved, or is refused by a read. */
  fail(subscriber: Subscriber, error: unknown): void {
    if (subscriber.isClosed) return;
    subscriber.invalidate(true);
    subscriber.onUnresolved();
    if (isPassing(error)) setTimeout(() => void this.#resolveAgain(subscriber), RETRY_MS).unref();
    else if (!subscriber.waitsForRights || !isRefusal(error)) this.end(subscriber, error);
  }

  /** The identity is rechecked periodically and rarely changes. */
  #recheck(subscriber: Subscriber): void {
    try {
      const caller = subscriber.source.identify();
      if (caller === subscriber.caller) return;
      if (caller instanceof Promise) caller.catch(() => {});
    } catch {
      // The next attempt reports the failure.
    }
    this.renew(subscriber);
  }

  async #resolveAgain(subscriber: Subscriber): Promise<void> {
    // An attempt that runs repeats itself if the version changes.
    if (subscriber.isClosed || subscriber.isResolved || subscriber.isResolving) return;
    subscriber.isResolving = true;
    try {
      await this.#resolve(subscriber);
    } catch (error) {
      this.fail(subscriber, error);
    }
  }

  /** Begins again if rights change, or a session ends, meanwhile. */
  async #resolve(subscriber: Subscriber): Promise<void> {
    const { source } = subscriber;
    try {
      while (!subscriber.isClosed && !subscriber.isResolved) {
        const { version } = subscriber;
        const isValid = (): boolean => subscriber.version === version;
        try {
          const caller = await source.identify();
          if (!isValid()) continue;
          subscriber.owner ??= this.counts.own(callerName(caller, source));
          await subscriber.resolve(caller, isValid);
        } catch (error) {
          if (isValid()) throw error;
        }
      }
    } finally {
      subscriber.isResolving = false;
    }
  }
}

/** Checks every subscription once per round, in steps: checking ten thousand at once would delay changes. */
class Sweep {
  #left: Iterator<Subscriber> | null = null;
  #quota = 0;
  #rounds = 0;
  #timer: NodeJS.Timeout | null = null;
  /** When the round began. */
  #begun = 0;

  constructor(
    private readonly all: ReadonlySet<Subscriber>,
    private readonly check: (each: Subscriber) => void,
  ) {}

  start(): void {
    this.#timer ??= setInterval(() => this.#step(), STEP_MS).unref();
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
    this.#left = null;
  }

  #step(): void {
    const now = performance.now();
    if (this.#left === null) {
      if (now - this.#begun < ROUND_MS) return;
      this.#begun = now;
      this.#rounds++;
      this.#left = this.all.values();
      this.#quota = Math.max(Math.ceil((this.all.size * STEP_MS) / ROUND_MS), 1);
    }
    for (let count = 0; count < this.#quota; count++) {
      const { value, done } = this.#left.next();
      if (done) {
        this.#left = null;
        return;
      }
      if ((value.phase + this.#rounds) % PING_ROUNDS === 0) value.ping();
      this.check(value);
    }
  }
}
