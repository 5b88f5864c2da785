/** The service inside of a Node program: `import { start } from 'lateral'`. */

import { createObserver } from './base/observe.js';
import { type OptionName, readConfig } from './config/config.js';
import { startService } from './service/start.js';

/** Options by the names of environment variables. Those of the process are not read: pass `...process.env` to use them. */
export type LateralOptions = {
  readonly [Name in OptionName | `AUTH_${string}`]?: string | number | boolean;
};

export interface Lateral {
  /** Where it listens. */
  readonly url: string;
  /** The first administrator, where this start has made one. */
  readonly administrator: { readonly email: string; readonly password: string; readonly token: string } | null;
  /** Resolves if the service fails later on: it must be stopped then. */
  readonly failure: Promise<Error>;
  /** Finishes what runs, then stops everything that was started. */
  stop(): Promise<void>;
}

/** Rejects with a message that says what is wrong if it cannot start. An aborted signal ends a start that takes too long. */
export async function start(options: LateralOptions = {}, signal?: AbortSignal): Promise<Lateral> {
  const texts = Object.entries(options).map(([name, value]) => [name, value === undefined ? undefined : String(value)]);
  const config = readConfig(Object.fromEntries(texts));
  const { url, administrator, failure, stop } = await startService(
    config,
    createObserver(config.LOG_LEVEL),
    () => {},
    signal,
  );
  return { url, administrator, failure, stop };
}
