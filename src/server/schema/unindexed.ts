/** Foreign keys without an index: lists of related items and deletions read the whole table. */
import { parseOwnJson } from '../../base/narrow.js';
import { holdsTable, type Model } from '../../compiler/model/model.js';
import { readSql } from '../postgres/read-sql.js';

const UNINDEXED = readSql('server', 'unindexed.sql');

/** A foreign key whose columns no index begins with. */
export interface Unindexed {
  readonly schema: string;
  readonly table: string;
  readonly columns: readonly string[];
  readonly partitioned: boolean;
}

/** `cell` returns the first cell of the result of a statement. */
export async function loadUnindexed(
  cell: (text: string, parameters: readonly string[]) => Promise<Buffer | null>,
  model: Model,
): Promise<readonly Unindexed[]> {
  const unindexed = parseOwnJson<Unindexed[]>(String(await cell(UNINDEXED, [JSON.stringify(model.schemas)])));
  // The service neither reads nor writes the tables of a Directus that it has adopted.
  return unindexed.filter(({ schema, table }) => !table.startsWith('directus_') || holdsTable(model, schema, table));
}
