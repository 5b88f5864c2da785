/** Selections × model → what is shown of a row: wildcards expanded, aliases resolved, relations planned level by level. */
import { assertNever } from '../base/assert-never.js';
import { forbiddenField, invalidQuery } from '../base/errors.js';
import { showsKey } from '../mirror/item-key.js';
import type { Collection } from '../mirror/model.js';
import { NO_QUERY, type Query, type Selection, type ShapedSelection } from '../request/ast.js';
import { unrestrictedCollection } from './access.js';
import { planGroups } from './aggregate.js';
import { type Budget, KEYS_WEIGHT, LEVEL_WEIGHT, planFilter, spend } from './filter.js';
import { planCursor, planLimit, planOffset, planOrder } from './order.js';
import { ALWAYS, both, type Condition, type Level, type Output, type RowLevel, type ToManyJoin } from './plan.js';
import { aliasNamed, anyJoins, checkName, fieldNamed, resolveCall, toManyOf, toOneJoin } from './resolve-names.js';
import { planSearch } from './search.js';
import { describeSelection, expandFields, type Position, type Wanted } from './wanted-fields.js';

export interface Planner extends Budget {
  /** Items per list, root or nested, when the request names no limit. */
  readonly defaultLimit: number;
}

export function planOutputs(
  selections: readonly Selection[],
  collection: Collection,
  position: Position,
  planner: Planner,
): Output[] {
  const outputs: Output[] = [];
  if (selections.some(isShaped)) {
    return (selections as readonly ShapedSelection[]).map((each) => planShaped(each, collection, position, planner));
  }
  if (position.query.having) throw invalidQuery(`${position.location}: "having" needs "aggregate" or "groupBy"`);
  checkDeep(collection, position, planner);
  for (const [name, wanted] of expandFields(selections, collection, position)) {
    spend(planner, 1);
    const output = planOutput(name, wanted, collection, position, planner);
    if (output) outputs.push(output);
  }
  return outputs;
}

/** An unknown name in `deep` is an error, also below a relation that is not selected: its conditions would be lost. */
function checkDeep(collection: Collection, { query, location, backlink }: Position, planner: Planner): void {
  for (const { name, query: inner } of query.deep) {
    const place = `${location}, deep`;
    const { field, scope } = aliasNamed(collection, name, query.alias, place) ?? fieldNamed(collection, name, place);
    const { relation } = field;
    if (!relation) throw invalidQuery(`${location}, deep: "${name}" is not a relation`);
    const nested: Position = { query: inner, location: `${location}.${name}`, from: field, backlink };
    // A copy of the planner: what a level costs is counted where it is planned for the statement.
    const trial = { ...planner };
    const toMany = toManyOf(planner.model, collection, field);
    if (toMany) planMany([], toMany, nested, trial, relation.sortField);
    const joins =
      relation.kind === 'many-to-one' || relation.kind === 'one-to-one'
        ? [toOneJoin(planner.model, collection, field, relation)]
        : scope === null
          ? []
          : anyJoins(planner.model, collection, field, nested.location).filter((toOne) => toOne.target.name === scope);
    for (const toOne of joins) if (toOne) planSingle([], toOne.target, nested, trial);
  }
}

