/** Which tables and views would be served, for commands that serve nothing. */
import { buildModel } from '../mirror/introspect.js';
import type { Model } from '../mirror/model.js';
import { loadSchema } from '../postgres/catalog/catalog.js';
import type { TableName } from '../postgres/changes/publication.js';
import type { Database } from '../postgres/pools/database.js';
import { loadGrammar } from '../sql/grammar.js';

export async function servedTables(database: Database): Promise<readonly TableName[]> {
  await loadGrammar();
  const { document } = await database.catalog.use((session) => loadSchema(session, database, true));
  return tablesIn(buildModel(document, 1, database));
}

export function tablesIn({ collections }: Model): TableName[] {
  return [...collections.values()].map(({ schema, table }) => ({ schema, name: table }));
}
