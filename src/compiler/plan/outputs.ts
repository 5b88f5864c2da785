/** Selections × model → outputs of a row: wildcards expanded, aliases resolved, relations planned level by level. */
import { assertNever } from '../../base/assert-never.js';
import { forbidden, forbiddenField, invalidQuery, ServiceError } from '../../base/errors.js';
import { showsKey } from '../model/item-key.js';
import type { Collection, Field, Model } from '../model/model.js';
import { NO_QUERY, type Selection, type ShapedSelection } from '../request/ast.js';
import { isDenied, unrestrictedCollection } from './access.js';
import { planGroups } from './aggregate.js';
import { type Budget, FIELD_WEIGHT, LIST_WEIGHT, planConditions, ROW_WEIGHT, spend } from './filter.js';
import { planCursor, planLimit, planOffset, planOrder } from './order.js';
import { ALWAYS, both, type Condition, type Level, type Output, type RowLevel, rowLevel } from './plan.js';
import { aliasNamed, anyJoins, checkName, fieldNamed, resolveCall, toManyOf, toOneJoin } from './resolve-names.js';
import { describeSelection, expandFields, type Position, type Wanted } from './wanted-fields.js';

export interface Planner extends Budget {
  /** Items per list, root or nested, when the request names no limit. */
  readonly defaultLimit: number;
  /** Whether what the caller may not see is left out instead of refused. */
  readonly isPartial?: boolean;
}

export function planOutputs(selections: readonly Selection[], position: Position, planner: Planner): Output[] {
  const outputs: Output[] = [];
  if (selections.some(isShaped)) {
    return (selections as readonly ShapedSelection[]).map((each) => planShaped(each, position, planner));
  }
  if (position.query.having) throw invalidQuery(`${position.location}: "having" needs "aggregate" or "groupBy"`);
  checkDeep(position, planner);
  const visible = planner.isPartial
    ? selections.filter((each) => unlessForbidden(() => expandFields([each], position)))
    : selections;
  for (const [name, wanted] of expandFields(visible, position)) {
    spend(planner, FIELD_WEIGHT);
    const plan = (): Output | null => planOutput(name, wanted, position, planner);
    const output = planner.isPartial ? unlessForbidden(plan) : plan();
    if (output) outputs.push(output);
  }
  if (planner.isPartial && outputs.length === 0 && position.from === null) throw forbidden();
  return outputs;
}

/** Returns null if the caller may not see it. */
function unlessForbidden<Result>(plan: () => Result): Result | null {
  try {
    return plan();
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'FORBIDDEN') return null;
    throw error;
  }
}

/** An unknown name in `deep` is an error, also below a relation that is not selected: its conditions would be lost. */
function checkDeep({ collection, query, location, backlink }: Position, planner: Planner): void {
  for (const { name, query: inner } of query.deep) {
    const place = `${location}, deep`;
    const { field, scope } = aliasNamed(collection, name, query.alias, place) ?? fieldNamed(collection, name, place);
    const { relation } = field;
    if (!relation) throw invalidQuery(`${location}, deep: "${name}" is not a relation`);
    const nested = { query: inner, location: `${location}.${name}`, from: field, backlink };
    // A copy of the planner: the cost of a level is counted when it is planned for the statement.
    const trial = { ...planner };
    const toMany = toManyOf(planner.model, collection, field);
    if (toMany) planMany([], { ...nested, collection: toMany.collection }, trial);
    const joins =
      relation.kind === 'many-to-one' || relation.kind === 'one-to-one'
        ? [toOneJoin(planner.model, collection, field, relation)]
        : scope === null
          ? []
          : anyJoins(planner.model, collection, field, nested.location).filter((toOne) => toOne.target.name === scope);
    for (const toOne of joins) if (toOne) planSingle([], { ...nested, collection: toOne.target }, trial);
  }
}

