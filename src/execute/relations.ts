/**
 * Writes the relations that foreign keys imply. They are found behind the lock of all changes of the structure, on what is
 * there then: what another command wrote meanwhile is not written twice.
 */
import { planSuggestions, type Suggestion, suggestRelations } from '../plan/suggest.js';
import type { Structure } from './structure.js';

/** One transaction; answers what was written. */
export async function applySuggestions(
  structure: Structure,
  isWanted: (suggestion: Suggestion) => boolean,
): Promise<readonly Suggestion[]> {
  return structure.change(async (draft) => {
    const model = await draft.model();
    const suggestions = suggestRelations(model).filter(isWanted);
    await draft.take(planSuggestions(suggestions, model));
    return suggestions;
  });
}
