/** A planned write becomes its statements: the write itself, its read-back, and the selection of the items it changes. */
import { LRUCache } from 'lru-cache';
import { changedMeanwhile, forbidden } from '../../../base/errors.js';
import { rowsOfAnswer } from '../../../base/exact-json.js';
import type { Observer } from '../../../base/observe.js';
import { oneStep, runSteps, type Steps } from '../../../base/time-slices.js';
import type { Matched } from '../../../compiler/compile/row-tag.js';
import { activityLogOf, compileDeferredRecord } from '../../../compiler/compile/write/activity.js';
import { compileDelete, compileSort } from '../../../compiler/compile/write/delete.js';
import {
  compileFlat,
  compileFlatDelete,
  compileFlatList,
  type FlatStatement,
  type FlatTables,
  flatDeleteValues,
  flatListValues,
  flatValues,
  UNMATCHED,
} from '../../../compiler/compile/write/flat.js';
import { compileFlatUpsert } from '../../../compiler/compile/write/flat-upsert.js';
import { compileWrite } from '../../../compiler/compile/write/write.js';
import { inputValues, type Receipt, type Tags } from '../../../compiler/compile/write/write-input.js';
import { keyNames } from '../../../compiler/model/item-key.js';
import { type Collection, collectionOf, type Field, type Model } from '../../../compiler/model/model.js';
import type { WriteAction } from '../../../compiler/plan/access.js';
import type { Condition } from '../../../compiler/plan/plan.js';
import { SELECTED_TAG } from '../../../compiler/plan/read.js';
import {
  type FlatRow,
  type FlatRows,
  flatRow,
  flatRows,
  hasPlainKey,
  isPlainTable,
} from '../../../compiler/plan/write/flat.js';
import { checkKey, keyOfRow, shownKey, shownWrittenKey } from '../../../compiler/plan/write/key.js';
import type { WritePlanContext } from '../../../compiler/plan/write/payload-row.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import { checkRows } from '../../../compiler/plan/write/write-rows.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import type { ParseLimits } from '../../../compiler/request/parse-context.js';
import { parseSelection, withKeys } from '../../../compiler/request/rest.js';
import {
  type IdempotencyKey,
  type Key,
  refuseKeys,
  type Selected,
  type WriteRequest,
} from '../../../compiler/request/write.js';
import type { Statement } from '../../../compiler/sql/fragment.js';
import { bind, type Values } from '../../../compiler/sql/parameter.js';
import { qualify } from '../../../compiler/sql/qualify.js';
import type { Extensions } from '../../../features/extensions/extensions.js';
import { WriteBatcher } from '../../../speed/batching/write-batcher.js';
import type { DatabaseCaller } from '../../access/database-caller.js';
import type { Policies } from '../../access/policies.js';
import type { Mirror } from '../../postgres/catalog/watch.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session, TransactionStatement } from '../../postgres/pools/sessions.js';
import { billWriter } from '../caller-budget.js';
import { collectionsIn, writeScope } from '../caller-scope.js';
import type { SessionConsistency } from '../consistency.js';
import { isDistributed, parseWrittenKeys, shardValue, WRITTEN_KEYS } from '../distributed.js';
import type { HookLimits } from '../hooks/write-hook.js';
import type { PreparedRead, Reads } from '../reads/reads.js';
import { compileInSession } from '../reads/session-reads.js';
import type { RequestClient } from '../stages.js';
import { type CompiledStatement, checked, StatementCache, type StatementCacheLimits } from '../statement-cache.js';
import { seenBy, type Writer, type WrittenBy } from '../writer.js';
import { type FlatPayload, flatPayload, KnownWrites, withPayload } from './known-writes.js';
import { hashedNodes } from './password-hashing.js';
import type { PipelinedWrite } from './transaction.js';

/** The services that writes need. */
export interface WriteServices {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  /** The callers as the database learns them, or null with DATABASE_CALLER=service. */
  readonly callers: DatabaseCaller | null;
  readonly consistency: SessionConsistency | null;
  /** The extensions, or null if there are none. */
  readonly extensions: Extensions | null;
}

