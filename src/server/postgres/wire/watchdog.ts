/**
 * Checks all connections from time to time and ends those that do not answer: whatever a network or a server does, nobody
 * waits for ever. Connections only count what they do, and the time is taken here: the statements pay nothing for it.
 */
import { performance } from 'node:perf_hooks';

/** Milliseconds. */
export interface TimeLimits {
  /** For an answer to a statement; Infinity for none. */
  readonly statement: number;
  /** For statements that are sent together, after which PostgreSQL is asked to stop: its own limit applies to each of them alone. */
  readonly together: number;
  /** For a connection to be opened. */
  readonly connect: number;
  /** That a transaction may wait for its client: one whose client has left must not hold its locks for hours. */
  readonly transaction: number;
}

/** Beyond PostgreSQL's own limit on a statement, so that it is PostgreSQL that ends it wherever it still can. */
export const ANSWER_MARGIN_MS = 5_000;

/** Milliseconds without use after which a connection is asked whether it is alive before it is used, and for its answer. */
export const TRUSTED_IDLE_MS = 30_000;
export const PROBE_TIMEOUT_MS = 5_000;

/** If there is no limit for connecting. */
const MAX_CONNECT_MS = 60_000;

/** That a transaction may be idle: at least, and if statements have no limit. */
const MIN_TRANSACTION_IDLE_MS = 10_000;
const MAX_TRANSACTION_IDLE_MS = 60_000;

/** `statementTimeout` and `connectTimeout` in milliseconds, 0 for none. */
export function timeLimits(statementTimeout: number, connectTimeout: number, hosts: number): TimeLimits {
  return {
    statement: statementTimeout === 0 ? Infinity : statementTimeout + ANSWER_MARGIN_MS,
    together: statementTimeout === 0 ? Infinity : statementTimeout,
    connect: (connectTimeout === 0 ? MAX_CONNECT_MS : connectTimeout) * hosts + 1_000,
    transaction: statementTimeout === 0 ? MAX_TRANSACTION_IDLE_MS : Math.max(MIN_TRANSACTION_IDLE_MS, statementTimeout),
  };
}

/** Milliseconds between two checks. */
const CHECK_INTERVAL_MS = 500;

export interface Watched {
  /** `now` in milliseconds, of the watchdog's own clock. */
  check(now: number): void;
  /** Others did not answer: this one is to be asked whether it is alive before it is used. */
  doubt(): void;
  /** Ends at once; pending statements fail with the reason. */
  destroy(): void;
}

export class Watchdog {
  /** Connections that were lost, and those of them that did not answer in time. */
  lost = 0;
  timedOut = 0;
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | null = null;
  #seen = 0;
  #clock = 0;

  add(watched: Watched): void {
    this.#watched.add(watched);
    if (this.#timer) return;
    this.#seen = performance.now();
    this.#timer = setInterval(() => this.#look(), CHECK_INTERVAL_MS).unref();
  }

  remove(watched: Watched): void {
    this.#watched.delete(watched);
    if (this.#watched.size > 0 || !this.#timer) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  /** One that is silent is seldom alone: the way to the server may be cut. */
  doubtAll(): void {
    for (const watched of this.#watched) watched.doubt();
  }

  /** Their server is not the wanted one, or is lost. */
  destroyAll(): void {
    for (const watched of [...this.#watched]) watched.destroy();
  }

  /** Time in which this process stood still is no time in which a server could have been heard. */
  #look(): void {
    const now = performance.now();
    this.#clock += Math.min(now - this.#seen, 2 * CHECK_INTERVAL_MS);
    this.#seen = now;
    for (const watched of [...this.#watched]) watched.check(this.#clock);
  }
}
