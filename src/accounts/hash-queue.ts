/**
 * The queue of passwords that wait to be hashed. A hash keeps a processor busy for tens of milliseconds by design, so only a few run at the
 * same time, and only so many wait. The next one is that of the source with the fewest hashes of late: a source that sends many at
 * once delays itself, and hardly anybody else.
 */
import { networkOf } from '../access/addresses.js';
import { requestsExceeded, serviceUnavailable } from '../base/errors.js';
import { growingCache } from '../base/growing-cache.js';

interface HashLimits {
  readonly atOnce: number;
  /** Waiting, of all sources and of one source. */
  readonly waiting: number;
  readonly waitingPerSource: number;
  /** A hash that has waited longer is refused. */
  readonly maxWaitMs: number;
}

/** After this time half of a source's hashes are forgotten. */
const HALF_LIFE_MS = 10_000;
const MAX_REMEMBERED = 10_000;

interface Waiting {
  readonly source: string;
  readonly hasLeft: () => boolean;
  readonly begin: () => void;
  readonly refuse: (error: Error) => void;
}

export class HashQueue {
  /** In the order of arrival. */
  readonly #waiting = new Set<Waiting>();
  /** The hashes that sources have asked for lately, and when the last one was. */
  readonly #recent = growingCache<{ count: number; at: number }>(MAX_REMEMBERED);
  #running = 0;

  constructor(private readonly limits: HashLimits) {}

  /** `address` is the client's; '' for the service itself. Rejects at once where too many wait, and after the longest wait. */
  async run<Result>(address: string, hasLeft: () => boolean, work: () => Promise<Result>): Promise<Result> {
    const source = networkOf(address);
    this.#count(source);
    if (this.#running < this.limits.atOnce) this.#running++;
    else await this.#wait(source, hasLeft);
    try {
      return await work();
    } finally {
      // On the next turn of the event loop: without the native library, hashes block it.
      setImmediate(() => this.#next());
    }
  }

  #wait(source: string, hasLeft: () => boolean): Promise<void> {
    this.#makeRoom(source);
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(entry);
      };
      const entry: Waiting = {
        source,
        hasLeft,
        begin: () => {
          settle();
          resolve();
        },
        refuse: (error) => {
          settle();
          reject(error);
        },
      };
      const timer = setTimeout(() => entry.refuse(tooMany()), this.limits.maxWaitMs);
      this.#waiting.add(entry);
    });
  }

  /** Where the queue is full, the last hash of the busiest source gives way, unless the new one is of that source. */
  #makeRoom(source: string): void {
    const { waiting, waitingPerSource } = this.limits;
    const own = [...this.#waiting].filter((each) => each.source === source).length;
    if (own >= waitingPerSource) throw requestsExceeded({ limit: waitingPerSource }, RETRY_MS);
    if (this.#waiting.size < waiting) return;
    const last = this.#busiest();
    if (!last || this.#load(last.source) <= this.#load(source)) throw tooMany();
    last.refuse(requestsExceeded({ limit: waiting }, RETRY_MS));
  }

  #busiest(): Waiting | null {
    let found: Waiting | null = null;
    for (const each of this.#waiting) if (!found || this.#load(each.source) >= this.#load(found.source)) found = each;
    return found;
  }

  #next(): void {
    let found: Waiting | null = null;
    for (const each of this.#waiting) {
      if (each.hasLeft()) each.refuse(tooMany());
      else if (!found || this.#load(each.source) < this.#load(found.source)) found = each;
    }
    if (found) found.begin();
    else this.#running--;
  }

  #load(source: string): number {
    const recent = this.#recent.get(source);
    return recent ? recent.count * 0.5 ** ((performance.now() - recent.at) / HALF_LIFE_MS) : 0;
  }

  #count(source: string): void {
    this.#recent.set(source, { count: this.#load(source) + 1, at: performance.now() });
  }
}

const RETRY_MS = 1_000;

const tooMany = (): Error => serviceUnavailable('passwords', 'Too many passwords are waiting to be checked');
