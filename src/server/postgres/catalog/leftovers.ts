/** Tables of features that this service does not have, which an earlier version or another build has made. */
import { parseOwnJson } from '../../../base/narrow.js';
import type { Database } from '../pools/database.js';
import { readSql } from '../read-sql.js';
import { MIGRATIONS, type SystemFile, systemFiles, systemTables, tablesOf } from './system-tables.js';

const LEFTOVERS = readSql('server', 'leftovers.sql');

export interface Leftovers {
  /** They stay hidden. */
  readonly tables: readonly string[];
  /** Triggers of other tables that use them. */
  readonly triggers: readonly { readonly table: string; readonly name: string }[];
}

/** `files` are the migrations of the service. Its tables must be known. */
export async function findLeftovers(
  database: Database,
  files: readonly SystemFile[] = systemFiles(),
): Promise<Leftovers> {
  const own = new Set([MIGRATIONS, ...files.flatMap(tablesOf)]);
  const others = [...systemTables()].filter((name) => !own.has(name));
  if (others.length === 0) return { tables: [], triggers: [] };
  const parameters = [database.system, JSON.stringify(others)];
  return parseOwnJson(String(await database.own.use((session) => session.cell(LEFTOVERS, parameters))));
}
