/** What the rows of a list have in common: the columns of their statement, and the text that stands for its shape. */
import { writeJson } from '../digits.js';
import { soleKey } from '../mirror/item-key.js';
import type { Collection, Field } from '../mirror/model.js';
import { forEachInSlices, TimeSlice } from '../time-slices.js';
import type { RuleBits } from './guard.js';
import { keyEntries } from './key.js';
import type { CallerValue, ColumnValue, List, Row } from './payload-row.js';
import { fieldOf } from './resolve-names.js';
import type { RowGuard, Validation, WriteColumn, WriteNode, WritePlan } from './write.js';

export function isSame(one: ColumnValue | undefined, other: ColumnValue | undefined): boolean {
  if (one === other) return true;
  if (one?.kind === 'reference' && other?.kind === 'reference') return one.row === other.row && one.part === other.part;
  if (one?.kind === 'lookup' && other?.kind === 'lookup') return String(one.key) === String(other.key);
  if (one?.kind === 'caller' && other?.kind === 'caller') return one.plan.text === other.plan.text;
  if (one?.kind !== 'value' || other?.kind !== 'value') return false;
  return writeJson(one.value) === writeJson(other.value);
}

export interface RowChecks {
  readonly guard: RowGuard | null;
  readonly ruleBits: RuleBits;
  readonly validations: readonly Validation[];
}

export async function shapeList(
  list: List,
  checks: RowChecks,
): Promise<{ node: WriteNode; rows: Record<string, unknown>[] }> {
  const columns: WriteColumn[] = [];
  const pace = new TimeSlice();
  for (const field of fieldsOf(list.rows, list.collection)) {
    const alike =
      list.verb !== 'upsert' ||
      list.rows.every((row) => isSame(cellOf(row, field, 'insert'), cellOf(row, field, 'update')));
    for (const only of alike ? ([null] as const) : (['insert', 'update'] as const)) {
      const column = shapeColumn(list, field, only);
      if (column) columns.push(column);
    }
    if (pace.isOver()) await pace.rest();
  }
  const rows: Record<string, unknown>[] = [];
  await forEachInSlices(list.rows, (row, index) => {
    const entry: Record<string, unknown> = { n: row.number };
    const ruleBits = checks.ruleBits[index] ?? null;
    if (ruleBits !== null) entry['a'] = ruleBits;
    if (row.key !== null) Object.assign(entry, keyEntries(list.collection, 'k', row.key));
    columns.forEach((column, position) => {
      const columnValue = cellOf(row, column.field, column.only);
      if (!columnValue) return;
      if (column.mixed) entry[`p${position}`] = true;
      if (columnValue.kind === 'value') entry[`c${position}`] = columnValue.value;
      else if (columnValue.kind === 'caller') entry[`v${position}`] = true;
      else if (columnValue.kind === 'lookup')
        Object.assign(entry, keyEntries(columnValue.of.collection, `h${position}`, columnValue.key));
      else if (columnValue.kind === 'end') entry[`e${position}`] = columnValue.position;
      else entry[`r${position}_${column.references.indexOf(columnValue.row.collection.name)}`] = columnValue.row.number;
    });
    rows.push(entry);
  });
  const { collection, verb } = list;
  const { guard, validations } = checks;
  const keyed = list.rows.some((row) => row.given.has(soleKey(collection)?.name ?? ''));
  return { node: { collection, verb, columns, keyed, guard, validations, conflict: list.conflict }, rows };
}

/** Null where no row has it. All values of the caller's in a column are of one preset: an action has one per field. */
function shapeColumn(list: List, field: Field, only: WriteColumn['only']): WriteColumn | null {
  const references = new Set<string>();
  let [missing, holdsValues] = [0, false];
  let part: Field | null = null;
  let lookup: WriteColumn['lookup'] = null;
  let endOf: Field | null = null;
  let caller: CallerValue | null = null;
  for (const row of list.rows) {
    const columnValue = cellOf(row, field, only);
    if (columnValue === undefined) missing++;
    else if (columnValue.kind === 'value') holdsValues = true;
    else if (columnValue.kind === 'reference') {
      references.add(columnValue.row.collection.name);
      part ??= columnValue.part ?? null;
    } else if (columnValue.kind === 'lookup') lookup ??= columnValue.of;
    else if (columnValue.kind === 'end') endOf ??= columnValue.parent;
    else caller ??= columnValue.plan;
  }
  if (missing === list.rows.length) return null;
  return {
    field,
    mixed: missing > 0,
    holdsValues,
    endOf,
    references: [...references].sort(),
    part,
    lookup,
    only,
    caller,
  };
}

/** What the row holds where it is made or changed; either where both are the same. */
function cellOf(row: Row, { name }: Field, verb: 'insert' | 'update' | null): ColumnValue | undefined {
  return row.only[verb ?? 'insert'].get(name) ?? row.columnValues.get(name);
}

/** The fields that some row has something for, in the order of the collection. */
export function fieldsOf(rows: readonly Row[], collection: Collection): Field[] {
  const names = new Set<string>();
  for (const { columnValues, only } of rows)
    for (const found of [columnValues, only.insert, only.update]) for (const name of found.keys()) names.add(name);
  return [...collection.fields.keys()].filter((name) => names.has(name)).map((name) => fieldOf(collection, name));
}

/** The shape as text: names and flags, no values. */
export function shapeOfWrite(plan: WritePlan): string {
  const nodes = plan.nodes.map(({ collection, verb, columns, keyed, guard, validations, conflict }) => [
    verb,
    collection.name,
    keyed,
    guard ? guard.ruleBits : '',
    validations.length,
    conflict && [conflict.resolution, ...conflict.fields.map(({ name }) => name)],
    ...columns.map((column) => [
      column.field.name,
      column.mixed,
      column.holdsValues,
      column.references,
      column.part?.name,
      column.lookup?.field.name,
      column.only,
      column.endOf?.name,
      column.caller?.text,
    ]),
  ]);
  const unlinks = plan.unlinks.map(({ collection, field, action, strict }) => [
    action,
    collection.name,
    field.name,
    strict,
  ]);
  return JSON.stringify(['write', plan.collection.name, plan.makesKeys, nodes, unlinks]);
}
