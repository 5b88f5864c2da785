/**
 * Runs writes: restrict → plan → compile → execute → read back. The statement and its read-back are one transaction, and one round trip
 * if nothing has to happen between them. After a deadlock or a race PostgreSQL has undone the transaction, and it is run again.
 */
import { invalidPayload } from '../../../base/errors.js';
import { inScope, type Scope } from '../../../base/limiter.js';
import type { Observer } from '../../../base/observe.js';
import type { Model } from '../../../compiler/model/model.js';
import { isKnownTo } from '../../../compiler/plan/access.js';
import { Guard } from '../../../compiler/plan/write/guard.js';
import { checkKeyed, shownKey } from '../../../compiler/plan/write/key.js';
import { isSelecting, planWrite, tagsOf } from '../../../compiler/plan/write/plan-request.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { WriteRequest } from '../../../compiler/request/write.js';
import { bind } from '../../../compiler/sql/parameter.js';
import type { Identity } from '../../access/identity.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { JoinedWrites, TransactionScope } from '../hooks/joined-writes.js';
import type { RequestClient } from '../stages.js';
import type { Writer, WritingCall, WrittenBy } from '../writer.js';
import { type WriteCall, WriteCompiler, type WriteLimits, type WriteServices } from './compiled-write.js';
import { callFunction } from './function-call.js';
import { answerRepeated, isRepeated } from './idempotency.js';
import { type ImportInto, type ImportTransaction, importInto } from './import-write.js';
import { prepareSecrets } from './password-hashing.js';
import { execute, executeIn, planChanged, sendFlat } from './planned-write.js';
import { writeSelected } from './selected-write.js';
import { type Begin, beginLate, type TransactionOptions, type TransactionStep } from './transaction.js';
import { transact } from './transaction-steps.js';
import {
  conditioned,
  inOneTransaction,
  inTransaction,
  isChanged,
  isFollowed,
  joinTransaction,
  restrict,
  retryWrite,
  scopeOf,
  type WriteContext,
} from './write-context.js';
import { asExisting, lock } from './write-errors.js';
import type { WriteExecutor } from './write-executor.js';

export class Writes implements JoinedWrites {
  constructor(private readonly context: WriteContext) {}

  static open(services: WriteServices, limits: WriteLimits, observe: Observer): Writes {
    return new Writes({
      services,
      limits,
      compiler: new WriteCompiler(services, limits, observe),
      accessListeners: [],
      session: null,
      hookStack: { stack: [], attempt: 1 },
      rows: 0,
      writesOf: (context) => new Writes(context),
    });
  }

  /** The same writes without the hooks of users. */
  withoutHooks(): Writes {
    const { session, hookStack } = this.context;
    if (!session) throw new Error('only writes of an open transaction may leave out hooks');
    return new Writes(joinTransaction(this.context, session, { ...hookStack, stack: null }));
  }

  /** Number of cached shapes. */
  get shapes(): number {
    return this.context.compiler.shapes;
  }

  /** The batches of writes, or null if each write is a statement of its own. */
  get batcher(): WriteExecutor | null {
    return this.context.services.batcher;
  }

  /** Calls back after a commit that may have changed permissions; the answer to the write waits for it. */
  onAccessChange(listener: () => Promise<void>): void {
    this.context.accessListeners.push(listener);
  }

  /** The body of the read-back, or null if the request has none or the caller may not read the items. */
  async run(request: WriteRequest, given: Writer, client: RequestClient): Promise<Buffer | null> {
    const { context } = this;
    const { idempotencyKey = null } = request;
    const { reads, mirror } = context.services;
    const writer = reads.hasReadHooks ? await conditioned(context, given, request.collection, client) : given;
    const readBack = request.kind === 'delete' ? null : request.readBack;
    const call: WriteCall = { writer, client, readBack, idempotencyKey, tags: tagsOf(request) };
    try {
      return await retryWrite(context, call, (model, attempt) => this.#attempt(request, call, model, attempt));
    } catch (error) {
      if (!idempotencyKey || !isRepeated(error)) throw asExisting(error, request, mirror.model);
      return answerRepeated(idempotencyKey, request.collection, call, context.services);
    } finally {
      client.staged('execute');
    }
  }

  async #attempt(request: WriteRequest, given: WriteCall, model: Model, attempt: number): Promise<Buffer | null> {
    const { context } = this;
    const { compiler, session } = context;
    if (isChanged(context, request, model)) return this.#attemptChanged(request, { ...given, attempt }, model);
    // A write that hooks follow has no known statement. It may have had one before the hooks were loaded again.
    const isApart = session !== null || isFollowed(context, request.collection, model);
    const payload = isApart ? null : compiler.payloadOf(request, given.writer);
    const call = { ...given, payload, attempt };
    const known = compiler.compileKnown(model, call);
    if (known) return sendFlat(context, known, call);
    const target = restrict(context, request.collection, call.writer, model);
    call.client.staged('restrict');
    if (isSelecting(request)) return writeSelected(context, request, target, call);
    const planned = await planWrite(request, target);
    if (session) return executeIn({ context, session, call }, planned, call.idempotencyKey);
    call.client.staged('plan');
    return execute(context, planned, call);
  }

