/**
 * The life cycle of all subscriptions: their callers are resolved at the beginning, after every change of users, policies or the
 * schema, and when a token expires or a session ends.
 */

import { isPassing, isRefusal, requestsExceeded, serviceUnavailable, unprocessable } from '../../base/errors.js';
import type { ReadQuery } from '../../compiler/statements/read.js';
import { callerName, type Identity } from '../../server/access/identity.js';
import type { MaybePromise } from '../../server/execute/pipeline.js';

/** Milliseconds in which changes of rights are gathered. */
const GATHER_MS = 50;
/** Subscriptions that are resolved at the same time after a change of rights: more would delay requests. */
const MAX_RESOLVING = 50;
/** Milliseconds until a caller is resolved again after a temporary failure, or may subscribe again after a refusal. */
const RETRY_MS = 1_000;
/** A sweep checks every subscription once within so many milliseconds. */
const ROUND_MS = 500;
/** Milliseconds between two steps of a sweep. */
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

  /** Closes the subscription. `error` is the reason, or null if the service stops. */
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

  /** Begins again if permissions change or a login session ends in the meantime. */
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

/** The client that subscribed. */
export interface LiveClient {
  /** For limits. */
  readonly address: string;
  /** The caller as of now: a token may have expired, or its owner may have lost rights. */
  identify(): MaybePromise<Identity>;
}

export interface LiveSource extends LiveClient {
  parse(caller: Identity): MaybePromise<ReadQuery>;
}

/** An answer, shared by all subscribers that read the same. */
export interface LiveAnswer {
  readonly body: Buffer;
  readonly tag: string;
  /** A position in the log, as PostgreSQL writes it: the answer contains everything that was committed before it. */
  readonly position: string;
}

export interface Rights {
  /** Increases when users, policies or the schema change. Results read under an earlier generation must not be sent. */
  readonly generation: number;
}

export interface LiveListener {
  /** Replaces an answer that was not sent yet. */
  answer(answer: LiveAnswer): void;
  /** Drops an answer that was not sent yet, unless the rights are the same. Returns whether there was one. */
  withdraw(isSame: boolean): boolean;
  /** The last call, with the reason. It is null if the service stops. */
  end(error: unknown): void;
  /** Called every few seconds. */
  ping(): void;
}

/** A subscription: its client, its listener, and whether its caller and their rights are known. */
export abstract class Subscriber {
  abstract readonly source: LiveClient;
  abstract readonly listener: { withdraw(isSame: boolean): boolean };
  /** Whether a refused subscriber stays, in case rights are granted again. */
  abstract readonly waitsForRights: boolean;
  /** The user or address whose limits apply; null until the caller is known. */
  owner: string | null = null;
  caller: Identity | null = null;
  /** Grows when the caller or their rights may have changed, and at the end. Results for an earlier version are void. */
  version = 0;
  /** Whether the caller and their rights are known. Otherwise nothing is sent. */
  isResolved = false;
  isResolving = false;
  /** Whether a read runs whose answer would be lost if the caller were resolved again. */
  isBusy = false;
  isClosed = false;
  /** Spreads the pings of all subscriptions over the rounds of the sweep. */
  phase = 0;
  /** The rights and the query as they were resolved last, equal for equal answers. */
  #resolved: unknown = null;
  #hasSameRights = false;

  /** Finds out what the caller may read, then calls `resolved`, unless the version has changed meanwhile. */
  abstract resolve(caller: Identity, isValid: () => boolean): Promise<void>;
  /** The caller could not be resolved, or was refused by a read. */
  abstract onUnresolved(): void;
  abstract onClosed(): void;
  abstract ping(): void;
  /** The last call; null if the service stops. */
  abstract end(error: unknown): void;

  invalidate(hasSameRights: boolean): void {
    this.version++;
    this.isResolved = false;
    if (!hasSameRights) this.#hasSameRights = false;
  }

  /** `what` is equal for equal rights and queries. Returns whether an answer was withdrawn that was not sent yet. */
  resolved(caller: Identity, what: unknown): boolean {
    const isSame = this.#hasSameRights && what === this.#resolved;
    this.caller = caller;
    this.isResolved = true;
    this.#hasSameRights = true;
    this.#resolved = what;
    return this.listener.withdraw(isSame);
  }
}

export interface SubscriptionLimits {
  readonly subscriptions: number;
  readonly perCaller: number;
  /** Keys that are remembered to report deletions. */
  readonly keys: number;
}

/** The part of the remembered keys that one owner may use. */
const SHARE_OF_CALLER = 0.25;

/** Counts subscriptions and the keys that they remember, in total and per owner. */
export class SubscriptionCounts {
  readonly #owners = new Map<string, number>();
  readonly #keysOfOwners = new Map<string, number>();
  #keys = 0;
  total = 0;

  constructor(private readonly limits: SubscriptionLimits) {}

  enter(): void {
    const { subscriptions: limit } = this.limits;
    if (this.total >= limit)
      throw serviceUnavailable('live', 'There are too many subscriptions', { option: 'LIVE_MAX_SUBSCRIPTIONS', limit });
    this.total++;
  }

  /** Throws if the owner has too many. Returns the owner. */
  own(owner: string): string {
    const { perCaller: limit } = this.limits;
    const owned = this.#owners.get(owner) ?? 0;
    if (owned >= limit) throw requestsExceeded({ option: 'LIVE_MAX_SUBSCRIPTIONS_PER_USER', limit }, RETRY_MS);
    this.#owners.set(owner, owned + 1);
    return owner;
  }

  /** Throws, and changes nothing, if the owner or all owners together would have too many keys. */
  remember(owner: string, more: number): void {
    const { keys: limit } = this.limits;
    const owned = (this.#keysOfOwners.get(owner) ?? 0) + more;
    if (more > 0 && (this.#keys + more > limit || owned > limit * SHARE_OF_CALLER))
      throw unprocessable(
        'The subscription needs to remember more keys of visible items than LIVE_MAX_REMEMBERED_KEYS allows',
      );
    this.#keys += more;
    if (owned > 0) this.#keysOfOwners.set(owner, owned);
    else this.#keysOfOwners.delete(owner);
  }

  leave(owner: string | null): void {
    this.total--;
    if (owner === null) return;
    const owned = (this.#owners.get(owner) ?? 0) - 1;
    if (owned > 0) this.#owners.set(owner, owned);
    else this.#owners.delete(owner);
  }
}
