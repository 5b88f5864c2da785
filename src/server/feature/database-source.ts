/** A database for a service without DATABASE_URL. */
import type { Report } from './command.js';

export interface DatabaseSource {
  /** The URL of the database if a service runs it, or null. */
  findRunning(): Promise<string | null>;
  /** Why a command has no database, or null if it was created before. */
  obstacle(): Promise<string | null>;
  /** Starts it, and creates it at the first time. */
  start(options: DatabaseStart): Promise<StartedDatabase>;
}

interface DatabaseStart {
  readonly report: Report;
  readonly signal?: AbortSignal | undefined;
}

export interface StartedDatabase {
  readonly url: string;
  /** The folder that keeps the secret of the service. */
  readonly directory: string;
  /** Whether a new database gets the demo model. */
  readonly loadsDemo: boolean;
  /** Waits at most so many milliseconds. */
  stop(timeoutMs: number): Promise<void>;
}