export interface WriteLimits extends StatementCacheLimits, HookLimits {
  readonly maxRows: number | null;
  /** Whether waiting writes of one shape share a statement. */
  readonly batching: boolean;
  readonly parse: ParseLimits;
  /** As PostgreSQL reads an interval. */
  readonly idempotencyLifetime: string;
}

/** The values that the stages of one write share. */
export interface WriteCall {
  readonly writer: Writer;
  readonly client: RequestClient;
  /** The keys of what was written are filled in when they are known; null for no read-back. */
  readonly readBack: Parsed | null;
  /** Stored in the transaction of the write. */
  readonly idempotencyKey: IdempotencyKey | null;
  /** The payload, if its statement may be known. */
  readonly payload?: FlatPayload | null;
  /** The row parts of entity tags, one of which the item must have; null if any will do. */
  readonly tags: Tags;
  /** Counts from 1. */
  readonly attempt?: number;
}

/** An additional task of the statement: to store an idempotency key, or to count the rows that it writes. */
export type WriteOption = IdempotencyKey | 'count' | null;

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

/** An item that a write selects by a query. */
export interface SelectedItem {
  readonly key: Key;
  /** The row part of its entity tag, or null if the row is locked or has none. */
  readonly tag: string | null;
}

interface CompiledWrite extends CompiledStatement {
  /** The statement for many rows, or null if there is none. */
  readonly batchText: string | null;
}

/** The statement of a flat write, and whether the caller may read what it wrote. */
interface KnownStatement {
  readonly compiled: CompiledWrite;
  readonly isAnswered: boolean;
}

/** A flat write with its values. */
export interface FlatCall {
  /** The plan, or null if the write is a deletion. */
  readonly planned: PlannedWrite | null;
  readonly statement: TransactionStatement;
  readonly batchText: string | null;
  /** Identifies the row that it changes; null for a new row. */
  readonly key: string | null;
  /** Whether the write may be sent again after it has been done: an operator would count twice. */
  readonly isRepeatable: boolean;
  readonly rows: number;
}

/** The read of the response, and the form of its statement that fits the write. */
interface ReadBack {
  readonly read: PreparedRead;
  readonly statement: Statement;
}

export class WriteCompiler {
  readonly #callers: DatabaseCaller | null;
  readonly #reads: Reads;
  readonly #policies: Policies;
  readonly #mirror: Mirror;
  readonly #statements: StatementCache<CompiledWrite>;
  /** The batches of writes, or null if each write is a statement of its own. */
  readonly batcher: WriteBatcher | null;
  /** Shapes of one row that need the chain nevertheless. */
  readonly #chained: LRUCache<string, true>;
  readonly #known: KnownWrites<KnownStatement>;

  constructor(
    { reads, mirror, policies, database, callers }: WriteServices,
    private readonly limits: WriteLimits,
    observe: Observer,
  ) {
    this.#reads = reads;
    this.#callers = callers;
    this.#policies = policies;
    this.#mirror = mirror;
    this.#statements = new StatementCache(mirror, limits, observe);
    this.batcher = limits.batching ? new WriteBatcher((work, caller) => database.sessions.use(work, { caller })) : null;
    this.#chained = new LRUCache({ max: limits.shapes });
    this.#known = new KnownWrites(limits.shapes);
    mirror.onChange(() => {
      this.#chained.clear();
      this.#known.clear();
    });
  }

  /** How many shapes are compiled and kept. */
  get shapes(): number {
    return this.#statements.size;
  }