  /**
   * Hooks change the payload, and the plan is made after them. If none of them uses the transaction, the write is sent as it would be without
   * hooks, in one round trip. An idempotency key is taken before hooks are called.
   */
  #attemptChanged(request: WriteRequest, call: WriteCall, model: Model): Promise<Buffer | null> {
    const { context } = this;
    const target = restrict(context, request.collection, call.writer, model);
    if (isSelecting(request)) return writeSelected(context, request, target, call);
    const beginIn =
      (scope?: Scope): Begin<Buffer | null> =>
      (work) =>
        inTransaction(context, { ...call, scope, collection: target.collection }, work);
    const plan = (open: () => Promise<Session>): Promise<PlannedWrite> =>
      planChanged(context, request, target, { call, open });
    const write = (planned: PlannedWrite, session: Session | null): Promise<Buffer | null> =>
      session ? executeIn({ context, session, call }, planned, null) : execute(context, planned, call);
    if (!context.session && !call.idempotencyKey) return inScope((scope) => beginLate(beginIn(scope), plan, write));
    return beginIn()(async (session) => write(await plan(async () => session), session));
  }

  /** Calls a function that may write, then reads what it returned. */
  call(call: WritingCall): Promise<Buffer | null> {
    return retryWrite(this.context, call, () => callFunction(this.context, call));
  }

  /** All writes of `work` are one transaction if it makes them with the writes that it is given. */
  inOneTransaction<Result>(
    by: WrittenBy,
    work: (writes: Writes, session: Session) => Promise<Result>,
  ): Promise<Result> {
    return inOneTransaction(this.context, by, (joined, session) => work(new Writes(joined), session));
  }

  /** The transaction that these writes have joined, for the calls of a program. */
  scopeOf(session: Session, by: WrittenBy): TransactionScope {
    return scopeOf(this.context, session, by);
  }

  /** Runs the steps in order, in one transaction; answers the response. */
  transact(steps: readonly TransactionStep[], by: WrittenBy, options: TransactionOptions): Promise<Buffer> {
    return transact(this.context, steps, by, options);
  }

  /** Hashes the passwords of a request before the transaction in which it will be planned. */
  prepare<Request extends WriteRequest>(request: Request, writer: Writer): Promise<Request> {
    return prepareSecrets(this.context, request, writer);
  }

  /** False if the caller can neither see nor write anything of the collection. */
  isSingleton(name: string, caller: Identity): boolean {
    const { mirror, policies } = this.context.services;
    const collection = mirror.model.collections.get(name);
    return collection?.singleton === true && isKnownTo(collection, policies.accessOf(caller), mirror.model);
  }

  /** One transaction in which rows are written batch by batch. Whatever `work` throws undoes all of it. */
  inImport<Result>(
    into: ImportInto,
    by: WrittenBy,
    work: (transaction: ImportTransaction) => Promise<Result>,
  ): Promise<Result> {
    return importInto(this.context, into, by, work);
  }

  /** Moves an item of a sorted collection to the position of another. */
  sort(name: string, item: unknown, to: unknown, by: WrittenBy): Promise<void> {
    const { context } = this;
    const { services, compiler } = context;
    const { writer } = by;
    return retryWrite(context, by, async (model) => {
      const target = restrict(context, name, writer, model);
      const { collection } = target;
      const { access } = target.context;
      if (access) new Guard(access, model).checkOrder(collection);
      checkKeyed(collection);
      const field = collection.sortField === null ? undefined : collection.fields.get(collection.sortField);
      if (!field?.column) throw invalidPayload(`The collection "${name}" has no sort field`);
      if (services.userHooks?.follow(collection))
        throw invalidPayload(`An extension has hooks for writes of "${name}": change "${field.name}" by PATCH`);
      const keys = [item, to].map((key) => shownKey(collection, key));
      if (keys.includes(null)) throw invalidPayload('"item" and "to" must be keys');
      const { text, parameters } = compiler.compileSort(collection, field, model, writer);
      await inTransaction(context, { ...by, collection }, async (session) => {
        await lock(collection, session);
        await session.cell(text, bind(parameters, keys, writer.caller));
      });
    });
  }
}
