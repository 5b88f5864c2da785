/** Finds values that another user or another tab has changed since this page read them. */
import { call, itemsPath } from '../api';
import type { Collection, Field } from '../model';
import { type Edits, keyColumns, type Row } from './edits';
import { filterByKey } from './item';
import { showValue } from './values';

/**
 * Marks the cells whose value has changed meanwhile, and returns their number. Saving again replaces the values. Throws if an item no longer
 * exists.
 */
export async function markConflicts(collection: Collection, edits: Edits): Promise<number> {
  const { name, keys, fields, singleton } = collection;
  const cells = edits.replaced.filter(({ field }) => isCompared(fields.get(field)));
  if (cells.length === 0 || singleton) return 0;
  const roots = [...new Set(cells.map(({ path: [root] }) => root))];
  const query = {
    fields: [...new Set([...keys, ...cells.map(({ field }) => field)])],
    filter: { _or: roots.map((root) => filterByKey(keyColumns(root, keys))) },
    limit: -1,
  };
  const { data } = await call<Row[]>('SEARCH', itemsPath(name), { body: { query } });
  const isOf = (row: Row, key: Row): boolean => keys.every((each) => String(row[each]) === String(key[each]));
  let changed = 0;
  for (const { path, field, base, value } of cells) {
    const key = keyColumns(path[0], keys);
    const row = data.find((each) => isOf(each, key));
    if (!row) throw new Error(`Item ${Object.values(key).join(', ')} was deleted meanwhile, or you may not see it.`);
    // It is the new value already if an earlier attempt was saved and only its response was lost.
    if ([base, value].some((known) => textOf(row[field]) === textOf(known))) continue;
    edits.reportChanged(path, field, row[field], messageFor(row[field], fields.get(field)));
    changed++;
  }
  return changed;
}

/** A list has its own items, and the key of a composite reference has several columns. */
function isCompared(field: Field | undefined): boolean {
  return field !== undefined && field.column !== null && field.columns.length === 0 && field.relation?.kind !== 'any';
}

const LONGEST = 60;

function messageFor(value: unknown, field: Field | undefined): string {
  const text = (value ?? null) === null || !field ? 'null' : showValue(value, field);
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
  return `Changed by someone else meanwhile, to “${shown}”. Save again to replace it.`;
}

function textOf(value: unknown): string {
  return JSON.stringify(value ?? null);
}
