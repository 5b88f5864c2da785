/** Counts subscriptions and the keys that they remember, in total and per owner. */
import { requestsExceeded, serviceUnavailable, unprocessable } from '../base/errors.js';

export interface SubscriptionLimits {
  readonly subscriptions: number;
  readonly perCaller: number;
  /** Keys that are remembered to report deletions. */
  readonly keys: number;
}

/** The part of the remembered keys that one owner may use. */
const SHARE_OF_CALLER = 0.25;

/** Milliseconds after which a caller may retry. */
const RETRY_MS = 1_000;

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
