/**
 * Runs reads. A shape is planned, compiled and checked with PostgreSQL's grammar once; from then on a request of that shape
 * only binds its values. Statements belong to the model they were compiled for.
 */
import { LRUCache } from 'lru-cache';
import type { Identity } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import { ReadBatcher } from '../batching/read-batcher.js';
import { PromiseListener, RecoveringListener } from '../batching/read-listeners.js';
import type { ReadListener } from '../batching/shape-queue.js';
import { compileBatchRead, compileRead, compileReadBack } from '../compile/read.js';
import { forbiddenCollection, invalidQuery, ServiceError, serviceUnavailable } from '../errors.js';
import { holdsTable, type Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import type { Observer } from '../observe.js';
import type { Access, WriteAction } from '../plan/access.js';
import { columnsOf } from '../plan/columns.js';
import { anyRule } from '../plan/guard.js';
import { planOperation } from '../plan/operation.js';
import type { Condition, OperationPlan, ReadPlan } from '../plan/plan.js';
import { type PlanLimits, planRead } from '../plan/read.js';
import { isConflict, isTermination, pause } from '../postgres/conflicts.js';
import type { Database } from '../postgres/database.js';
import type { ResponseMemory } from '../postgres/response-memory.js';
import { streamRows } from '../postgres/row-stream.js';
import type { OperationRequest, Parsed, ParsedOperation, ReadRequest } from '../request/ast.js';
import { bind } from '../sql/parameter.js';
import type { Statement } from '../sql/statement.js';
import { verify } from '../sql/verify.js';
import { fromDatabase, staleness } from '../sqlstate.js';
import { type BilledCaller, billWriter, type CallerBudgetLimits, CallerBudgets } from './caller-budget.js';
import { DatabaseRefusals } from './database-refusals.js';
import { ATTEMPTS } from './retry.js';
import { memoryOf } from './statement-cache.js';
import type { Writer } from './write-context.js';

/** Items are selected to be written: of those that may be read, or of all. The latter only for questions of the service itself. */
export type Purpose = WriteAction | `any ${WriteAction}`;

export interface Compiled {
  readonly statement: Statement;
  readonly result: ReadPlan['result'] | 'operation';
  readonly stream: boolean;
  /** Of a stream: whether its first row is what stands before the items. */
  readonly opening: boolean;
  /** Of an export: the columns of a flat file. */
  readonly columns: readonly (readonly string[])[];
  /** Of the model it was compiled for. */
  readonly version: number;
  /** The write that the items are selected for. */
  readonly selectedFor: Purpose | null;
  /** The text that reads for many requests at once. */
  readonly batchText: () => string;
  /** The statement that reads the items which the write before it has made. */
  readonly readBack: () => Statement;
}

type Asked = Parsed | ParsedOperation;

export interface ReadLimits extends PlanLimits {
  readonly shapes: number;
  /** Bytes that compiled shapes may take. */
  readonly shapeMemory: number;
  readonly callerBudget: CallerBudgetLimits;
  /** The planner's estimate; null for no limit. */
  readonly cost: number | null;
  /** Milliseconds a batch of a stream may take; 0 for no limit. */
  readonly batchTimeout: number;
  /** Whether reads of one shape may travel together. */
  readonly batching: boolean;
}

export interface Explanation {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
  readonly plan: unknown;
}

export class Reads {
  readonly #database: Database;
  readonly #mirror: Mirror;
  readonly #policies: Policies;
  readonly #limits: ReadLimits;
  readonly #observe: Observer;
  readonly #shapes: LRUCache<string, Compiled>;
  readonly batcher: ReadBatcher;
  readonly refusals: DatabaseRefusals;
  readonly budgets: CallerBudgets;
  /** Statements that were used before: from then on they are prepared. On the connections of streams a prepared statement is
   * never dropped, on the others it takes the place of another: shapes that come once must not become one. */
  readonly #used = new WeakSet<Compiled>();
  /** Statements whose cost was found acceptable. */
  readonly #affordable = new WeakSet<Compiled>();

  constructor(database: Database, mirror: Mirror, policies: Policies, limits: ReadLimits, observe: Observer) {
    this.#database = database;
    this.#mirror = mirror;
    this.#policies = policies;
    this.#limits = limits;
    this.#observe = observe;
    this.refusals = new DatabaseRefusals(observe);
    this.#shapes = new LRUCache({
      max: limits.shapes,
      maxSize: limits.shapeMemory,
      sizeCalculation: ({ statement }, shape) => memoryOf(statement, shape),
    });
    this.budgets = new CallerBudgets(limits.callerBudget);
    this.batcher = new ReadBatcher(database.wires, limits.batching, database.waitTimeout);
    database.readQueue = this.batcher;
    mirror.onChange(() => this.#shapes.clear());
  }

  /** Memory for large answers. */
  get responseMemory(): ResponseMemory {
    return this.#database.room;
  }

  /** How many shapes are compiled and kept. */
  get shapes(): number {
    return this.#shapes.size;
  }

  /** What is new is compiled at the cost of the caller; where that is large, in its turn. */
  prepare(parsed: Asked, caller: Identity, from: BilledCaller['from']): Compiled | Promise<Compiled> {
    const access = this.#policies.accessOf(caller);
    const known = this.#shapes.get(shapeOf(parsed, access, null));
    if (known) return known;
    // The caller's rights, and with them what is known, may be others when the turn has come.
    return this.budgets.inTurn({ caller, from }, parsed.shape.length, () => this.compile(parsed, caller));
  }

  /** A statement depends on the request's shape and on what the caller may see, not on who the caller is. */
  compile(
    parsed: Asked,
    caller: Identity,
    selectedFor: Purpose | null = null,
    payer: BilledCaller | null = null,
  ): Compiled {
    const access = this.#policies.accessOf(caller);
    const shape = shapeOf(parsed, access, selectedFor);
    const known = this.#shapes.get(shape);
    if (known) return known;
    return this.budgets.run(payer, () => this.#compile(parsed, access, shape, selectedFor));
  }

  /** What is shown of a write; null where the caller may not see it. */
  compileVisible(parsed: Parsed, writer: Writer): Compiled | null {
    const { caller } = writer;
    try {
      return this.compile(parsed, caller, null, billWriter(writer));
    } catch (error) {
      const hidden = error instanceof ServiceError && error.code === 'FORBIDDEN' && !caller.administrator;
      if (hidden) return null;
      throw error;
    }
  }

  #compile(parsed: Asked, access: Access | null, shape: string, selectedFor: Purpose | null): Compiled {
    const start = performance.now();
    const { model } = this.#mirror;
    const { request } = parsed;
    const view = access && !selectedFor?.startsWith('any ') ? access.view(model) : model;
    const plan =
      request.kind === 'operation'
        ? planOperation(request, view, this.#limits)
        : planRead(request, view, this.#limits, access && touched(access, selectedFor, request, model));
    const statement = compileRead(plan);
    const check = (text: string): string => {
      verify(text, 'read', (schema, name) => holdsTable(model, schema, name));
      return text;
    };
    check(statement.text);
    const batchText = once(() => check(compileBatchRead(plan).text));
    const readBack = once(() => {
      if (plan.kind === 'operation') throw new Error('an operation reads, and writes nothing to be read back');
      const made = compileReadBack(plan);
      check(made.text);
      return made;
    });
    const { version } = model;
    const described = describeResult(parsed.request, plan);
    const compiled: Compiled = { statement, ...described, batchText, readBack, version, selectedFor };
    this.#shapes.set(shape, compiled);
    this.#observe({
      kind: 'shape-compiled',
      shape,
      text: statement.text,
      milliseconds: performance.now() - start,
    });
    return compiled;
  }

  /** The body of the response; null when there is no such item. */
  run(
    parsed: Asked,
    compiled: Compiled,
    caller: Identity,
    waiter: { readonly aborted: boolean },
  ): Promise<Buffer | null> {
    return this.#attempt(parsed, compiled, (current) => this.#run(parsed, current, caller, waiter), caller);
  }

  /** The same for who takes the body as it arrives: a warm read needs no promise. */
  answer(parsed: Asked, compiled: Compiled, caller: Identity, waiter: ReadListener): void {
    if (this.#limits.cost === null || this.#affordable.has(compiled))
      this.#send(
        parsed,
        compiled,
        caller,
        new RecoveringListener(waiter, (error) => this.#recover(error, parsed, compiled, caller, waiter)),
      );
    else
      this.run(parsed, compiled, caller, waiter)
        .then((cell) => waiter.onResult(cell))
        .catch((error: unknown) => waiter.onError(error));
  }

  #run(
    parsed: Asked,
    compiled: Compiled,
    caller: Identity,
    waiter: { readonly aborted: boolean },
  ): Promise<Buffer | null> {
    return new Promise((resolve, reject) => {
      this.#send(parsed, compiled, caller, new PromiseListener(waiter, caller.user ?? '', resolve, reject));
    });
  }

  #send(parsed: Asked, compiled: Compiled, caller: Identity, waiter: ReadListener): void {
    const bound = bind(compiled.statement.parameters, parsed.values, caller);
    this.batcher.read(compiled, bound, this.isKnown(compiled), waiter);
  }

  /** After a failure that may lie in a structure which changed. */
  #recover(failure: unknown, parsed: Asked, compiled: Compiled, caller: Identity, waiter: ReadListener): void {
    const send = (current: Compiled, number: number): Promise<Buffer | null> =>
      number === 1 ? Promise.reject(failure) : this.#run(parsed, current, caller, waiter);
    this.#attempt(parsed, compiled, send, caller)
      .then((cell) => waiter.onResult(cell))
      .catch((error: unknown) => waiter.onError(error));
  }

  /** Answers whether the statement was used before, and remembers that it is now. */
  isKnown(compiled: Compiled): boolean {
    if (this.#used.has(compiled)) return true;
    this.#used.add(compiled);
    return false;
  }

  /**
   * Hands the items to `take`, batch by batch, with the statement they came from; answers that statement. With a separator, a
   * byte, several items may come as one cell, joined by it.
   */
  async stream(
    parsed: Parsed,
    compiled: Compiled,
    caller: Identity,
    take: (cells: readonly Buffer[], compiled: Compiled) => Promise<boolean>,
    reader: { readonly address: string; onAbort(listener: () => void): void },
    separator: number | null = null,
  ): Promise<Compiled> {
    let taken = false;
    return this.#attempt(
      parsed,
      compiled,
      async (current) => {
        const { text, parameters } = current.statement;
        await streamRows(this.#database, {
          text,
          parameters: bind(parameters, parsed.values, caller),
          prepare: this.isKnown(current),
          batchTimeout: this.#limits.batchTimeout,
          joined: separator === null ? null : { separator, apart: current.opening ? 1 : 0 },
          take: (cells) => {
            taken = true;
            return take(cells, current);
          },
          reader: caller.user ?? reader.address,
          onAbort: (listener) => reader.onAbort(listener),
        });
        return current;
      },
      caller,
      // What has left cannot be sent again.
      () => !taken,
    );
  }

  /** What would run, and how PostgreSQL would run it; with `analyze` it does run. */
  explain(parsed: Asked, compiled: Compiled, caller: Identity, analyze: boolean): Promise<Explanation> {
    return this.#attempt(parsed, compiled, (current) => this.#explain(parsed, current, caller, analyze), caller);
  }

  async #explain(parsed: Asked, compiled: Compiled, caller: Identity, analyze: boolean): Promise<Explanation> {
    const { text, parameters } = compiled.statement;
    const bound = bind(parameters, parsed.values, caller);
    const shown = [...bound];
    const explain = analyze ? 'explain (format json, analyze, buffers) ' : 'explain (format json) ';
    const [row] = await this.#database.rows<{ 'QUERY PLAN': unknown }>(explain + text, bound, false);
    return { sql: text, parameters: shown, plan: row?.['QUERY PLAN'] };
  }

  /**
   * A structure that changed before word of it arrived is read again, and the request is sent once more; again and again
   * where it keeps changing. A deadlock with such a change is nobody's fault either, nor is a connection that an administrator
   * has ended.
   */
  async #attempt<Result>(
    parsed: Asked,
    compiled: Compiled,
    send: (compiled: Compiled, number: number) => Promise<Result>,
    caller: Identity,
    mayRepeat: () => boolean = () => true,
  ): Promise<Result> {
    let current = compiled;
    for (let number = 1; ; number++) {
      try {
        if (this.#limits.cost !== null && !this.#affordable.has(current))
          await this.#checkCost(parsed, current, caller);
        return await send(current, number);
      } catch (error) {
        const stale = staleness(error);
        const terminated = isTermination(error);
        if (!mayRepeat() || !(stale || terminated || isConflict(error)) || (terminated && number > 1))
          throw this.refusals.to(caller, fromDatabase(error, useOf(current)));
        if (number === ATTEMPTS) throw serviceUnavailable('database', 'Its structure keeps changing');
        if (stale) await this.#mirror.refresh(stale === 'certain');
        else await pause(number);
        const { version } = this.#mirror.model;
        // A structure that did not change is not to blame; the first time a prepared statement may be.
        if (stale && version === current.version && (stale === 'possible' || number > 1))
          throw this.refusals.to(caller, fromDatabase(error, useOf(current)));
      }
      current = this.compile(parsed, caller, current.selectedFor);
    }
  }

  async #checkCost(parsed: Asked, compiled: Compiled, caller: Identity): Promise<void> {
    const { plan } = await this.#explain(parsed, compiled, caller, false);
    const cost = (plan as [{ Plan: { 'Total Cost': number } }])[0].Plan['Total Cost'];
    if (cost > (this.#limits.cost as number)) {
      const exceeded = { option: 'MAX_QUERY_COST', limit: this.#limits.cost as number };
      throw invalidQuery(`The query would cost ${Math.round(cost)}, more than ${this.#limits.cost}`, exceeded);
    }
    this.#affordable.add(compiled);
  }
}

function shapeOf({ shape }: Asked, access: Access | null, selectedFor: Purpose | null): string {
  return access ? `${access.key} ${selectedFor ?? ''}${shape}` : shape;
}

/** Of several values the key need not be the one that does not fit. */
function useOf({ result, statement }: Compiled): 'key' | 'query' {
  return result === 'item' && statement.parameters.length === 1 ? 'key' : 'query';
}

/** Most shapes never need it. */
function once<Result>(make: () => Result): () => Result {
  let made: { readonly result: Result } | null = null;
  return () => {
    made ??= { result: make() };
    return made.result;
  };
}

function describeResult(
  request: ReadRequest | OperationRequest,
  plan: ReadPlan | OperationPlan,
): Pick<Compiled, 'result' | 'stream' | 'opening' | 'columns'> {
  if (plan.kind === 'operation' || request.kind === 'operation')
    return { result: 'operation', stream: false, opening: false, columns: [] };
  const columns = request.export ? columnsOf(plan.level) : [];
  return { result: plan.result, stream: plan.stream, opening: plan.meta.length > 0, columns };
}

/** Of the items that a query selects for a write, those that the caller may write. */
function touched(access: Access, purpose: Purpose | null, request: ReadRequest, model: Model): Condition | null {
  if (purpose === null) return null;
  const collection = model.collections.get(request.collection);
  const grant = collection && access.grant(purpose.replace('any ', '') as WriteAction, collection, model);
  if (!grant) throw forbiddenCollection(request.collection);
  return anyRule(grant.rules);
}
