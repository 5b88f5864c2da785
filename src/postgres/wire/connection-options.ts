/** Options of a new connection. */
import type { Socket } from 'node:net';
import type postgres from 'postgres';
import type { ResponseMemory } from './response-memory.js';
import type { Target } from './socket.js';
import type { TimeLimits, Watchdog } from './watchdog.js';

/** What is in between. `session`: a backend for each connection, but no settings at its start. `transaction`: one for each transaction. */
export type Pooler = 'none' | 'session' | 'transaction';

export type DriverClient = postgres.Sql;

/** Of PostgreSQL, by name. */
export type Settings = Readonly<Record<string, string>>;

/** Opens a client of the driver that uses this socket. */
type OpenClient = (socket: () => Promise<Socket>) => DriverClient;

/** Which server a connection is opened to, where several may be the one. */
export interface ServerChoice {
  /** Fails where the server is not the one that is wanted. */
  accept(client: DriverClient): Promise<void>;
  /** Called when the server is left. Returns how to forget it. */
  onLeave(listener: () => void): () => void;
  /** The server refuses to write. */
  suspect(): void;
}

/** Where a connection goes, how long it may take, and who looks after it. */
export interface ConnectionOptions {
  readonly target: Target;
  /** In which schemas names are looked up. */
  readonly scope: string;
  readonly open: OpenClient;
  readonly pooler: Pooler;
  /** Behind a pooler: what is set for the session, or for each transaction. */
  readonly settings: Settings;
  /** Null where there is no choice. */
  readonly choice: ServerChoice | null;
  readonly limits: TimeLimits;
  readonly watchdog: Watchdog;
  /** Memory for large answers. */
  readonly memory: ResponseMemory;
  readonly onnotify?: (channel: string, payload: string) => void;
  /** Where it must not be opened again: called when it is lost, or could not be opened. */
  readonly onclose?: () => void;
}
