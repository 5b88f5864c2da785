/** The shape of a list of rows: the columns of its statement, and the text that identifies it. */

import { invalidPayload } from '../../../base/errors.js';
import { writeJson } from '../../../base/exact-json.js';
import { elementAt } from '../../../base/narrow.js';
import { forEachInSlices, TimeSlice } from '../../../base/time-slices.js';
import { isKey, singleKey } from '../../model/item-key.js';
import type { Collection, Field } from '../../model/model.js';
import type { UpdateOperator } from '../../request/update-operators.js';
import { fieldOf } from '../resolve-names.js';
import type { NeedBits } from './guard.js';
import { keyEntries } from './key.js';
import type { CallerValue, ColumnValue, List, Row } from './payload-row.js';
import type { NewReference, RowGuard, Validation, WriteColumn, WriteNode, WritePlan } from './write.js';

export function isSame(one: ColumnValue | undefined, other: ColumnValue | undefined): boolean {
  if (one === other) return true;
  if (one?.kind === 'reference' && other?.kind === 'reference') return one.row === other.row && one.part === other.part;
  if (one?.kind === 'lookup' && other?.kind === 'lookup') return String(one.key) === String(other.key);
  if (one?.kind === 'caller' && other?.kind === 'caller') return one.plan.text === other.plan.text;
  if (one?.kind !== 'value' || other?.kind !== 'value') return false;
  return sameText(one.value, other.value) || writeJson(one.value) === writeJson(other.value);
}

/** A key is split into texts, whatever the types of its columns. */
function sameText(one: unknown, other: unknown): boolean {
  const isText = (value: unknown): boolean => ['string', 'number', 'boolean'].includes(typeof value);
  return isText(one) && isText(other) && String(one) === String(other);
}

export interface RowChecks {
  readonly guard: RowGuard | null;
  readonly needBits: NeedBits;
  readonly validations: readonly Validation[];
  /** The collection as the caller may read it. */
  readonly readable: Collection | null;
  readonly privileges: WriteNode['privileges'];
}

/** A column is inserted for all rows of a list or for none, and the service does not know the defaults of a view's tables. */
function refuseMixedKeys({ collection, verb, rows }: List): void {
  const isInstead = collection.triggers.some(
    ({ timing, events }) => timing === 'instead of' && events.includes('insert'),
  );
  if (verb !== 'insert' || collection.kind !== 'view' || isInstead) return;
  const isMixed = collection.key.some(({ name, column }) => {
    const brought = rows.filter((row) => row.key !== null || row.columnValues.has(name)).length;
    return column?.default_expression === null && brought > 0 && brought < rows.length;
  });
  if (isMixed)
    throw invalidPayload(
      `Give a key for all new items of "${collection.name}" or for none: it is a view, so the database makes keys`,
    );
}

export async function shapeList(
  list: List,
  checks: RowChecks,
): Promise<{ node: WriteNode; rows: Record<string, unknown>[] }> {
  refuseMixedKeys(list);
  const columns: WriteColumn[] = [];
  const pace = new TimeSlice();
  for (const field of fieldsOf(list.rows, list.collection)) {
    const isSameValue =
      list.verb !== 'upsert' ||
      list.rows.every((row) => isSame(cellOf(row, field, 'insert'), cellOf(row, field, 'update')));
    for (const only of isSameValue ? ([null] as const) : (['insert', 'update'] as const)) {
      const column = shapeColumn(list, field, only);
      if (column) columns.push(column);
    }
    if (pace.isOver()) await pace.rest();
  }
  if (list.rows.some(({ claims }) => claims))
    for (const field of list.collection.fields.values()) {
      const column = field.column && shapeColumn(list, field, isKey(list.collection, field) ? 'key' : 'kept');
      if (column) columns.push(column);
    }
  const rows: Record<string, unknown>[] = [];
  const names = columns.map((_, position) => ({ value: `c${position}`, present: `p${position}` }));
  await forEachInSlices(list.rows, (row, index) => {
    const entry: Record<string, unknown> = {};
    const needBits = checks.needBits[index] ?? null;
    if (needBits !== null) entry['a'] = needBits;
    if (row.key !== null) Object.assign(entry, keyEntries(list.collection, 'k', row.key));
    for (let position = 0; position < columns.length; position++) {
      const column = elementAt(columns, position);
      const columnValue = cellOf(row, column.field, column.only);
      if (!columnValue) continue;
      const { value, present } = elementAt(names, position);
      if (column.mixed) entry[present] = true;
      if (columnValue.kind === 'value') entry[value] = columnValue.value;
      else if (columnValue.kind === 'several')
        for (const each of columnValue.values) enter(entry, column, position, each);
      else enter(entry, column, position, columnValue);
    }
    rows.push(entry);
  });
  const { collection, verb } = list;
  const { guard, validations, privileges } = checks;
  const readable = columns.some(({ only }) => only === 'kept') ? checks.readable : null;
  const keyed = list.rows.some((row) => row.fields.has(singleKey(collection)?.name ?? ''));
  const bringsKeys = list.rows.some((row) => row.key !== null);
  const { conflict } = list;
  const writesRelated = verb !== 'insert' && list.rows.some((row) => row.writesRelated);
  const checked = { guard, validations, readable, privileges };
  return { node: { collection, verb, columns, keyed, bringsKeys, ...checked, conflict, writesRelated }, rows };
}

