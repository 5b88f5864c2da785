/** Request AST × model → read plan: names are resolved, wildcards expanded, limits checked. */
import { forbidden, forbiddenCollection, forbiddenField, invalidQuery } from '../errors.js';
import { type Collection, collectionOf, type Field, type Model, type OneToMany } from '../mirror/model.js';
import type { Query, ReadRequest, Selection, SortKey } from '../request/ast.js';
import type { Level, LimitPlan, OffsetPlan, Order, Output, ReadPlan } from './plan.js';

export interface PlanLimits {
  /** Items per list, root or nested, when the request names no limit. */
  readonly defaultLimit: number;
  /** Fields and relations of one request, wildcards expanded. */
  readonly nodes: number;
}

interface Context {
  readonly model: Model;
  readonly limits: PlanLimits;
  nodes: number;
}

export function planRead(request: ReadRequest, model: Model, limits: PlanLimits): ReadPlan {
  const collection = servedCollection(model, request.collection);
  const context: Context = { model, limits, nodes: 0 };
  const { query, target } = request;
  const outputs = planOutputs(query.fields ?? EVERYTHING, collection, context, 'root');
  if (target.kind === 'item') {
    const level: Level = {
      collection,
      outputs,
      key: target.key,
      order: [],
      limit: { kind: 'constant', value: 1 },
      offset: null,
    };
    return { kind: 'read', result: 'item', level };
  }
  const limit = planLimit(query, limits);
  const level: Level = {
    collection,
    outputs,
    key: null,
    order: planOrder(query.sort, collection, context),
    limit,
    offset: planOffset(query, limit),
  };
  return { kind: 'read', result: 'list', level };
}

const EVERYTHING: readonly Selection[] = [{ kind: 'wildcard', fields: [] }];

function servedCollection(model: Model, name: string): Collection {
  const collection = model.collections.get(name);
  if (collection && !collection.system) return collection;
  const reason = model.refused.get(name);
  throw reason ? forbidden(`"${name}" cannot be served: it ${reason}.`) : forbiddenCollection(name);
}

function planOutputs(
  selections: readonly Selection[],
  collection: Collection,
  context: Context,
  place: string,
): Output[] {
  const outputs = new Map<string, Output>();
  for (const [field, fields] of expand(selections, collection, place)) {
    if (++context.nodes > context.limits.nodes) {
      throw invalidQuery(`More than MAX_QUERY_NODES (${context.limits.nodes}) fields are selected`);
    }
    const output = planOutput(field, fields, context, place);
    if (output) outputs.set(output.name, output);
  }
  return [...outputs.values()];
}

/** Named fields win over what a wildcard says of the same field, and both keep the order in which they first appear. */
function expand(
  selections: readonly Selection[],
  collection: Collection,
  place: string,
): ReadonlyMap<Field, readonly Selection[]> {
  const expanded = new Map<Field, readonly Selection[]>();
  const add = (field: Field, fields: readonly Selection[]): void => {
    const before = expanded.get(field) ?? [];
    expanded.set(field, before.length === 0 ? fields : [...before, ...fields]);
  };
  for (const selection of selections) {
    if (selection.kind === 'field') {
      const field = collection.fields.get(selection.name);
      if (!field) throw forbiddenField(selection.name, collection.name, place);
      if (selection.fields.length > 0 && !field.relation) {
        throw forbiddenField(`${field.name}.${describe(selection.fields[0])}`, collection.name, place);
      }
      add(field, selection.fields);
      continue;
    }
    for (const field of collection.fields.values()) add(field, field.relation ? selection.fields : []);
  }
  return expanded;
}

function describe(selection: Selection | undefined): string {
  return selection?.kind === 'field' ? selection.name : '*';
}

