/**
 * Cells of a CSV file, which knows only texts. Those of fields whose values are lists, objects or documents hold the JSON that an
 * export wrote; which they are is known by the field alone.
 */
import { parseJson } from '../digits.js';
import type { Collection, Field } from '../mirror/model.js';
import type { Payload } from './payload-row.js';

export function readCells(collection: Collection, row: Payload): Payload {
  return Object.fromEntries(
    Object.entries(row).map(([name, cell]) => {
      const field = collection.fields.get(name);
      return [name, field && typeof cell === 'string' && holdsJson(field, cell) ? documentOf(cell) : cell];
    }),
  );
}

function holdsJson({ type, column, relation }: Field, cell: string): boolean {
  if (relation) return relation.kind === 'one-to-many' && /^\s*[[{]/.test(cell);
  if (type === 'json') return true;
  // PostgreSQL's own texts of composite values begin with a parenthesis, and those of arrays are not taken.
  return column?.is_array || type === 'csv' ? /^\s*\[/.test(cell) : Boolean(column?.composite) && /^\s*\{/.test(cell);
}

/** What is no JSON stays a text, for the field to take or to refuse. */
function documentOf(cell: string): unknown {
  try {
    return parseJson(cell);
  } catch {
    return cell;
  }
}
