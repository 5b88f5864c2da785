/** Fields without a column whose values a function of the row makes: which they are, and of which type. */
import { isObject } from '../base/exact-json.js';
import type { CatalogDocument, MetadataRow } from './catalog-document.js';
import type { CatalogFacts, ColumnFacts, TableFacts } from './columns.js';
import { isPseudo } from './functions.js';
import type { Computation } from './model.js';

interface ComputedFacts extends ColumnFacts {
  readonly computed: Computation;
}

/** Null where the field is not declared as computed, or no such function is there, or it returns rows of a table or a `record`. */
export type FindComputed = (table: TableFacts, field: string, meta: MetadataRow | null) => ComputedFacts | null;

/** `options` of the field may name the function and its schema; else it has the name of the field and is in the schema of the table. */
export function computedBy({ computed, row_types }: CatalogDocument, facts: CatalogFacts): FindComputed {
  const rowTypes = new Set((row_types ?? []).map(([type]) => type));
  return (table, field, meta) => {
    const options = isObject(meta?.['options']) ? meta['options'] : {};
    const functionName = typeof options['function'] === 'string' ? options['function'] : field;
    const schema = typeof options['schema'] === 'string' ? options['schema'] : table.schema;
    const entry = (computed ?? []).find(
      ([oid, name, place]) => name === functionName && place === schema && facts.names.get(oid) === table.name,
    );
    if (!entry || rowTypes.has(entry[3])) return null;
    const typed = facts.typed(field, entry[3]);
    if (isPseudo(typed)) return null;
    const { column, type } = typed;
    const readOnly = Object.freeze({ ...column, table: table.name, is_generated: true });
    return { column: readOnly, type, computed: Object.freeze({ schema, function: functionName }) };
  };
}
