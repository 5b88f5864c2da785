/**
 * Filters × model → conditions. To-one relations are followed by joins that keep rows without a counterpart; each filter
 * object below a to-many relation is one existence test, so its conditions must hold of the same related row.
 */
import { forbidden, forbiddenCollection, forbiddenField, invalidQuery } from '../../base/errors.js';
import { onlyOf } from '../../base/narrow.js';
import { didYouMean } from '../../base/nearest-name.js';
import { showsKey } from '../model/item-key.js';
import { type Collection, type Field, isSecretField, type Model } from '../model/model.js';
import { ownName } from '../model/synonyms.js';
import type { Filter, JsonFilter, Operand, Operator, Query } from '../request/ast.js';
import { unrestrictedCollection } from './access.js';
import { planCaller } from './caller-value.js';
import { planSearch, textSourceOf } from './full-text.js';
import { checkOperator, comparedTypeOf, operatorNames } from './operators.js';
import {
  ALWAYS,
  both,
  type Condition,
  isAlways,
  type ManyToOneJoin,
  type OperandPlan,
  type ToManyJoin,
  type ToOneJoin,
  type ValuePlan,
} from './plan.js';
import {
  fieldNamed,
  fieldOf,
  holdingFields,
  isJson,
  operandType,
  referencedFields,
  resolveExpression,
  toManyOf,
  toOneOf,
} from './resolve-names.js';

/** The row that a filter speaks of: one of `collection`, reached through to-one joins. */
interface FilterPosition {
  readonly model: Model;
  readonly budget: Budget;
  readonly collection: Collection;
  readonly through: readonly ToOneJoin[];
  readonly name: string;
}

/** The budget of one request, counted as it is planned. */
export interface Budget {
  readonly model: Model;
  readonly maxNodes: number;
  nodes: number;
}

/** PostgreSQL's planner takes longer for each table it has to join, and more than in proportion. */
const RELATION_WEIGHT = 20;

/**
 * The weights of outputs. PostgreSQL plans a related row, or the keys of related rows, in about the time of four columns: 0.7 ms and 70 kB
 * against 0.2 ms and 20 kB. A list of items is also read for each row.
 */
export const FIELD_WEIGHT = 0.25;
export const ROW_WEIGHT = 1;
export const LIST_WEIGHT = 5;

export function planFilter(filter: Filter | null, collection: Collection, budget: Budget, name = 'filter'): Condition {
  return filter ? planRow(filter, { model: budget.model, budget, collection, through: [], name }) : ALWAYS;
}

/** The filter and the search of a query. */
export function planConditions(query: Query, collection: Collection, budget: Budget, name = 'filter'): Condition {
  const filter = planFilter(query.filter, collection, budget, name);
  return both(filter, planSearch(query.search, collection, budget.model));
}

export function spend(budget: Budget, nodes: number): void {
  budget.nodes += nodes;
  if (budget.nodes > budget.maxNodes) {
    throw invalidQuery(
      `The query has more than ${budget.maxNodes} parts. Four fields count as 1, a related item as ${ROW_WEIGHT}, a list as ${LIST_WEIGHT}, a relation in a filter as ${RELATION_WEIGHT}. Name fields instead of "*"`,
      { option: 'MAX_QUERY_NODES', limit: budget.maxNodes },
    );
  }
}

function planRow(filter: Filter, position: FilterPosition): Condition {
  switch (filter.kind) {
    case 'and':
    case 'or':
      return combine(filter.kind, filter.filters, (each) => planRow(each, position));
    case 'field':
      return planNamed(filter.name, filter.filter, position);
    case 'function': {
      const options = { model: position.model, location: position.name, many: false };
      const operand = resolveExpression(filter.expression, position.collection, options);
      const value: OperandPlan = operand.kind === 'json' ? { ...operand, as: 'text' } : operand;
      return planValue(filter.filter, prefixed(value, position.through), position);
    }
    case 'follow':
      spend(position.budget, RELATION_WEIGHT);
      return planMany(filter.filter, followJoin(filter.arguments, position), position);
    default:
      throw invalidQuery(`${position.name}: an operator needs a field above it`);
  }
}

/** An empty `_or` restricts nothing, as an empty `_and` does; one branch that always holds makes the whole hold. */
function combine<Part>(kind: 'and' | 'or', filters: readonly Part[], plan: (filter: Part) => Condition): Condition {
  const conditions = filters.map(plan);
  if (conditions.length === 0 || (kind === 'or' && conditions.some(isAlways))) return ALWAYS;
  return onlyOf(conditions) ?? { kind, conditions };
}

