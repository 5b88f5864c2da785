/**
 * Values that several parts of a payload give one column, such as references that share it: they must agree. Known values are compared here,
 * values that only the database knows by the statement.
 */
import { invalidPayload } from '../../../base/errors.js';
import { isKey, singleKey } from '../../model/item-key.js';
import type { Collection, Field } from '../../model/model.js';
import type { Key } from '../../request/write.js';
import { joinKey } from '../../sql/key-text.js';
import { fieldOf } from '../resolve-names.js';
import { keyPart } from './key.js';
import type { ColumnValue, List, Row } from './payload-row.js';
import { isSame } from './row-shape.js';

export function contradiction(path: string, collection: Collection, field: Field): Error {
  return invalidPayload(
    `"${path}" contradicts another part of the payload about "${field.name}" of "${collection.name}"`,
  );
}

/** The key of an item cannot be changed. */
export function changedKey(path: string, collection: Collection): Error {
  return invalidPayload(`"${path}" is a part of the key of "${collection.name}", which cannot be changed`);
}

/** A column of which several parts of the payload say something, and the last place that does. */
export interface Dispute {
  readonly row: Row;
  readonly field: Field;
  readonly path: string;
}

/** Keeps one value where the payload alone shows that all are equal. */
export function settleDispute({ row, field, path }: Dispute): void {
  const claim = row.claims?.get(field.name);
  if (claim) settleClaim(row, field, claim, path);
  const columnValue = row.columnValues.get(field.name);
  if (columnValue?.kind !== 'several') return;
  const sources = sourcesOf(columnValue);
  const known = sources.filter((each) => each.kind === 'value');
  const isNull = known.some(({ value }) => value === null);
  if (known.length > 1 || (isNull && sources.length > 1)) throw contradiction(path, row.collection, field);
  const [only] = sources;
  row.columnValues.set(field.name, sources.length === 1 && only ? only : { kind: 'several', values: sources });
}

/** Resolves the values for a part of a known key. No value remains if all of them equal the key. */
function settleClaim(row: Row, field: Field, claim: ColumnValue, path: string): void {
  const part = row.key === null ? undefined : keyPart(row.collection, row.key, field);
  const open = sourcesOf(claim).filter((each) => {
    if (each.kind !== 'value') return true;
    if (String(each.value) !== part) throw changedKey(path, row.collection);
    return false;
  });
  if (open.length > 0) row.claims?.set(field.name, { kind: 'several', values: open });
  else row.claims?.delete(field.name);
}

/**
 * Parts of the key of a new row that others say: where those are known the row knows its key, and need not wait for them. The key of
 * several columns is answered where the payload says all of it.
 */
export function settleParts({ collection, verb, columnValues }: Row): Key | null {
  if (verb !== 'insert' || collection.key.length === 1) return null;
  const parts = collection.key.map(({ name }): unknown => {
    const columnValue = columnValues.get(name);
    const [known = columnValue] = columnValue?.kind === 'reference' ? sourcesOf(columnValue) : [];
    if (known) columnValues.set(name, known);
    return known?.kind === 'value' ? known.value : null;
  });
  return parts.includes(null) ? null : joinKey(parts);
}

/** Where a value comes from: each source once, none of which takes it from another row that knows it. */
function sourcesOf(columnValue: ColumnValue): ColumnValue[] {
  if (columnValue.kind === 'several') {
    const distinctSources: ColumnValue[] = [];
    for (const source of columnValue.values.flatMap(sourcesOf))
      if (!distinctSources.some((each) => isSame(each, source))) distinctSources.push(source);
    return distinctSources;
  }
  if (columnValue.kind !== 'reference') return [columnValue];
  const { row, part } = columnValue;
  if (!part && row.key !== null && singleKey(row.collection)) return [{ kind: 'value', value: row.key }];
  const keyColumnValue = part && row.columnValues.get(part.name);
  const sources = keyColumnValue ? sourcesOf(keyColumnValue) : [];
  const known = sources.find(({ kind }) => kind === 'value') ?? sources[0];
  return [known?.kind === 'value' || known?.kind === 'reference' ? known : columnValue];
}

/**
 * The statement makes the keys of a list before those that take parts of them: lists whose new keys wait for each other cannot be made by
 * one statement.
 */
export function refuseCircles(lists: readonly List[]): void {
  const makers = new Map(lists.filter(({ verb }) => verb === 'insert').map((list) => [list.collection.name, list]));
  const done = new Set<List>();
  const visit = (list: List, waiting: ReadonlySet<List>): void => {
    if (done.has(list)) return;
    for (const { row, field, other } of waitsOf(list)) {
      const maker = makers.get(other.name);
      if (maker && (maker === list || waiting.has(maker)))
        throw invalidPayload(
          `"${row.path === '' ? field.name : `${row.path}.${field.name}`}" is a part of the key that comes from another new item of "${other.name}", and the two new items depend on each other: create one of them first`,
        );
      if (maker) visit(maker, new Set([...waiting, list]));
    }
    done.add(list);
  };
  for (const list of makers.values()) visit(list, new Set());
}

/** One row for each collection whose new rows say parts of the list's keys. */
function waitsOf({ collection, rows }: List): { row: Row; field: Field; other: Collection }[] {
  const dependencies = new Map<string, { row: Row; field: Field; other: Collection }>();
  for (const row of rows)
    for (const { name } of collection.key) {
      const columnValue = row.columnValues.get(name);
      if (!columnValue) continue;
      for (const each of columnValue.kind === 'several' ? columnValue.values : [columnValue])
        if (each.kind === 'reference' && !dependencies.has(each.row.collection.name))
          dependencies.set(each.row.collection.name, {
            row,
            field: fieldOf(collection, name),
            other: each.row.collection,
          });
    }
  return [...dependencies.values()];
}

/**
 * The columns of a reference that become null when it is cleared: not those that the row shares with its key or another reference, nor those that
 * must not be null, unless there is nothing else.
 */
export function clearedColumns(collection: Collection, columns: readonly Field[]): readonly Field[] {
  if (columns.length === 1) return columns;
  const free = columns.filter((field) => !isKey(collection, field));
  const nullable = free.filter(({ column }) => column?.is_nullable !== false);
  const own = nullable.filter((field) => !isShared(collection, field, columns));
  return [own, nullable, free].find((fields) => fields.length > 0) ?? columns;
}

/** Whether another reference holds the column too. */
function isShared(collection: Collection, { name }: Field, columns: readonly Field[]): boolean {
  return [...collection.fields.values()].some(({ relation }) => {
    if (relation?.kind !== 'many-to-one' || !relation.columns.some(({ column }) => column === name)) return false;
    const isThis = (column: string): boolean => columns.some((field) => field.name === column);
    return relation.columns.length !== columns.length || !relation.columns.every(({ column }) => isThis(column));
  });
}
