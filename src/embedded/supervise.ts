/** Keeps a server running: one that ends though nobody has stopped it is started again, until that works. */

import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../base/narrow.js';
import type { Postmaster } from './postmaster.js';

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const PAUSE = 100;
const LONGEST_PAUSE = 10_000;

/** Milliseconds after which a server that has ended counts as one that ran well. */
const STABLE = 60_000;

export class Supervised implements Postmaster {
  readonly #stopping = new AbortController();
  #watching: Promise<void>;

  /** `start` starts the same server once more, under the same address, unless it was stopped. */
  constructor(
    private current: Postmaster,
    private readonly start: (signal: AbortSignal) => Promise<Postmaster>,
    private readonly report: (message: string) => void,
  ) {
    this.#watching = this.#watch();
  }

  /** Of the server that runs now. */
  get ended(): Promise<string> {
    return this.current.ended;
  }

  async stop(patience?: number): Promise<void> {
    this.#stopping.abort();
    // One that is being started is waited for: it would be left behind otherwise.
    await this.current.stop(patience);
    await this.#watching;
    await this.current.stop(patience);
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stopping;
    let pause = PAUSE;
    for (;;) {
      const since = performance.now();
      const reason = await this.current.ended;
      if (signal.aborted) return;
      const lost = performance.now();
      this.report(`The embedded PostgreSQL exited (${reason}); restarting it`);
      if (lost - since > STABLE) pause = PAUSE;
      for (;;) {
        await sleep(pause, null, { signal }).catch(() => {});
        if (signal.aborted) return;
        pause = Math.min(pause * 2, LONGEST_PAUSE);
        try {
          this.current = await this.start(signal);
          break;
        } catch (error) {
          if (signal.aborted) return;
          this.report(`${messageOf(error)}; retrying`);
        }
      }
      this.report(`Restarted the embedded PostgreSQL after ${Math.round(performance.now() - lost)} ms`);
    }
  }
}
