/**
 * Runs reads. A shape is planned, compiled and checked with PostgreSQL's grammar once; from then on a request of that shape
 * only binds its values. Statements belong to the model they were compiled for.
 */
import { LRUCache } from 'lru-cache';
import { invalidQuery, ServiceError } from '../../../base/errors.js';
import { parseOwnJson } from '../../../base/narrow.js';
import type { Observer } from '../../../base/observe.js';
import { fromDatabase } from '../../../base/sqlstate.js';
import { runSteps, type Steps } from '../../../base/time-slices.js';
import type { Collection } from '../../../compiler/model/model.js';
import type { Access } from '../../../compiler/plan/access.js';
import type { PlanLimits } from '../../../compiler/plan/read.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import { bind } from '../../../compiler/sql/parameter.js';
import type { ReadQuery, SelectionPurpose } from '../../../compiler/statements/read.js';
import type { CallerSettings, DatabaseCaller } from '../../access/database-caller.js';
import type { Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import type { PlanKind, ShapeStats } from '../../batching/shape-stats.js';
import type { Mirror } from '../../postgres/catalog/watch.js';
import type { ExplainedPlan } from '../../postgres/generic-plan.js';
import type { Database } from '../../postgres/pools/database.js';
import { streamRows } from '../../postgres/pools/row-stream.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { ResponseMemory } from '../../postgres/wire/response-memory.js';
import type { BoundStatement } from '../../postgres/wire/wire-query.js';
import { type BilledCaller, billWriter, type CallerBudgets } from '../caller-budget.js';
import { readScope, settingsFor } from '../caller-scope.js';
import { type Consistency, type ConsistencyLevel, consistencyOf, type ReadNeed, readPosition } from '../consistency.js';
import { refusedRead } from '../distributed.js';
import type { ReadHooks } from '../hooks/read-hooks.js';
import { retry } from '../retry.js';
import { NO_CLIENT, type RequestClient, type RequestOrigin } from '../stages.js';
import { StatementCache, type StatementCacheLimits } from '../statement-cache.js';
import type { Writer } from '../writer.js';
import { type CompiledRead, compileShape, hasOpening, isStream } from './compiled-read.js';
import { DatabaseRefusals } from './database-refusals.js';
import {
  type BoundRead,
  NO_ADDRESS,
  planKindOf,
  type ReadExecutor,
  type ReadListener,
  type Shape,
} from './read-executor.js';
import { PromiseListener, RecoveringListener } from './read-listeners.js';
import { refusedInQuery, sentOrNamed } from './refused-values.js';

/** A parsed read with the statement of its shape: only its values remain to be bound. */
export interface PreparedRead<Query extends ReadQuery = ReadQuery> {
  readonly query: Query;
  readonly compiled: CompiledRead;
  readonly caller: Identity;
  /** The position that a replica needs to serve the read. Without one the primary serves it. */
  readonly need?: ReadNeed | null;
  /** The caller as the database knows it, if the permissions of another one apply. */
  readonly inDatabase?: Identity;
  /** The request that it belongs to, for the settings of the caller. */
  readonly origin?: RequestOrigin;
  /** The request may be answered from memory: the client, whose address distinguishes callers without an account. */
  readonly fromMemory?: { readonly address: string } | null;
  /** The write that the items are selected for. */
  readonly selectedFor?: SelectionPurpose | null;
  /** Whether the listener wants the links of the result. */
  readonly links?: boolean;
}

type MaybePrepared<Query extends ReadQuery> = PreparedRead<Query> | Promise<PreparedRead<Query>>;

interface ReadLimits extends PlanLimits, StatementCacheLimits {
  /** The planner's estimate; null for no limit. */
  readonly cost: number | null;
  /** Milliseconds a batch of a stream may take; 0 for no limit. */
  readonly batchTimeout: number;
  readonly raisedStatuses: boolean;
}

export interface Explanation {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
  /** How the read itself is planned: the plan below is made for its values. */
  readonly plan_kind: PlanKind;
  /** Whether the answer is kept in memory, and if not, why. Absent if no reads are served from memory. */
  readonly cache?: { readonly kept: boolean; readonly reason: string | null };
  readonly plan: readonly [ExplainedPlan] | undefined;
}

/** Facts about a plan that a feature adds to explanations. */
export type PlanFacts = (plan: CompiledRead['plan']) => Readonly<Record<string, unknown>>;

export interface ChosenShape {
  readonly shape: Shape;
  readonly values: readonly (string | null)[];
}

interface CompileOptions {
  /** The write that the items are selected for. */
  readonly selectedFor?: SelectionPurpose | null;
  /** The caller whose budget pays for a new shape, or null if none pays. */
  readonly billed?: BilledCaller | null;
  readonly client?: RequestClient;
}

interface ReadServices {
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  /** The callers as the database learns them, or null with DATABASE_CALLER=service. */
  readonly callers: DatabaseCaller | null;
  readonly consistency: Consistency | null;
  readonly executor: ReadExecutor;
  readonly budgets: CallerBudgets;
  readonly shapeStats: ShapeStats;
  /** Hooks that add conditions, or null if there are none. */
  readonly readHooks: ReadHooks | null;
  readonly planFacts: readonly PlanFacts[];
}

export class Reads {
  readonly #statements: StatementCache<CompiledRead>;
  /** The times of the statements of each shape, including writes. */
  readonly shapeStats: ShapeStats;
  readonly refusals: DatabaseRefusals;
  readonly budgets: CallerBudgets;
  readonly executor: ReadExecutor;
  /** Statements whose cost is acceptable, for all values or for the values listed below. */
  readonly #affordable = new WeakSet<CompiledRead>();
  readonly #affordableValues = new WeakMap<CompiledRead, LRUCache<string, true>>();

  constructor(
    private readonly services: ReadServices,
    private readonly limits: ReadLimits,
    observe: Observer,
  ) {
    const { mirror } = services;
    this.executor = services.executor;
    this.shapeStats = services.shapeStats;
    this.#statements = new StatementCache(mirror, limits, observe);
    this.refusals = new DatabaseRefusals(observe, limits.raisedStatuses);
    this.budgets = services.budgets;
  }

  /** The hooks of reads, or null if no hook adds conditions. */
  get #hooks(): ReadHooks | null {
    const { readHooks } = this.services;
    return readHooks?.exist ? readHooks : null;
  }

  get hasReadHooks(): boolean {
    return this.#hooks !== null;
  }

  /** The caller with the conditions that hooks add to this read. */
  async conditioned(query: ReadQuery, caller: Identity, client: RequestOrigin): Promise<Identity> {
    const hooks = this.#hooks;
    if (hooks === null) return caller;
    const plain = caller.conditions?.caller ?? caller;
    const compile = (): CompiledRead | Promise<CompiledRead> => this.#prepare(query, plain, NO_CLIENT);
    return hooks.conditioned(plain, collectionsOf(query), client, compile);
  }

  /** The caller with the conditions for all reads that belong to a write of the collection, or of any if it is null. */
  async conditionedFor(collection: string | null, caller: Identity, client: RequestOrigin): Promise<Identity> {
    return this.#hooks?.conditionedFor(caller, collection, client) ?? caller;
  }

  /** Grows whenever there may be other hooks that add conditions. */
  get hookRevision(): number {
    return this.services.readHooks?.revision ?? 0;
  }

  /** Whether a hook adds conditions to reads of the collection. */
  isConditional(collection: Collection): boolean {
    return this.services.readHooks?.concern(collection) ?? false;
  }

  /** The read with its statement, and where its result may come from. */
  prepared<Query extends ReadQuery>(query: Query, caller: Identity, client: RequestClient): MaybePrepared<Query> {
    const preferred = client.prefer === '' ? null : consistencyOf(client.prefer);
    if (preferred) client.applied(`consistency=${preferred}`);
    const need = this.services.consistency?.needOf(client, caller, preferred ?? 'session') ?? null;
    const found = (reader: Identity, known: ReadNeed | null, compiled: CompiledRead): PreparedRead<Query> => {
      const fromMemory = this.#mayReadMemory(client, reader, preferred) ? client : null;
      return { query, compiled, caller: reader, need: known, origin: client, fromMemory };
    };
    if (need instanceof Promise || this.hasReadHooks)
      return this.#preparedLater(found, need, { query, caller, client });
    const compiled = this.prepare(query, caller, client);
    return compiled instanceof Promise
      ? compiled.then((done) => found(caller, need, done))
      : found(caller, need, compiled);
  }

  /** Extensions may add conditions to the read, or another server be searched for. */
  async #preparedLater<Prepared>(
    found: (reader: Identity, need: ReadNeed | null, compiled: CompiledRead) => Prepared,
    need: ReadNeed | null | Promise<ReadNeed | null>,
    { query, caller, client }: { readonly query: ReadQuery; readonly caller: Identity; readonly client: RequestClient },
  ): Promise<Prepared> {
    const known = await need;
    const reader = await this.conditioned(query, caller, client);
    return found(reader, known, await this.prepare(query, reader, client));
  }

  /** Whether a result in memory is recent enough for the request. Conditions of extensions may change at any time. */
  #mayReadMemory(client: RequestClient, caller: Identity, preferred: ConsistencyLevel | null): boolean {
    const { memory } = this.executor;
    if (memory === null || caller.conditions) return false;
    const seen = readPosition(client.position);
    return preferred !== 'strong' && !client.noCache && memory.serves(caller, client, seen);
  }

  /** Memory for large answers. */
  get responseMemory(): ResponseMemory {
    return this.services.database.responseMemory;
  }

  /** How many shapes are compiled and kept. */
  get shapes(): number {
    return this.#statements.size;
  }

  /** Compiles a new shape within the budget of the caller; a large one waits for its turn. */
  prepare(query: ReadQuery, caller: Identity, client: RequestClient): CompiledRead | Promise<CompiledRead> {
    const compiled = this.#prepare(query, caller, client);
    const hooks = this.#hooks;
    if (hooks === null) return compiled;
    return compiled instanceof Promise
      ? compiled.then((done) => hooks.check(done, caller))
      : hooks.check(compiled, caller);
  }

  #prepare(query: ReadQuery, caller: Identity, client: RequestClient): CompiledRead | Promise<CompiledRead> {
    const access = this.services.policies.accessOf(caller);
    const cached = this.#statements.find(shapeOf(query, access, null));
    if (cached) return cached;
    // The caller's permissions, and with them the cached shapes, may have changed by then.
    return this.budgets.inTurn({ caller, from: client }, query.shape.length, () =>
      this.#compile(query, caller, null, client),
    );
  }

  /** A statement depends on the request's shape and on the caller's permissions, not on the caller. */
  compile(
    query: ReadQuery,
    caller: Identity,
    { selectedFor = null, billed = null, client = NO_CLIENT }: CompileOptions = {},
  ): CompiledRead {
    const cached = this.#statements.find(shapeOf(query, this.services.policies.accessOf(caller), selectedFor));
    const compiled =
      cached ?? this.budgets.run(billed, () => runSteps(this.#compile(query, caller, selectedFor, client)));
    return this.#hooks?.check(compiled, caller) ?? compiled;
  }

  *#compile(
    query: ReadQuery,
    caller: Identity,
    selectedFor: SelectionPurpose | null,
    client: RequestClient,
  ): Steps<CompiledRead> {
    const access = this.services.policies.accessOf(caller);
    const { model } = this.services.mirror;
    return yield* this.#statements.get(shapeOf(query, access, selectedFor), model, () =>
      compileShape(query, { access, selectedFor, model, limits: this.limits, client }),
    );
  }

  /** The read-back of a write, or null if the caller may not read the items. */
  prepareReadBack(query: Parsed, writer: Writer, client: RequestClient): CompiledRead | null {
    const { caller } = writer;
    try {
      return this.compile(query, caller, { billed: billWriter(writer), client });
    } catch (error) {
      const hidden = error instanceof ServiceError && error.code === 'FORBIDDEN' && !caller.administrator;
      if (hidden) return null;
      throw error;
    }
  }

  /** The body of the response; null when there is no such item. */
  run(read: PreparedRead, client: { readonly aborted: boolean }): Promise<Buffer | null> {
    return this.#retry(read, (current) => this.#run(current, client));
  }

  /** The bodies of several reads in one snapshot, and that snapshot. */
  runTogether(read: PreparedRead, others: readonly PreparedRead[]): Promise<SnapshotResults> {
    return this.#retry(read, (current) =>
      readInOneSnapshot(
        this.services.database,
        [current, ...others].map((each) => ({ statement: this.bind(each), settings: this.settingsOf(each) })),
      ),
    );
  }

  /** As `run`, but a listener takes the body as it arrives: a warm read needs no promise. The result may come from memory. */
  answer(read: PreparedRead, listener: ReadListener): void {
    if (this.limits.cost === null || this.#affordable.has(read.compiled)) {
      const recovering = new RecoveringListener(listener, (error) => this.#recover(error, read, listener));
      this.#send(read, recovering, read.fromMemory ?? null);
    } else this.#settle(this.run(read, listener), listener);
  }

  #run(read: PreparedRead, client: { readonly aborted: boolean }): Promise<Buffer | null> {
    return new Promise((resolve, reject) => {
      this.#send(read, new PromiseListener(client, read.caller.user ?? '', resolve, reject), null);
    });
  }

  #send(read: PreparedRead, listener: ReadListener, from: BoundRead['from']): void {
    const { query, compiled, caller, need = null } = read;
    const settings = this.settingsOf(read);
    const parameters = bind(compiled.statement.parameters, query.values, caller);
    const prepare = this.#statements.isReused(compiled);
    const { values } = query;
    const { links = false } = read;
    this.executor.execute(
      { compiled, shape: compiled, caller, values, parameters, prepare, settings, need, from, links },
      listener,
    );
  }

  /** The settings that the transaction of the read begins with, or null if it needs none. */
  settingsOf({ compiled, caller, inDatabase = caller, origin = NO_CLIENT }: PreparedRead): CallerSettings | null {
    const { callers } = this.services;
    return callers === null ? null : settingsFor(callers, () => readScope(compiled), inDatabase, origin);
  }

  /** After a failure that may lie in a schema which changed. */
  #recover(failure: unknown, read: PreparedRead, listener: ReadListener): void {
    const body = this.#retry(read, (current, attempt) =>
      attempt === 1 ? Promise.reject(failure) : this.#run(current, listener),
    );
    this.#settle(body, listener);
  }

  #settle(body: Promise<Buffer | null>, listener: ReadListener): void {
    body.then((cell) => listener.onResult(cell, 1)).catch((error: unknown) => listener.onError(error));
  }

  /** The statement with its values, for a session that reads inside its transaction. */
  bind({ query, compiled, caller }: PreparedRead, statement = compiled.statement): BoundStatement {
    const parameters = bind(statement.parameters, query.values, caller);
    // One plan for all values may be wrong for these: without a choice between plans it is made for each.
    const prepare = this.#statements.isReused(compiled) && this.executor.hasOnePlan(compiled);
    return { text: statement.text, parameters, prepare };
  }

  /** The cell of a read inside the transaction of a write: with the settings of the caller, or as the service if it reads its tables. */
  cellIn(session: Session, read: PreparedRead, statement = read.compiled.statement): Promise<Buffer | null> {
    return this.#inSession(session, read, () => cellOf(this.bind(read, statement), session));
  }

  /** As `cellIn`, but refuses a read whose estimated cost is above MAX_QUERY_COST. */
  async affordableCellIn(session: Session, read: PreparedRead): Promise<Buffer | null> {
    const { cost } = this.limits;
    if (cost !== null && !this.#affordable.has(read.compiled))
      await this.#checkCost(read, cost, () => this.#inSession(session, read, () => this.#planIn(session, read)));
    return this.cellIn(session, read);
  }

  /** Uses the connection of the transaction: waiting for a second one while holding this one could exhaust the pool. */
  async #planIn(session: Session, read: PreparedRead): Promise<Explanation['plan']> {
    const { text, parameters } = this.bind(read);
    return parseOwnJson(String(await session.cell(`explain (format json) ${text}`, parameters, false)));
  }

  async #inSession<Result>(session: Session, read: PreparedRead, run: () => Promise<Result>): Promise<Result> {
    if (this.services.callers === null) return run();
    if (readScope(read.compiled) === 'system') return session.asService(run);
    const settings = this.settingsOf(read);
    return settings === null ? run() : session.asCaller(settings, run);
  }

  /**
   * Hands the items to `take`, batch by batch, with the statement they came from; answers that statement. With a separator, a
   * byte, several items may come as one cell, joined by it.
   */
  async stream(
    read: PreparedRead<Parsed>,
    onBatch: (cells: readonly Buffer[], compiled: CompiledRead) => Promise<boolean>,
    reader: { readonly address: string; onAbort(listener: () => void): void },
    separator: number | null = null,
  ): Promise<CompiledRead> {
    let isSent = false;
    const sendTo = async (database: Database, current: PreparedRead): Promise<CompiledRead> => {
      const { compiled, caller } = current;
      const bound = this.bind(current);
      await streamRows(database, {
        ...bound,
        settings: this.settingsOf(current),
        done: (ms, rows, failed) =>
          this.shapeStats
            .of(bound.text, bound.prepare ? 'generic' : 'custom', bound.parameters.length)
            .addSingle(ms, rows, failed),
        batchTimeout: this.limits.batchTimeout,
        joined: separator === null ? null : { separator, apart: hasOpening(compiled) ? 1 : 0 },
        take: (cells) => {
          isSent = true;
          return onBatch(cells, compiled);
        },
        reader: caller.user ?? reader.address,
        onAbort: (listener) => reader.onAbort(listener),
      });
      return compiled;
    };
    const mayRepeat = (): boolean => !isSent;
    const send = (current: PreparedRead): Promise<CompiledRead> =>
      this.executor.stream(
        { compiled: current.compiled, need: current.need ?? null },
        (database) => sendTo(database, current),
        mayRepeat,
      );
    // An answer that has begun cannot be repeated.
    return this.#retry(read, send, mayRepeat);
  }

  /** The shape that a read is sent with once its shape is known well, and its values. */
  async chosenShape({ query, compiled, caller }: PreparedRead): Promise<ChosenShape> {
    const values = bind(compiled.statement.parameters, query.values, caller);
    if (isStream(compiled)) return { shape: { ...compiled, isUnprepared: true }, values };
    return { shape: await this.executor.settledShapeOf(compiled, values, { caller, from: NO_ADDRESS }), values };
  }

  /** The statement and PostgreSQL's plan for it. With `analyze` the statement is executed. */
  explain(read: PreparedRead, analyze: boolean): Promise<Explanation> {
    return this.#retry(read, (current) => this.#explain(current, analyze));
  }

  async #explain(read: PreparedRead, analyze: boolean): Promise<Explanation> {
    const { query, compiled, caller } = read;
    const bound = bind(compiled.statement.parameters, query.values, caller);
    const shape = this.executor.shapeOf(compiled, bound, null);
    const { text } = shape.statement;
    const explain = analyze ? 'explain (format json, analyze, buffers) ' : 'explain (format json) ';
    const [row] = await this.services.database.rowsAs<{ 'QUERY PLAN': Explanation['plan'] }>(this.settingsOf(read), {
      text: explain + text,
      parameters: bound,
    });
    const { memory } = this.executor;
    const reason = memory === null ? null : (conditional(caller) ?? memory.reason(compiled));
    const kept = memory === null ? {} : { cache: { kept: reason === null, reason } };
    const facts = Object.assign(kept, ...this.services.planFacts.map((factsOf) => factsOf(compiled.plan)));
    return { sql: text, parameters: bound, plan_kind: planKindOf(shape), ...facts, plan: row?.['QUERY PLAN'] };
  }

  #retry<Result>(
    read: PreparedRead,
    send: (read: PreparedRead, attempt: number) => Promise<Result>,
    mayRepeat: () => boolean = () => true,
  ): Promise<Result> {
    const { query, caller } = read;
    let current = read;
    return retry(
      this.services.mirror,
      async (_, attempt) => {
        if (attempt > 1)
          current = {
            ...read,
            need: null,
            compiled: this.compile(query, caller, { selectedFor: read.selectedFor ?? null }),
          };
        const { cost } = this.limits;
        if (cost !== null && !this.#affordable.has(current.compiled))
          await this.#checkCost(current, cost, async () => (await this.#explain(current, false)).plan);
        return send(current, attempt);
      },
      {
        asError: (error) => {
          const { parameters } = current.compiled.statement;
          const { model } = this.services.mirror;
          const visible = this.services.policies.accessOf(caller)?.view(model) ?? model;
          const refused = refusedRead(error, collectionsOf(query), visible);
          const mapped =
            refused ??
            fromDatabase(sentOrNamed(error, parameters), useOf(current.compiled), (failure) =>
              refusedInQuery(failure, parameters, query.values),
            );
          return this.refusals.to(caller, mapped);
        },
        version: () => current.compiled.model.version,
        mayRepeat,
        afterTermination: true,
        recovers: (error) => this.services.database.recovers(error),
      },
    );
  }

  /** By the plan for the values of the request: what one of them costs says nothing of the others. */
  async #checkCost(read: PreparedRead, limit: number, explain: () => Promise<Explanation['plan']>): Promise<void> {
    const { compiled, query, caller } = read;
    const settings = this.settingsOf(read);
    // The policies of row-level security are part of the plan, and may be others for another caller.
    const isOneForAll = this.executor.hasOnePlan(compiled) && settings === null;
    const cached = this.#affordableValues.get(compiled) ?? new LRUCache<string, true>({ max: MAX_AFFORDABLE_VALUES });
    const bound = bind(compiled.statement.parameters, query.values, caller);
    const values = JSON.stringify([settings?.digest, ...bound]);
    if (!isOneForAll && cached.has(values)) return;
    const plan = await explain();
    const cost = plan?.[0].Plan['Total Cost'] ?? 0;
    if (cost > limit) {
      // The estimate counts all rows, also those that a rule hides.
      const figure = caller.administrator ? `${Math.round(cost)}, ` : '';
      const exceeded = { option: 'MAX_QUERY_COST', limit };
      throw invalidQuery(`The estimated cost of the query is ${figure}above the limit of ${limit}`, exceeded);
    }
    if (isOneForAll) this.#affordable.add(compiled);
    else this.#affordableValues.set(compiled, cached.set(values, true));
  }
}

