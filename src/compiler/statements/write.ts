/**
 * A planned write becomes its statements: one that also answers if the write is flat, otherwise the write and the read of what it has
 * written. A `WriteHost` keeps statements by their shapes.
 */

import type { Matched } from '../compile/row-tag.js';
import { activityLogOf } from '../compile/write/activity.js';
import { compileDelete } from '../compile/write/delete.js';
import {
  compileFlat,
  compileFlatDelete,
  compileFlatList,
  type FlatStatement,
  type FlatTables,
  flatDeleteValues,
  flatListValues,
  flatValues,
} from '../compile/write/flat.js';
import { compileFlatUpsert } from '../compile/write/flat-upsert.js';
import { compileWrite } from '../compile/write/write.js';
import { inputValues, type Receipt, type Tags, tagList } from '../compile/write/write-input.js';
import { type Collection, collectionOf, type Model } from '../model/model.js';
import { isLockable } from '../model/write-facts.js';
import type { Access } from '../plan/access.js';
import type { Condition } from '../plan/plan.js';
import { type FlatRow, type FlatRows, flatRow, flatRows, hasPlainKey, isPlainTable } from '../plan/write/flat.js';
import { checkKey, shownKey } from '../plan/write/key.js';
import type { WritePlanContext } from '../plan/write/payload-row.js';
import type { WriteTarget } from '../plan/write/plan-request.js';
import { hashedNodes } from '../plan/write/secrets.js';
import { isDistributed, shardValue } from '../plan/write/shard.js';
import type { Author, PlannedWrite } from '../plan/write/write.js';
import type { Parsed } from '../request/ast.js';
import { withKeys } from '../request/rest.js';
import { type IdempotencyKey, type Key, refuseKeys, type Selected } from '../request/write.js';
import type { Statement } from '../sql/fragment.js';
import { bind, type Caller } from '../sql/parameter.js';
import { type CompiledReadBack, readBackStatement } from './read.js';
import { collectionsIn, qualified } from './used-tables.js';

/** The values that the statements of a write depend on, apart from its plan. */
export interface WriteCall {
  readonly writer: {
    readonly caller: Caller;
    /** Permissions that replace those of the caller's policies. */
    readonly access?: Access;
  };
  /** The keys of what was written are filled in when they are known; null for no read-back. */
  readonly readBack: Parsed | null;
  /** Stored in the transaction of the write. */
  readonly idempotencyKey: IdempotencyKey | null;
  /** The row parts of entity tags, one of which the item must have; null if any will do. */
  readonly tags: Tags;
}

/** An additional task of the statement: to store an idempotency key, or to count the rows that it writes. */
export type WriteOption = IdempotencyKey | 'count' | null;

export interface CompiledWrite {
  readonly statement: Statement;
  /** The statement for many rows, or null if there is none. */
  readonly batchText: string | null;
}

/** The functions that raise errors are in the schema of the service's tables. */
export function checkedWrite(compiled: Statement | FlatStatement, model: Model): CompiledWrite {
  if (!('statement' in compiled)) return { statement: qualified(compiled, 'write', model), batchText: null };
  const { statement, batch } = compiled;
  return {
    statement: qualified(statement, 'write', model),
    batchText: batch && qualified(batch, 'write', model).text,
  };
}

export interface WriteHost<Call extends WriteCall, Back extends CompiledReadBack> {
  /** As PostgreSQL reads an interval. */
  readonly idempotencyLifetime: string;
  /** The permissions of the caller at present, or null for all. */
  accessOf(call: Call): Access | null;
  /** Whether the log of a write is a statement of its own. */
  isLogDeferred(collections: Iterable<Collection>): boolean;
  /** Whether it is known that the shape of a flat write needs the chain. */
  isChained(shape: string): boolean;
  /** The statement of the shape, checked. */
  compiled(
    shape: string,
    model: Model,
    writer: Call['writer'],
    compile: () => Statement | FlatStatement,
  ): CompiledWrite;
  /** The statement of a flat write, checked, or null if the shape needs the chain. */
  compiledFlat(
    shape: string,
    model: Model,
    writer: Call['writer'],
    compile: () => FlatStatement | null,
  ): CompiledWrite | null;
  /** Returns null if the caller may not read the items. */
  readBackOf(query: Parsed, call: Call): Back | null;
}

