/**
 * Connections that one user holds for a while: transactions and streams. Each is a client of the driver with a single
 * connection, because the driver's own reservations do not survive the death of a backend (porsager/postgres#1195, #1208):
 * waiting ones are never answered, and a statement on a dead one ends the process. A session that lost its connection
 * refuses every further statement, since the driver would send it on a new connection, outside of the transaction.
 */
import { serviceUnavailable } from '../errors.js';
import { type Client, type Errand, keep, type Wire } from './wire.js';

/** Milliseconds. */
const LIFETIME = 1_800_000;

export class Session {
  readonly client: Client;
  /** When the connection is to be renewed: the statements prepared on it are never dropped. */
  readonly expires = performance.now() + LIFETIME * (0.75 + Math.random() / 2);
  readonly #afterwards = new Set<() => Promise<void>>();
  readonly #count: () => void;
  #lost = false;

  /** Those who wait for an answer: of several statements on their way the driver fails only the first when a connection breaks. */
  readonly #waiting = new Set<(error: Error) => void>();

  readonly #wire: Wire | null;

  /** `count` is called for each statement. */
  constructor(open: OpenConnection, count: () => void = () => {}) {
    this.#count = count;
    const { client, wire } = open(() => {
      this.#lost = true;
      for (const reject of this.#waiting) reject(connectionLost());
      this.#waiting.clear();
    });
    this.client = client;
    this.#wire = wire;
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
    if (this.#lost) throw connectionLost();
    this.#count();
    return this.client.unsafe(text, parameters as string[], options);
  }

  /** The first cell of the last row, as the bytes PostgreSQL wrote. */
  async cell(text: string, parameters: readonly (string | null)[], prepare = true): Promise<Buffer | null> {
    // Executed now: one that is only awaited would be sent after those that are executed behind it.
    const query = this.query(text, parameters, cellOptions(prepare)).raw();
    const rows = (await this.#answer(query.execute())) as unknown as Buffer[][];
    return rows.at(-1)?.[0] ?? null;
  }

  /** A transaction whose statements are sent together, in one round trip; answers the cell of each. */
  together(statements: readonly Prepared[]): Promise<(Buffer | null)[]> {
    const wire = this.#wire;
    if (this.#lost || !wire) throw connectionLost();
    const cells: (Buffer | null)[] = statements.map(() => null);
    return new Promise((resolve, reject) => {
      const errands = statements.map(({ text, parameters, prepare, columns }, position): Errand => {
        this.#count();
        return {
          text,
          parameters,
          prepare,
          columns: columns ?? null,
          row: (_, cell) => {
            cells[position] = keep(cell);
          },
          // All of them end together.
          end: (error) => (error === null ? resolve(cells) : reject(error)),
        };
      });
      wire.run(...errands);
    });
  }

  #answer<Rows>(query: PromiseLike<Rows>): Promise<Rows> {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      query.then(
        (rows) => {
          this.#waiting.delete(reject);
          resolve(rows);
        },
        (error: unknown) => {
          this.#waiting.delete(reject);
          reject(error);
        },
      );
    });
  }

  /** To be done when the running transaction has been committed, before its result is handed on; once, however often it is asked for. */
  afterwards(work: () => Promise<void>): void {
    this.#afterwards.add(work);
  }

  /** What was done is undone if anything fails, the commit included. */
  async transaction<Result>(work: () => Promise<Result>): Promise<Result> {
    // Sent together with the first statement of the work: one round trip less.
    const begun = this.#answer(this.query('begin').execute());
    begun.catch(() => {});
    try {
      const result = await work();
      await begun;
      await this.#answer(this.query('commit').execute());
      const afterwards = [...this.#afterwards];
      this.#afterwards.clear();
      for (const next of afterwards) await next();
      return result;
    } catch (error) {
      this.#afterwards.clear();
      if (!this.#lost) await this.query('rollback').catch(() => {});
      throw error;
    }
  }
}

function connectionLost(): Error {
  return serviceUnavailable('database', 'The connection was lost');
}

/** The driver would send a statement without parameters as plain text, to be planned each time: also where it is to be prepared. */
export function cellOptions(prepare: boolean): { prepare: boolean } {
  return prepare ? ({ prepare, simple: false } as { prepare: boolean }) : { prepare };
}

export interface Prepared {
  readonly text: string;
  readonly parameters: readonly (string | null)[];
  /** Whether the connection keeps it. */
  readonly prepare: boolean;
  /** Of its rows; null where nobody looks at them. */
  readonly columns?: 1 | null;
}

export interface Connection {
  readonly client: Client;
  /** Null where the driver alone uses it. */
  readonly wire: Wire | null;
}

export type OpenConnection = (onclose: () => void) => Connection;

/** At most so many sessions; who comes later waits. */
export class SessionPool {
  /** Statements so far, those that begin and end transactions included. */
  sent = 0;
  readonly #open: OpenConnection;
  readonly #max: number;
  readonly #waitTimeout: number;
  readonly #idle: Session[] = [];
  readonly #waiting: ((session: Session) => void)[] = [];
  readonly #all = new Set<Session>();

  /** `waitTimeout` in milliseconds. */
  constructor(max: number, waitTimeout: number, open: OpenConnection) {
    this.#max = max;
    this.#waitTimeout = waitTimeout;
    this.#open = open;
  }

  get connections(): { readonly most: number; readonly busy: number; readonly waiting: number } {
    return { most: this.#max, busy: this.#all.size - this.#idle.length, waiting: this.#waiting.length };
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
    const session = new Session(this.#open, () => this.sent++);
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