function planNamed(name: string, filter: Filter, position: FilterPosition): Condition {
  const named = fieldNamed(position.collection, name, position.name);
  const { field } = named;
  const toMany = toManyOf(position.model, position.collection, field);
  if (field.relation) spend(position.budget, RELATION_WEIGHT);
  if (toMany) return planMany(filter, toMany, position);
  const toOne = toOneOf(position.model, position.collection, named, position.name);
  if (toOne) return planOne(filter, toOne, field, position);
  if (!field.column) throw forbiddenField(name, position.collection.name, position.name);
  return planValue(filter, { kind: 'field', through: position.through, field }, position);
}

/** Operators speak of the reference itself, or of the key of the only row that refers here; everything else of the related row. */
function planOne(filter: Filter, toOne: ToOneJoin, field: Field, position: FilterPosition): Condition {
  switch (filter.kind) {
    case 'and':
    case 'or':
      return combine(filter.kind, filter.filters, (each) => planOne(each, toOne, field, position));
    case 'compare':
    case 'length':
      if (toOne.field.column)
        return planValue(filter, { kind: 'field', through: position.through, field: toOne.field }, position);
      return field.relation?.kind === 'many-to-one' && toOne.kind === 'one'
        ? planReference(filter, toOne, position)
        : planKey(filter, { ...position, collection: toOne.target, through: [...position.through, toOne] });
    case 'some':
    case 'none':
      throw invalidQuery(
        `${position.name}: "_${filter.kind}" requires a to-many relation, and "${field.name}" is to-one`,
      );
    default:
      return planRow(filter, { ...position, collection: toOne.target, through: [...position.through, toOne] });
  }
}

function planMany(filter: Filter, toMany: ToManyJoin, position: FilterPosition): Condition {
  const inner: FilterPosition = { ...position, collection: toMany.collection, through: [] };
  const exists = (negated: boolean, where: Condition): Condition => ({
    kind: 'exists',
    through: position.through,
    toMany,
    negated,
    where,
  });
  const presence = presenceOf(filter, toMany.collection);
  if (presence !== null) return exists(!presence, ALWAYS);
  switch (filter.kind) {
    case 'some':
      return exists(false, planRow(filter.filter, inner));
    case 'none':
      return exists(true, planRow(filter.filter, inner));
    case 'compare':
      return exists(false, planKey(filter, inner));
    case 'or':
      return combine('or', filter.filters, (each) => planMany(each, toMany, position));
    case 'and': {
      const isSeparate = (each: Filter): boolean => isQuantified(each) || presenceOf(each, toMany.collection) !== null;
      const flat = flatten(filter.filters);
      const together = flat.filter((each) => !isSeparate(each));
      const rest = flat.filter(isSeparate).map((each) => planMany(each, toMany, position));
      if (together.length > 0)
        rest.push(
          exists(
            false,
            combine('and', together, (each) => planMember(each, inner)),
          ),
        );
      return onlyOf(rest) ?? { kind: 'and', conditions: rest };
    }
    default:
      return exists(false, planRow(filter, inner));
  }
}

/** A filter without conditions says nothing, however it is written. */
function flatten(filters: readonly Filter[]): Filter[] {
  return filters.flatMap((each) => (each.kind === 'and' ? flatten(each.filters) : [each]));
}

/** An operator among the conditions of one related row speaks of its key. */
function planMember(filter: Filter, position: FilterPosition): Condition {
  if (filter.kind === 'and' || filter.kind === 'or') {
    return combine(filter.kind, filter.filters, (each) => planMember(each, position));
  }
  if (filter.kind !== 'compare') return planRow(filter, position);
  return planKey(filter, position);
}

