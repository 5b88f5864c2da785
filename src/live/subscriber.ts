/** A subscription: its client, its listener, and whether its caller and their rights are known. */
import type { Identity } from '../access/identity.js';
import type { MaybePromise } from '../engine/pipeline.js';
import type { ReadQuery } from '../engine/reads/compiled-read.js';

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
  /** Grows when users, policies or the schema change. Answers that were read before must not be sent after. */
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