/** For one shape. */
const MAX_AFFORDABLE_VALUES = 1_000;

function shapeOf({ shape }: ReadQuery, access: Access | null, selectedFor: SelectionPurpose | null): string {
  return access || selectedFor ? `${access?.key ?? ''} ${selectedFor ?? ''}${shape}` : shape;
}

function collectionsOf({ request }: ReadQuery): string[] {
  if (request.kind === 'read') return [request.collection];
  return request.parts.flatMap((part) => (part.kind === 'read' ? [part.request.collection] : []));
}

/** A value that does not fit its type is 403 if it is the key, and 400 otherwise. With several values, the wrong one is unknown, so it is 400. */
function useOf({ result, statement }: CompiledRead): 'key' | 'query' {
  return result === 'item' && statement.parameters.length === 1 ? 'key' : 'query';
}

/** Results that were read in one database snapshot. */
interface SnapshotResults {
  readonly bodies: readonly (Buffer | null)[];
  /** In the text format of `pg_current_snapshot()`. */
  readonly snapshot: string;
}

function readInOneSnapshot(
  database: Database,
  reads: readonly { readonly statement: BoundStatement; readonly settings: CallerSettings | null }[],
): Promise<SnapshotResults> {
  return database.transaction(async (session) => {
    const snapshot = String(await session.cell('select pg_current_snapshot()::text', []));
    const bodies: (Buffer | null)[] = [];
    for (const { statement, settings } of reads) {
      await session.become(settings);
      bodies.push(await cellOf(statement, session));
    }
    return { bodies, snapshot };
  }, 'begin isolation level repeatable read, read only');
}

/** The only cell of the statement's result, or null if it has no row. */
export function cellOf({ text, parameters, prepare }: BoundStatement, session: Session): Promise<Buffer | null> {
  return session.cell(text, parameters, prepare);
}

/** Why no answer of the caller is kept in memory, as far as extensions add conditions to the read. */
function conditional({ conditions }: Identity): string | null {
  const [first] = conditions?.filters.keys() ?? [];
  return first === undefined ? null : `an extension may add conditions to reads of "${first}" (beforeRead)`;
}
