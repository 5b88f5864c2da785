/** Request AST × model → read plan: names are resolved, wildcards expanded, limits checked. */
import { forbidden, forbiddenCollection, forbiddenField, invalidPayload, invalidQuery } from '../../base/errors.js';
import { digestedFields, isTagged, showsKey } from '../model/item-key.js';
import type { Collection, Field, Model } from '../model/model.js';
import type { PageLimit, Query, ReadRequest, ReadTarget, Slot } from '../request/ast.js';
import { refuseKeys } from '../request/write.js';
import { isMasked } from './access.js';
import { planGroups } from './aggregate.js';
import { callOf, checkApplies, checkVolatile, isSingle, planCall, planResult, returnedRows } from './call.js';
import { isEmpty, planConditions, restrictsRows } from './filter.js';
import { defaultOrder } from './order.js';
import { type Planner, planOutputs, planRows } from './outputs.js';
import {
  ALWAYS,
  both,
  type Condition,
  type Output,
  type ReadPlan,
  type RowLevel,
  readPlan,
  rowLevel,
  type VersionPlan,
} from './plan.js';
import { ofVersion, planVersion, shownAs } from './version.js';
import { EVERYTHING, type Position } from './wanted-fields.js';
import { checkKeyed, hasDocumentKey } from './write/key.js';

export interface PlanLimits {
  readonly defaultLimit: number;
  readonly maxNodes: number;
}

interface ReadOptions {
  /** Only rows that meet it: those that the caller may write, if items are selected for a write. */
  readonly writableRows?: Condition | null;
  /** Whether items that are selected for a write are locked. */
  readonly locks?: boolean;
  /** Reads of one request share a planner, and with it the budget. */
  readonly planner?: Planner;
}

export function planRead(
  request: ReadRequest,
  model: Model,
  limits: PlanLimits,
  {
    writableRows = null,
    locks = true,
    planner = { model, ...limits, nodes: 0, isPartial: request.partial === true },
  }: ReadOptions = {},
): ReadPlan {
  const { query, target } = request;
  const call = request.call ? planCall(request.collection, request.call, model) : null;
  if (call) checkApplies(call, request);
  const returned = call && returnedRows(call, model);
  if (call && !returned) return planResult(call, request, model);
  const collection = returned ?? servedCollection(model, request.collection);
  if (target.kind !== 'list') checkKeyed(collection);
  if (request.export && query.meta.length > 0) throw invalidQuery('"meta" does not apply to an export');
  if (target.kind === 'selected' && !target.limited) checkSelects(query);
  const position: Position = { collection, query, location: 'root', from: null, backlink: query.backlink };
  const fields = query.fields ?? EVERYTHING;
  if (call && isSingle(call)) return readPlan('optional', rowLevel(collection, planOutputs(fields, position, planner)));
  const rowsCall = callOf(collection);
  if (rowsCall) checkVolatile(rowsCall, request);
  const version = planVersion(request, collection, model);
  if (request.image !== undefined) return planImage(request.image, planRows(fields, position, planner, ALWAYS));
  const single = target.kind === 'item' || (collection.singleton && target.kind === 'list' && !query.aggregate);
  if (single && !request.export) {
    return planItem(request, collection, planOutputs(fields, position, planner), version);
  }
  const wanted = both(targetCondition(target, collection), ...ofVersion(version));
  const narrowed = writableRows ? both(wanted, { kind: 'rule', rule: writableRows }) : wanted;
  if (target.kind === 'written') {
    const operand = { kind: 'position', slot: target.keys, key: collection.key } as const;
    const rows = planRows(fields, position, planner, narrowed);
    return readPlan('list', { ...rows, order: [{ operand, descending: false }], limit: { kind: 'all' } });
  }
  const grouped = query.aggregate !== null || query.groupBy !== null;
  const large = isLarge(query.limit);
  checkCursor(request, collection, grouped);
  const level = grouped
    ? planGroups(query, collection, both(narrowed, planConditions(query, collection, planner)), planner)
    : selectedRows(shownAs(planRows(fields, position, planner, narrowed), version), target, locks);
  const isStreamable = target.kind !== 'selected' && !call?.overload.volatile;
  return {
    kind: 'read',
    result: 'list',
    stream: request.export || (large && !grouped && query.cursor === null && isStreamable),
    // The rows of a function keep their order.
    level: call && level.kind === 'rows' && !query.sort && query.cursor === null ? { ...level, order: [] } : level,
    meta: query.meta,
    cursor: query.cursor !== null,
  };
}

/** The name under which selected rows that are not locked show the row part of their entity tags. */
export const SELECTED_TAG = ' tag';

/** Rows that cannot be locked are shown with their tags, by which a later statement finds that they have changed. */
function selectedRows(level: RowLevel, target: ReadTarget, locks: boolean): RowLevel {
  if (target.kind !== 'selected' || locks) return { ...level, locked: target.kind === 'selected' };
  if (level.collection.rowTag !== 'xmin') return level;
  return { ...level, outputs: [...level.outputs, { kind: 'tag', name: SELECTED_TAG }] };
}

