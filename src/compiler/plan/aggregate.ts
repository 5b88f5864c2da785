/** Aggregates and groups × model → group level. */
import { assertNever } from '../../base/assert-never.js';
import { invalidQuery } from '../../base/errors.js';
import { isOneOf } from '../../base/narrow.js';
import { type Collection, type Field, type Model, NUMBER_TYPES, ORDERED_TYPES } from '../model/model.js';
import {
  AGGREGATES,
  type Aggregate,
  type AggregateFunction,
  type Expression,
  type Filter,
  type GroupSelection,
  type Query,
  type SortKey,
} from '../request/ast.js';
import { outputName } from '../request/expression.js';
import { checkOperator } from './operators.js';
import { planLimit, planOffset } from './order.js';
import {
  type AggregatePlan,
  ALWAYS,
  type Condition,
  type GroupLevel,
  type GroupOutput,
  type OperandPlan,
} from './plan.js';
import { checkName, operandType, resolveExpression } from './resolve-names.js';

export function planGroups(
  query: Query,
  collection: Collection,
  where: Condition,
  { model, defaultLimit }: { readonly model: Model; readonly defaultLimit: number },
): GroupLevel {
  const groups = once(
    (query.groupBy ?? []).map((expression) => planGroup(expression, collection, model)),
    (each) => each.name,
  );
  const requested = once(query.aggregate ?? [], nameOf);
  const byName = new Map(
    requested.map((each) => [nameOf(each), planAggregate(each, collection, model, isMixed(each, requested))]),
  );
  const aggregates = [...byName.values()];
  const limit = planLimit(query, defaultLimit);
  return {
    kind: 'groups',
    collection,
    groups,
    aggregates,
    outputs: query.groupFields?.map((each) => planGroupField(each, byName)) ?? null,
    where,
    having: query.having ? planHaving(query.having, collection, model) : ALWAYS,
    order: groups.length === 0 ? [] : planGroupOrder(query.sort, groups, aggregates),
    limit,
    offset: planOffset(query, limit),
  };
}

/** `aggregates` has the plans of the requested aggregates, by their names. */
function planGroupField(selection: GroupSelection, aggregates: ReadonlyMap<string, AggregatePlan>): GroupOutput {
  const name = checkName(selection.output);
  switch (selection.kind) {
    case 'groups':
      return { kind: 'groups', name };
    case 'constant':
      return { kind: 'constant', name, text: selection.text };
    case 'object':
      return { kind: 'object', name, outputs: selection.fields.map((each) => planGroupField(each, aggregates)) };
    case 'aggregate': {
      const aggregate = aggregates.get(nameOf(selection.aggregate));
      if (!aggregate) throw new Error('a group shows only its aggregates');
      return { kind: 'aggregate', name, aggregate, as: selection.as };
    }
    default:
      return assertNever(selection);
  }
}

function nameOf(aggregate: Aggregate): string {
  return `${aggregate.function} ${aggregate.field?.text ?? '*'}`;
}

/** Duplicates are shown once. */
function once<Entry>(entries: readonly Entry[], name: (entry: Entry) => string): Entry[] {
  return [...new Map(entries.map((entry) => [name(entry), entry])).values()];
}

type Group = GroupLevel['groups'][number];

function planGroup(expression: Expression, collection: Collection, model: Model): Group {
  const location = `groupBy "${expression.text}"`;
  const operand = resolveExpression(expression, collection, { model, location, many: false });
  if (operand.kind === 'field' && !isComparable(operand.field))
    throw invalidQuery(`${location}: values of this type cannot be grouped`);
  const name = expression.path.length > 1 && !expression.call ? expression.path.join('.') : outputName(expression);
  return { name: checkName(name), operand: operand.kind === 'json' ? { ...operand, as: 'text' } : operand };
}

/** `count=*` alone is a number; next to counts of fields it needs a name among them. */
function isMixed(aggregate: Aggregate, all: readonly Aggregate[]): boolean {
  return !aggregate.field && all.some((each) => each.function === aggregate.function && each.field);
}

