/**
 * Connections of one kind: at most so many, and who comes later waits, but not for ever. It knows the state of each of them:
 * one that is lost makes room for another at once.
 */
import { serviceUnavailable } from '../errors.js';
import type { WireState } from './wire.js';

/** A connection that is lent. */
export interface Pooled {
  readonly lost: boolean;
  readonly state: WireState;
  /** Whether the next user may have it as it is. */
  readonly isClean: boolean;
  /** Whether it has to be asked for a sign of life first. */
  readonly isDoubtful: boolean;
  probe(): Promise<boolean>;
  /** Ends when nothing is on its way, at the latest after so many milliseconds. */
  close(grace: number): Promise<void>;
  /** Ends at once. */
  destroy(): void;
}

/** `onLost` is to be called when the connection is lost, `count` for each statement. */
export type Make<Connection> = (onLost: () => void, count: () => void) => Connection;

/** How many connections there are, and what they do. */
export interface PoolState {
  readonly most: number;
  /** Those that are lent. */
  readonly busy: number;
  readonly idle: number;
  readonly opening: number;
  /** Users that wait for one. */
  readonly waiting: number;
  /** Whether somebody has waited in vain, and nobody has got one since. */
  readonly isStarved: boolean;
}

/** Milliseconds after which a connection is renewed: what PostgreSQL keeps for it grows. */
const LIFETIME = 1_800_000;

/** Milliseconds that a connection gets to end in peace. */
const FAREWELL = 1_000;

export class Pool<Connection extends Pooled> {
  /** Statements so far, those that begin and end transactions included. */
  sent = 0;
  readonly #make: Make<Connection>;
  readonly #max: number;
  readonly #waitTimeout: number;
  readonly #idle: Connection[] = [];
  readonly #waiting: ((connection: Connection) => void)[] = [];
  /** With the time at which each is to be renewed. */
  readonly #all = new Map<Connection, number>();
  #isStarved = false;

  /** `waitTimeout` in milliseconds. */
  constructor(max: number, waitTimeout: number, make: Make<Connection>) {
    this.#max = max;
    this.#waitTimeout = waitTimeout;
    this.#make = make;
  }

  get connections(): PoolState {
    const states = [...this.#all.keys()].map(({ state }) => state);
    return {
      most: this.#max,
      busy: this.#all.size - this.#idle.length,
      idle: this.#idle.length,
      opening: states.filter((state) => state === 'opening').length,
      waiting: this.#waiting.length,
      isStarved: this.#isStarved,
    };
  }

  async use<Result>(work: (connection: Connection) => Promise<Result>): Promise<Result> {
    const connection = await this.#acquire();
    try {
      return await work(connection);
    } finally {
      this.#release(connection);
    }
  }

  async close(grace: number): Promise<void> {
    await Promise.all([...this.#all.keys()].map((connection) => connection.close(grace)));
  }

  #acquire(): Connection | Promise<Connection> {
    const idle = this.#idle.pop();
    if (idle) return idle.isDoubtful ? this.#prove(idle) : idle;
    return this.#all.size < this.#max ? this.#open() : this.#wait();
  }

  /** Nothing was sent on it yet: another one does as well. */
  async #prove(connection: Connection): Promise<Connection> {
    if (await connection.probe()) return connection;
    this.#discard(connection);
    return this.#acquire();
  }

  #wait(): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const give = (connection: Connection): void => {
        clearTimeout(timer);
        resolve(connection);
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(give), 1);
        this.#isStarved = true;
        reject(serviceUnavailable('database', 'All connections are taken'));
      }, this.#waitTimeout);
      this.#waiting.push(give);
    });
  }

  #open(): Connection {
    const connection = this.#make(
      () => this.#lose(connection),
      () => this.sent++,
    );
    this.#all.set(connection, performance.now() + LIFETIME * (0.75 + Math.random() / 2));
    return connection;
  }

  /** One that is lent is let go of when its user is done. */
  #lose(connection: Connection): void {
    const position = this.#idle.indexOf(connection);
    if (position < 0) return;
    this.#idle.splice(position, 1);
    this.#all.delete(connection);
  }

  #release(connection: Connection): void {
    this.#isStarved = false;
    const isSpent = connection.lost || !connection.isClean || performance.now() > (this.#all.get(connection) ?? 0);
    if (isSpent) this.#discard(connection);
    const next = this.#waiting.shift();
    if (next) next(isSpent ? this.#open() : connection);
    else if (!isSpent) this.#idle.push(connection);
  }

  #discard(connection: Connection): void {
    this.#all.delete(connection);
    if (connection.lost) return;
    if (connection.isClean) void connection.close(FAREWELL);
    else connection.destroy();
  }
}