/** One row, which has no order. */
function planImage(image: number, level: RowLevel): ReadPlan {
  return readPlan('list', { ...level, image, order: [], limit: { kind: 'constant', value: 1 } });
}

function isLarge(limit: PageLimit | null): boolean {
  return limit?.kind === 'all' || (limit?.kind === 'slot' && limit.large);
}

function targetCondition(target: ReadTarget, collection: Collection): Condition {
  switch (target.kind) {
    case 'list':
    case 'selected':
      return ALWAYS;
    case 'item':
      return named(collection, target.key, false, target.known ?? false);
    case 'keys': {
      const condition = named(collection, target.keys, true, target.known ?? false);
      if (target.shown === 'documents' && !hasDocumentKey(collection)) refuseKeys();
      return target.shown ? { ...condition, asJson: true } : condition;
    }
    default:
      return named(collection, target.keys, true, true);
  }
}

type KeyCondition = Extract<Condition, { kind: 'key' }>;

/** Items by their keys. Reading by key requires permission to read the key columns: otherwise callers could probe for keys. */
function named(collection: Collection, slot: Slot, many: boolean, isKnown: boolean): KeyCondition {
  const { key } = collection;
  if (!isKnown && !showsKey(collection)) throw forbidden();
  const shown = !isKnown && key.some((field) => isMasked(collection, field));
  return { kind: 'key', key, slot, many, ...(shown ? { shown } : {}) };
}

/** A condition that holds for every row must not select items for a write: a limit of -1 means all items. */
function checkSelects({ filter, search }: Query): void {
  const filterGiven = filter && !isEmpty(filter) ? filter : null;
  if (filterGiven === null && search === null)
    throw invalidPayload('"query" needs a filter, a search or a limit (-1 for all items)');
  if (filterGiven && !restrictsRows(filterGiven))
    throw invalidPayload(
      '"query" needs a filter, a search or a limit (-1 for all items): a part of its filter is empty',
    );
}

/** A digest takes the columns of the row, so a request for only some of them gets none. */
function readsRowTag(collection: Collection, outputs: RowLevel['outputs']): boolean {
  if (collection.rowTag === 'xmin') return true;
  const read = new Set(outputs.flatMap(columnsOfOutput));
  return digestedFields(collection).every((field) => read.has(field));
}

function columnsOfOutput(output: Output): readonly Field[] {
  switch (output.kind) {
    case 'value':
      return output.operand.kind === 'field' && output.operand.through.length === 0 ? [output.operand.field] : [];
    case 'one':
      return output.toOne.kind === 'one' ? output.toOne.columns : [];
    case 'reference':
      return output.toOne.columns;
    default:
      return [];
  }
}

/** One item by its key, or the only one of a singleton; the rest of the query only shapes its outputs. */
function planItem(
  { target, tagged }: ReadRequest,
  collection: Collection,
  outputs: RowLevel['outputs'],
  version: VersionPlan | null,
): ReadPlan {
  const level: RowLevel = {
    ...rowLevel(collection, outputs, both(targetCondition(target, collection), ...ofVersion(version))),
    order: target.kind === 'item' ? [] : defaultOrder(collection, null),
    limit: { kind: 'constant', value: 1 },
    // A version has no row of its own.
    ...(tagged && !version && isTagged(collection) && readsRowTag(collection, outputs) ? { tagged } : {}),
  };
  // A version of an item that does not exist yet is none.
  const result = target.kind === 'item' || version ? 'item' : 'singleton';
  return readPlan(result, shownAs(level, version));
}

/** A cursor holds the key of the last row, so only callers who may see the key get one. */
function checkCursor(request: ReadRequest, collection: Collection, grouped: boolean): void {
  const { query } = request;
  if (query.cursor === null) return;
  if (grouped || request.export) throw invalidQuery('"cursor" does not apply to aggregates and exports');
  if (query.offset !== null || query.page !== null)
    throw invalidQuery('"cursor" cannot be combined with "offset" or "page"');
  if (isLarge(query.limit)) throw invalidQuery('"cursor" requires a lower limit', { option: 'STREAM_ABOVE' });
  if (collection.key.length === 0) throw invalidQuery(`"cursor" needs a key, and "${collection.name}" has none`);
  const hidden = collection.key.find((field) => !collection.fields.has(field.name) || isMasked(collection, field));
  if (hidden) throw forbiddenField(hidden.name, collection.name, 'cursor');
}

export function servedCollection(model: Model, name: string): Collection {
  const collection = model.collections.get(name);
  if (collection) return collection;
  const reason = model.refused.get(name);
  throw reason ? forbidden(`"${name}" cannot be served: it ${reason}.`) : forbiddenCollection(name);
}
