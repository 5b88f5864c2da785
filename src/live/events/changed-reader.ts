/** Reads items that were changed, for all who are told of them: so many at a time, those of each subscription in turn with others. */
import { callerName } from '../../access/identity.js';
import type { PreparedRead, Reads } from '../../engine/reads/reads.js';
import type { Parsed } from '../../request/ast.js';
import { withKeys } from '../../request/rest.js';
import type { LiveStats } from '../live-stats.js';
import { Places } from './semaphore.js';
import { itemIn } from './visible-items.js';

/** Reads at the same time: of all, and of those who are told the same. More would stand before those of requests. */
const MAX_RUNNING = 256;
const MAX_LANES = 64;

export class ChangedReader {
  readonly #reads: Reads;
  readonly #stats: LiveStats;
  readonly #places = new Places(MAX_RUNNING);

  constructor(reads: Reads, stats: LiveStats) {
    this.#reads = reads;
    this.#stats = stats;
  }

  /**
   * Those of the items that the query selects, by their keys; not all of them where nobody wants them any more. Reads of one
   * statement travel together: see `ReadBatcher`.
   */
  async read(
    prepared: PreparedRead<Parsed>,
    keys: readonly string[],
    isWanted: () => boolean,
  ): Promise<ReadonlyMap<string, Buffer>> {
    const items = new Map<string, Buffer>();
    const left = keys.values();
    let hasFailed = false;
    const lane = async (): Promise<void> => {
      for (const key of left) {
        if (hasFailed || !isWanted()) return;
        const item = await this.#places.run(() => this.#readOne(prepared, key));
        if (item !== null) items.set(key, item);
      }
    };
    try {
      await Promise.all(Array.from({ length: Math.min(MAX_LANES, keys.length) }, lane));
    } catch (error) {
      hasFailed = true;
      throw error;
    }
    return items;
  }

  #readOne(prepared: PreparedRead<Parsed>, key: string): Promise<Buffer | null> {
    this.#stats.reads++;
    const read = { ...prepared, query: withKeys(prepared.query, [key]) };
    return new Promise((resolve, reject) => {
      this.#reads.answer(read, {
        // A read that is left out would be answered as if there were no such item.
        aborted: false,
        caller: callerName(prepared.caller, { address: '' }),
        onResult: (cell) => resolve(itemIn(cell)),
        onError: reject,
      });
    });
  }
}
