/** `lateral live install | remove`: the triggers that report changes where the log of PostgreSQL cannot be read. */

import { StartError, UsageError } from '../../base/errors.js';
import { buildModel } from '../../compiler/model/introspect.js';
import type { TableName } from '../../server/changes/change-source.js';
import type { TriggerChange } from '../../server/changes/statement-triggers.js';
import type { Program } from '../../server/feature/command.js';
import { prepareThread } from '../../server/node/prepare-thread.js';
import { loadSchema } from '../../server/postgres/catalog/catalog.js';
import { locateSystemTables } from '../../server/postgres/catalog/migrate.js';
import type { Database } from '../../server/postgres/pools/database.js';
import {
  announceTriggers,
  inspectTriggers,
  installedTriggers,
  installTriggers,
  removeTriggers,
} from '../change-stream/live-triggers.js';

const LIVE_HELP = `Usage: lateral live {install | remove} [--dry-run] [--option value ...]

Live queries read PostgreSQL's log. Where that is not possible (lateral doctor says why), triggers can report changes instead: a statement
that changes rows of a table sends one notification with their keys. Running services with LIVE=auto then use these triggers.

  install    creates the triggers service_live_insert_*, _update_*, _delete_* and _truncate_* on the served tables and their partitions;
             the role must own the tables, or have the privilege TRIGGER on them. Existing triggers stay
  remove     drops the triggers of this installation, on all tables of the database; the role must own the tables. A service with
             LIVE=triggers creates them again

  --dry-run  prints the statements without running them: for the owner of the tables

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

/** Milliseconds to wait for a table that is in use. */
const LOCK_TIMEOUT_MS = 2_000;

interface Subcommand {
  find(database: Database): Promise<readonly TriggerChange[]>;
  change(
    database: Database,
    tables: readonly TriggerChange[],
    onTable: (table: TableName, failure: string | null) => void,
  ): Promise<ReadonlyMap<string, string>>;
  readonly done: string;
}

const SUBCOMMANDS: ReadonlyMap<string, Subcommand> = new Map<string, Subcommand>([
  [
    'install',
    {
      find: async (database) => (await inspectTriggers(database, await servedTables(database))).missing,
      change: (database, tables, onTable) =>
        installTriggers(database, tables, { lockTimeout: LOCK_TIMEOUT_MS, onlyWithOthers: false, onTable }),
      done: 'has triggers',
    },
  ],
  [
    'remove',
    {
      find: installedTriggers,
      change: (database, tables, onTable) =>
        removeTriggers(database, tables, { lockTimeout: LOCK_TIMEOUT_MS, onTable }),
      done: 'has no triggers now',
    },
  ],
]);

export async function servedTables(database: Database): Promise<readonly TableName[]> {
  await prepareThread();
  const { document } = await database.catalog.use((session) => loadSchema(session, database, true));
  const { collections } = buildModel(document, 1, database);
  return [...collections.values()].map(({ schema, table }) => ({ schema, name: table }));
}

async function live(
  words: readonly string[],
  { createObserver, readConfig, readWords, withDatabase }: Program,
): Promise<void> {
  const [name = '', ...rest] = words;
  const command = SUBCOMMANDS.get(name);
  if (!command) throw new UsageError('live expects install or remove: see lateral live --help');
  const { operands, switches, environment } = readWords(rest, ['dry-run']);
  if (operands.length > 0) throw new UsageError(`unexpected argument "${operands[0]}": see lateral live --help`);
  const config = readConfig({ ...process.env, ...environment });
  await withDatabase(config, createObserver('warn'), console.error, async (database) => {
    if (!(await locateSystemTables(database, config.SYSTEM_SCHEMA)))
      throw new StartError("the service's own tables are not there yet: start it once");
    const tables = await command.find(database);
    if (switches.has('dry-run')) {
      for (const { statements } of tables) for (const statement of statements) console.log(`${statement};`);
      return;
    }
    // Each table is reported at once, and services are always notified: if the rest fails, the changes so far stay.
    const say = ({ schema, name: table }: TableName, failure: string | null): void =>
      console.log(`${schema}.${table}  ${failure === null ? command.done : `failed: ${failure}`}`);
    let failures: ReadonlyMap<string, string>;
    try {
      failures = await command.change(database, tables, say);
    } finally {
      await announceTriggers(database);
    }
    if (tables.length === 0) console.log('Nothing to do.');
    if (failures.size > 0) process.exitCode = 1;
  });
}

export const COMMANDS = {
  live: { help: LIVE_HELP, run: live },
};
