/** The page of a level: the rows that it shows, in order, with the columns that this takes. */

import { elementAt } from '../base/narrow.js';
import { isKey } from '../mirror/item-key.js';
import type { Field } from '../mirror/model.js';
import { isMasked, maskOf } from '../plan/access.js';
import type { Condition, OperandPlan, Output, RowLevel, ToManyJoin } from '../plan/plan.js';
import { alias, type Fragment, join, nothing, sql } from '../sql/fragment.js';
import { compileCondition } from './condition.js';
import { type CursorRange, compileCursor, EVERY_ROW, firstOf } from './cursor.js';
import { FromClause, type Scope } from './from-clause.js';
import { columnName } from './identifiers.js';
import { compileOperand } from './operand.js';
import { type JoinCondition, limitClause, offsetClause, orderClause, type PageOrder } from './page.js';
import { CHANGES, changedColumn, keysOfReference, type RowChanges } from './version.js';

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
}

export function compilePage(
  level: RowLevel,
  number: number,
  scope: Scope,
  joinedBy: JoinCondition | null,
  isShared: boolean,
  changes: RowChanges | null,
): Page {
  const derived = changes?.made ? { table: changes.made } : {};
  const source = new FromClause(alias(`t${number}`), scope, level.collection, derived);
  source.assume(level.where);
  const joined = joinedBy?.(source);
  const name = alias(`p${number}`);
  const columns = new Map<string, Fragment>();
  const document = changes?.document(source) ?? null;
  for (const field of level.outputs.flatMap((output) => neededFields(output, level))) {
    const value = source.raw([], field);
    const isFixed = !document || field.computed || (isKey(level.collection, field) && !changes?.made);
    const keys = isFixed ? [] : keysOfReference(field, level.outputs);
    columns.set(field.name, isFixed ? named(field, value) : changedColumn(field, value, document, keys));
  }
  if (document) columns.set('%v', sql`${document} as ${CHANGES}`);
  const flags = compileFlags(level, source, name);
  for (const [flag, column] of flags.columns) columns.set(flag, column);
  const conditions: Fragment[] = [];
  if (joined) conditions.push(joined);
  const where = compileCondition(level.where, source);
  if (where) conditions.push(where);

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
    const matchingRows = sql`select ${join([...columns.values()], sql`, `)} from ${source.from(...conditions, where, isNeeded)}`;
    const page = sql`${limitClause(level.limit)}${offsetClause(level.offset)}${level.locked ? sql` for update of ${source.alias}` : nothing}`;
    if (!level.fenced) return sql`${matchingRows}${orderClause(inner.slice(nullKeys))}${page}`;
    // The planner does not look through an offset: what is inside is found by the filter alone.
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
  return { query, name, rows: source, flag: flags.of, order, changes: document && sql`${name}.${CHANGES}` };
}

/** What is no column of the table gets the name that it has behind the page. */
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
      return [];
    case 'object':
      return output.outputs.flatMap((each) => neededFields(each, level));
    case 'any':
      return output.targets.flatMap(({ toOne }) => [toOne.field, toOne.collectionField]);
    default:
      return [...output.toMany.key];
  }
}

/** The rows of the page, for what is shown of them. */
export function pageSource(level: RowLevel, page: Page, scope: Scope): FromClause {
  const value = (field: Field): Fragment => sql`${page.name}.${columnName(field)}`;
  return new FromClause(page.name, scope, level.collection, { flag: page.flag, value, rows: page.rows });
}