function planOutput(name: string, wanted: Wanted, position: Position, planner: Planner): Output | null {
  const { collection } = position;
  const { field, call, fields } = wanted;
  const { model } = planner;
  const location = `${position.location}.${name}`;
  if (call) {
    const operand = resolveCall(call, field, { collection, through: [] }, { model, location, many: false });
    return { kind: 'value', name: checkName(name), operand };
  }
  const toMany = toManyOf(model, collection, field);
  if (field.relation?.kind === 'one-to-many') {
    if (!toMany) return withoutTarget(name, wanted, position, model);
    const nested = nestedIn(position, toMany.collection, field, name);
    spend(planner, fields.length === 0 ? ROW_WEIGHT : LIST_WEIGHT);
    const isGrouped = nested.query.aggregate !== null || nested.query.groupBy !== null;
    const isKeys = fields.length === 0 && !isGrouped;
    if (isKeys && !showsKey(toMany.collection)) return withoutKeys(wanted, toMany.collection, nested.location);
    const level = planMany(fields, nested, planner);
    return isKeys && level.kind === 'rows'
      ? { kind: 'keys', name, toMany, level }
      : { kind: 'many', name, toMany, level };
  }
  const keys = fields.length === 0;
  if (field.relation?.kind === 'one-to-one' || (field.relation?.kind === 'many-to-one' && !keys)) {
    const toOne = toOneJoin(model, collection, field, field.relation);
    if (!toOne) return withoutTarget(name, wanted, position, model);
    if (keys && !showsKey(toOne.target)) return withoutKeys(wanted, toOne.target, location);
    spend(planner, ROW_WEIGHT);
    return {
      kind: 'one',
      name,
      keys,
      toOne,
      level: planSingle(fields, nestedIn(position, toOne.target, field, name), planner),
    };
  }
  if (field.relation?.kind === 'many-to-any' && (fields.length > 0 || wanted.scopes.size > 0)) {
    return planAny(name, wanted, position, planner);
  }
  if (field.relation?.kind === 'many-to-one' && !field.column) {
    const toOne = toOneJoin(model, collection, field, field.relation);
    return toOne ? { kind: 'reference', name, toOne } : withoutTarget(name, wanted, position, model);
  }
  // Alias fields without a relation (groups, presentation) have nothing to show.
  return field.column ? { kind: 'value', name, operand: { kind: 'field', through: [], field } } : null;
}

/**
 * A relation to a collection that the caller may not see is its key if the field itself is selected, and otherwise left out. One that the
 * database refuses to read is an error if it is named.
 */
function withoutTarget(
  name: string,
  { field, isNamed, isWhole }: Wanted,
  { collection, location }: Position,
  model: Model,
): Output | null {
  const { relation } = field;
  const target = relation?.kind === 'many-to-one' ? relation.oneCollection : relation?.manyCollection;
  if (isNamed && target !== undefined && isDenied(model, target))
    throw forbiddenField(field.name, collection.name, location);
  return isWhole && field.column ? { kind: 'value', name, operand: { kind: 'field', through: [], field } } : null;
}

/** Related items that have no keys to show. Keys that the caller may not see are left out. */
function withoutKeys({ field, isNamed }: Wanted, target: Collection, location: string): null {
  if (!isNamed || unrestrictedCollection(target).key.length > 0) return null;
  throw invalidQuery(`${location}: "${target.name}" has no key to show: write "${field.name}.*" or name fields of it`);
}

/** The rows of a list, or groups of them. */
function planMany(fields: readonly Selection[], nested: Position, planner: Planner): Level {
  const { collection, query, location } = nested;
  if (!query.aggregate && !query.groupBy) return planRows(fields, nested, planner);
  return planGroups(query, collection, planConditions(query, collection, planner, location), planner);
}

/** Plans a many-to-any relation. Fields without a collection (`item.title`) are read from every target that has them; one target must. */
function planAny(name: string, wanted: Wanted, position: Position, planner: Planner): Output | null {
  const { collection } = position;
  const { field } = wanted;
  const location = `${position.location}.${name}`;
  const joins = anyJoins(planner.model, collection, field, location);
  for (const scope of wanted.scopes.keys()) {
    if (!joins.some((toOne) => toOne.target.name === scope) && !isHiddenTarget(field, scope, planner.model))
      throw forbiddenField(`${name}:${scope}`, collection.name, location);
  }
  const missing = wanted.fields.find(
    (each) => each.kind !== 'wildcard' && !joins.some((toOne) => hasSelected(toOne.target, each)),
  );
  if (missing) throw forbiddenField(`${name}.${describeSelection(missing)}`, collection.name, location);
  if (joins.length === 0) return withoutTarget(name, wanted, position, planner.model);
  const targets = joins.map((toOne) => {
    spend(planner, ROW_WEIGHT);
    const fields = [
      ...wanted.fields.filter((each) => hasSelected(toOne.target, each)),
      ...(wanted.scopes.get(toOne.target.name) ?? []),
    ];
    const nested = nestedIn(position, toOne.target, field, `${name}:${toOne.target.name}`);
    return { toOne, level: planSingle(fields, nested, planner) };
  });
  return { kind: 'any', name, keys: true, targets };
}

/** A collection of the relation that the caller may not see: its items are null, as they are without a scope. */
function isHiddenTarget({ relation }: Field, scope: string, model: Model): boolean {
  return relation?.kind === 'many-to-any' && relation.allowedCollections.includes(scope) && !isDenied(model, scope);
}

