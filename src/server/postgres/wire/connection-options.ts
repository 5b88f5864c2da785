/** Options of a new connection. */
import type postgres from 'postgres';
import type { ConnectionSettings } from '../../config/connection-settings.js';
import type { ResponseMemory } from './response-memory.js';
import type { TimeLimits, Watchdog } from './watchdog.js';

/**
 * The pooler between the service and PostgreSQL. `session`: a backend for each connection, but no settings at its start. `transaction`:
 * a backend for each transaction.
 */
export type Pooler = 'none' | 'session' | 'transaction';

/** A client of the driver with one connection. */
export interface DriverClient extends Pick<postgres.Sql, 'unsafe'> {
  end(): Promise<void>;
}

/** Settings of PostgreSQL by name. */
export type Settings = Readonly<Record<string, string>>;

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
  /** Where to connect now: with several servers, the primary. */
  readonly target: () => ConnectionSettings;
  /** In which schemas names are looked up. */
  readonly scope: string;
  /** The settings that the session starts with. */
  readonly parameters: Settings;
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
