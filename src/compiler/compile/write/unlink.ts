/** Rows that leave a relation, as parts of a write chain: their reference is cleared, or they are deleted. */
import { elementAt } from '../../../base/narrow.js';
import { areUnique, isKey } from '../../model/item-key.js';
import type { Collection, Field } from '../../model/model.js';
import { clearedColumns } from '../../plan/write/resolve-conflicts.js';
import type { Unlink, WriteNode, WritePlan } from '../../plan/write/write.js';
import { alias, type Fragment, identifier, join, nothing, sql } from '../../sql/fragment.js';
import { areEqual, isAmong } from '../compare.js';
import { FromClause, type Scope } from '../from-clause.js';
import { columnName, tableName } from '../identifiers.js';
import { commaList, inputKeyColumns, inputKeyDefinitions, inputKeyNames, keyColumns } from '../key-columns.js';
import type { Recorded } from './activity.js';
import { guardedRows } from './guard.js';
import { columnOf, input, present, unlinkDocument } from './write-input.js';

/** One statement per table and action: a row that leaves two relations is changed once, one that is deleted not at all. */
export function compileUnlinks(plan: WritePlan, action: Unlink['action'], scope: Scope): Fragment[] {
  const parts: Fragment[] = [];
  const unlinks = plan.unlinks
    .map((unlink, position) => ({ unlink, position }))
    .filter((each) => each.unlink.action === action);
  for (const collection of new Set(unlinks.map(({ unlink }) => unlink.collection))) {
    const members = unlinks.filter(({ unlink }) => unlink.collection === collection);
    const key = commaList(keyColumns(collection));
    const own = keyColumns(collection, alias('t'));
    const conditions = members.map(({ unlink, position }) =>
      action === 'delete'
        ? join([unlinked(unlink, position), ...stillLinked(plan, collection, referenceColumn(unlink))], sql` and `)
        : unlinked(unlink, position),
    );
    const staying = action === 'nullify' ? [...stillLinked(plan, collection, null), ...deleted(plan, collection)] : [];
    // Found through the index on the reference first: the conditions alone would have the whole table read.
    const candidates = members.map(({ unlink, position }) =>
      unlink.guard ? sql`select ${key} from ${free(position)}` : childRows(unlink, position, scope),
    );
    const isUnlinked = isAmong(own, collection.key, join(candidates, sql` union `));
    const where = join([isUnlinked, sql`(${join(conditions, sql` or `)})`, ...staying], sql` and `);
    const name = unlinkAlias(plan, collection, action);
    const table = sql`${tableName(collection)} ${alias('t')}`;
    if (action === 'delete') {
      parts.push(sql`${name} as (delete from ${table} where ${where} returning ${commaList(own)})`);
      continue;
    }
    const changes = members.flatMap(({ unlink }, index) =>
      clearedColumns(collection, unlink.columns).map((field) => {
        const column = columnName(field);
        return sql`${column} := case when ${elementAt(conditions, index)} then null else ${alias('t')}.${column} end`;
      }),
    );
    parts.push(
      sql`${name} as (update ${table} set ${join(changes, sql`, `)} where ${where} returning ${commaList(own)})`,
    );
  }
  return parts;
}

/** The column by which a payload sets the reference of a row: the first one that an unlink clears. */
export function referenceColumn(unlink: Unlink): Field {
  return elementAt(clearedColumns(unlink.collection, unlink.columns), 0);
}

/** The common table expression with the rows that the caller may unlink, if a guard restricts them. */
function free(position: number): Fragment {
  return alias(`g${position}`);
}

function childRows(unlink: Unlink, position: number, scope: Scope): Fragment {
  const { collection, columns, guard } = unlink;
  const row = alias('c');
  const referenceColumns = columns.map((field) => sql`${row}.${columnName(field)}`);
  const tied = isAmong(
    referenceColumns,
    columns,
    sql`select ${commaList(parentNames(unlink))} from ${alias(`x${position}`)}`,
  );
  return sql`select ${commaList(keyColumns(collection, row))} from ${guardedRows(new FromClause(row, scope, collection), guard, tied)}`;
}

/** The statement that lets the rows go. */
function unlinkAlias(plan: WritePlan, collection: Collection, action: Unlink['action']): Fragment {
  const first = plan.unlinks.findIndex((unlink) => unlink.action === action && unlink.collection === collection);
  return alias(`${action === 'delete' ? 'd' : 'u'}${first}`);
}

