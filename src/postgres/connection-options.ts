/** What a connection is told when it is made. */
import type { Socket } from 'node:net';
import type postgres from 'postgres';
import type { ResponseMemory } from './response-memory.js';
import type { Target } from './socket.js';
import type { TimeLimits, Watchdog } from './watchdog.js';

export type DriverClient = postgres.Sql;

/** Opens a client of the driver that uses this socket. */
export type OpenClient = (socket: () => Promise<Socket>) => DriverClient;

/** Where a connection goes, how long it may take, and who looks after it. */
export interface ConnectionOptions {
  readonly target: Target;
  /** In which schemas names are looked up. */
  readonly scope: string;
  readonly open: OpenClient;
  readonly limits: TimeLimits;
  readonly watchdog: Watchdog;
  /** Memory for large answers. */
  readonly memory: ResponseMemory;
  readonly onnotify?: (channel: string, payload: string) => void;
  /** Where it must not be opened again: called when it is lost, or could not be opened. */
  readonly onclose?: () => void;
}
