/**
 * Connections of one kind: at most so many. Later users wait for a limited time. The pool knows the state of each connection and
 * replaces a lost one at once.
 */
import { serviceUnavailable } from '../../base/errors.js';
import type { ConnectionState } from '../wire/connection.js';

/** A connection that one user at a time has. */
export interface Pooled {
  readonly lost: boolean;
  readonly state: ConnectionState;
  /** Whether the next user may have it as it is. */
  readonly isClean: boolean;
  /** Whether it must be probed before it is used. */
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
  /** Connections in use. */
  readonly busy: number;
  readonly idle: number;
  readonly opening: number;
  /** Users that wait for a connection. */
  readonly waiting: number;
  /** Whether a user has waited in vain, and none has got a connection since. */
  readonly isStarved: boolean;
}

/**
 * Called from time to time while users wait, with the user of each connection and the waiting users, by name. May end the use of
 * a connection that takes too long.
 */
export type Relieve<Connection> = (inUse: ReadonlyMap<Connection, string>, waiting: readonly string[]) => void;

/** Milliseconds between two of these calls. */
const RELIEF_INTERVAL_MS = 500;

interface Waiting<Connection> {
  readonly user: string;
  readonly give: (connection: Connection) => void;
  readonly refuse: (reason: Error) => void;
}

/** Milliseconds after which a connection is renewed: what PostgreSQL keeps for it grows. */
const MAX_LIFETIME_MS = 1_800_000;

/** Milliseconds that a connection gets to end in peace. */
const CLOSE_GRACE_MS = 1_000;

export class Pool<Connection extends Pooled> {
  /** How many statements were sent, including those that begin and end transactions. */
  sent = 0;
  readonly #idle: Connection[] = [];
  readonly #waiting: Waiting<Connection>[] = [];
  /** The connections in use, each with its user. */
  readonly #inUse = new Map<Connection, string>();
  #relief: NodeJS.Timeout | null = null;
  /** With the time at which each is to be renewed. */
  readonly #all = new Map<Connection, number>();
  #isStarved = false;
  #isClosed = false;

  /** `waitTimeout` in milliseconds. */
  constructor(
    readonly max: number,
    private readonly waitTimeout: number,
    private readonly make: Make<Connection>,
    private readonly relieve: Relieve<Connection> | null = null,
  ) {}

  get connections(): PoolState {
    const states = [...this.#all.keys()].map(({ state }) => state);
    return {
      most: this.max,
      busy: this.#all.size - this.#idle.length,
      idle: this.#idle.length,
      opening: states.filter((state) => state === 'opening').length,
      waiting: this.#waiting.length,
      isStarved: this.#isStarved,
    };
  }

  /** If several users wait, the one with the fewest connections is next. */
  async use<Result>(work: (connection: Connection) => Promise<Result>, user = ''): Promise<Result> {
    const connection = await this.#acquire(user);
    this.#inUse.set(connection, user);
    try {
      return await work(connection);
    } finally {
      this.#release(connection);
    }
  }

  /** Waiting users fail at once, and no connection is opened. */
  async close(grace: number): Promise<void> {
    this.#isClosed = true;
    for (const { refuse } of this.#waiting.splice(0)) refuse(stopped());
    await Promise.all([...this.#all.keys()].map((connection) => connection.close(grace)));
  }

  #acquire(user: string): Connection | Promise<Connection> {
    if (this.#isClosed) throw stopped();
    const idle = this.#idle.pop();
    if (idle) return idle.isDoubtful ? this.#prove(idle, user) : idle;
    return this.#all.size < this.max ? this.#open() : this.#wait(user);
  }

  /** Nothing was sent on it yet, so another connection will do. */
  async #prove(connection: Connection, user: string): Promise<Connection> {
    if (await connection.probe()) return connection;
    this.#discard(connection);
    return this.#acquire(user);
  }

  #wait(user: string): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const give = (connection: Connection): void => {
        clearTimeout(timer);
        resolve(connection);
      };
      const refuse = (reason: Error): void => {
        clearTimeout(timer);
        reject(reason);
      };
      const waiting = { user, give, refuse };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        this.#isStarved = true;
        refuse(serviceUnavailable('database', 'All connections are taken', { option: 'DATABASE_WAIT_TIMEOUT' }));
      }, this.waitTimeout);
      this.#waiting.push(waiting);
      if (this.relieve) this.#relief ??= setInterval(() => this.#look(), RELIEF_INTERVAL_MS).unref();
    });
  }

  #look(): void {
    if (this.#waiting.length > 0)
      this.relieve?.(
        this.#inUse,
        this.#waiting.map(({ user }) => user),
      );
    else if (this.#relief) {
      clearInterval(this.#relief);
      this.#relief = null;
    }
  }

  #next(): Waiting<Connection> | undefined {
    if (this.relieve === null || this.#waiting.length < 2) return this.#waiting.shift();
    const inUseBy = new Map<string, number>();
    for (const user of this.#inUse.values()) inUseBy.set(user, (inUseBy.get(user) ?? 0) + 1);
    const least = Math.min(...this.#waiting.map(({ user }) => inUseBy.get(user) ?? 0));
    const position = this.#waiting.findIndex(({ user }) => (inUseBy.get(user) ?? 0) === least);
    return this.#waiting.splice(position, 1)[0];
  }

  #open(): Connection {
    const connection = this.make(
      () => this.#lose(connection),
      () => this.sent++,
    );
    this.#all.set(connection, performance.now() + MAX_LIFETIME_MS * (0.75 + Math.random() / 2));
    return connection;
  }

  /** A connection in use is dropped when its user is done. */
  #lose(connection: Connection): void {
    const position = this.#idle.indexOf(connection);
    if (position < 0) return;
    this.#idle.splice(position, 1);
    this.#all.delete(connection);
  }

  #release(connection: Connection): void {
    this.#isStarved = false;
    this.#inUse.delete(connection);
    const isSpent = connection.lost || !connection.isClean || performance.now() > (this.#all.get(connection) ?? 0);
    if (isSpent) this.#discard(connection);
    const next = this.#next();
    if (next) next.give(isSpent ? this.#open() : connection);
    else if (!isSpent) this.#idle.push(connection);
  }

  #discard(connection: Connection): void {
    this.#all.delete(connection);
    if (connection.lost) return;
    if (connection.isClean) void connection.close(CLOSE_GRACE_MS);
    else connection.destroy();
  }
}

function stopped(): Error {
  return serviceUnavailable('database', 'The service is stopping');
}
