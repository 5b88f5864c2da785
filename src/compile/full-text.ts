/** Full text search as SQL. The configuration stands in the text as a constant: an index on an expression is one of it. */
import type { TextSearchConfiguration } from '../mirror/model.js';
import type { FullText } from '../plan/plan.js';
import type { Slot } from '../request/ast.js';
import { type Fragment, literal, parameter, quoteIdentifier, sql } from '../sql/fragment.js';

/** Whether the value of the field has the words. */
export function matchesWords(value: Fragment, search: FullText, slot: Slot): Fragment {
  return sql`${vectorOf(value, search)} operator(pg_catalog.@@) ${wordsOf(search, slot)}`;
}

export function rankOf(value: Fragment, search: FullText, slot: Slot): Fragment {
  return sql`pg_catalog.ts_rank(${vectorOf(value, search)}, ${wordsOf(search, slot)})`;
}

function vectorOf(value: Fragment, { field, configuration }: FullText): Fragment {
  if (field.column?.base_type === 'tsvector') return value;
  return sql`pg_catalog.to_tsvector(${nameOf(configuration)}, ${value})`;
}

/** As in a box of a search engine: words, "words in a row", or, and - before what must not be there. It reads any text. */
function wordsOf({ field, configuration }: FullText, slot: Slot): Fragment {
  const words = parameter({ kind: 'value', slot, codec: 'text', field: field.name, use: 'filter', operator: 'fts' });
  return sql`pg_catalog.websearch_to_tsquery(${nameOf(configuration)}, ${words}::text)`;
}

function nameOf({ schema, name }: TextSearchConfiguration): Fragment {
  return sql`${literal(`${quoteIdentifier(schema)}.${quoteIdentifier(name)}`)}::pg_catalog.regconfig`;
}
