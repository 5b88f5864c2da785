/**
 * Pages: the rows that a level shows, in order, with limit, offset and cursor, and the columns that this takes. Pages of groups use the
 * same clauses.
 */
import { assertNever } from '../../base/assert-never.js';
import { elementAt } from '../../base/narrow.js';
import { isKey, isTagged } from '../model/item-key.js';
import type { Collection, Field } from '../model/model.js';
import { isMasked, isMaskedOperand, maskOf } from '../plan/access.js';
import { callOf } from '../plan/call.js';
import type {
  Condition,
  CursorCondition,
  LimitPlan,
  OffsetPlan,
  OperandPlan,
  Order,
  Output,
  RowLevel,
  ToManyJoin,
} from '../plan/plan.js';
import { alias, type Fragment, integerLiteral, join, nothing, parameter, sql } from '../sql/fragment.js';
import { operandOperator, operandSchema } from './compare.js';
import { compileCondition } from './condition.js';
import { FromClause, type Scope } from './from-clause.js';
import { columnName, tableName } from './identifiers.js';
import type { NumberedSet } from './links.js';
import { compileOperand, isNotNull, isNull, operandTypeName } from './operand.js';
import { ROW_TAG, readsTag, rowTag } from './row-tag.js';
import { CHANGES, changedColumn, keysOfReference, type RowChanges } from './version.js';

export interface CompiledLevel {
  /** Yields the rows to show as JSON, in order. */
  readonly query: Fragment;
  /** The name under which the query is to be selected from. */
  readonly row: Fragment;
  /** The sets of links that its rows have as columns. */
  readonly links: readonly number[];
}

/** The condition that joins a level to a row of the level above; gets the source of the level's rows. */
export type JoinCondition = (source: FromClause) => Fragment;

interface PageOrder {
  readonly column: Fragment;
  readonly descending: boolean;
}

export function orderClause(order: readonly PageOrder[]): Fragment {
  if (order.length === 0) return nothing;
  const keys = order.map(({ column, descending }) => (descending ? sql`${column} desc` : column));
  return sql` order by ${join(keys, sql`, `)}`;
}

export function limitClause(limit: LimitPlan): Fragment {
  return limit.kind === 'all' ? nothing : sql` limit ${limitValue(limit)}`;
}

export function limitValue(limit: LimitPlan): Fragment {
  switch (limit.kind) {
    case 'all':
      throw new Error('there is no limit');
    case 'constant':
      return integerLiteral(limit.value);
    case 'slot':
      return sql`${parameter({ kind: 'limit', slot: limit.slot })}::bigint`;
    default:
      return assertNever(limit);
  }
}

export function offsetClause(offset: OffsetPlan | null): Fragment {
  return offset ? sql` offset ${parameter(offset)}::bigint` : nothing;
}

export interface Page {
  readonly query: Fragment;
  readonly name: Fragment;
  readonly rows: FromClause;
  /** Columns that say whether a masked field of the row may be seen. */
  readonly flag: Flag;
  /** The order again, over the columns of the page: joins behind the page are not bound to keep it. */
  readonly order: readonly PageOrder[];
  /** The changes of a row, where it is shown as a version. */
  readonly changes: Fragment | null;
  /** The row part of its entity tag, if that is shown. */
  readonly tag: Fragment | null;
}

interface PageContext {
  /** The number in the aliases of the page. */
  readonly number: number;
  readonly scope: Scope;
  readonly joinedBy: JoinCondition | null;
  /** Whether outputs are computed from the page as a whole. */
  readonly isShared: boolean;
  /** For rows of a version. */
  readonly changes: RowChanges | null;
  /** Replaces the table. */
  readonly table?: ((row: Fragment) => Fragment) | undefined;
  /** The links whose columns it has. */
  readonly linked?: readonly NumberedSet[];
}

/** A recorded row, in place of the table. */
function imageOf({ image, collection }: RowLevel): ((row: Fragment) => Fragment) | undefined {
  if (image === undefined) return undefined;
  const document = sql`service_webhook_image(${parameter({ kind: 'text', slot: image })})`;
  return (row) => sql`pg_catalog.json_populate_record(null::${tableName(collection)}, ${document}) ${row}`;
}

