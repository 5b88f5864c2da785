/**
 * Cells of a CSV file, which knows only texts. Those of fields whose values are lists, objects or documents hold the JSON that an
 * export wrote; which they are is known by the field alone.
 */
import { isObject, parseJson } from '../../base/exact-json.js';
import { keyNames } from '../../mirror/item-key.js';
import type { Collection, Field, Model, Relation } from '../../mirror/model.js';
import { isMadeByDatabase } from '../kept-value.js';
import { keyPayload } from './key.js';
import type { Payload } from './payload-row.js';

export function readCells(collection: Collection, row: Payload, model: Model): Payload {
  let read: Record<string, unknown> | null = null;
  for (const name of Object.keys(row)) {
    const cell = row[name];
    const field = collection.fields.get(name);
    if (!field || typeof cell !== 'string' || !holdsJson(field, cell)) continue;
    read ??= { ...row };
    read[name] = linked(field, documentOf(cell), model);
  }
  return read ?? row;
}

/** A row of a file without what the database makes (generated columns, `always` identities): an export holds it, and nobody can write it. */
export function withoutGenerated(collection: Collection, row: Payload, model: Model): Payload {
  const isMade = (field: Field | undefined): boolean => field !== undefined && isMadeByDatabase(collection, field);
  const entries = Object.entries(row);
  if (!entries.some(([name, value]) => isNested(value) || isMade(collection.fields.get(name)))) return row;
  return Object.fromEntries(
    entries.flatMap(([name, value]): [string, unknown][] => {
      const field = collection.fields.get(name);
      if (isMade(field)) return [];
      return [[name, field?.relation && isNested(value) ? nestedWithout(field.relation, value, model) : value]];
    }),
  );
}

function nestedWithout(relation: Relation, value: unknown, model: Model): unknown {
  const isMany = relation.kind === 'one-to-many';
  if (relation.kind === 'many-to-any') return value;
  const name = relation.kind === 'many-to-one' ? relation.oneCollection : relation.manyCollection;
  const target = model.collections.get(name);
  if (!target) return value;
  const one = (entry: unknown): unknown => (isObject(entry) ? withoutGenerated(target, entry, model) : entry);
  const all = (entries: unknown): unknown => (Array.isArray(entries) ? entries.map(one) : entries);
  if (Array.isArray(value)) return all(value);
  if (!isMany || !isObject(value)) return one(value);
  return Object.fromEntries(Object.entries(value).map(([part, entries]) => [part, all(entries)]));
}

function isNested(value: unknown): boolean {
  return Array.isArray(value) || isObject(value);
}

/**
 * A list of related items links them and unlinks none: an export holds as many of them as it was asked for and as its reader may
 * see, and what it does not hold must not be lost.
 */
function linked({ relation }: Field, value: unknown, model: Model): unknown {
  if (relation?.kind !== 'one-to-many' || !Array.isArray(value)) return value;
  const target = model.collections.get(relation.manyCollection);
  // The reference to the parent is a part of the key that the parent says.
  const names = target ? keyNames(target).filter((name) => name !== relation.manyField) : [];
  const items: unknown[] = value.map((entry) => (isObject(entry) || !target ? entry : keyPayload(target, entry)));
  const isNew = (item: unknown): boolean => isObject(item) && names.some((name) => (item[name] ?? null) === null);
  return { create: items.filter(isNew), update: items.filter((item) => !isNew(item)) };
}

function holdsJson({ type, column, relation }: Field, cell: string): boolean {
  if (relation?.kind === 'one-to-one') return /^\s*\{/.test(cell);
  if (relation) return relation.kind === 'one-to-many' && /^\s*[[{]/.test(cell);
  if (type === 'json') return true;
  // PostgreSQL's own texts of composite values begin with a parenthesis, and those of arrays are not taken.
  return column?.is_array || type === 'csv' ? /^\s*\[/.test(cell) : Boolean(column?.composite) && /^\s*\{/.test(cell);
}

/** A string that is not JSON stays a string: the field accepts or refuses it. */
function documentOf(cell: string): unknown {
  try {
    return parseJson(cell);
  } catch {
    return cell;
  }
}
