/** How many subscriptions there are, and whose. */
import { requestsExceeded, serviceUnavailable } from '../errors.js';

export interface SubscriptionLimits {
  readonly subscriptions: number;
  readonly perCaller: number;
}

/** Milliseconds after which a caller may try again. */
const RETRY_MS = 1_000;

export class SubscriptionCounts {
  readonly #limits: SubscriptionLimits;
  readonly #owners = new Map<string, number>();
  total = 0;

  constructor(limits: SubscriptionLimits) {
    this.#limits = limits;
  }

  enter(): void {
    const { subscriptions: limit } = this.#limits;
    if (this.total >= limit)
      throw serviceUnavailable('live', 'There are too many subscriptions', { option: 'LIVE_MAX_SUBSCRIPTIONS', limit });
    this.total++;
  }

  /** Throws where the owner has too many; answers the owner. */
  own(owner: string): string {
    const { perCaller: limit } = this.#limits;
    const owned = this.#owners.get(owner) ?? 0;
    if (owned >= limit) throw requestsExceeded({ option: 'LIVE_MAX_SUBSCRIPTIONS_PER_USER', limit }, RETRY_MS);
    this.#owners.set(owner, owned + 1);
    return owner;
  }

  leave(owner: string | null): void {
    this.total--;
    if (owner === null) return;
    const owned = (this.#owners.get(owner) ?? 0) - 1;
    if (owned > 0) this.#owners.set(owner, owned);
    else this.#owners.delete(owner);
  }
}