export function compilePage(level: RowLevel, context: PageContext): Page {
  const { number, scope, joinedBy, isShared, changes } = context;
  const table = changes?.made ?? context.table ?? imageOf(level);
  const derived = table ? { table } : {};
  const source = new FromClause(alias(`t${number}`), scope, level.collection, derived);
  source.assume(level.where);
  const joined = joinedBy?.(source);
  const name = alias(`p${number}`);
  const columns = outputColumns(level, source, changes);
  for (const field of (context.linked ?? []).flatMap(({ columns: linked }) => linked))
    if (!columns.has(field.name)) columns.set(field.name, named(field, source.raw([], field)));
  const flags = compileFlags(level, source, name);
  for (const [flag, column] of flags.columns) columns.set(flag, column);
  if (showsTag(level, context)) columns.set('%e', tagColumn(source, context));
  const conditions = [joined ?? null, compileCondition(level.where, source)];
  const sorted = level.order.map(({ operand, descending }) => compileOperand(operand, source, descending));
  const orderOf = (row: Fragment): PageOrder[] =>
    level.order.map(({ operand, descending }, position) => {
      const column = isPlain(operand, level, changes) ? columnName(operand.field) : alias(`s${position}`);
      return { column: sql`${row}.${column}`, descending };
    });
  level.order.forEach(({ operand }, position) => {
    const expression = elementAt(sorted, position);
    if (isPlain(operand, level, changes)) columns.set(operand.field.name, named(operand.field, expression));
    else columns.set(`%s${position}`, sql`${expression} as ${alias(`s${position}`)}`);
  });
  const ordinal = level.order.length === 0 ? source.ordinal(level.where, isShared) : null;
  if (ordinal) columns.set('%n', ordinal);
  const inner: PageOrder[] = ordinal
    ? [{ column: ordinal, descending: false }]
    : level.order.map(({ descending }, position) => ({ column: elementAt(sorted, position), descending }));
  const rows = ({ where, nullKeys }: CursorRange, isNeeded: Fragment | null): Fragment => {
    const matchingRows = sql`select ${join([...columns.values()], sql`, `)}
      from ${source.from(...conditions, where, isNeeded)}`;
    const page = sql`${limitClause(level.limit)}${offsetClause(level.offset)}${level.locked ? sql` for update of ${source.alias}` : nothing}`;
    if (!level.fenced) return sql`${matchingRows}${orderClause(inner.slice(nullKeys))}${page}`;
    // An offset is a fence for the planner: it finds the rows inside by the filter alone.
    const row = alias(`f${number}`);
    return sql`select * from (${matchingRows} offset 0) ${row}${orderClause(orderOf(row).slice(nullKeys))}${page}`;
  };
  const ranges = level.after ? compileCursor(level.after, level.order, sorted, level.collection) : [EVERY_ROW];
  const query = firstOf(
    ranges.map((range) => (isNeeded) => rows(range, isNeeded)),
    orderOf,
    level.limit,
    number,
  );
  const order = ordinal ? [{ column: sql`${name}.${alias('n')}`, descending: false }] : orderOf(name);
  const tag = showsTag(level, context) ? sql`${name}.${ROW_TAG}` : null;
  return { query, name, rows: source, flag: flags.of, order, changes: changes && sql`${name}.${CHANGES}`, tag };
}

/** Rows of versions and functions have no tag. */
function showsTag(level: RowLevel, { changes }: PageContext): boolean {
  return readsTag(level) && !changes && isTagged(level.collection) && !callOf(level.collection);
}

/** A source that replaces the table brings the transactions of its rows with it. */
function tagColumn(source: FromClause, { table }: PageContext): Fragment {
  if (table && source.collection.rowTag === 'xmin') return sql`${source.alias}.${ROW_TAG}`;
  return sql`${rowTag(source)} as ${ROW_TAG}`;
}

/** The columns that the outputs need, with the values of a version, by names. */
function outputColumns(level: RowLevel, source: FromClause, changes: RowChanges | null): Map<string, Fragment> {
  const columns = new Map<string, Fragment>();
  const document = changes?.document(source) ?? null;
  for (const field of level.outputs.flatMap((output) => neededFields(output, level))) {
    const value = source.raw([], field);
    const isFixed = !document || field.computed || (isKey(level.collection, field) && !changes?.made);
    const keys = isFixed ? [] : keysOfReference(field, level.outputs);
    columns.set(field.name, isFixed ? named(field, value) : changedColumn(field, value, document, keys));
  }
  if (document) columns.set('%v', sql`${document} as ${CHANGES}`);
  return columns;
}

/** A computed field gets the name that it has outside of the page. */
function named(field: Field, expression: Fragment): Fragment {
  return field.computed ? sql`${expression} as ${columnName(field)}` : expression;
}

type PlainOperand = Extract<OperandPlan, { kind: 'field' | 'key' }>;

