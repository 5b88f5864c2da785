/** What pages of rows and of groups share: their order, limit and offset, and what ties them to the level above. */
import { assertNever } from '../base/assert-never.js';
import type { LimitPlan, OffsetPlan } from '../plan/plan.js';
import { type Fragment, integerLiteral, join, nothing, parameter, sql } from '../sql/fragment.js';
import type { FromClause } from './from-clause.js';

export interface CompiledLevel {
  /** Yields the rows to show as JSON, in order. */
  readonly query: Fragment;
  /** The name under which the query is to be selected from. */
  readonly row: Fragment;
}

/** The condition that joins a level to a row of the level above; gets the source of the level's rows. */
export type JoinCondition = (source: FromClause) => Fragment;

export interface PageOrder {
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
