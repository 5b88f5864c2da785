/** A planned write becomes its statements: the write itself, its read-back, and the selection of the items it changes. */
import { LRUCache } from 'lru-cache';
import { changedMeanwhile, forbidden } from '../../../base/errors.js';
import { rowsOfAnswer } from '../../../base/exact-json.js';
import type { Observer } from '../../../base/observe.js';
import { oneStep, runSteps, type Steps } from '../../../base/time-slices.js';
import { activityLogOf, compileDeferredRecord } from '../../../compiler/compile/write/activity.js';
import { compileSort } from '../../../compiler/compile/write/delete.js';
import { type FlatStatement, UNMATCHED } from '../../../compiler/compile/write/flat.js';
import { keyNames } from '../../../compiler/model/item-key.js';
import type { Collection, Field, Model } from '../../../compiler/model/model.js';
import type { Access, WriteAction } from '../../../compiler/plan/access.js';
import type { Condition } from '../../../compiler/plan/plan.js';
import { SELECTED_TAG } from '../../../compiler/plan/read.js';
import type { FlatRow } from '../../../compiler/plan/write/flat.js';
import { keyOfRow, shownWrittenKey } from '../../../compiler/plan/write/key.js';
import type { WritePlanContext } from '../../../compiler/plan/write/payload-row.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import { checkRows } from '../../../compiler/plan/write/write-rows.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import type { ParseLimits } from '../../../compiler/request/parse-context.js';
import { parseSelection } from '../../../compiler/request/rest.js';
import type { Key, Selected, WriteRequest } from '../../../compiler/request/write.js';
import type { Statement } from '../../../compiler/sql/fragment.js';
import { bind } from '../../../compiler/sql/parameter.js';
import {
  type BoundWrite,
  type WriteCall as CallValues,
  type CompiledWrite,
  chainedWrite,
  checkedWrite,
  type Deletion,
  deletion,
  type FlatShape,
  flatDeletion,
  flatParameters,
  flatWrite,
  givenKeys,
  readOfWritten,
  type WriteHost,
  type WriteOption,
} from '../../../compiler/statements/write.js';
import type { DatabaseCaller } from '../../access/database-caller.js';
import type { Policies } from '../../access/policies.js';
import type { Mirror } from '../../postgres/catalog/watch.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session, TransactionStatement } from '../../postgres/pools/sessions.js';
import { billWriter } from '../caller-budget.js';
import { writeScope } from '../caller-scope.js';
import type { Consistency } from '../consistency.js';
import { parseWrittenKeys, WRITTEN_KEYS } from '../distributed.js';
import type { UserHooks } from '../hooks/user-hooks.js';
import type { WriteHook } from '../hooks/write-hook.js';
import type { CompiledRead } from '../reads/compiled-read.js';
import type { PreparedRead, Reads } from '../reads/reads.js';
import { compileInSession } from '../reads/session-reads.js';
import type { RequestClient } from '../stages.js';
import { StatementCache, type StatementCacheLimits } from '../statement-cache.js';
import { seenBy, type Writer, type WrittenBy } from '../writer.js';
import { type FlatPayload, flatPayload, KnownWrites, withPayload } from './known-writes.js';
import type { PipelinedWrite } from './transaction.js';
import type { WriteExecutor } from './write-executor.js';

/** The services that writes need. */
export interface WriteServices {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  /** The callers as the database learns them, or null with DATABASE_CALLER=service. */
  readonly callers: DatabaseCaller | null;
  readonly consistency: Consistency | null;
  /** The batches of writes, or null if each write is a statement of its own. */
  readonly batcher: WriteExecutor | null;
  /** The hooks of users, or null if there are none. */
  readonly userHooks: UserHooks | null;
  /** All hooks, in their order: the hooks of users come first. */
  readonly hooks: readonly WriteHook[];
}

export interface WriteLimits extends StatementCacheLimits {
  readonly maxRows: number | null;
  readonly parse: ParseLimits;
  /** As PostgreSQL reads an interval. */
  readonly idempotencyLifetime: string;
}

/** The values that the stages of one write share. */
export interface WriteCall extends CallValues {
  readonly writer: Writer;
  readonly client: RequestClient;
  /** The payload, if its statement may be known. */
  readonly payload?: FlatPayload | null;
  /** Counts from 1. */
  readonly attempt?: number;
}

/** An item that a write selects by a query. */
export interface SelectedItem {
  readonly key: Key;
  /** The row part of its entity tag, or null if the row is locked or has none. */
  readonly tag: string | null;
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

export class WriteCompiler implements WriteHost<WriteCall, CompiledRead> {
  readonly #callers: DatabaseCaller | null;
  readonly #reads: Reads;
  readonly #policies: Policies;
  readonly #mirror: Mirror;
  readonly #statements: StatementCache<CompiledWrite>;
  /** Shapes of one row that need the chain nevertheless. */
  readonly #chained: LRUCache<string, true>;
  readonly #known: KnownWrites<FlatShape>;
  readonly idempotencyLifetime: string;

