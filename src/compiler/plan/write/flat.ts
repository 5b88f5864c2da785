/** Which writes are flat: one row of one table whose values are all known, so that a plain statement can write it and return it. */
import { countedKey, isKey, singleKey } from '../../model/item-key.js';
import type { Collection } from '../../model/model.js';
import type { PlannedWrite, WriteColumn, WriteNode } from './write.js';

/** The only row of a flat write, and the list that it belongs to. */
export interface FlatRow {
  readonly node: WriteNode;
  readonly row: Readonly<Record<string, unknown>>;
}

/** The row of a flat write, or null if the write needs a chain of common table expressions. */
export function flatRow({ plan, input }: PlannedWrite): FlatRow | null {
  const [node, ...others] = plan.nodes;
  const [row, ...more] = input.nodes[0] ?? [];
  if (!node || !row || others.length > 0 || more.length > 0 || plan.unlinks.length > 0) return null;
  return isPlainTable(node.collection) && isFlat(node, row) ? { node, row } : null;
}

/** Several new rows of one table, whose values are all known. */
export interface FlatRows {
  readonly node: WriteNode;
  readonly rows: readonly FlatRow['row'][];
}

/** A longer list is written by the chain, which plans and sends it in slices. */
const MAX_FLAT_ROWS = 5_000;

/** The rows of a flat list, or null if the write is none. */
export function flatRows({ plan, input }: PlannedWrite): FlatRows | null {
  const [node, ...others] = plan.nodes;
  const rows = input.nodes[0] ?? [];
  if (!node || rows.length < 2 || rows.length > MAX_FLAT_ROWS || others.length > 0 || plan.unlinks.length > 0)
    return null;
  if (node.verb !== 'insert' || node.bringsKeys || !isPlainTable(node.collection)) return null;
  // An answer has the rows in the order in which they are inserted, and each of them once. An import has none.
  const { root } = input;
  const isInOrder = root.length === 0 || (root.length === rows.length && root.every((row, index) => row === index));
  return isInOrder && rows.every((row) => isFlat(node, row)) ? { node, rows } : null;
}

function isFlat(node: WriteNode, row: FlatRow['row']): boolean {
  const { verb, collection, conflict, guard, validations, columns } = node;
  if (guard?.perRow || validations.length > 0 || !hasPlainKey(collection)) return false;
  const isWritten = columns.every((column, index) => isValue(column, row[`c${index}`]));
  if (verb !== 'insert' && isFollowed(node)) return false;
  if (verb === 'upsert') return isWritten && isFlatUpsert(node);
  if (conflict) return false;
  // Keys of several columns are columns of a new row, and name an item that exists.
  return isWritten && (verb === 'insert' ? isNewKeyKnown(collection, row, columns) : columns.length > 0);
}

/** Whether foreign keys change other rows with this one. Those, or triggers of their tables, may change this one again. */
function isFollowed({ collection: { followedColumns }, columns }: WriteNode): boolean {
  return (
    followedColumns.length > 0 &&
    columns.some(({ field, only }) => only !== 'insert' && followedColumns.includes(field.name))
  );
}

/** An item that `on_conflict` finds by other columns than its key may have another key than the payload. */
function isFlatUpsert({ collection, conflict, columns, bringsKeys }: WriteNode): boolean {
  if (conflict?.resolution !== 'merge' || !columns.some(({ only }) => only === null || only === 'update')) return false;
  if (bringsKeys && !conflict.fields.every((field) => isKey(collection, field))) return false;
  if (columns.some(({ field }) => isKey(collection, field))) return false;
  return singleKey(collection) !== null || countedKey(collection) === null;
}

/** Whether the parts of the key are texts that their types read, and none of them is made from other columns. */
export function hasPlainKey({ key }: Collection): boolean {
  return key.length > 0 && !key.some(({ column }) => column?.is_generated || column?.is_array || column?.composite);
}

/** The statement puts the sequence of a key of one column ahead of a key that the payload supplies, not that of a part. */
function isNewKeyKnown(collection: Collection, row: FlatRow['row'], columns: readonly WriteColumn[]): boolean {
  if (singleKey(collection)) return true;
  return row['k_0'] === undefined && !columns.some(({ field }) => field === countedKey(collection));
}

function isValue({ mixed, references, lookup, endOf, only, agrees, caller }: WriteColumn, value: unknown): boolean {
  if (mixed || references.length > 0 || lookup || endOf || agrees || caller) return false;
  return only !== 'key' && only !== 'kept' && value !== undefined;
}

/**
 * Whether the row that a statement returns is the row that a later read would see. Rows of a table that inherits from it have triggers of
 * their own.
 */
export function isPlainTable({ kind, system, distributed, isInherited, rules, triggers }: Collection): boolean {
  if (system || distributed || isInherited || rules.length > 0 || kind !== 'table') return false;
  return triggers.every(isOwnTrigger);
}

/** Whether a new row may wait for another one with the same unique values. The other tables may change in the meantime. */
export function mayWait({ collection, columns, bringsKeys }: WriteNode): boolean {
  if (bringsKeys || collection.isExclusive) return true;
  const key = singleKey(collection)?.name;
  // A key that the database makes is new, and so are other numbers and UUIDs that it makes. Nulls exclude nothing.
  const isShared = (name: string): boolean => {
    if (columns.some(({ field }) => field.name === name)) return true;
    const column = collection.fields.get(name)?.column;
    if (!column || name === key || column.has_auto_increment || column.base_type === 'uuid') return false;
    return column.is_generated || column.default_expression !== null;
  };
  return collection.uniqueKeys.some((names) => names.every(isShared));
}

/** Triggers of live queries only note which rows have changed. */
function isOwnTrigger({ name, timing, level }: Collection['triggers'][number]): boolean {
  return name.startsWith('service_live_') && timing === 'after' && level === 'statement';
}

/** The columns of a row that is inserted or changed, each with its position in the list. */
export function writtenColumns({ collection, verb, columns }: WriteNode): [WriteColumn, number][] {
  const isWritten = ({ field, only }: WriteColumn): boolean =>
    (only ?? verb) === verb && (verb === 'insert' ? !singleKey(collection) || !isKey(collection, field) : true);
  return columns.flatMap((column, index) => (isWritten(column) ? [[column, index] as [WriteColumn, number]] : []));
}
