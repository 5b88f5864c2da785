/**
 * Connections of one kind: at most so many. Later users wait in turn for a limited time. The pool knows the state of each connection and
 * replaces a lost one at once.
 */
import { serviceUnavailable } from '../../../base/errors.js';
import { Limiter, type LimiterOptions, OWN_TURN, type Turn } from '../../../base/limiter.js';
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

/** Milliseconds after which a connection is renewed: what PostgreSQL keeps for it grows. */
const MAX_LIFETIME_MS = 1_800_000;

/** Milliseconds that a connection gets to end in peace. */
const CLOSE_GRACE_MS = 1_000;

export interface PoolOptions<Connection> extends Pick<LimiterOptions, 'waitTimeout' | 'share'> {
  readonly relieve?: Relieve<Connection>;
}

export class Pool<Connection extends Pooled> {
  /** How many statements were sent, including those that begin and end transactions. */
  sent = 0;
  /** Decides who is next. */
  readonly turns: Limiter;
  readonly #idle: Connection[] = [];
  /** The connections in use, each with its user. */
  readonly #inUse = new Map<Connection, string>();
  readonly #relieve: Relieve<Connection> | null;
  #relief: NodeJS.Timeout | null = null;
  /** With the time at which each is to be renewed. */
  readonly #all = new Map<Connection, number>();

  constructor(
    readonly max: number,
    private readonly make: Make<Connection>,
    { relieve, ...options }: PoolOptions<Connection>,
  ) {
    this.turns = new Limiter(max, { ...options, refusal });
    this.#relieve = relieve ?? null;
  }

  get connections(): PoolState {
    const states = [...this.#all.keys()].map(({ state }) => state);
    return {
      most: this.max,
      busy: this.#all.size - this.#idle.length,
      idle: this.#idle.length,
      opening: states.filter((state) => state === 'opening').length,
      waiting: this.turns.waiting,
      isStarved: this.turns.isStarved,
    };
  }

  /** The connections in use, each with its user. */
  get inUse(): ReadonlyMap<Connection, string> {
    return this.#inUse;
  }

  /** The user gets a connection when it is its turn. */
  async use<Result>(work: (connection: Connection) => Promise<Result>, turn: Turn = OWN_TURN): Promise<Result> {
    const entered = this.turns.enter(turn);
    if (entered instanceof Promise && this.#relieve)
      this.#relief ??= setInterval(() => this.#look(), RELIEF_INTERVAL_MS).unref();
    const place = entered instanceof Promise ? await entered : entered;
    try {
      const connection = await this.#acquire();
      this.#inUse.set(connection, turn.caller);
      try {
        return await place.run(() => work(connection));
      } finally {
        this.#release(connection);
      }
    } finally {
      place.leave();
    }
  }

  /** Waiting users fail at once, and no connection is opened. */
  async close(grace: number): Promise<void> {
    this.turns.close();
    await Promise.all([...this.#all.keys()].map((connection) => connection.close(grace)));
  }

  /** A connection that nobody uses, or a new one. Work inside of other work may have one more than there are places. */
  async #acquire(): Promise<Connection> {
    for (let idle = this.#idle.pop(); idle; idle = this.#idle.pop()) {
      // Nothing was sent on it yet, so another connection will do.
      if (!idle.isDoubtful || (await idle.probe())) return idle;
      this.#discard(idle);
    }
    return this.#open();
  }

  #look(): void {
    if (this.turns.waiting > 0) this.#relieve?.(this.#inUse, this.turns.waitingCallers);
    else if (this.#relief) {
      clearInterval(this.#relief);
      this.#relief = null;
    }
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
    this.#inUse.delete(connection);
    const isSpent = connection.lost || !connection.isClean || performance.now() > (this.#all.get(connection) ?? 0);
    if (isSpent || this.#all.size > this.max) this.#discard(connection);
    else this.#idle.push(connection);
  }

  #discard(connection: Connection): void {
    this.#all.delete(connection);
    if (connection.lost) return;
    if (connection.isClean) void connection.close(CLOSE_GRACE_MS);
    else connection.destroy();
  }
}

function refusal(): Error {
  return serviceUnavailable('database', 'All connections are taken', { option: 'DATABASE_WAIT_TIMEOUT' });
}
