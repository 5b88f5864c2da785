/**
 * Notices that the database was replaced, such as by a restored dump, or that it has lost the service's tables. A restore takes a while, and
 * makes the keys after the rows. Until the tables have theirs, and the service has read everything again, the database has an obstacle.
 */
import { StartError, serviceUnavailable } from '../../../base/errors.js';
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import type { Database } from '../pools/database.js';
import { DATABASE } from '../pools/server-identity.js';
import { locateSystemTables } from './migrate.js';
import { MIGRATIONS } from './system-tables.js';

/** The oid of the database, whether the service's tables are in the schema $1, and whether they have keys. */
const STATE = withCatalog(`
  select ${DATABASE} as database, count(class.oid) > 0 as installed, count(key.oid) > 0 as complete
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  left join pg_catalog.pg_constraint key on key.conrelid = class.oid and key.contype = 'p'
  where namespace.nspname = $1 and class.relname = '${MIGRATIONS}'`);

interface State {
  readonly database: string;
  readonly installed: boolean;
  readonly complete: boolean;
}

const MISSING = 'It has no tables of the service: restore them, or restart the service, which creates them';
const INCOMPLETE = 'The tables of the service have no keys yet: they are being restored';
const REPLACED = 'It was replaced, and the service reads it again';

interface InstallationOptions {
  /** The schema that was asked for. */
  readonly requested: string | null;
  /** Updates the service's tables, as a start does. */
  readonly prepare: () => Promise<void>;
  /** Reads again what depends on the database, except its schema. */
  readonly reload: () => Promise<void>;
  /** Called if the obstacle of the database has changed. Resolves when all threads know it. */
  readonly onChange: () => Promise<void>;
}

export class Installation {
  /** The oid of the database that was prepared last; null before the first check. */
  #known: string | null = null;

  constructor(
    private readonly database: Database,
    private readonly options: InstallationOptions,
  ) {}

  /** To be called before the schema is read. Fails while the service's tables are missing. */
  async check(): Promise<void> {
    const state = await this.#ask();
    this.#known ??= state.database;
    const isServed = this.database.obstacle === null || state.complete;
    if (state.installed && isServed && state.database === this.#known) return;
    if (this.database.obstacle === null) await this.#obstruct(REPLACED);
    const obstacle = await this.#prepare();
    if (obstacle === null) this.#known = state.database;
    else {
      await this.#obstruct(obstacle);
      throw serviceUnavailable('database', obstacle);
    }
  }

  /** To be called after the schema was read. */
  async settled(): Promise<void> {
    if (this.database.obstacle === null) return;
    await this.options.reload();
    await this.#obstruct(null);
  }

  /** Returns the reason why the service cannot use the database, or null. */
  async #prepare(): Promise<string | null> {
    try {
      const isInstalled = await locateSystemTables(this.database, this.options.requested);
      if (!isInstalled) return MISSING;
      if (!(await this.#ask()).complete) return INCOMPLETE;
      await this.options.prepare();
      return null;
    } catch (error) {
      if (error instanceof StartError) return error.message;
      throw error;
    }
  }

  async #obstruct(obstacle: string | null): Promise<void> {
    if (this.database.obstacle === obstacle) return;
    this.database.obstacle = obstacle;
    await this.options.onChange();
  }

  async #ask(): Promise<State> {
    const { catalog, system } = this.database;
    const [state] = await catalog.use((session) => session.query<State>(STATE, [system]));
    if (!state) throw new Error('a statement without a condition gave no row');
    return state;
  }
}
