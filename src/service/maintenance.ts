/** What is done once in a while, by the thread that there is once: what has expired is deleted, and what deleted rows have left behind. */
import { forgetSessions } from '../accounts/logins.js';
import type { Observer } from '../base/observe.js';
import type { Config } from '../config/config.js';
import { deleteExpiredKeys } from '../engine/writes/idempotency.js';
import { deleteExpiredCounts } from '../http/limit-store.js';
import { listen } from '../postgres/catalog/catalog.js';
import type { Database } from '../postgres/pools/database.js';
import { RemovedFiles } from '../storage/removed-files.js';
import { Storages } from '../storage/storage.js';

const INTERVAL_MS = 600_000;

/** Answers how to end it. */
export async function maintain(database: Database, config: Config, observe: Observer): Promise<() => Promise<void>> {
  const removedFiles = new RemovedFiles(database, new Storages(config.STORAGE_LOCATIONS), observe);
  const work = (): unknown =>
    Promise.allSettled([
      deleteExpiredKeys(database),
      forgetSessions(database, config.SESSION_COOKIE_TTL),
      deleteExpiredCounts(database),
      removedFiles.remove(),
    ]);
  // What nobody hears of is found by the next round.
  const unlisten = await listen(
    database,
    'service_files',
    () => void removedFiles.remove(),
    () => {},
  );
  const timer = setInterval(work, INTERVAL_MS).unref();
  return async () => {
    clearInterval(timer);
    await unlisten();
  };
}
