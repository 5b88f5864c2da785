/**
 * Writes the relations that foreign keys imply. It takes the lock of schema changes before it looks for them, so that two commands
 * at once do not write a relation twice.
 */
import { parseOwnJson } from '../../base/narrow.js';
import { holdsTable, type Model } from '../../compiler/model/model.js';
import { readSql } from '../../server/postgres/read-sql.js';
import type { SchemaChanger } from '../../server/schema/change/change.js';
import { planSuggestions, type Suggestion, suggestRelations } from './suggest.js';

const UNINDEXED = readSql('features', 'snapshots', 'unindexed.sql');

/** A foreign key whose columns no index begins with. */
export interface Unindexed {
  readonly schema: string;
  readonly table: string;
  readonly columns: readonly string[];
  readonly partitioned: boolean;
}

export async function findUnindexed(schemaChanges: SchemaChanger): Promise<readonly Unindexed[]> {
  const { model } = schemaChanges;
  return schemaChanges.read((draft) => loadUnindexed((text, parameters) => draft.cell(text, parameters), model));
}

/** `cell` answers the first cell of a statement. */
export async function loadUnindexed(
  cell: (text: string, parameters: readonly string[]) => Promise<Buffer | null>,
  model: Model,
): Promise<readonly Unindexed[]> {
  const unindexed = parseOwnJson<Unindexed[]>(String(await cell(UNINDEXED, [JSON.stringify(model.schemas)])));
  // The service neither reads nor writes the tables of a Directus that it has adopted.
  return unindexed.filter(({ schema, table }) => !table.startsWith('directus_') || holdsTable(model, schema, table));
}

/** One transaction; answers what was written. `check` may throw: then nothing is. */
export async function applySuggestions(
  schemaChanges: SchemaChanger,
  isWanted: (suggestion: Suggestion) => boolean,
  check: (suggestions: readonly Suggestion[]) => void = () => {},
): Promise<readonly Suggestion[]> {
  return schemaChanges.change(async (draft) => {
    const model = await draft.model();
    const suggestions = suggestRelations(model).filter(isWanted);
    check(suggestions);
    await draft.execute(planSuggestions(suggestions, model));
    return suggestions;
  });
}