  /** The statement, or null if there is nothing to write. */
  compileWrite(planned: PlannedWrite, call: WriteCall, option: WriteOption): TransactionStatement | null {
    const { plan, input, model } = planned;
    const { writer, client, tags } = call;
    if (plan.nodes.length === 0) return null;
    const counted = option === 'count';
    const key = counted ? null : option;
    const shape = `${planned.shape}${option ? ` ${counted ? 'counted' : 'idempotent'}` : ''}${tags ? ' matched' : ''}`;
    const records = key ? collectionOf(model, 'service_receipts') : null;
    const matched = this.#matched(plan.collection, model, call);
    const activityLog = activityLogOf(model, this.isLogDeferred(collectionsOf(planned)));
    const compile = (): Statement => compileWrite(plan, { records, activityLog, counted, matched });
    const compiled = this.#compile(shape, model, writer, compile);
    const receipt = this.#receiptOf({ idempotencyKey: key });
    const shard = isDistributed(planned) ? shardValue(planned) : null;
    const values = inputValues({ ...input, nodes: hashedNodes(planned) }, receipt, shard, tags);
    const { text, parameters } = compiled.statement;
    const prepare = this.#statements.isReused(compiled);
    client.statement(text);
    return { text, parameters: bind(parameters, values, writer.caller), prepare, columns: null };
  }

  /** Whether the log of a write is a statement of its own: the database role of the caller may not write to the tables of the log. */
  isLogDeferred(collections: Iterable<Collection>): boolean {
    return this.#callers?.mode === 'role' && writeScope(collections) !== 'system';
  }

  /** The statement that writes the log which the statement of the write has left, or null if that has written it. */
  compileLog(collections: readonly Collection[], { writer }: WrittenBy): TransactionStatement | null {
    if (!this.isLogDeferred(collections) || collections.every(({ accountability }) => accountability === null))
      return null;
    const { model } = this.#mirror;
    const compile = (): Statement => compileDeferredRecord(activityLogOf(model, true));
    const { text, parameters } = this.#compile('deferred log', model, writer, compile).statement;
    const values = bind(parameters, [JSON.stringify(writer.author)], writer.caller);
    return { text, parameters: values, prepare: true, columns: null, isOfService: true };
  }

  /** Writes the log if the statement of the write could not. */
  async writeLog(session: Session, collections: readonly Collection[], by: WrittenBy): Promise<void> {
    const log = this.compileLog(collections, by);
    if (log) await session.asService(() => session.cell(log.text, log.parameters));
  }

  /** The payload of a write whose statement may be known. */
  payloadOf(request: WriteRequest, { caller, access }: Writer): FlatPayload | null {
    return access ? null : flatPayload(request, this.#policies.accessOf(caller)?.key ?? '');
  }

  /** Binds a payload to the known statement of its shape, or returns null if there is none. */
  compileKnown(model: Model, call: WriteCall): FlatCall | null {
    const known = call.payload && model === this.#mirror.model ? this.#known.find(call.payload) : undefined;
    if (!call.payload || !known) return null;
    const { planned, row } = withPayload(known, call.payload, call.writer);
    return this.#flatCall(planned, { node: known.node, row }, known.compiled, call);
  }

  /** How the tags are compared, or null without tags. */
  #matched(collection: Collection, model: Model, { writer, tags }: WriteCall): Matched | null {
    if (!tags) return null;
    const access = writer.access ?? this.#policies.accessOf(writer.caller);
    return { readable: access ? (access.view(model).collections.get(collection.name) ?? null) : collection };
  }

