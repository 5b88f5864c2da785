/** Options of a new connection. */
import type { Socket } from 'node:net';
import type postgres from 'postgres';
import type { ResponseMemory } from './response-memory.js';
import type { Target } from './socket.js';
import type { TimeLimits, Watchdog } from './watchdog.js';

/**
 * The pooler between the service and PostgreSQL. `session`: a backend for each connection, but no settings at its start. `transaction`:
 * a backend for each transaction.
 */
export type Pooler = 'none' | 'session' | 'transaction';

export type DriverClient = postgres.Sql;

/** Settings of PostgreSQL by name. */
export type Settings = Readonly<Record<string, string>>;

/** Opens a client of the driver that uses this socket. */
type OpenClient = (socket: () => Promise<Socket>) => DriverClient;

/** Which of several servers a connection is opened to. */
export interface ServerChoice {
  /** Fails if it is not the wanted server. */
  accept(client: DriverClient): Promise<void>;
  /** Called when the server is left. Returns how to forget it. */
  onLeave(listener: () => void): () => void;
  /** The server refuses to write. */
  suspect(): void;
}

/** The server of a connection, its time limits and its watchdog. */
export interface ConnectionOptions {
  readonly target: Target;
  /** In which schemas names are looked up. */
  readonly scope: string;
  readonly open: OpenClient;
  readonly pooler: Pooler;
  /** Behind a pooler: what is set for the session, or for each transaction. */
  readonly settings: Settings;
  /** Which of several servers to choose, or null if there is one. */
  readonly choice: ServerChoice | null;
  readonly limits: TimeLimits;
  readonly watchdog: Watchdog;
  /** Memory for large answers. */
  readonly memory: ResponseMemory;
  readonly onnotify?: (channel: string, payload: string) => void;
  /** Called when the connection is lost or could not be opened. With it, the connection is not opened again. */
  readonly onclose?: () => void;
}