function planOutput(field: Field, fields: readonly Selection[], context: Context, place: string): Output | null {
  const { relation } = field;
  const inner = `${place}.${field.name}`;
  switch (relation?.kind) {
    case 'one-to-many':
      return planMany(field, relation, fields, context, inner);
    case 'many-to-one': {
      if (fields.length === 0) break;
      const target = collectionOf(context.model, relation.oneCollection);
      const outputs = planOutputs(fields, target, context, inner);
      const level: Level = {
        collection: target,
        outputs,
        key: null,
        order: [],
        limit: { kind: 'constant', value: 1 },
        offset: null,
      };
      return { kind: 'one', name: field.name, field, relation, level };
    }
    case 'many-to-any':
      if (fields.length > 0) throw invalidQuery(`"${inner}" leads to several collections, which is not supported`);
      break;
  }
  // Alias fields without a relation (groups, presentation) have nothing to show.
  return field.column ? { kind: 'column', name: field.name, field } : null;
}

function planMany(
  field: Field,
  relation: OneToMany,
  fields: readonly Selection[],
  context: Context,
  place: string,
): Output {
  const target = collectionOf(context.model, relation.manyCollection);
  const level: Level = {
    collection: target,
    outputs: fields.length === 0 ? [] : planOutputs(fields, target, context, place),
    key: null,
    order: defaultOrder(target, relation.sortField),
    limit: { kind: 'constant', value: context.limits.defaultLimit },
    offset: null,
  };
  return { kind: fields.length === 0 ? 'keys' : 'many', name: field.name, relation, level };
}

function planLimit(query: Query, limits: PlanLimits): LimitPlan {
  if (query.limit === null) return { kind: 'constant', value: limits.defaultLimit };
  return query.limit.kind === 'all' ? query.limit : { kind: 'slot', slot: query.limit.slot };
}

/** `page` wins over `offset`, and means nothing without a limit. */
function planOffset(query: Query, limit: LimitPlan): OffsetPlan | null {
  if (query.page !== null && limit.kind !== 'all') {
    return { kind: 'page', slot: query.page, limit: limit.kind === 'constant' ? limit.value : { slot: limit.slot } };
  }
  return query.offset === null ? null : { kind: 'offset', slot: query.offset };
}

/** Every order ends with the key, so that pages are stable. */
function planOrder(sort: readonly SortKey[] | null, collection: Collection, context: Context): Order[] {
  if (!sort) return defaultOrder(collection, null);
  const order = sort.map((key) => planSortKey(key, collection, context));
  return endsWithKey(order, collection) ? order : [...order, keyOrder(collection)];
}

function planSortKey(key: SortKey, collection: Collection, context: Context): Order {
  const through: { field: Field; target: Collection }[] = [];
  let current = collection;
  for (const [position, name] of key.path.entries()) {
    const place = `sort "${key.path.join('.')}"`;
    const field = current.fields.get(name);
    if (!field) throw forbiddenField(name, current.name, place);
    if (position === key.path.length - 1) {
      if (!field.column) throw invalidQuery(`${place}: "${name}" has no value to sort by`);
      return { through, field, descending: key.descending };
    }
    if (!field.relation) throw forbiddenField(`${name}.${key.path[position + 1]}`, current.name, place);
    if (field.relation.kind !== 'many-to-one')
      throw invalidQuery(`${place}: only many-to-one relations can be followed`);
    current = collectionOf(context.model, field.relation.oneCollection);
    through.push({ field, target: current });
  }
  throw new Error('a sort path is never empty');
}

function defaultOrder(collection: Collection, relationSortField: string | null): Order[] {
  const name = relationSortField ?? collection.sortField;
  const field = name === null ? undefined : collection.fields.get(name);
  const order: Order[] = field?.column ? [{ through: [], field, descending: false }] : [];
  return endsWithKey(order, collection) ? order : [...order, keyOrder(collection)];
}

function endsWithKey(order: readonly Order[], collection: Collection): boolean {
  return order.some((each) => each.through.length === 0 && each.field === collection.primaryKey);
}

function keyOrder(collection: Collection): Order {
  return { through: [], field: collection.primaryKey, descending: false };
}
