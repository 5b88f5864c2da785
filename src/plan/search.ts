/** Search: a term in any of the fields of a collection that can be searched. */
import { type Collection, type Field, isSecretField, type Model } from '../mirror/model.js';
import { isReadable } from '../mirror/write-facts.js';
import type { Slot } from '../request/ast.js';
import { configurationOf } from './full-text.js';
import { ALWAYS, type Condition } from './plan.js';

const SEARCHED = new Set(['string', 'text', 'integer', 'bigInteger', 'float', 'decimal', 'uuid']);

/** Callers who may not see the search field search all fields that they may see. */
export function planSearch(slot: Slot | null, collection: Collection, model: Model): Condition {
  if (slot === null) return ALWAYS;
  const field = collection.searchField === null ? undefined : collection.fields.get(collection.searchField);
  if (field && !isSecretField(field)) {
    const vector = { field, configuration: configurationOf(field, undefined, model) };
    return { kind: 'search', slot, fields: [], vector };
  }
  return { kind: 'search', slot, fields: [...collection.fields.values()].filter(isSearched), vector: null };
}

/** A computed field would make each search read all rows. */
function isSearched(field: Field): boolean {
  if (field.computed || !isReadable(field)) return false;
  return (
    field.column !== null && SEARCHED.has(field.type) && !isSecretField(field) && field.meta?.['searchable'] !== false
  );
}