function planOutput(
  name: string,
  wanted: Wanted,
  collection: Collection,
  position: Position,
  planner: Planner,
): Output | null {
  const { field, call, fields } = wanted;
  const { model } = planner;
  const location = `${position.location}.${name}`;
  if (call) {
    const operand = resolveCall(call, field, collection, [], { model, location, many: false });
    return { kind: 'value', name: checkName(name), operand };
  }
  const inner = (key: string): Position => ({
    query: deepQuery(position.query, key),
    location: key === name ? location : `${position.location}.${key}`,
    from: field,
    backlink: position.backlink,
  });
  const toMany = toManyOf(model, collection, field);
  if (toMany && field.relation?.kind === 'one-to-many') {
    const nested = inner(name);
    spend(planner, fields.length === 0 ? KEYS_WEIGHT : LEVEL_WEIGHT);
    const isGrouped = nested.query.aggregate !== null || nested.query.groupBy !== null;
    const isKeys = fields.length === 0 && !isGrouped;
    if (isKeys && !showsKey(toMany.collection)) return withoutKeys(wanted, toMany.collection, nested.location);
    const level = planMany(fields, toMany, nested, planner, field.relation.sortField);
    return isKeys && level.kind === 'rows'
      ? { kind: 'keys', name, toMany, level }
      : { kind: 'many', name, toMany, level };
  }
  const keys = fields.length === 0;
  if (field.relation?.kind === 'one-to-one' || (field.relation?.kind === 'many-to-one' && !keys)) {
    const toOne = toOneJoin(model, collection, field, field.relation);
    // What leads to where the caller may see nothing is left out, as if it had not been asked for.
    if (!toOne) return null;
    if (keys && !showsKey(toOne.target)) return withoutKeys(wanted, toOne.target, location);
    spend(planner, keys ? KEYS_WEIGHT : LEVEL_WEIGHT);
    return { kind: 'one', name, keys, toOne, level: planSingle(fields, toOne.target, inner(name), planner) };
  }
  if (field.relation?.kind === 'many-to-any' && (fields.length > 0 || wanted.scopes.size > 0)) {
    return planAny(name, wanted, collection, inner, planner);
  }
  if (field.relation?.kind === 'many-to-one' && !field.column) {
    const toOne = toOneJoin(model, collection, field, field.relation);
    return toOne && { kind: 'reference', name, toOne };
  }
  // Alias fields without a relation (groups, presentation) have nothing to show.
  return field.column ? { kind: 'value', name, operand: { kind: 'field', through: [], field } } : null;
}

/** Related items that have no keys to show. Keys that the caller may not see are left out. */
function withoutKeys({ field, isNamed }: Wanted, target: Collection, location: string): null {
  if (!isNamed || unrestrictedCollection(target).key.length > 0) return null;
  throw invalidQuery(`${location}: "${target.name}" has no key to show: write "${field.name}.*" or name fields of it`);
}

/** The rows of a list, or groups of them. */
function planMany(
  fields: readonly Selection[],
  { collection }: ToManyJoin,
  nested: Position,
  planner: Planner,
  sortField: string | null,
): Level {
  const { query, location } = nested;
  if (!query.aggregate && !query.groupBy) return planRows(fields, collection, nested, planner, sortField);
  const where = both(
    planFilter(query.filter, collection, planner, location),
    planSearch(query.search, collection, planner.model),
  );
  return planGroups(query, collection, planner.model, where, planner.defaultLimit);
}

/** Unscoped fields apply to every collection that has them; at least one must. */
function planAny(
  name: string,
  wanted: Wanted,
  collection: Collection,
  inner: (key: string) => Position,
  planner: Planner,
): Output | null {
  const joins = anyJoins(planner.model, collection, wanted.field, inner(name).location);
  for (const scope of wanted.scopes.keys()) {
    if (!joins.some((toOne) => toOne.target.name === scope))
      throw forbiddenField(`${name}:${scope}`, collection.name, inner(name).location);
  }
  const missing = wanted.fields.find(
    (each) => each.kind !== 'wildcard' && !joins.some((toOne) => hasSelected(toOne.target, each)),
  );
  if (missing) throw forbiddenField(`${name}.${describeSelection(missing)}`, collection.name, inner(name).location);
  if (joins.length === 0) return null;
  const targets = joins.map((toOne) => {
    spend(planner, KEYS_WEIGHT);
    const fields = [
      ...wanted.fields.filter((each) => hasSelected(toOne.target, each)),
      ...(wanted.scopes.get(toOne.target.name) ?? []),
    ];
    return { toOne, level: planSingle(fields, toOne.target, inner(`${name}:${toOne.target.name}`), planner) };
  });
  return { kind: 'any', name, keys: true, targets };
}

function hasSelected(collection: Collection, selection: Selection): boolean {
  if (selection.kind === 'wildcard') return true;
  if (selection.kind === 'field') return collection.fields.has(selection.name);
  return 'field' in selection && collection.fields.has(selection.field);
}