/** The cells of a row for the column at the position. */
function enter(entry: Record<string, unknown>, column: WriteColumn, position: number, columnValue: ColumnValue): void {
  switch (columnValue.kind) {
    case 'value':
      entry[`c${position}`] = columnValue.value;
      break;
    case 'caller':
      entry[`v${position}`] = true;
      break;
    case 'operated':
      entry[`c${position}`] = columnValue.operand;
      if (column.choosesOperator) entry[`o${position}`] = columnValue.operator;
      break;
    case 'lookup':
      Object.assign(entry, keyEntries(columnValue.of.collection, `h${position}`, columnValue.key));
      break;
    case 'end':
      entry[`e${position}`] = columnValue.position;
      break;
    case 'reference': {
      const { row, part = null } = columnValue;
      const referenceIndex = column.references.findIndex(
        (each, index) =>
          each.collection === row.collection.name && each.part === part && entry[`r${position}_${index}`] === undefined,
      );
      entry[`r${position}_${referenceIndex}`] = row.number;
      break;
    }
    case 'several':
      throw new Error('values of several parts of a payload are entered one by one');
  }
}

/** The column, or null if no row has a value for it. All caller values in a column come from one preset: an action has one per field. */
function shapeColumn(list: List, field: Field, only: WriteColumn['only']): WriteColumn | null {
  const references = new Map<string, NewReference>();
  let [missing, holdsValues, agrees] = [0, false, false];
  let lookup: WriteColumn['lookup'] = null;
  let endOf: Field | null = null;
  let caller: CallerValue | null = null;
  const operators: UpdateOperator[] = [];
  let isUnoperated = false;
  const consider = (columnValue: ColumnValue, before: readonly ColumnValue[]): void => {
    if (columnValue.kind === 'value' || columnValue.kind === 'operated') holdsValues = true;
    if (columnValue.kind !== 'operated') isUnoperated = true;
    else if (!operators.includes(columnValue.operator)) operators.push(columnValue.operator);
    if (columnValue.kind === 'reference') {
      const { row, part = null } = columnValue;
      const collection = row.collection.name;
      const earlier = before.filter((each) => each.kind === 'reference' && refersAlike(each, columnValue)).length;
      references.set(JSON.stringify([collection, part?.name, earlier]), { collection, part });
    } else if (columnValue.kind === 'lookup') lookup ??= columnValue.of;
    else if (columnValue.kind === 'end') endOf ??= columnValue.parent;
    else if (columnValue.kind === 'caller') caller ??= columnValue.plan;
  };
  for (const row of list.rows) {
    const columnValue = cellOf(row, field, only);
    if (columnValue === undefined) missing++;
    else if (columnValue.kind === 'several') {
      agrees = true;
      columnValue.values.forEach((each, index, all) => {
        consider(each, all.slice(0, index));
      });
    } else consider(columnValue, []);
  }
  if (missing === list.rows.length) return null;
  const sorted = [...references].sort(([one], [other]) => (one < other ? -1 : 1));
  return {
    field,
    mixed: missing > 0,
    holdsValues,
    endOf,
    references: sorted.map(([, reference]) => reference),
    lookup,
    only,
    agrees,
    caller,
    operators: operators.sort(),
    choosesOperator: operators.length > 1 || (operators.length > 0 && isUnoperated),
  };
}

type Reference = Extract<ColumnValue, { kind: 'reference' }>;

function refersAlike(one: Reference, other: Reference): boolean {
  return one.row.collection === other.row.collection && one.part === other.part;
}

/** The value of the row if it is created or updated; either if both are the same. */
function cellOf(row: Row, { name }: Field, verb: WriteColumn['only']): ColumnValue | undefined {
  if (verb === 'key' || verb === 'kept') return row.claims?.get(name);
  const only = row.only[verb ?? 'insert'];
  return (only.size > 0 ? only.get(name) : undefined) ?? row.columnValues.get(name);
}

/** The fields that some row has something for, in the order of the collection. */
export function fieldsOf(rows: readonly Row[], collection: Collection): Field[] {
  const names = new Set<string>();
  for (const { columnValues, only } of rows)
    for (const values of [columnValues, only.insert, only.update]) for (const name of values.keys()) names.add(name);
  return [...collection.fields.keys()].filter((name) => names.has(name)).map((name) => fieldOf(collection, name));
}

/** The shape as text: names and flags, no values. */
export function shapeOfWrite(plan: WritePlan): string {
  const nodes = plan.nodes.map(({ collection, verb, columns, guard, validations, conflict, ...node }) => [
    verb,
    collection.name,
    node.keyed,
    node.bringsKeys,
    node.writesRelated,
    guard ? [guard.key, guard.perRow] : '',
    validations.length,
    conflict && [conflict.resolution, conflict.equatesNulls, ...conflict.fields.map(({ name }) => name)],
    ...columns.map((column) => [
      column.field.name,
      column.mixed,
      column.holdsValues,
      column.references.map(({ collection: name, part }) => [name, part?.name]),
      column.agrees,
      column.lookup?.field.name,
      column.only,
      column.endOf?.name,
      column.caller?.text,
      ...(column.operators.length > 0 ? [column.operators, column.choosesOperator] : []),
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