/** Whether a row has to leave before another can take its place. */
export function isUnique({ collection, field, columns }: Unlink): boolean {
  const names = columns.map(({ name }) => name);
  return field.column?.is_unique ?? areUnique(collection, names);
}

/** Joins that wait for the rows of the collection whose place others take. */
export function awaitedUnlinks(plan: WritePlan, collection: Collection): Fragment[] {
  const awaited = plan.unlinks.filter((unlink) => unlink.collection === collection && isUnique(unlink));
  return [...new Set(awaited.map(({ action }) => action))].map((action) => {
    const name = unlinkAlias(plan, collection, action);
    return sql` cross join (select count(*) from ${name}) ${alias(action === 'delete' ? 'dw' : 'uw')}`;
  });
}

/** One entry for each statement that lets rows go. */
export function recordedUnlinks(plan: WritePlan): Recorded[] {
  return plan.unlinks.flatMap(({ collection, action }, position): Recorded[] => {
    const first = plan.unlinks.findIndex((each) => each.action === action && each.collection === collection);
    if (first !== position) return [];
    const rows = unlinkAlias(plan, collection, action);
    return [{ action: action === 'delete' ? 'delete' : 'update', collection, rows, shown: false }];
  });
}

/** Rows that were named one by one must exist and be writable by the caller; other changes to them are checked elsewhere. */
export function missingUnlinks(plan: WritePlan): Fragment[] {
  return plan.unlinks.flatMap((unlink, position) => {
    if (!unlink.strict) return [];
    const key = commaList(keyColumns(unlink.collection));
    const names = inputKeyNames(unlink.collection);
    const children = inputKeyColumns(unlink.collection, alias('y'), 'child');
    const childIn = (query: Fragment): Fragment => isAmong(children, unlink.collection.key, query);
    const isUnlinked = childIn(sql`select ${key} from ${unlinkAlias(plan, unlink.collection, unlink.action)}`);
    const named = plan.nodes.flatMap((node, list) => {
      if (node.collection !== unlink.collection) return [];
      const rows = childIn(sql`select ${commaList(names)} from ${input(list)}`);
      if (!unlink.guard) return [rows];
      const settled = setsReference(node, referenceColumn(unlink))
        ? sql` or ${childIn(sql`select ${commaList(inputKeyColumns(unlink.collection, alias('k')))}
          from ${input(list)} ${alias('k')}
          where true${ifReferenceSet(node, referenceColumn(unlink))}`)}`
        : nothing;
      return [sql`(${rows} and ${childIn(sql`select ${key} from ${free(position)}`)})${settled}`];
    });
    const settled = join([isUnlinked, ...named], sql` or `);
    return [
      sql`case when exists (select from ${alias(`x${position}`)} ${alias('y')}
        where ${elementAt(children, 0)} is not null and (${settled}) is not true) then service_raise('missing') end`,
    ];
  });
}

/** Rows that the payload names and, where a field is given, whose reference it ifReferenceSet. */
function stillLinked(plan: WritePlan, collection: Collection, field: Field | null): Fragment[] {
  return plan.nodes.flatMap((node, position) => {
    if (node.verb === 'insert' || node.collection !== collection) return [];
    if (field && !setsReference(node, field)) return [];
    return [
      sql`not exists (select from ${input(position)} ${alias('k')}
        where ${areEqual(inputKeyColumns(collection, alias('k')), keyColumns(collection, alias('t')), collection.key)}${ifReferenceSet(node, field)})`,
    ];
  });
}

/** A part of the key that names a row also sets its reference. */
function setsReference(node: WriteNode, field: Field): boolean {
  return columnOf(node, field, 'update') !== undefined || isKey(node.collection, field);
}

function ifReferenceSet(node: WriteNode, field: Field | null): Fragment {
  const column = columnOf(node, field, 'update');
  return column?.mixed ? sql` and ${alias('k')}.${identifier(`p${node.columns.indexOf(column)}`)}` : nothing;
}

function deleted(plan: WritePlan, collection: Collection): Fragment[] {
  return plan.unlinks.flatMap((unlink, position) =>
    unlink.action === 'delete' && unlink.collection === collection
      ? [
          sql`not (${join([unlinked(unlink, position), ...stillLinked(plan, collection, referenceColumn(unlink))], sql` and `)})`,
        ]
      : [],
  );
}