/** A condition on the key of the row. The columns of a composite key are compared, not their text. */
function planKey(filter: Filter, position: FilterPosition): Condition {
  const { collection, through, name } = position;
  const key = collection.key.map((each) => fieldNamed(collection, each.name, name).field);
  const operands = key.map((field): OperandPlan => ({ kind: 'field', through, field }));
  const sole = onlyOf(operands);
  if (sole) return planValue(filter, sole, position);
  const { operator, value } = filter.kind === 'compare' ? filter : { operator: null, value: null };
  if (key.length > 0 && (operator === 'null' || operator === 'nnull'))
    return combine(operator === 'null' ? 'or' : 'and', operands, (each) => planValue(filter, each, position));
  const isList = operator === 'in' || operator === 'nin';
  if (key.length > 0 && value?.kind === 'slot' && (isList || operator === 'eq' || operator === 'neq'))
    return {
      kind: 'key',
      key,
      slot: value.slot,
      many: isList,
      filter: { through, negated: operator === 'neq' || operator === 'nin' },
    };
  throw invalidQuery(
    `${name}: "${collection.name}" has no single-column key: use _eq, _neq, _in, _nin, _null or _nnull, or filter on one of its columns`,
  );
}

/** The columns that hold the reference are compared, as the column of any other reference is: the item need not be looked up. */
function planReference(filter: Filter, toOne: ManyToOneJoin, { through, name }: FilterPosition): Condition {
  const { operator, value } = filter.kind === 'compare' ? filter : { operator: null, value: null };
  const referenceCondition = { kind: 'reference', through, toOne } as const;
  switch (operator) {
    case 'null':
    case 'nnull':
      return { ...referenceCondition, negated: operator === 'null', keyParameter: null };
    case 'submitted':
      return combine('and', toOne.columns, (field) => {
        return { kind: 'compare', operand: { kind: 'field', through, field }, operator, value: null };
      });
    case 'eq':
    case 'neq':
    case 'in':
    case 'nin': {
      if (value?.kind !== 'slot') break;
      const keyParameter = { slot: value.slot, many: operator === 'in' || operator === 'nin' };
      return { ...referenceCondition, negated: operator === 'neq' || operator === 'nin', keyParameter };
    }
  }
  throw invalidQuery(
    `${name}: "${toOne.field.name}" has several columns: use _eq, _neq, _in, _nin, _null or _nnull, or filter on one of them`,
  );
}

function isQuantified(filter: Filter): boolean {
  return filter.kind === 'some' || filter.kind === 'none';
}

/** `{kids: {_null: true}}` and `{kids: {<key>: {_null: true}}}` ask whether there are related rows at all. */
function presenceOf(filter: Filter, collection: Collection): boolean | null {
  const isKey =
    filter.kind === 'field' && showsKey(collection) && collection.key.some(({ name }) => name === filter.name);
  const test = isKey ? filter.filter : filter;
  if (test.kind !== 'compare') return null;
  return test.operator === 'null' ? false : test.operator === 'nnull' ? true : null;
}

function followJoin(names: readonly string[], position: FilterPosition): ToManyJoin {
  const [written = '', fieldName = '', collectionFieldName] = names;
  const name = ownName(position.model.synonyms, written);
  const collection = position.model.collections.get(name);
  if (!collection) throw forbiddenCollection(name);
  const field = collection.fields.get(fieldName);
  if (!field || (!field.column && field.relation?.kind !== 'many-to-one'))
    throw forbiddenField(fieldName, name, position.name);
  const { relation } = field;
  const origin = position.collection;
  if (relation?.kind === 'many-to-one' && relation.oneCollection === origin.name && collectionFieldName === undefined) {
    const [columns, key] = [holdingFields(position.model, relation), referencedFields(origin, relation)];
    return { collection, field, columns, via: null, named: null, origin, key };
  }
  if (
    relation?.kind === 'many-to-any' &&
    relation.collectionField === collectionFieldName &&
    relation.allowedCollections.includes(origin.name)
  ) {
    return {
      collection,
      field,
      columns: [field],
      via: null,
      named: { field: fieldOf(unrestrictedCollection(collection), collectionFieldName), collection: origin.name },
      origin,
      key: origin.key,
    };
  }
  throw forbidden(`"${name}"."${fieldName}" does not lead to "${origin.name}".`);
}

