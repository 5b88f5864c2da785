/**
 * The connection of a stream: the driver reads it, through a cursor. Since the driver may leave a statement unanswered when
 * its connection breaks, whoever waits here is answered by the loss of the connection as well.
 */
import type { Socket } from 'node:net';
import { serviceUnavailable } from '../errors.js';
import type { ConnectionState } from './connection.js';
import { closed, connectionLost } from './connection-errors.js';
import type { Client } from './connection-options.js';
import { type Joiner, openDriverSocket } from './driver-socket.js';
import type { Pooled } from './pool.js';
import { cancelStatement, failingSocket, type Target } from './socket.js';
import { PROBE_TIMEOUT_MS, TRUSTED_IDLE_MS, type Watchdog, type Watched } from './watchdog.js';

export interface StreamOptions {
  readonly target: Target;
  readonly joiner: Joiner;
  readonly watchdog: Watchdog;
  /** Opens a client of the driver that uses this socket. */
  readonly open: (socket: () => Promise<Socket>, onclose: () => void) => Client;
}

type DriverQuery = ReturnType<Client['unsafe']>;
type Raw = ReturnType<DriverQuery['raw']>;

export class StreamConnection implements Pooled, Watched {
  readonly client: Client;
  readonly joiner: Joiner;
  readonly #options: StreamOptions;
  readonly #onLost: () => void;
  readonly #count: () => void;
  readonly #waiting = new Set<(error: Error) => void>();
  #socket: Socket | null = null;
  #lost = false;
  #doubtful = false;
  /** Statements so far, as the last look has found them, and since when. */
  #queries = 0;
  #seen = 0;
  #since = 0;

  constructor(options: StreamOptions, onLost: () => void, count: () => void) {
    this.#options = options;
    this.#onLost = onLost;
    this.#count = count;
    this.joiner = options.joiner;
    this.client = options.open(
      () => this.#connect(),
      () => this.#lose(),
    );
    options.watchdog.add(this);
  }

  get lost(): boolean {
    return this.#lost;
  }

  get state(): ConnectionState {
    if (this.#socket === null || this.#lost) return this.#waiting.size > 0 ? 'opening' : 'closed';
    return this.#waiting.size > 0 ? 'busy' : 'idle';
  }

  /** Since when what was read waits for the reader; null when it does not. */
  stalledSince: number | null = null;

  /** For how many milliseconds the reader has taken nothing. */
  stalled(now: number): number {
    return this.stalledSince === null ? 0 : now - this.stalledSince;
  }

  /** Others wait for a connection, and this one waits for its reader. */
  breakOff(): void {
    this.#lose(serviceUnavailable('database', 'The stream was read too slowly while others waited for a connection'));
    this.destroy();
  }

  /** A statement that failed after some rows spoils the next result of its connection (porsager/postgres#1181). */
  isClean = true;

  get isDoubtful(): boolean {
    return this.#doubtful;
  }

  doubt(): void {
    this.#doubtful = true;
  }

  check(now: number): void {
    if (this.#queries !== this.#seen || this.#waiting.size > 0) {
      this.#seen = this.#queries;
      this.#since = now;
    } else this.#doubtful ||= now - this.#since >= TRUSTED_IDLE_MS;
  }

  async probe(): Promise<boolean> {
    const timer = setTimeout(() => this.destroy(), PROBE_TIMEOUT_MS);
    try {
      await this.answer(this.query('select 1', [], false));
      this.#doubtful = false;
      return true;
    } catch {
      return false;
    } finally {
      clearTimeout(timer);
    }
  }

  /** To be executed by who asks for it. */
  query(text: string, parameters: readonly (string | null)[], prepare: boolean): DriverQuery {
    if (this.#lost) throw connectionLost();
    this.#count();
    this.#queries++;
    return this.client.unsafe(text, parameters as string[], { prepare });
  }

  /** What becomes of a statement, at the latest when the connection is lost. */
  answer<Result>(query: PromiseLike<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      if (this.#lost) return reject(connectionLost());
      this.#waiting.add(reject);
      query.then(
        (result) => {
          this.#waiting.delete(reject);
          resolve(result);
        },
        (error: unknown) => {
          this.#waiting.delete(reject);
          reject(error);
        },
      );
    });
  }

  /** Asks PostgreSQL to stop the statement; resolves when it has been heard, or cannot be. */
  async stop(query: Raw): Promise<void> {
    const { state } = query as unknown as { state: { pid: number; secret: number } | null };
    if (!state || !this.#socket) return;
    const key = Buffer.alloc(8);
    key.writeUInt32BE(state.pid, 0);
    key.writeUInt32BE(state.secret, 4);
    await cancelStatement(this.#options.target, this.#socket, key);
  }

  async close(grace: number): Promise<void> {
    const timer = setTimeout(() => this.destroy(), grace);
    await Promise.race([
      this.client.end({ timeout: grace / 1_000 }),
      new Promise((resolve) => setTimeout(resolve, grace).unref()),
    ]).catch(() => {});
    clearTimeout(timer);
    this.destroy();
  }

  destroy(): void {
    this.#lose();
    this.#socket?.destroy();
    this.#socket = null;
    void this.client.end({ timeout: 0 }).catch(() => {});
  }

  #lose(reason: Error = connectionLost()): void {
    if (this.#lost) return;
    this.#lost = true;
    this.#options.watchdog.remove(this);
    this.#options.watchdog.lost++;
    for (const reject of this.#waiting) reject(reason);
    this.#waiting.clear();
    this.#onLost();
  }

  async #connect(): Promise<Socket> {
    try {
      const socket = await openDriverSocket(this.#options.target, this.joiner);
      if (this.#lost) {
        socket.destroy();
        throw closed();
      }
      this.#socket = socket;
      return socket;
    } catch (error) {
      return failingSocket(error as Error);
    }
  }
}
