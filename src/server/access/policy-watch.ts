/**
 * Keeps the policies in step with the database: they are loaded again on each notification, and the former ones stay until
 * the new ones are whole.
 */
import type { Observer } from '../../base/observe.js';

/** The part of the database that this file needs. */
export interface PolicySource {
  /** The rows of all policies, as JSON. */
  load(): Promise<string>;
  /** Calls back on each notification. Returns how to stop. */
  listenForChanges(changed: () => void): Promise<() => Promise<void>>;
}

/** After a load that failed. */
const RETRY_AFTER_MS = 1_000;

type OnLoaded = (policies: string) => void;

export class PolicyWatch {
  #loading: Promise<void> | null = null;
  #again = false;
  #closed = false;
  #stop: (() => Promise<void>) | null = null;

  private constructor(
    private readonly source: PolicySource,
    private readonly observe: Observer,
    private readonly onLoaded: OnLoaded,
  ) {}

  /** Calls back with the policies each time they were loaded, the first time included. */
  static async start(source: PolicySource, observe: Observer, onLoaded: OnLoaded): Promise<PolicyWatch> {
    const watch = new PolicyWatch(source, observe, onLoaded);
    watch.#stop = await source.listenForChanges(() => void watch.reload());
    onLoaded(await source.load());
    return watch;
  }

  /** Resolves when policies that were read after the call are in force. */
  reload(): Promise<void> {
    this.#again = true;
    this.#loading ??= this.#load();
    return this.#loading;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#stop?.();
    await this.#loading;
  }

  async #load(): Promise<void> {
    while (this.#again && !this.#closed) {
      this.#again = false;
      try {
        this.onLoaded(await this.source.load());
      } catch (error) {
        if (this.#closed) break;
        this.observe({ kind: 'policies-failed', error });
        setTimeout(() => void this.reload(), RETRY_AFTER_MS).unref();
      }
    }
    this.#loading = null;
  }
}
