/**
 * Writes the relations that foreign keys imply. It takes the lock of schema changes before it looks for them, so that two commands
 * at once do not write a relation twice.
 */
import type { SchemaChanger } from '../../server/schema/change/change.js';
import { loadUnindexed, type Unindexed } from '../../server/schema/unindexed.js';
import { planSuggestions, type Suggestion, suggestRelations } from './suggest.js';

export async function findUnindexed(schemaChanges: SchemaChanger): Promise<readonly Unindexed[]> {
  const { model } = schemaChanges;
  return schemaChanges.read((draft) => loadUnindexed((text, parameters) => draft.cell(text, parameters), model));
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