  constructor(
    { reads, mirror, policies, callers }: WriteServices,
    private readonly limits: WriteLimits,
    observe: Observer,
  ) {
    this.#reads = reads;
    this.#callers = callers;
    this.#policies = policies;
    this.#mirror = mirror;
    this.#statements = new StatementCache(mirror, limits, observe);
    this.#chained = new LRUCache({ max: limits.shapes });
    this.#known = new KnownWrites(limits.shapes);
    this.idempotencyLifetime = limits.idempotencyLifetime;
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
    const bound = chainedWrite(planned, call, option, this);
    if (!bound) return null;
    const { compiled, parameters } = bound;
    const { text } = compiled.statement;
    const prepare = this.#statements.isReused(compiled);
    call.client.statement(text);
    return { text, parameters, prepare, columns: null };
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
    const { text, parameters } = this.compiled('deferred log', model, writer, compile).statement;
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
    const { planned, row: values } = withPayload(known, call.payload, call.writer);
    const { compiled, isAnswered } = known.compiled;
    const row = { node: known.node, row: values };
    const parameters = flatParameters(planned, { row, compiled, isAnswered }, call, this);
    return this.#flatCall(planned, row, { compiled, parameters }, call);
  }

  /** The write and its answer as one statement, or null if the write is not flat. */
  compileFlat(planned: PlannedWrite, call: WriteCall): FlatCall | null {
    const flat = flatWrite(planned, call, this);
    if (!flat) return null;
    const { row, rows } = flat;
    if (!row) return { planned, ...this.#sentFlat(flat, call), key: null, isRepeatable: false, rows };
    const { payload } = call;
    // Permissions may have changed since the write was planned.
    if (payload && payload.permissions === (this.accessOf(call)?.key ?? '') && planned.model === this.#mirror.model)
      this.#known.learn(payload, planned, { compiled: flat.compiled, isAnswered: flat.isAnswered });
    return this.#flatCall(planned, row, flat, call);
  }

  #flatCall(planned: PlannedWrite, { node }: FlatRow, bound: BoundWrite, call: WriteCall): FlatCall {
    const key = node.verb === 'insert' ? null : JSON.stringify(planned.keys);
    const isRepeatable = node.columns.every(({ operators }) => operators.length === 0);
    return { planned, ...this.#sentFlat(bound, call), key, isRepeatable, rows: 1 };
  }

  #sentFlat({ compiled, parameters }: BoundWrite, { client }: WriteCall): Pick<FlatCall, 'statement' | 'batchText'> {
    const { text } = compiled.statement;
    const prepare = this.#statements.isReused(compiled);
    client.statement(text);
    const statement = { text, parameters, prepare, columns: 1, showsWrite: true } as const;
    return { statement, batchText: compiled.batchText };
  }

  accessOf({ writer }: WriteCall): Access | null {
    return this.#policies.accessOf(writer.caller);
  }

  isChained(shape: string): boolean {
    return this.#chained.has(shape);
  }

  compiledFlat(shape: string, model: Model, writer: Writer, compile: () => FlatStatement | null): CompiledWrite | null {
    if (this.#chained.has(shape)) return null;
    const known = model === this.#mirror.model ? this.#statements.find(shape) : undefined;
    if (known) return known;
    const flat = compile();
    if (flat) return this.compiled(shape, model, writer, () => flat);
    this.#chained.set(shape, true);
    return null;
  }

  readBackOf(query: Parsed, { writer, client }: WriteCall): CompiledRead | null {
    return this.#reads.prepareReadBack(query, writer, client);
  }

  /** Reads the items by the keys that the write stores. Returns null if the caller may not read them. */
  prepareReadBack(planned: PlannedWrite, call: WriteCall): ReadBack | null {
    const written = readOfWritten(planned, call, this);
    if (!written) return null;
    const { query, compiled, statement } = written;
    const { writer, client } = call;
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

  compileDelete(deleted: Deletion, context: WritePlanContext, call: WriteCall): Statement {
    return deletion(deleted, context, call, this);
  }

  /** The deletion of one item by its key, or null if it needs the statement for many, or a transaction. */
  compileFlatDelete(
    selected: { collection: Collection; rule: Condition | null; selected: Selected },
    context: WritePlanContext,
    call: WriteCall,
  ): FlatCall | null {
    const bound = flatDeletion(selected, context, call, this);
    if (!bound) return null;
    return { planned: null, ...this.#sentFlat(bound, call), key: String(bound.key), isRepeatable: true, rows: 1 };
  }

  compileSort(collection: Collection, field: Field, model: Model, writer: Writer): Statement {
    const compile = (): Statement => compileSort(collection, field);
    return this.compiled(`sort ${collection.name}`, model, writer, compile).statement;
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
    const isUneven = !this.#reads.executor.hasOnePlan(compiled);
    if (isUneven) await session.setPlanMode('force_custom_plan');
    const read = { query, compiled, caller, inDatabase: seenBy(writer), origin: client };
    const cell = await this.#reads.affordableCellIn(session, read);
    if (isUneven) await session.setPlanMode('force_generic_plan');
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

  compiled(shape: string, model: Model, writer: Writer, compile: () => Statement | FlatStatement): CompiledWrite {
    const { budgets } = this.#reads;
    const steps = (): Steps<CompiledWrite> =>
      oneStep(() => budgets.run(billWriter(writer), () => checkedWrite(compile(), model)));
    return runSteps(this.#statements.get(shape, model, steps));
  }
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