/** A statement with its values. */
export interface BoundWrite {
  readonly compiled: CompiledWrite;
  readonly parameters: readonly (string | null)[];
}

/** The statement of a flat write, and whether the caller may read what it wrote. */
export interface FlatShape {
  readonly compiled: CompiledWrite;
  readonly isAnswered: boolean;
}

/** A flat write; `row` is null for several rows. */
interface FlatWrite extends BoundWrite, FlatShape {
  readonly row: FlatRow | null;
  readonly rows: number;
}

/** The write and its answer as one statement, or null if the write is not flat. */
export function flatWrite<Call extends WriteCall, Back extends CompiledReadBack>(
  planned: PlannedWrite,
  call: Call,
  host: WriteHost<Call, Back>,
): FlatWrite | null {
  const { readBack, tags } = call;
  const { model } = planned;
  const hashed = { ...planned, input: { ...planned.input, nodes: hashedNodes(planned) } };
  const row = flatRow(hashed);
  if (!row) return flatList(planned, flatRows(hashed), call, host);
  if (host.isLogDeferred([row.node.collection])) return null;
  const once = call.idempotencyKey ? 'once ' : '';
  const kind = tags ? `${once}matched` : once;
  const access = host.accessOf(call)?.key ?? '';
  const shape = `flat ${kind} ${planned.shape} ${readBack ? `${access} ${readBack.shape}` : ''}`;
  if (host.isChained(shape)) return null;
  const answer = readBack && host.readBackOf(readBack, call);
  const plan = answer?.plan ?? null;
  if (plan?.kind === 'operation') return null;
  const compile = row.node.verb === 'upsert' ? compileFlatUpsert : compileFlat;
  const compiled = host.compiledFlat(shape, model, call.writer, () => compile(row.node, plan, flatTables(model, call)));
  if (!compiled) return null;
  const isAnswered = answer !== null;
  const parameters = flatParameters(planned, { row, compiled, isAnswered }, call, host);
  return { compiled, isAnswered, parameters, row, rows: 1 };
}

/** Whether the write may be one statement outside of a transaction. */
export function mayBeFlat(planned: PlannedWrite): boolean {
  const { nodes } = planned.plan;
  return (
    !isDistributed(planned) && nodes.every(({ verb, collection }) => verb === 'insert' || collection.hasLockableRows)
  );
}

/** Several new rows and their answer as one statement. */
function flatList<Call extends WriteCall, Back extends CompiledReadBack>(
  planned: PlannedWrite,
  list: FlatRows | null,
  call: Call,
  host: WriteHost<Call, Back>,
): FlatWrite | null {
  const { writer, readBack } = call;
  const { model, input } = planned;
  if (!list || call.idempotencyKey || call.tags || host.isLogDeferred([list.node.collection])) return null;
  const shape = `flat list ${planned.shape} ${readBack ? `${host.accessOf(call)?.key ?? ''} ${readBack.shape}` : ''}`;
  if (host.isChained(shape)) return null;
  const answer = readBack && host.readBackOf(readBack, call);
  const plan = answer?.plan ?? null;
  if (plan?.kind === 'operation') return null;
  const compile = (): FlatStatement | null => compileFlatList(list.node, plan, flatTables(model, call));
  const compiled = host.compiledFlat(shape, model, call.writer, compile);
  if (!compiled) return null;
  const values = flatListValues(list, input.by, answer ? (readBack?.values ?? []) : []);
  const parameters = bind(compiled.statement.parameters, values, writer.caller);
  return { compiled, isAnswered: answer !== null, parameters, row: null, rows: list.rows.length };
}