function planAggregate(aggregate: Aggregate, collection: Collection, model: Model, mixed: boolean): AggregatePlan {
  if (!aggregate.field) return { function: aggregate.function, name: mixed ? '*' : null, operand: null };
  const location = `aggregate "${aggregate.function}"`;
  const operand = resolveExpression(aggregate.field, collection, { model, location, many: false });
  checkAggregate(aggregate.function, operand, location);
  return { function: aggregate.function, name: checkName(aggregate.field.path.join('.')), operand };
}

function checkAggregate(name: AggregateFunction, operand: OperandPlan, location: string): void {
  if (operand.kind !== 'field') throw new Error('an aggregate is of a field');
  const { field } = operand;
  if (name === 'count' || name === 'countAll') return;
  const fitting =
    name === 'countDistinct'
      ? isComparable(field)
      : (name === 'min' || name === 'max' ? ORDERED_TYPES : NUMBER_TYPES).has(field.type);
  if (!fitting) throw invalidQuery(`${location}: it does not apply to "${field.name}" of type ${field.type}`);
}

function isComparable(field: Field): boolean {
  return field.column?.base_type !== 'json' && !field.type.startsWith('geometry');
}

/** A group, or one of the requested aggregates: `status`, `count`, `sum.price`. The first group decides where none is named. */
function planGroupOrder(
  sort: readonly SortKey[] | null,
  groups: readonly Group[],
  aggregates: readonly AggregatePlan[],
): GroupLevel['order'] {
  const order = (sort ?? []).map(({ expression, descending }) => {
    const outputOrPath = expression.call ? outputName(expression) : expression.path.join('.');
    const group = groups.find((each) => each.name === outputOrPath);
    if (group) return { operand: group.operand, descending };
    const [name, ...rest] = expression.path;
    const field = rest.join('.');
    const aggregate = aggregates.find((each) => each.function === name && (each.name ?? '') === field);
    if (!aggregate) throw invalidQuery(`"${expression.text}" in "sort" is neither a group nor one of the aggregates`);
    return { operand: { kind: 'aggregate' as const, aggregate }, descending };
  });
  const rest = groups.filter((group) => !order.some((each) => each.operand === group.operand));
  return [...order, ...rest.map(({ operand }) => ({ operand, descending: false }))];
}

function planHaving(filter: Filter, collection: Collection, model: Model): Condition {
  if (filter.kind === 'and' || filter.kind === 'or') {
    const conditions = filter.filters.map((each) => planHaving(each, collection, model));
    return conditions.length === 0 ? ALWAYS : { kind: filter.kind, conditions };
  }
  if (filter.kind !== 'field' || !isOneOf(AGGREGATES, filter.name))
    throw invalidQuery('"having" takes only aggregates, such as {"count": {"_gt": 1}}');
  const { name } = filter;
  return planHavingOf([], filter.filter, (field) => {
    if (!field && !name.startsWith('count')) throw invalidQuery(`"having": "${name}" needs a field`);
    return planAggregate({ function: name, field }, collection, model, false);
  });
}

function planHavingOf(
  path: readonly string[],
  filter: Filter,
  aggregateOf: (field: Aggregate['field']) => AggregatePlan,
): Condition {
  switch (filter.kind) {
    case 'and':
    case 'or': {
      const conditions = filter.filters.map((each) => planHavingOf(path, each, aggregateOf));
      return conditions.length === 0 ? ALWAYS : { kind: filter.kind, conditions };
    }
    case 'field':
      return planHavingOf([...path, filter.name], filter.filter, aggregateOf);
    case 'compare': {
      const field = path.length === 0 || path[0] === '*' ? null : { path, call: null, text: path.join('.') };
      const operand: OperandPlan = { kind: 'aggregate', aggregate: aggregateOf(field) };
      checkOperator(filter.operator, operand);
      if (filter.value?.kind === 'variable') throw invalidQuery('"having" cannot be used with fields of $CURRENT_USER');
      const value = filter.value && { kind: 'slot' as const, slot: filter.value.slot, ...operandType(operand) };
      return { kind: 'compare', operand, operator: filter.operator, value };
    }
    default:
      throw invalidQuery('"having" takes operators below an aggregate');
  }
}