function hasSelected(collection: Collection, selection: Selection): boolean {
  if (selection.kind === 'wildcard') return true;
  if (selection.kind === 'field') return collection.fields.has(selection.name);
  return 'field' in selection && collection.fields.has(selection.field);
}

function isShaped({ kind }: Selection): boolean {
  return kind === 'value' || kind === 'related' || kind === 'object' || kind === 'constant' || kind === 'tag';
}

function planShaped(selection: ShapedSelection, position: Position, planner: Planner): Output {
  const { collection } = position;
  spend(planner, FIELD_WEIGHT);
  const name = checkName(selection.output);
  const location = `${position.location}.${name}`;
  switch (selection.kind) {
    case 'constant':
      return { kind: 'constant', name, text: selection.text };
    case 'tag':
      return { kind: 'tag', name };
    case 'object':
      return {
        kind: 'object',
        name,
        outputs: selection.fields.map((each) => planShaped(each, position, planner)),
      };
    case 'function': {
      const { field } = fieldNamed(collection, selection.field, position.location);
      const options = { model: planner.model, location, many: false };
      return { kind: 'value', name, operand: resolveCall(selection.call, field, { collection, through: [] }, options) };
    }
    case 'value': {
      const { field } = fieldNamed(collection, selection.field, position.location);
      if (!field.column) throw forbiddenField(field.name, collection.name, position.location);
      return { kind: 'value', name, operand: { kind: 'field', through: [], field }, as: selection.as };
    }
    case 'related':
      return planShapedRelation(selection, { ...position, query: selection.query, location }, planner);
    default:
      return assertNever(selection);
  }
}

function planShapedRelation(
  selection: ShapedSelection & { readonly kind: 'related' },
  position: Position,
  planner: Planner,
): Output {
  const { model } = planner;
  const { collection, location } = position;
  const { output: name, fields } = selection;
  const { field } = fieldNamed(collection, selection.field, location);
  const nested = (target: Collection): Position => ({ ...position, collection: target, from: field });
  const toMany = toManyOf(model, collection, field);
  spend(planner, toMany ? LIST_WEIGHT : ROW_WEIGHT);
  const { relation } = field;
  if (toMany) return { kind: 'many', name, toMany, level: planRows(fields, nested(toMany.collection), planner) };
  if (relation?.kind === 'many-to-one' || relation?.kind === 'one-to-one') {
    const toOne = toOneJoin(model, collection, field, relation);
    if (!toOne) throw forbiddenField(field.name, collection.name, location);
    return { kind: 'one', name, keys: false, toOne, level: planSingle(fields, nested(toOne.target), planner) };
  }
  const scopes = new Map(selection.scopes.map((each) => [each.collection, each.fields]));
  const targets = anyJoins(model, collection, field, location).flatMap((toOne) => {
    const fields = scopes.get(toOne.target.name);
    return fields ? [{ toOne, level: planSingle(fields, nested(toOne.target), planner) }] : [];
  });
  return { kind: 'any', name, keys: false, targets };
}

/** The related row of a to-one relation; a filter that it does not meet leaves null. */
function planSingle(fields: readonly Selection[], position: Position, planner: Planner): RowLevel {
  const { collection, query, location } = position;
  const outputs = planOutputs(fields, position, planner);
  const where = planConditions(query, collection, planner, location);
  return { ...rowLevel(collection, outputs, where), limit: { kind: 'constant', value: 1 } };
}

/** A page of rows: the root, or the children of a row. */
export function planRows(
  fields: readonly Selection[],
  position: Position,
  planner: Planner,
  narrowed: Condition = ALWAYS,
): RowLevel {
  const { collection, query, location, from } = position;
  const { model } = planner;
  const limit = planLimit(query, planner.defaultLimit);
  const where = both(narrowed, planConditions(query, collection, planner, location));
  const order = planOrder(query.sort, collection, { model, where, sortField: from?.relation?.sortField ?? null });
  return {
    kind: 'rows',
    collection,
    outputs: planOutputs(fields, position, planner),
    where,
    after: planCursor(query, order),
    order,
    limit,
    offset: planOffset(query, limit),
  };
}

/** The level behind a field; `name` is the field's in `deep`. */
function nestedIn(
  { query, location, backlink }: Position,
  collection: Collection,
  from: Field,
  name: string,
): Position {
  const inner = query.deep.find((each) => each.name === name)?.query ?? NO_QUERY;
  return { collection, query: inner, location: `${location}.${name}`, from, backlink };
}