  /** The write and its answer as one statement, or null if the write is not flat. */
  compileFlat(planned: PlannedWrite, call: WriteCall): FlatCall | null {
    const { writer, client, readBack, payload, tags } = call;
    const { model } = planned;
    const hashed = { ...planned, input: { ...planned.input, nodes: hashedNodes(planned) } };
    const flat = flatRow(hashed);
    if (!flat) return this.#compileFlatList(planned, flatRows(hashed), call);
    if (this.isLogDeferred([flat.node.collection])) return null;
    const access = this.#policies.accessOf(writer.caller)?.key ?? '';
    const once = call.idempotencyKey ? 'once ' : '';
    const kind = tags ? `${once}matched` : once;
    const shape = `flat ${kind} ${planned.shape} ${readBack ? `${access} ${readBack.shape}` : ''}`;
    if (this.#chained.has(shape)) return null;
    const answer = readBack && this.#reads.prepareReadBack(readBack, writer, client);
    const plan = answer?.plan ?? null;
    if (plan?.kind === 'operation') return null;
    const compile = flat.node.verb === 'upsert' ? compileFlatUpsert : compileFlat;
    const compiled = this.#findFlat(shape, model, writer, () => compile(flat.node, plan, flatTables(model, call)));
    if (!compiled) return null;
    const known = { compiled, isAnswered: answer !== null };
    // Permissions may have changed since the write was planned.
    if (payload?.permissions === access && model === this.#mirror.model) this.#known.learn(payload, planned, known);
    return this.#flatCall(planned, flat, known, call);
  }

  /** Several new rows and their answer as one statement. */
  #compileFlatList(planned: PlannedWrite, list: FlatRows | null, call: WriteCall): FlatCall | null {
    const { writer, client, readBack } = call;
    const { model, input } = planned;
    if (!list || call.idempotencyKey || call.tags || this.isLogDeferred([list.node.collection])) return null;
    const access = this.#policies.accessOf(writer.caller)?.key ?? '';
    const shape = `flat list ${planned.shape} ${readBack ? `${access} ${readBack.shape}` : ''}`;
    if (this.#chained.has(shape)) return null;
    const answer = readBack && this.#reads.prepareReadBack(readBack, writer, client);
    const plan = answer?.plan ?? null;
    if (plan?.kind === 'operation') return null;
    const compile = (): FlatStatement | null => compileFlatList(list.node, plan, flatTables(model, call));
    const compiled = this.#findFlat(shape, model, writer, compile);
    if (!compiled) return null;
    const values = flatListValues(list, input.by, answer ? (readBack?.values ?? []) : []);
    const bound = this.#bindFlat(compiled, values, call);
    return { planned, ...bound, key: null, isRepeatable: false, rows: list.rows.length };
  }

  #flatCall(planned: PlannedWrite, flat: FlatRow, { compiled, isAnswered }: KnownStatement, call: WriteCall): FlatCall {
    const answered = isAnswered ? (call.readBack?.values ?? []) : [];
    const conditions = { receipt: this.#receiptOf(call), tags: call.tags };
    const values = flatValues(flat, planned.input.by, conditions, answered);
    const key = flat.node.verb === 'insert' ? null : JSON.stringify(planned.keys);
    const isRepeatable = flat.node.columns.every(({ operators }) => operators.length === 0);
    return { planned, ...this.#bindFlat(compiled, values, call), key, isRepeatable, rows: 1 };
  }

  #receiptOf({ idempotencyKey }: Pick<WriteCall, 'idempotencyKey'>): Receipt | null {
    return idempotencyKey && { ...idempotencyKey, lifetime: this.limits.idempotencyLifetime };
  }

  #bindFlat(
    compiled: CompiledWrite,
    values: Values,
    { writer, client }: WrittenBy,
  ): Pick<FlatCall, 'statement' | 'batchText'> {
    const { text, parameters } = compiled.statement;
    const prepare = this.#statements.isReused(compiled);
    client.statement(text);
    const bound = bind(parameters, values, writer.caller);
    return {
      statement: { text, parameters: bound, prepare, columns: 1, showsWrite: true },
      batchText: compiled.batchText,
    };
  }

  /** Returns null if the shape needs the chain. */
  #findFlat(shape: string, model: Model, writer: Writer, compile: () => FlatStatement | null): CompiledWrite | null {
    if (this.#chained.has(shape)) return null;
    const known = model === this.#mirror.model ? this.#statements.find(shape) : undefined;
    if (known) return known;
    const flat = compile();
    if (flat) return this.#compile(shape, model, writer, () => flat);
    this.#chained.set(shape, true);
    return null;
  }

  /** Reads the items by the keys that the write stores. Returns null if the caller may not read them. */
  prepareReadBack({ plan, keys: plannedKeys }: PlannedWrite, { writer, client, readBack }: WriteCall): ReadBack | null {
    const keys = plan.nodes.length === 0 ? (plannedKeys ?? []) : plannedKeys;
    const query = readBack && keys ? withKeys(readBack, keys) : readBack;
    const compiled = query && this.#reads.prepareReadBack(query, writer, client);
    if (!compiled) return null;
    const statement = keys ? compiled.statement : compiled.readBack();
    return { read: { query, compiled, caller: writer.caller, inDatabase: seenBy(writer), origin: client }, statement };
  }

  /** The statements of a write in a pipelined transaction, or null if there is nothing to write. */
  compilePipelined(
    planned: PlannedWrite,
    call: WriteCall,
    { isReferenced, ...described }: Pick<PipelinedWrite, 'rows' | 'asFailure'> & { readonly isReferenced: boolean },
  ): PipelinedWrite | null {
    // A flat write does not store its keys.
    const flat = isReferenced ? null : this.compileFlat(planned, call);
    if (flat) return pipelineFlat(flat, described.asFailure);
    const written = this.compileWrite(planned, call, null);
    if (!written) return null;
    const readBack = this.prepareReadBack(planned, call);
    const read = readBack && { ...this.#reads.bind(readBack.read, readBack.statement), columns: 1 as const };
    const asked = isReferenced && !planned.keys ? WRITTEN_KEYS : null;
    return {
      statements: [written, ...(read ? [read] : []), ...(asked ? [asked] : [])],
      ...described,
      bodyOf: (cells) => (read ? (cells[1] ?? null) : null),
      keysOf: isReferenced
        ? (cells) => shownKeys(planned, asked ? parseWrittenKeys(cells.at(-1)) : (planned.keys ?? []))
        : null,
    };
  }

  /** `rule` says which rows the caller may delete. */
  compileDelete(
    { collection, rule, locks, leavesKept, leavesChanged }: Deletion,
    { model, access }: WritePlanContext,
    call: WriteCall,
  ): Statement {
    const matched = this.#matched(collection, model, call);
    const kind = `${matched ? 'matched ' : ''}${locks ? '' : 'unlocked '}${leavesKept ? 'kept ' : ''}${leavesChanged ? 'changed ' : ''}`;
    const shape = `${access?.key ?? ''}${kind}delete ${collection.name}`;
    const activityLog = activityLogOf(model, this.isLogDeferred([collection]));
    const options = { activityLog, matched, locks, leavesKept, leavesChanged };
    const compile = (): Statement => compileDelete(collection, rule, options);
    return this.#compile(shape, model, call.writer, compile).statement;
  }

  /** The deletion of one item by its key, or null if it needs the statement for many, or a transaction. */
  compileFlatDelete(
    { collection, rule, selected }: { collection: Collection; rule: Condition | null; selected: Selected },
    { model, access, author }: WritePlanContext,
    call: WriteCall,
  ): FlatCall | null {
    const { writer } = call;
    const [key, ...others] = givenKeys(collection, selected);
    if (this.isLogDeferred([collection])) return null;
    if (key === undefined || others.length > 0 || !isPlainTable(collection) || !hasPlainKey(collection)) return null;
    checkKey(collection, key);
    const kind = `${call.idempotencyKey ? 'once ' : ''}${call.tags ? 'matched ' : ''}`;
    const shape = `flat ${kind}${access?.key ?? ''}delete ${collection.name}`;
    const compiled = this.#findFlat(shape, model, writer, () =>
      compileFlatDelete(collection, rule, flatTables(model, call)),
    );
    if (!compiled) return null;
    const bound = this.#bindFlat(compiled, flatDeleteValues(key, author, this.#receiptOf(call), call.tags), call);
    return { planned: null, ...bound, key: String(key), isRepeatable: true, rows: 1 };
  }

  compileSort(collection: Collection, field: Field, model: Model, writer: Writer): Statement {
    return this.#compile(`sort ${collection.name}`, model, writer, () => compileSort(collection, field)).statement;
  }

  /** The keys of the items that a request selects, inside of its transaction. */
  async selectKeys(
    by: WrittenBy & { readonly session: Session },
    collection: Collection,
    selected: Selected,
    action: WriteAction,
  ): Promise<readonly Key[]> {
    return (await this.selectItems(by, collection, selected, action)).map(({ key }) => key);
  }

  async selectItems(
    { writer, client, session }: WrittenBy & { readonly session: Session },
    collection: Collection,
    selected: Selected,
    action: WriteAction,
  ): Promise<readonly SelectedItem[]> {
    const query = this.parseSelected(collection, selected);
    if (!query) return givenKeys(collection, selected).map((key) => ({ key, tag: null }));
    const { caller } = writer;
    const compiled = compileInSession({ reads: this.#reads, writer, client }, query, { selectedFor: action });
    // The session plans once for all values, which may be wrong for the values of this query.
    if (compiled.uneven) await session.setPlanMode('force_custom_plan');
    const read = { query, compiled, caller, inDatabase: seenBy(writer), origin: client };
    const cell = await this.#reads.affordableCellIn(session, read);
    if (compiled.uneven) await session.setPlanMode('force_generic_plan');
    client.staged('execute');
    const data = rowsOfAnswer(cell?.toString() ?? '{"data":[]}');
    checkRows(data.length, this.limits.maxRows);
    return data.map((item) => {
      const tag = item[SELECTED_TAG];
      return { key: keyOfRow(collection, item), tag: typeof tag === 'string' ? tag.slice(1, -1) : null };
    });
  }

  /** Returns null if keys select the items. */
  parseSelected(collection: Collection, selected: Selected): Parsed | null {
    if (selected.kind !== 'query') return null;
    const { maxRows, parse } = this.limits;
    // One more than may be written is enough to refuse them.
    const most = maxRows === null ? null : maxRows + 1;
    return parseSelection(collection.name, selected.query, keyNames(collection), { ...parse, selectedRows: most });
  }

  #compile(shape: string, model: Model, writer: Writer, compile: () => Statement | FlatStatement): CompiledWrite {
    // The functions that raise errors are in the schema of the service's tables.
    const check = ({ text, parameters }: Statement): Statement =>
      checked({ text: qualify(text, model.system), parameters }, 'write', model);
    const compileChecked = (): CompiledWrite => {
      const compiled = compile();
      if (!('statement' in compiled)) return { statement: check(compiled), batchText: null };
      return { statement: check(compiled.statement), batchText: compiled.batch && check(compiled.batch).text };
    };
    const { budgets } = this.#reads;
    const steps = (): Steps<CompiledWrite> => oneStep(() => budgets.run(billWriter(writer), compileChecked));
    return runSteps(this.#statements.get(shape, model, steps));
  }
}

/** The collections whose rows a write changes. */
export function collectionsOf({ plan }: PlannedWrite): Collection[] {
  return [...plan.nodes, ...plan.unlinks].map(({ collection }) => collection);
}

/**
 * The response body of a flat write, or null if the caller may not read the row. Throws if no row was written (null), or if the item has
 * another entity tag.
 */
export function flatBody(cell: Buffer | null): Buffer | null {
  if (cell === null) throw forbidden();
  if (cell.length === UNMATCHED.length) throw changedMeanwhile();
  return cell.length === 0 ? null : cell;
}

export function pipelineFlat({ statement, rows }: FlatCall, asFailure: PipelinedWrite['asFailure']): PipelinedWrite {
  return { statements: [statement], rows, bodyOf: ([cell = null]) => flatBody(cell), keysOf: null, asFailure };
}

/** Keys that a write has stored, as responses show them. */
export function shownKeys({ plan: { collection } }: PlannedWrite, keys: readonly Key[]): readonly unknown[] {
  return keys.map((key) => shownWrittenKey(collection, key));
}

function flatTables(model: Model, { idempotencyKey, tags }: WriteCall): FlatTables {
  return {
    activityLog: activityLogOf(model),
    receipts: idempotencyKey ? collectionOf(model, 'service_receipts') : null,
    isMatched: tags !== null,
    tablesIn: (text) => collectionsIn(text, model),
  };
}

function givenKeys(collection: Collection, selected: Selected): readonly Key[] {
  if (selected.kind === 'query') return [];
  return selected.kind === 'keys'
    ? selected.keys
    : selected.keys.map((key) => shownKey(collection, key) ?? refuseKeys());
}
