/** Full text search as SQL. The configuration is a constant in the text, so that an index on the expression can be used. */
import type { TextSearchConfiguration } from '../model/model.js';
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

/** The syntax of search engines: words, "quoted phrases", or, and - before words to exclude. It accepts any text. */
function wordsOf({ field, configuration }: FullText, slot: Slot): Fragment {
  const words = parameter({ kind: 'value', slot, codec: 'text', field: field.name, use: 'filter', operator: 'fts' });
  return sql`pg_catalog.websearch_to_tsquery(${nameOf(configuration)}, ${words}::text)`;
}

function nameOf({ schema, name }: TextSearchConfiguration): Fragment {
  return sql`${literal(`${quoteIdentifier(schema)}.${quoteIdentifier(name)}`)}::pg_catalog.regconfig`;
}
