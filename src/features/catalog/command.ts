/** `lateral catalog` prints what the service knows about the tables of a database, without their rows. */
import type { Command, Program } from '../../server/feature/command.js';
import { loadSchema } from '../../server/postgres/catalog/catalog.js';
import { locateSystemTables } from '../../server/postgres/catalog/migrate.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { Catalog } from './compiler.js';

const HELP = `Usage: lateral catalog [--option value ...] > catalog.json

Prints the tables of the database and the metadata of the service as JSON, from which lateral/compiler compiles requests
without a database. The output has names, types, defaults and comments, and no rows of your tables.

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

async function printCatalog(
  flags: readonly string[],
  { createObserver, readConfig, readFlags, withDatabase }: Program,
): Promise<void> {
  const config = readConfig({ ...process.env, ...readFlags(flags) });
  await withDatabase(config, createObserver('warn'), console.error, async (database) => {
    await locateSystemTables(database, config.SYSTEM_SCHEMA);
    console.log(JSON.stringify(await loadCatalog(database)));
  });
}

async function loadCatalog(database: Database): Promise<Catalog> {
  const { document } = await database.catalog.use((session) => loadSchema(session, database));
  const { schema, schemas, system, synonyms = null } = database;
  return { schema, schemas, system, synonyms, document };
}

export const COMMANDS = { catalog: { help: HELP, run: printCatalog } } satisfies Record<string, Command>;
