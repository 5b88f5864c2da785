/**
 * Pages behind a cursor. The first sort key bounds the rows that are looked at, so that an index is entered where the page
 * begins: an `or` over all keys alone would be a filter over every row before it.
 */

import { elementAt } from '../base/narrow.js';
import type { Collection } from '../mirror/model.js';
import { isMaskedOperand } from '../plan/access.js';
import type { CursorCondition, LimitPlan, OperandPlan, Order } from '../plan/plan.js';
import { alias, type Fragment, join, nothing, parameter, sql } from '../sql/fragment.js';
import { operandOperator, operandSchema } from './compare.js';
import { isNotNull, isNull, operandTypeName } from './operand.js';
import { limitClause, limitValue, orderClause, type PageOrder } from './page.js';

/** A sort key, and the value of the row that the cursor stands for. */
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
export interface CursorRange {
  readonly where: Fragment | null;
  /** How many of the first sort keys are null in all of them: an order by these would only keep the planner from an index. */
  readonly nullKeys: number;
}

export const EVERY_ROW: CursorRange = { where: null, nullKeys: 0 };

const NO_ROW: CursorRange = { where: sql`false`, nullKeys: 0 };

/**
 * Conditions of which each row behind the cursor meets exactly one, in the order of the rows. Nulls come last in an ascending
 * order and first in a descending one; whether the cursor holds one is part of the shape.
 */
export function compileCursor(
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
 * The first so many rows of several queries, one behind the other: the next one is asked only where those before it did not have
 * enough. An order over all of them would have each sort its rows before the first is known.
 */
export function firstOf(
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
