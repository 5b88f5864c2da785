/** Search: a term in any of the fields of a collection that can be searched. */
import { type Collection, type Field, isSecretField } from '../mirror/model.js';
import type { Slot } from '../request/ast.js';
import { ALWAYS, type Condition } from './plan.js';

const SEARCHED = new Set(['string', 'text', 'integer', 'bigInteger', 'float', 'decimal', 'uuid']);

export function planSearch(slot: Slot | null, collection: Collection): Condition {
  if (slot === null) return ALWAYS;
  return { kind: 'search', slot, fields: [...collection.fields.values()].filter(isSearched) };
}

function isSearched(field: Field): boolean {
  return (
    field.column !== null && SEARCHED.has(field.type) && !isSecretField(field) && field.meta?.['searchable'] !== false
  );
}
