/** Statistics of tables, as PostgreSQL keeps them. */
import type { Collection } from '../../compiler/model/model.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { readSql } from '../../server/postgres/read-sql.js';
import { TableStatistics, type TableStatisticsEntry } from './column-statistics.js';

const STATISTICS = readSql('server', 'statistics.sql');

type Table = Pick<Collection, 'schema' | 'table'>;

/**
 * They are read when a table is first asked for, and again after it was analyzed. The
 * service checks for new statistics periodically, not for each request.
 */
export class Statistics {
  /** Grows when some of them have changed. */
  version = 0;
  readonly #tables = new Map<string, Table>();
  readonly #known = new Map<string, TableStatistics>();
  #timer: NodeJS.Timeout | null = null;

  /** Looks for changes each `intervalMs`, once something is known; 0 for never. */
  constructor(
    private readonly database: Database,
    private readonly intervalMs: number,
  ) {}

  /** The statistics of a table, or null if PostgreSQL has none. */
  of(table: Table): TableStatistics | null {
    return this.#known.get(nameOf(table)) ?? null;
  }

  /** Resolves when the statistics of these tables are known. */
  async load(tables: readonly Table[]): Promise<void> {
    const missing = tables.filter((table) => !this.#tables.has(nameOf(table)));
    if (missing.length === 0) return;
    await this.#read(missing);
    for (const table of missing) this.#tables.set(nameOf(table), table);
    if (this.intervalMs > 0) this.#timer ??= setInterval(() => void this.#refresh(), this.intervalMs).unref();
  }

  /** After a change of the schema: what is needed is read again. */
  forget(): void {
    this.#tables.clear();
    this.#known.clear();
    this.version++;
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
  }

  async #refresh(): Promise<void> {
    // A database that cannot be asked is asked again at the next look.
    const changed = await this.#read([...this.#tables.values()]).catch(() => 0);
    if (changed > 0) this.version++;
  }

  /** Answers how many of them are not as they were. */
  async #read(tables: readonly Table[]): Promise<number> {
    const names = JSON.stringify(tables.map(({ schema, table }) => [schema, table]));
    const versions = JSON.stringify(Object.fromEntries([...this.#known].map(([name, { version }]) => [name, version])));
    const cell = await this.database.cell(STATISTICS, [names, versions]);
    const entries = JSON.parse(String(cell ?? '[]')) as readonly TableStatisticsEntry[];
    for (const entry of entries) this.#known.set(nameOf(entry), new TableStatistics(entry));
    return entries.length;
  }
}

function nameOf({ schema, table }: Table): string {
  return `${schema}.${table}`;
}
