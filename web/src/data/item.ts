/** The identity of an item: its key, for the API and for this page, and its title, for users. */
import { type Collection, type Field, type Model, titleFields } from '../model';
import type { Key, Row } from './edits';
import { joinKey } from './key';

/** The fields of the key and the title. */
export function identifyingFields(collection: Collection): string[] {
  // A file has a thumbnail if it is a picture.
  const type = collection.system && collection.fields.has('filename_download') ? ['type'] : [];
  return [...new Set([...collection.keys, ...titleFields(collection), ...type])];
}

/** The title of a related item, from the fields that were read. */
export function titleOf(value: unknown, model: Model, collection: string): string {
  if (typeof value !== 'object' || value === null) return String(value);
  const target = model.get(collection);
  // A single column of a composite key does not identify the item.
  const named = titleFields(target)
    .filter((name) => target?.keys.length === 1 || !target?.keys.includes(name))
    .map((name) => (value as Row)[name] ?? null)
    .filter((part) => part !== null && typeof part !== 'object');
  if (named.length > 0) return shortened(named.join(' '));
  return String(keyOf(value, model, collection) ?? JSON.stringify(value));
}

const LONGEST_TITLE = 100;

/** A title can be the beginning of a long text. */
function shortened(text: string): string {
  return text.length > LONGEST_TITLE ? `${text.slice(0, LONGEST_TITLE - 1)}…` : text;
}

/** The collection of a related item. A row of a many-to-any relation names it. Returns null if there is none. */
export function targetOf({ relation }: Field, row: Row): string | null {
  if (relation?.kind === 'one') return relation.to;
  const named = relation?.kind === 'any' && relation.by !== null ? row[relation.by] : null;
  return relation?.kind === 'any' && relation.among.some((each) => each === named) ? String(named) : null;
}

/** The many-to-any fields whose collection the field `name` holds. */
export function fieldsNamedBy(collection: Collection, name: string): Field[] {
  return [...collection.fields.values()].filter(({ relation }) => relation?.kind === 'any' && relation.by === name);
}

/** The key of a related item, as the API takes it: a composite key is one text. */
export function keyOf(value: unknown, model: Model, collection: string): unknown {
  const target = model.get(collection);
  if (typeof value !== 'object' || value === null || !target || target.keys.length === 0) return value;
  const values = keyValues(value as Row, target, model);
  if (values.includes(undefined)) return undefined;
  return joinKey(values);
}

/** The identity of a row as one value: its key, or all columns of a composite key as JSON. Null without a key. */
export function keyOfRow(row: Row, collection: Collection, model: Model): Key | null {
  const { keys } = collection;
  const values = keyValues(row, collection, model);
  if (values.length === 1) return values[0] as Key;
  return values.length === 0 ? null : JSON.stringify(Object.fromEntries(keys.map((name, at) => [name, values[at]])));
}

function keyValues(row: Row, { keys, fields }: Collection, model: Model): unknown[] {
  return keys.map((name) => {
    const relation = fields.get(name)?.relation;
    return relation?.kind === 'one' ? keyOf(row[name], model, relation.to) : row[name];
  });
}

/** A filter that matches only the item with these values of its key. */
export function filterByKey(values: Row): Row {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { _eq: value }]));
}