/** Whether the operand is a column of the row as it stands. */
function isPlain(operand: OperandPlan, level: RowLevel, changes: RowChanges | null): operand is PlainOperand {
  if (changes) return false;
  if (operand.kind === 'key') return true;
  return operand.kind === 'field' && operand.through.length === 0 && !isMasked(level.collection, operand.field);
}

type Flag = (field: Field) => Fragment | null;

/** One column per rule and not per field: a rule may be costly, and is found out once per row. */
function compileFlags(
  level: RowLevel,
  source: FromClause,
  page: Fragment,
): { columns: Map<string, Fragment>; of: Flag } {
  const columns = new Map<string, Fragment>();
  const names = new Map<Condition, Fragment>();
  for (const field of level.outputs.flatMap((output) => shownFields(output))) {
    const rule = maskOf(level.collection, field);
    const mask = names.has(rule) ? null : source.mask([], field);
    if (!mask) continue;
    const name = alias(`k${names.size}`);
    columns.set(`%k${names.size}`, sql`${mask} as ${name}`);
    names.set(rule, sql`${page}.${name}`);
  }
  return { columns, of: (field) => names.get(maskOf(level.collection, field)) ?? null };
}

/** The fields that an output shows, or shows something behind. */
function shownFields(output: Output): Field[] {
  switch (output.kind) {
    case 'value':
      if (output.operand.kind === 'count' || output.operand.kind === 'first') return viaOf(output.operand.toMany);
      return ownField(output.operand);
    case 'one':
    case 'reference':
      return [output.toOne.field];
    case 'any':
      return output.targets.map(({ toOne }) => toOne.field);
    case 'constant':
    case 'version':
    case 'tag':
      return [];
    case 'object':
      return output.outputs.flatMap((each) => shownFields(each));
    default:
      return viaOf(output.toMany);
  }
}

function ownField(operand: OperandPlan): Field[] {
  return 'field' in operand ? [operand.field] : [];
}

function viaOf({ via }: ToManyJoin): Field[] {
  return via ? [via] : [];
}

function neededFields(output: Output, level: RowLevel): Field[] {
  switch (output.kind) {
    case 'value':
      if (output.operand.kind === 'count' || output.operand.kind === 'first') return [...output.operand.toMany.key];
      return ownField(output.operand);
    case 'one':
    case 'reference':
      return output.toOne.kind === 'one' ? [...output.toOne.columns] : [output.toOne.field];
    case 'constant':
    case 'version':
    case 'tag':
      return [];
    case 'object':
      return output.outputs.flatMap((each) => neededFields(each, level));
    case 'any':
      return output.targets.flatMap(({ toOne }) => [toOne.field, toOne.collectionField]);
    default:
      return [...output.toMany.key];
  }
}

/** The rows of the page, as a source for outputs. */
export function pageSource(level: RowLevel, page: Page, scope: Scope): FromClause {
  const value = (field: Field): Fragment => sql`${page.name}.${columnName(field)}`;
  return new FromClause(page.name, scope, level.collection, { flag: page.flag, value, rows: page.rows });
}

/** A sort key, and its value in the row that the cursor stands for. */
interface Key {
  readonly value: Fragment;
  readonly cursorValue: Fragment;
  /** Whether the row that the cursor stands for has no value. */
  readonly isMissing: boolean;
  readonly isNull: Fragment;
  readonly isNotNull: Fragment;
  readonly descending: boolean;
  readonly isNeverNull: boolean;
  readonly operator: (symbol: string) => Fragment;
  readonly operatorSchema: string;
}

/** Rows behind the cursor that one condition describes. */
interface CursorRange {
  readonly where: Fragment | null;
  /** How many of the first sort keys are null in all of them: an order by these would only keep the planner from an index. */
  readonly nullKeys: number;
}

const EVERY_ROW: CursorRange = { where: null, nullKeys: 0 };

const NO_ROW: CursorRange = { where: sql`false`, nullKeys: 0 };

/**
 * Conditions of which each row behind the cursor meets exactly one, in the order of the rows. Nulls come last in an ascending
 * order and first in a descending one; whether the cursor holds one is part of the shape. The first sort key bounds the rows, so that
 * PostgreSQL enters an index where the page begins: an `or` over all keys alone would be a filter over every row before it.
 */