/** The values of one row. */
export function flatParameters<Call extends WriteCall>(
  { input }: PlannedWrite,
  { row, compiled, isAnswered }: FlatShape & { readonly row: FlatRow },
  call: Call,
  host: Pick<WriteHost<Call, CompiledReadBack>, 'idempotencyLifetime'>,
): readonly (string | null)[] {
  const answered = isAnswered ? (call.readBack?.values ?? []) : [];
  const conditions = { receipt: receiptOf(call.idempotencyKey, host), tags: call.tags };
  return bind(compiled.statement.parameters, flatValues(row, input.by, conditions, answered), call.writer.caller);
}

function flatTables(model: Model, { idempotencyKey, tags }: WriteCall): FlatTables {
  return {
    activityLog: activityLogOf(model),
    receipts: idempotencyKey ? collectionOf(model, 'service_receipts') : null,
    isMatched: tags !== null,
    tablesIn: (text) => collectionsIn(text, model),
  };
}

function receiptOf(key: IdempotencyKey | null, { idempotencyLifetime: lifetime }: ReceiptHost): Receipt | null {
  return key && { ...key, lifetime };
}

type ReceiptHost = Pick<WriteHost<WriteCall, CompiledReadBack>, 'idempotencyLifetime'>;

/** The statement of a write of any kind, or null if there is nothing to write. */
export function chainedWrite<Call extends WriteCall, Back extends CompiledReadBack>(
  planned: PlannedWrite,
  call: Call,
  option: WriteOption,
  host: WriteHost<Call, Back>,
): BoundWrite | null {
  const { plan, input, model } = planned;
  const { writer, tags } = call;
  if (plan.nodes.length === 0) return null;
  const counted = option === 'count';
  const key = counted ? null : option;
  const shape = `${planned.shape}${option ? ` ${counted ? 'counted' : 'idempotent'}` : ''}${tags ? ' matched' : ''}`;
  const records = key ? collectionOf(model, 'service_receipts') : null;
  const matched = matchedItem(plan.collection, model, call, host);
  const activityLog = activityLogOf(model, host.isLogDeferred(collectionsOf(planned)));
  const compile = (): Statement => compileWrite(plan, { records, activityLog, counted, matched });
  const compiled = host.compiled(shape, model, call.writer, compile);
  const shard = isDistributed(planned) ? shardValue(planned) : null;
  const values = inputValues({ ...input, nodes: hashedNodes(planned) }, receiptOf(key, host), shard, tags);
  return { compiled, parameters: bind(compiled.statement.parameters, values, writer.caller) };
}

/** The collections whose rows a write changes. */
export function collectionsOf({ plan }: PlannedWrite): Collection[] {
  return [...plan.nodes, ...plan.unlinks].map(({ collection }) => collection);
}

/** How the tags are compared, or null without tags. */
function matchedItem<Call extends WriteCall, Back extends CompiledReadBack>(
  collection: Collection,
  model: Model,
  call: Call,
  host: WriteHost<Call, Back>,
): Matched | null {
  if (!call.tags) return null;
  const access = call.writer.access ?? host.accessOf(call);
  return { readable: access ? (access.view(model).collections.get(collection.name) ?? null) : collection };
}

/** The read of a response, and the form of its statement that fits the write. */
interface ReadOfWritten<Back> {
  readonly query: Parsed;
  readonly compiled: Back;
  readonly statement: Statement;
}

/** Reads the items by the keys that the write stores. Returns null if the caller may not read them. */
export function readOfWritten<Call extends WriteCall, Back extends CompiledReadBack>(
  { plan, keys: plannedKeys }: PlannedWrite,
  call: Call,
  host: WriteHost<Call, Back>,
): ReadOfWritten<Back> | null {
  const { readBack } = call;
  const keys = plan.nodes.length === 0 ? (plannedKeys ?? []) : plannedKeys;
  const query = readBack && keys ? withKeys(readBack, keys) : readBack;
  const compiled = query && host.readBackOf(query, call);
  return compiled && { query, compiled, statement: keys ? compiled.statement : readBackStatement(compiled) };
}