/** Unlinks of a collection's rows, each with the condition that it concerns the row at hand. */
export function unlinksOf(
  plan: WritePlan,
  collection: Collection,
  action: Unlink['action'],
): { unlink: Unlink; condition: Fragment }[] {
  return plan.unlinks.flatMap((unlink, position) =>
    unlink.collection === collection && unlink.action === action
      ? [{ unlink, condition: unlinked(unlink, position) }]
      : [],
  );
}

/** The columns that are cleared in rows of the payload that leave the list of a parent. Parts of their key are kept. */
export function clearable(plan: WritePlan, collection: Collection): Field[] {
  const fields = unlinksOf(plan, collection, 'nullify').flatMap(({ unlink }) =>
    clearedColumns(collection, unlink.columns),
  );
  return [...new Set(fields)].filter((field) => !isKey(collection, field));
}

export function cleared(plan: WritePlan, collection: Collection, field: Field): Fragment | null {
  const conditions = unlinksOf(plan, collection, 'nullify').filter(({ unlink }) =>
    clearedColumns(collection, unlink.columns).includes(field),
  );
  return conditions.length === 0
    ? null
    : sql`(${join(
        conditions.map(({ condition }) => condition),
        sql` or `,
      )})`;
}

export function unlinkInput(plan: WritePlan, unlink: Unlink, position: number, scope: Scope): Fragment[] {
  const { from, collection } = unlink;
  const types = [
    ...inputKeyDefinitions(from, inputKeyNames(from, 'parent')),
    ...inputKeyDefinitions(collection, inputKeyNames(collection, 'child')),
  ];
  const rows = sql`json_to_recordset(${unlinkDocument(plan, position)}) as ${alias('x')} (${commaList(types)})`;
  const children = commaList(inputKeyColumns(collection, alias('x'), 'child'));
  const linkedKeys = sql`${alias(`x${position}`)} as materialized (select ${parentOf(unlink)}, ${children}
    from ${rows})`;
  return unlink.guard ? [linkedKeys, sql`${free(position)} as (${childRows(unlink, position, scope)})`] : [linkedKeys];
}

/** The reference of rows that leave: the key of their parent, or its value in the column that they refer to. */
function parentOf(unlink: Unlink): Fragment {
  const { from, key } = unlink;
  if (key.every((field, position) => field === from.key[position]) && key.length === from.key.length)
    return commaList(inputKeyColumns(from, alias('x'), 'parent'));
  const row = alias('o');
  const same = areEqual(keyColumns(from, row), inputKeyColumns(from, alias('x'), 'parent'), from.key);
  const names = parentNames(unlink);
  return commaList(
    key.map(
      (field, position) =>
        sql`(select ${row}.${columnName(field)}
          from ${tableName(from)} ${row}
          where ${same}) as ${elementAt(names, position)}`,
    ),
  );
}

/** The names in the input of the columns that are referred to. */
function parentNames({ key }: Unlink): Fragment[] {
  return inputKeyNames({ key }, 'parent');
}

function unlinked(unlink: Unlink, position: number): Fragment {
  const key = keyColumns(unlink.collection, alias('t'));
  const children = inputKeyColumns(unlink.collection, alias('y'), 'child');
  const parent = areEqual(
    parentNames(unlink).map((name) => sql`${alias('y')}.${name}`),
    unlink.columns.map((field) => sql`${alias('t')}.${columnName(field)}`),
    unlink.key,
    unlink.columns,
  );
  const concerned = sql`exists (select from ${alias(`x${position}`)} ${alias('y')}
    where ${parent} and (${elementAt(children, 0)} is null or ${areEqual(children, key, unlink.collection.key)}))`;
  if (!unlink.guard) return concerned;
  const freeKeys = sql`select ${commaList(keyColumns(unlink.collection))} from ${free(position)}`;
  return sql`(${concerned} and ${isAmong(key, unlink.collection.key, freeKeys)})`;
}

/** Unless the payload sets the reference of the row. */
export function unlessPresent(node: WriteNode, field: Field): Fragment {
  const column = columnOf(node, field, 'update');
  if (isKey(node.collection, field)) return sql` and false`;
  if (!column) return nothing;
  return column.mixed ? sql` and ${present(node, column)} is not true` : sql` and false`;
}
