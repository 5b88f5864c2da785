/** Orders and pages. Every order ends with the key, where there is one, so that pages are stable. */
import { invalidQuery } from '../../base/errors.js';
import type { Collection, Model } from '../model/model.js';
import type { Query, SortKey } from '../request/ast.js';
import { isMasked } from './access.js';
import { planRank } from './full-text.js';
import type { Condition, CursorCondition, LimitPlan, OffsetPlan, OperandPlan, Order } from './plan.js';
import { resolveExpression } from './resolve-names.js';

interface OrderOptions {
  readonly model: Model;
  /** The conditions of the rows, in which `rank` finds its search. */
  readonly where: Condition;
  /** The sort field of the relation that lists the rows. */
  readonly sortField: string | null;
}

export function planOrder(
  sort: readonly SortKey[] | null,
  collection: Collection,
  { model, where, sortField }: OrderOptions,
): Order[] {
  if (!sort) return defaultOrder(collection, sortField);
  const order = sort.map((key): Order => {
    const location = `sort "${key.expression.text}"`;
    const operand =
      key.expression.call?.kind === 'rank'
        ? planRank(key.expression, where, collection, { model, location })
        : asText(resolveExpression(key.expression, collection, { model, location, many: true }));
    checkSortable(operand, location);
    return { operand, descending: key.descending };
  });
  return withKey(order, collection);
}

/** Values at paths into JSON are sorted as text. */
function asText(operand: OperandPlan): OperandPlan {
  if (operand.kind === 'json') return { ...operand, as: 'text' };
  return operand.kind === 'first' ? { ...operand, operand: asText(operand.operand) } : operand;
}

function checkSortable(operand: OperandPlan, location: string): void {
  if (operand.kind === 'first') checkSortable(operand.operand, location);
  if (operand.kind !== 'field') return;
  const { name, type, column } = operand.field;
  if (type.startsWith('geometry')) throw invalidQuery(`${location}: values of type ${type} have no order`);
  if (column?.base_type === 'json')
    throw invalidQuery(`${location}: values of type json have no order. Sort by json(${name}, path), or use jsonb`);
}

/** The relation's sort field, the collection's, or the key alone. */
export function defaultOrder(collection: Collection, relationSortField: string | null): Order[] {
  for (const name of [relationSortField, collection.sortField]) {
    const field = name === null ? undefined : collection.fields.get(name);
    if (field?.column)
      return withKey([{ operand: { kind: 'field', through: [], field }, descending: false }], collection);
  }
  return withKey([], collection);
}

function withKey(order: readonly Order[], collection: Collection): Order[] {
  const positions = collection.key.map((field) =>
    order.findIndex(
      ({ operand }) =>
        operand.kind === 'field' &&
        operand.through.length === 0 &&
        operand.field === field &&
        !isMasked(collection, field),
    ),
  );
  // Keys are unique, so later sort fields have no effect.
  if (positions.length > 0 && !positions.includes(-1)) return order.slice(0, Math.max(...positions) + 1);
  const rest = collection.key.filter((_, index) => positions[index] === -1);
  return [...order, ...rest.map((field): Order => ({ operand: { kind: 'key', field }, descending: false }))];
}

/** A cursor has a value for each sort key. */
export function planCursor({ cursor }: Query, order: readonly Order[]): CursorCondition | null {
  if (cursor === null || cursor === 'first') return null;
  if (cursor.nulls.length !== order.length) throw invalidQuery('"cursor" belongs to another sort');
  return cursor;
}

export function planLimit(query: Query, defaultLimit: number): LimitPlan {
  if (query.limit === null) return { kind: 'constant', value: defaultLimit };
  return query.limit.kind === 'slot' ? { kind: 'slot', slot: query.limit.slot } : query.limit;
}

/** `page` wins over `offset`, and means nothing without a limit. */
export function planOffset(query: Query, limit: LimitPlan): OffsetPlan | null {
  if (query.page !== null && limit.kind !== 'all') {
    return { kind: 'page', slot: query.page, limit: limit.kind === 'constant' ? limit.value : { slot: limit.slot } };
  }
  return query.offset === null ? null : { kind: 'offset', slot: query.offset };
}