function planValue(filter: Filter, operand: OperandPlan, position: FilterPosition): Condition {
  switch (filter.kind) {
    case 'and':
    case 'or':
      return combine(filter.kind, filter.filters, (each) => planValue(each, operand, position));
    case 'compare':
      checkOperator(filter.operator, operand);
      return planComparison(filter, operand, position.model);
    case 'json':
      if (operand.kind !== 'field' || !isJson(operand.field) || isSecretField(operand.field))
        throw invalidQuery(`"_json" does not apply to "${operandType(operand).label}"`);
      return planJson(filter.filter, operand.field, operand.through, position.model);
    case 'length':
      if (operand.kind !== 'field' || !operand.field.column?.is_array || isSecretField(operand.field))
        throw invalidQuery(`"_length" does not apply to "${operandType(operand).label}": it is not an array`);
      return planValue(filter.filter, { ...operand, kind: 'length' }, position);
    case 'some':
    case 'none':
      throw invalidQuery(`"_${filter.kind}" can only be used with a to-many relation`);
    case 'field': {
      const label = operandType(operand).label;
      const names = operatorNames(operand);
      const hint = names.includes(filter.name)
        ? ' Write it without double quotes: they stand for a field.'
        : didYouMean(filter.name, names);
      const place = position.name.replace(/^root\b/, 'filter');
      const unknownOperator = `Unknown operator "${filter.name}" in ${place}.${label}.${hint}`;
      if (filter.name.startsWith('_')) throw invalidQuery(unknownOperator.replace(/\.$/, ''));
      if (operand.kind === 'field' && operand.field.relation?.kind === 'many-to-any') {
        throw invalidQuery(`"${label}" refers to several collections: write "${label}:<collection>"`);
      }
      if (hint !== '') throw forbidden(unknownOperator);
      throw forbiddenField(`${label}.${filter.name}`, position.collection.name, position.name);
    }
    default:
      // A relation that may not be followed is none.
      if (operand.kind === 'field' && operand.field.relation)
        throw forbiddenField(operand.field.name, position.collection.name, position.name);
      throw invalidQuery(`${position.name}: "${operandType(operand).label}" is not a relation`);
  }
}

function planComparison(
  { operator, value, configuration }: Extract<Filter, { kind: 'compare' }>,
  operand: OperandPlan,
  model: Model,
): Condition {
  const planned = { kind: 'compare', operand, operator, value: planOperand(value, operator, operand, model) } as const;
  const using = operand.kind === 'field' ? textSourceOf(operator, operand, configuration, model) : null;
  return using ? { ...planned, using } : planned;
}

function planJson(filter: JsonFilter, field: Field, through: readonly ToOneJoin[], model: Model): Condition {
  if (filter.kind !== 'path') {
    return combine(filter.kind, filter.filters, (each) => planJson(each, field, through, model));
  }
  const operand: OperandPlan = {
    kind: 'json',
    through,
    field,
    path: filter.path,
    as: filter.numeric ? 'numeric' : 'text',
  };
  checkOperator(filter.operator, operand);
  return {
    kind: 'compare',
    operand,
    operator: filter.operator,
    value: planOperand(filter.value, filter.operator, operand, model),
  };
}

const CALLER_OPERATORS: ReadonlySet<Operator> = new Set(['eq', 'neq', 'in', 'nin', 'lt', 'lte', 'gt', 'gte']);

function planOperand(value: Operand, operator: Operator, operand: OperandPlan, model: Model): ValuePlan | null {
  if (value === null) return null;
  const type = comparedTypeOf(operator, operand);
  if (value.kind === 'slot') return { kind: 'slot', slot: value.slot, ...type };
  if (!CALLER_OPERATORS.has(operator))
    throw invalidQuery(`"_${operator}" of "${type.label}" cannot be used with a field of $CURRENT_USER`);
  return planCaller(value.variable, value.path, model);
}

function prefixed(operand: OperandPlan, through: readonly ToOneJoin[]): OperandPlan {
  return operand.kind === 'aggregate' || operand.kind === 'position' || operand.kind === 'key'
    ? operand
    : { ...operand, through: [...through, ...operand.through] };
}

/** Whether each part of a filter is a condition: an empty part holds for all rows, which a read may want, and a rule or a write must not. */
export function restrictsRows(filter: Filter): boolean {
  switch (filter.kind) {
    case 'and':
    case 'or':
      return filter.filters.length > 0 && filter.filters.every(restrictsRows);
    case 'compare':
      return true;
    case 'json':
      return saysOfDocument(filter.filter);
    case 'some':
    case 'none':
      return isEmpty(filter.filter) || restrictsRows(filter.filter);
    default:
      return restrictsRows(filter.filter);
  }
}

function saysOfDocument(filter: JsonFilter): boolean {
  return filter.kind === 'path' || (filter.filters.length > 0 && filter.filters.every(saysOfDocument));
}

/** `{_some: {}}` asks whether there is a related row at all; without a quantifier an empty filter asks nothing. */
export function isEmpty(filter: Filter): boolean {
  return filter.kind === 'and' && filter.filters.length === 0;
}
