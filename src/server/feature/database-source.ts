/** A database for a service without DATABASE_URL. */
import type { Config } from '../config/config.js';
import type { Report } from './command.js';

export interface DatabaseSource {
  /** The URL of the database if a service runs it, or null. */
  findRunning(config: Config): Promise<string | null>;
  /** Whether it was created before. */
  exists(config: Config): Promise<boolean>;
  /** Starts it, and creates it at the first time. */
  start(options: DatabaseStart): Promise<StartedDatabase>;
}

export interface DatabaseStart {
  readonly config: Config;
  readonly report: Report;
  /** Called after it has ended by itself and was started again. */
  readonly restarted: (message: string) => void;
  readonly signal?: AbortSignal | undefined;
}

interface StartedDatabase {
  readonly url: string;
  /** Waits at most so many milliseconds. */
  stop(timeoutMs: number): Promise<void>;
}
