/**
 * Connections that one user holds for a while: transactions and streams. Each is a client of the driver with a single
 * connection, because the driver's own reservations do not survive the death of a backend (porsager/postgres#1195, #1208):
 * waiting ones are never answered, and a statement on a dead one ends the process. A session that lost its connection
 * refuses every further statement, since the driver would send it on a new connection, outside of the transaction.
 */
import type postgres from 'postgres';
import { serviceUnavailable } from '../errors.js';

export type Client = postgres.Sql;

/** Milliseconds. */
const LIFETIME = 1_800_000;

export class Session {
  readonly client: Client;
  /** When the connection is to be renewed: the statements prepared on it are never dropped. */
  readonly expires = performance.now() + LIFETIME * (0.75 + Math.random() / 2);
  #lost = false;

  constructor(open: (onclose: () => void) => Client) {
    this.client = open(() => {
      this.#lost = true;
    });
  }

  get lost(): boolean {
    return this.#lost;
  }

  /** A statement of this session; its parameters are texts. */
  query(
    text: string,
    parameters: readonly (string | null)[] = [],
    options: { prepare?: boolean } = {},
  ): ReturnType<Client['unsafe']> {
    if (this.#lost) throw serviceUnavailable('database', 'The connection was lost');
    return this.client.unsafe(text, parameters as string[], options);
  }

  /** The first cell of the last row, as the bytes PostgreSQL wrote. */
  async cell(text: string, parameters: readonly (string | null)[], prepare = true): Promise<Buffer | null> {
    const rows = (await this.query(text, parameters, { prepare }).raw()) as unknown as Buffer[][];
    return rows.at(-1)?.[0] ?? null;
  }

  /** What was done is undone if anything fails, the commit included. */
  async transaction<Result>(work: () => Promise<Result>): Promise<Result> {
    // Sent together with the first statement of the work: one round trip less.
    const begun = this.query('begin').execute();
    begun.catch(() => {});
    try {
      const result = await work();
      await begun;
      await this.query('commit');
      return result;
    } catch (error) {
      if (!this.#lost) await this.query('rollback').catch(() => {});
      throw error;
    }
  }
}

/** At most so many sessions; who comes later waits. */
export class SessionPool {
  readonly #open: (onclose: () => void) => Client;
  readonly #max: number;
  readonly #waitTimeout: number;
  readonly #idle: Session[] = [];
  readonly #waiting: ((session: Session) => void)[] = [];
  readonly #all = new Set<Session>();

  /** `waitTimeout` in milliseconds. */
  constructor(max: number, waitTimeout: number, open: (onclose: () => void) => Client) {
    this.#max = max;
    this.#waitTimeout = waitTimeout;
    this.#open = open;
  }

  async use<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    const session = await this.#acquire();
    try {
      return await work(session);
    } finally {
      this.#release(session);
    }
  }

  async close(timeout: number): Promise<void> {
    await Promise.all([...this.#all].map(({ client }) => client.end({ timeout })));
  }

  #acquire(): Session | Promise<Session> {
    for (let idle = this.#idle.pop(); idle; idle = this.#idle.pop()) {
      if (!idle.lost) return idle;
      this.#discard(idle);
    }
    if (this.#all.size < this.#max) return this.#make();
    return this.#wait();
  }

  #wait(): Promise<Session> {
    return new Promise((resolve, reject) => {
      const give = (session: Session): void => {
        clearTimeout(timer);
        resolve(session);
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(give), 1);
        reject(serviceUnavailable('database', 'All connections are taken'));
      }, this.#waitTimeout);
      this.#waiting.push(give);
    });
  }

  #make(): Session {
    const session = new Session(this.#open);
    this.#all.add(session);
    return session;
  }

  #release(session: Session): void {
    const spent = session.lost || performance.now() > session.expires;
    if (spent) this.#discard(session);
    const next = this.#waiting.shift();
    if (next) next(spent ? this.#make() : session);
    else if (!spent) this.#idle.push(session);
  }

  #discard(session: Session): void {
    this.#all.delete(session);
    void session.client.end({ timeout: 0 }).catch(() => {});
  }
}