function isShaped({ kind }: Selection): boolean {
  return kind === 'value' || kind === 'related' || kind === 'object' || kind === 'constant';
}

function planShaped(selection: ShapedSelection, collection: Collection, position: Position, planner: Planner): Output {
  spend(planner, 1);
  const name = checkName(selection.output);
  const location = `${position.location}.${name}`;
  switch (selection.kind) {
    case 'constant':
      return { kind: 'constant', name, text: selection.text };
    case 'object':
      return {
        kind: 'object',
        name,
        outputs: selection.fields.map((each) => planShaped(each, collection, position, planner)),
      };
    case 'function': {
      const { field } = fieldNamed(collection, selection.field, position.location);
      const options = { model: planner.model, location, many: false };
      return { kind: 'value', name, operand: resolveCall(selection.call, field, collection, [], options) };
    }
    case 'value': {
      const { field } = fieldNamed(collection, selection.field, position.location);
      if (!field.column) throw forbiddenField(field.name, collection.name, position.location);
      return { kind: 'value', name, operand: { kind: 'field', through: [], field }, as: selection.as };
    }
    case 'related':
      return planShapedRelation(selection, collection, { ...position, query: selection.query, location }, planner);
    default:
      return assertNever(selection);
  }
}

function planShapedRelation(
  selection: ShapedSelection & { readonly kind: 'related' },
  collection: Collection,
  nested: Position,
  planner: Planner,
): Output {
  const { model } = planner;
  const { output: name, fields } = selection;
  const { field } = fieldNamed(collection, selection.field, nested.location);
  spend(planner, LEVEL_WEIGHT);
  const toMany = toManyOf(model, collection, field);
  const { relation } = field;
  if (toMany)
    return {
      kind: 'many',
      name,
      toMany,
      level: planRows(fields, toMany.collection, nested, planner, relation?.sortField ?? null),
    };
  if (relation?.kind === 'many-to-one' || relation?.kind === 'one-to-one') {
    const toOne = toOneJoin(model, collection, field, relation);
    if (!toOne) throw forbiddenField(field.name, collection.name, nested.location);
    return { kind: 'one', name, keys: false, toOne, level: planSingle(fields, toOne.target, nested, planner) };
  }
  const scopes = new Map(selection.scopes.map((each) => [each.collection, each.fields]));
  const targets = anyJoins(model, collection, field, nested.location).flatMap((toOne) => {
    const fields = scopes.get(toOne.target.name);
    return fields ? [{ toOne, level: planSingle(fields, toOne.target, nested, planner) }] : [];
  });
  return { kind: 'any', name, keys: false, targets };
}

/** The related row of a to-one relation; a filter that it does not meet leaves null. */
function planSingle(fields: readonly Selection[], target: Collection, position: Position, planner: Planner): RowLevel {
  const { query } = position;
  return {
    kind: 'rows',
    collection: target,
    outputs: planOutputs(fields, target, position, planner),
    where: both(
      planFilter(query.filter, target, planner, position.location),
      planSearch(query.search, target, planner.model),
    ),
    after: null,
    order: [],
    limit: { kind: 'constant', value: 1 },
    offset: null,
  };
}

/** A page of rows: the root, or the children of a row. */
export function planRows(
  fields: readonly Selection[],
  collection: Collection,
  position: Position,
  planner: Planner,
  relationSortField: string | null,
  narrowed: Condition = ALWAYS,
): RowLevel {
  const { query } = position;
  const limit = planLimit(query, planner.defaultLimit);
  const filter = planFilter(query.filter, collection, planner, position.location);
  const where = both(narrowed, filter, planSearch(query.search, collection, planner.model));
  const order = planOrder(query.sort, collection, planner.model, relationSortField, where);
  return {
    kind: 'rows',
    collection,
    outputs: planOutputs(fields, collection, position, planner),
    where,
    after: planCursor(query, order),
    order,
    limit,
    offset: planOffset(query, limit),
  };
}

function deepQuery(query: Query, name: string): Query {
  return query.deep.find((each) => each.name === name)?.query ?? NO_QUERY;
}