function compileCursor(
  { slot, nulls }: CursorCondition,
  order: readonly Order[],
  expressions: readonly Fragment[],
  collection: Collection,
): readonly CursorRange[] {
  const conditions = ranges(
    order.map(({ operand, descending }, position) => {
      const value = elementAt(expressions, position);
      return {
        value,
        cursorValue: sql`${parameter({ kind: 'cursor', slot, position })}::${operandTypeName(operand)}`,
        isMissing: nulls[position] === true,
        isNull: isNull(operand, value),
        isNotNull: isNotNull(operand, value),
        descending,
        isNeverNull: !isMaskedOperand(collection, operand) && isNeverNull(operand),
        operator: (symbol: string) => operandOperator(operand, symbol),
        operatorSchema: operandSchema(operand),
      };
    }),
  );
  return conditions.length === 0 ? [NO_ROW] : conditions;
}

/**
 * The first rows of several queries, one after the other, up to the limit: the next one runs only if those before it did not have
 * enough. An order over all of them would have each sort its rows before the first is known.
 */
function firstOf(
  queries: readonly ((isNeeded: Fragment | null) => Fragment)[],
  order: (row: Fragment) => readonly PageOrder[],
  limit: LimitPlan,
  number: number,
): Fragment {
  const [first] = queries;
  if (first && queries.length === 1) return first(null);
  const names = queries.map((_, position) => alias(`b${number}_${position}`));
  const counted = (before: readonly Fragment[]): Fragment =>
    join(
      before.map((name) => sql`(select count(*) from ${name})`),
      sql` + `,
    );
  const parts = queries.map((query, position) => {
    const before = names.slice(0, position);
    const isNeeded = position === 0 ? null : sql`${counted(before)} < ${limitValue(limit)}`;
    return sql`${elementAt(names, position)} as materialized (${query(isNeeded)})`;
  });
  const all = join(
    names.map((name) => sql`select * from ${name}`),
    sql` union all `,
  );
  const row = alias(`u${number}`);
  return sql`with ${join(parts, sql`, `)} select * from (${all}) ${row}${orderClause(order(row))}${limitClause(limit)}`;
}

function ranges([key, ...rest]: readonly Key[]): readonly (CursorRange & { readonly where: Fragment })[] {
  if (!key) return [];
  const { value, cursorValue } = key;
  if (key.isMissing) {
    const behindRest = ranges(rest).map(({ where, nullKeys }) => ({
      where: sql`${key.isNull} and ${where}`,
      nullKeys: nullKeys + 1,
    }));
    return key.descending && !key.isNeverNull ? [...behindRest, { where: key.isNotNull, nullKeys: 0 }] : behindRest;
  }
  const bound = isRow([key, ...rest])
    ? nothing
    : sql`${value} ${key.operator(key.descending ? '<=' : '>=')} ${cursorValue} and `;
  const range = { where: sql`${bound}${behind([key, ...rest], false)}`, nullKeys: 0 };
  return key.descending || key.isNeverNull ? [range] : [range, { where: key.isNull, nullKeys: 1 }];
}

/** `withNulls`: nulls of the first key are behind the cursor too, unless a range of their own has them. */
function behind(keys: readonly Key[], withNulls: boolean): Fragment {
  const [key, ...rest] = keys;
  if (!key) return sql`false`;
  const { value, cursorValue } = key;
  if (isRow(keys)) {
    const [values, cursorValues] = [keys.map((each) => each.value), keys.map((each) => each.cursorValue)];
    return sql`(${join(values, sql`, `)}) ${key.operator(key.descending ? '<' : '>')} (${join(cursorValues, sql`, `)})`;
  }
  if (key.isMissing) {
    const behindRest = rest.length === 0 ? sql`false` : behind(rest, true);
    return key.descending ? sql`(${key.isNotNull} or ${behindRest})` : sql`(${key.isNull} and ${behindRest})`;
  }
  const alternatives = [sql`${value} ${key.operator(key.descending ? '<' : '>')} ${cursorValue}`];
  if (withNulls && !key.descending && !key.isNeverNull) alternatives.push(key.isNull);
  if (rest.length > 0) alternatives.push(sql`(${value} ${key.operator('=')} ${cursorValue} and ${behind(rest, true)})`);
  return sql`(${join(alternatives, sql` or `)})`;
}

/** Whether the keys can be compared as one row. */
function isRow(keys: readonly Key[]): boolean {
  const [first] = keys;
  return keys.every(
    (key) =>
      key.descending === first?.descending &&
      key.isNeverNull &&
      !key.isMissing &&
      key.operatorSchema === first.operatorSchema,
  );
}

function isNeverNull(operand: OperandPlan): boolean {
  return (
    // Behind a reference, the list may be hidden in some rows.
    (operand.kind === 'count' && operand.through.length === 0) ||
    operand.kind === 'key' ||
    (operand.kind === 'field' && operand.through.length === 0 && operand.field.column?.is_nullable === false)
  );
}
