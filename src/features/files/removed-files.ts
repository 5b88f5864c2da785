/** Removes stored files whose row was deleted. */
import type { Observer } from '../../base/observe.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { ProcessContext } from '../../server/feature/feature.js';
import { listen } from '../../server/postgres/catalog/catalog.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { FileLogEvent } from './log-events.js';
import type { OPTIONS } from './options.js';
import { DERIVED, Storages } from './storage.js';

const INTERVAL_MS = 600_000;

/** Returns how to stop it. */
export async function removeFilesOfDeletedRows({
  config,
  database,
  observe,
}: ProcessContext<typeof OPTIONS, FileLogEvent>): Promise<() => Promise<void>> {
  const files = new RemovedFiles(database, new Storages(config.STORAGE_LOCATIONS), observe);
  const remove = (): void => void files.remove();
  // If a notification is lost, the next round finds the files.
  const unlisten = await listen(database, 'service_files', remove, { stale: () => {} });
  const timer = setInterval(remove, INTERVAL_MS).unref();
  return async () => {
    clearInterval(timer);
    await unlisten();
  };
}

interface Removed {
  readonly id: string;
  readonly file: string;
  readonly storage: string;
  readonly filename_disk: string;
  /** Whether a row names the bytes again. */
  readonly used: boolean;
}

/** Several instances share the work: each takes what no other is at. */
const TAKE = withCatalog(`select id::text, file::text, storage, filename_disk, exists (
  select 1 from service_files where service_files.id = service_files_removed.file
    and service_files.storage = service_files_removed.storage
    and service_files.filename_disk = service_files_removed.filename_disk
) as used
from service_files_removed order by id limit 50 for update skip locked`);

const DONE = withCatalog('delete from service_files_removed where id = any($1::text[]::bigint[])');

/** Removes bytes whose row was deleted or changed: a trigger lists them in the same transaction. */
class RemovedFiles {
  #running: Promise<void> | null = null;
  #again = false;

  constructor(
    private readonly database: Database,
    private readonly storages: Storages,
    private readonly observe: Observer<FileLogEvent>,
  ) {}

  /** Never fails: what could not be removed is tried again by the next call. */
  remove(): Promise<void> {
    this.#again = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #run(): Promise<void> {
    while (this.#again) {
      this.#again = false;
      try {
        this.#again = (await this.#removeSome()) > 0 || this.#again;
      } catch (error) {
        this.observe({ kind: 'files-not-removed', error });
        return;
      }
    }
  }

  /** Returns how many were deleted. */
  #removeSome(): Promise<number> {
    return this.database.transaction(async (session) => {
      const rows = await session.query<Removed>(this.database.qualified(TAKE));
      const done: string[] = [];
      for (const row of rows) {
        try {
          if (!row.used) await this.#removeBytes(row);
          done.push(row.id);
        } catch (error) {
          this.observe({ kind: 'files-not-removed', error });
        }
      }
      if (done.length > 0) await session.query(this.database.qualified(DONE), [`{${done.join()}}`]);
      return done.length;
    });
  }

  async #removeBytes({ file, storage, filename_disk }: Removed): Promise<void> {
    const location = this.storages.of(storage);
    await location.remove(filename_disk);
    await location.removeFolder(`${DERIVED}/${file}`);
  }
}