export interface Deletion {
  readonly collection: Collection;
  readonly rule: Condition | null;
  /** Whether rows are locked before a rule or an entity tag is compared with them. */
  readonly locks: boolean;
  /** Whether a row that a policy of the database keeps is no error. */
  readonly leavesKept: boolean;
  /** Whether only rows that are as they were selected are deleted. */
  readonly leavesChanged: boolean;
}

/** `isJoined`: whether the deletion is part of a transaction that others have begun. */
export function deletionOf(
  { collection, context }: WriteTarget,
  rule: Condition | null,
  selected: Selected,
  isJoined: boolean,
): Deletion {
  const mayLock = isLockable(collection, context.access?.privileges(collection, context.model) ?? null);
  const leavesKept = !mayLock && selected.kind === 'query';
  // A transaction that others have begun has no snapshot that shows the rows as they are deleted.
  const leavesChanged = leavesKept && isJoined && collection.rowTag === 'xmin';
  const locks = collection.hasLockableRows && !leavesChanged && (mayLock || isJoined);
  // The items that are selected meet the rule.
  return { collection, rule: leavesChanged ? null : rule, locks, leavesKept, leavesChanged };
}

/** `rule` says which rows the caller may delete. */
export function deletion<Call extends WriteCall, Back extends CompiledReadBack>(
  { collection, rule, locks, leavesKept, leavesChanged }: Deletion,
  { model, access }: WritePlanContext,
  call: Call,
  host: WriteHost<Call, Back>,
): Statement {
  const matched = matchedItem(collection, model, call, host);
  const kind = `${matched ? 'matched ' : ''}${locks ? '' : 'unlocked '}${leavesKept ? 'kept ' : ''}${leavesChanged ? 'changed ' : ''}`;
  const shape = `${access?.key ?? ''}${kind}delete ${collection.name}`;
  const activityLog = activityLogOf(model, host.isLogDeferred([collection]));
  const options = { activityLog, matched, locks, leavesKept, leavesChanged };
  return host.compiled(shape, model, call.writer, () => compileDelete(collection, rule, options)).statement;
}

/** The values of the statement that deletes the items with these keys. */
export function deletionParameters(
  { parameters }: Statement,
  keys: readonly Key[],
  author: Author,
  { writer, tags }: Pick<WriteCall, 'writer' | 'tags'>,
): (string | null)[] {
  return bind(parameters, [keys, JSON.stringify(author), tagList(tags)], writer.caller);
}

/** The deletion of one item by its key, or null if it needs the statement for many, or a transaction. */
export function flatDeletion<Call extends WriteCall, Back extends CompiledReadBack>(
  { collection, rule, selected }: { collection: Collection; rule: Condition | null; selected: Selected },
  { model, access, author }: WritePlanContext,
  call: Call,
  host: WriteHost<Call, Back>,
): (BoundWrite & { readonly key: Key }) | null {
  const [key, ...others] = givenKeys(collection, selected);
  if (host.isLogDeferred([collection])) return null;
  if (key === undefined || others.length > 0 || !isPlainTable(collection) || !hasPlainKey(collection)) return null;
  checkKey(collection, key);
  const kind = `${call.idempotencyKey ? 'once ' : ''}${call.tags ? 'matched ' : ''}`;
  const shape = `flat ${kind}${access?.key ?? ''}delete ${collection.name}`;
  const compile = (): FlatStatement | null => compileFlatDelete(collection, rule, flatTables(model, call));
  const compiled = host.compiledFlat(shape, model, call.writer, compile);
  if (!compiled) return null;
  const values = flatDeleteValues(key, author, receiptOf(call.idempotencyKey, host), call.tags);
  return { compiled, parameters: bind(compiled.statement.parameters, values, call.writer.caller), key };
}

/** The keys that a request names. */
export function givenKeys(collection: Collection, selected: Selected): readonly Key[] {
  if (selected.kind === 'query') return [];
  return selected.kind === 'keys'
    ? selected.keys
    : selected.keys.map((key) => shownKey(collection, key) ?? refuseKeys());
}
