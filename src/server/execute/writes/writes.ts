/**
 * Runs writes: restrict → plan → compile → execute → read back. The statement and its read-back are one transaction, and one round trip
 * if nothing has to happen between them. After a deadlock or a race PostgreSQL has undone the transaction, and it is run again.
 */

import { invalidPayload, preconditionFailed } from '../../../base/errors.js';
import { inScope, type Scope } from '../../../base/limiter.js';
import type { Observer } from '../../../base/observe.js';
import type { Tags } from '../../../compiler/compile/write/write-input.js';
import type { Collection, Model } from '../../../compiler/model/model.js';
import { isIntercepted } from '../../../compiler/model/write-facts.js';
import { planImported } from '../../../compiler/plan/write/conflict.js';
import { Guard } from '../../../compiler/plan/write/guard.js';
import { checkKeyed, checkKeys, displayWrittenKey, shownKey } from '../../../compiler/plan/write/key.js';
import { planCreate, planUpdate } from '../../../compiler/plan/write/payload.js';
import {
  checkChanged,
  deletionRule,
  isSelecting,
  type PlannedRequest,
  planWrite,
  type SelectingRequest,
  type SelectingUpdate,
  tagsOf,
  type WriteTarget,
  withOperators,
} from '../../../compiler/plan/write/plan-request.js';
import { isDistributed } from '../../../compiler/plan/write/shard.js';
import { suppliesKeys } from '../../../compiler/plan/write/supplied-keys.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { OnConflict } from '../../../compiler/request/on-conflict.js';
import type { Input } from '../../../compiler/request/parse-context.js';
import { parseCountOfKeys } from '../../../compiler/request/rest.js';
import type { Key, Selected, WriteRequest } from '../../../compiler/request/write.js';
import { bind } from '../../../compiler/sql/parameter.js';
import { deletionOf, deletionParameters } from '../../../compiler/statements/write.js';
import { CLI_IDENTITY, type Identity } from '../../access/identity.js';
import { CallerSlice } from '../../node/turns.js';
import { isDenied } from '../../postgres/pools/server-identity.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { runInScope, settingsFor, writeSettings } from '../caller-scope.js';
import { noteCommit } from '../consistency.js';
import { parseWrittenKeys, planForShard, WRITTEN_KEYS } from '../distributed.js';
import type { TransactionScope } from '../hooks/joined-writes.js';
import { WriteHooks } from '../hooks/write-hooks.js';
import { countInSession } from '../reads/session-reads.js';
import { retry } from '../retry.js';
import type { RequestClient } from '../stages.js';
import {
  type ImportTransaction,
  isKnownSingleton,
  seenBy,
  turnOf,
  type Writer,
  type WritingCall,
  type WrittenBy,
} from '../writer.js';
import {
  pipelineFlat,
  shownKeys,
  type WriteCall,
  WriteCompiler,
  type WriteLimits,
  type WriteServices,
} from './compiled-write.js';
import { callFunction } from './function-call.js';
import { answerOnce, answerRepeated, isRepeated, takeNewKey } from './idempotency.js';
import { checkDisclosure } from './key-disclosure.js';
import { hashNewSecrets, preparePayloads } from './password-hashing.js';
import { advancePastTable } from './sequences.js';
import {
  type Begin,
  beginLate,
  type PipelinedWrite,
  type StepPlace,
  type TransactionOptions,
  TransactionPipeline,
  type TransactionStep,
  waitsForLock,
} from './transaction.js';
import { deleteUnlocked } from './unlocked-delete.js';
import {
  asDeleteFailure,
  asExisting,
  asImportError,
  asWriteError,
  asWriteFailure,
  lock,
  rowsOf,
} from './write-errors.js';
import { BEGIN, BEGIN_UNLOCKED, beginFor, type HookStack, WriteExecution } from './write-execution.js';
import type { WriteExecutor } from './write-executor.js';

type DeleteRequest = Exclude<SelectingRequest, SelectingUpdate>;

/** The transaction that writes join. */
interface JoinedTransaction extends HookStack {
  readonly origin: Writes;
  readonly session: Session;
}

export class Writes extends WriteExecution {
  /** Writes that join a transaction share the statements of their origin. */
  constructor(
    services: WriteServices,
    limits: WriteLimits,
    private readonly observe: Observer,
    joined: JoinedTransaction | null = null,
  ) {
    super(services, limits, joined?.origin.compiler ?? new WriteCompiler(services, limits, observe), joined);
  }

  protected override join(session: Session, hooks: HookStack): Writes {
    return new Writes(this.services, this.limits, this.observe, { origin: this, session, ...hooks });
  }

  /** The same writes without the hooks of users. */
  withoutHooks(): Writes {
    if (!this.session) throw new Error('only writes of an open transaction may leave out hooks');
    return this.join(this.session, { ...this.hookStack, stack: null });
  }

  /** Number of cached shapes. */
  get shapes(): number {
    return this.compiler.shapes;
  }

  /** The batches of writes, or null if each write is a statement of its own. */
  get batcher(): WriteExecutor | null {
    return this.services.batcher;
  }

  /** The body of the read-back, or null if the request has none or the caller may not read the items. */
  async run(request: WriteRequest, given: Writer, client: RequestClient): Promise<Buffer | null> {
    const { idempotencyKey = null } = request;
    const { reads } = this.services;
    const writer = reads.hasReadHooks ? await this.#conditioned(given, request.collection, client) : given;
    const readBack = request.kind === 'delete' ? null : request.readBack;
    const call: WriteCall = { writer, client, readBack, idempotencyKey, tags: tagsOf(request) };
    try {
      return await this.#retry(call, (model, attempt) => this.#attempt(request, call, model, attempt));
    } catch (error) {
      if (!idempotencyKey || !isRepeated(error)) throw asExisting(error, request, this.services.mirror.model);
      return answerRepeated(idempotencyKey, request.collection, call, this.services);
    } finally {
      client.staged('execute');
    }
  }

  async #attempt(request: WriteRequest, given: WriteCall, model: Model, attempt: number): Promise<Buffer | null> {
    if (this.isChanged(request, model)) return this.#attemptChanged(request, { ...given, attempt }, model);
    // A write that hooks follow has no known statement. It may have had one before the hooks were loaded again.
    const isApart = this.session !== null || this.#isFollowed(request.collection, model);
    const payload = isApart ? null : this.compiler.payloadOf(request, given.writer);
    const call = { ...given, payload, attempt };
    const known = this.compiler.compileKnown(model, call);
    if (known) return this.sendFlat(known, call);
    const target = this.restrict(request.collection, call.writer, model);
    call.client.staged('restrict');
    if (isSelecting(request)) return this.#writeSelected(request, target, call);
    const planned = await planWrite(request, target);
    if (this.session) return this.executeIn(this.session, planned, call, call.idempotencyKey);
    call.client.staged('plan');
    return this.execute(planned, call);
  }

  /**
   * Hooks change the payload, and the plan is made after them. If none of them uses the transaction, the write is sent as it would be without
   * hooks, in one round trip. An idempotency key is taken before hooks are called.
   */
  #attemptChanged(request: WriteRequest, call: WriteCall, model: Model): Promise<Buffer | null> {
    const target = this.restrict(request.collection, call.writer, model);
    if (isSelecting(request)) return this.#writeSelected(request, target, call);
    const beginIn =
      (scope?: Scope): Begin<Buffer | null> =>
      (work) =>
        this.#transaction({ ...call, scope }, target.collection, work);
    const plan = (open: () => Promise<Session>): Promise<PlannedWrite> =>
      this.#planChanged(request, target, call, open);
    const write = (planned: PlannedWrite, session: Session | null): Promise<Buffer | null> =>
      session ? this.executeIn(session, planned, call, null) : this.execute(planned, call);
    if (!this.session && !call.idempotencyKey) return inScope((scope) => beginLate(beginIn(scope), plan, write));
    return beginIn()(async (session) => write(await plan(async () => session), session));
  }

  async #planChanged(
    request: PlannedRequest,
    target: WriteTarget,
    call: WriteCall,
    open: () => Promise<Session>,
  ): Promise<PlannedWrite> {
    const hooks = this.payloadHooks(open, call, target);
    return planWrite(hooks ? await hooks.request(request, target.collection) : request, target);
  }

  async #conditionedBy(by: WrittenBy): Promise<WrittenBy> {
    if (!this.services.reads.hasReadHooks) return by;
    return { ...by, writer: await this.#conditioned(by.writer, null, by.client) };
  }

  /** The writer with the conditions of `beforeRead`, which apply to the answer and to the items that a query selects. */
  async #conditioned(writer: Writer, collection: string | null, client: RequestClient): Promise<Writer> {
    const caller = await this.services.reads.conditionedFor(collection, writer.caller, client);
    return caller === writer.caller ? writer : { ...writer, caller };
  }

  #writeSelected(request: SelectingRequest, target: WriteTarget, call: WriteCall): Promise<Buffer | null> {
    return request.kind === 'delete'
      ? this.#delete(request, target, call)
      : this.#updateSelected(request, target, call);
  }

  async #updateSelected(request: SelectingUpdate, target: WriteTarget, call: WriteCall): Promise<Buffer | null> {
    const { collection } = target;
    const { data: given } = await this.prepare(request, call.writer);
    return this.#transaction(call, collection, async (session) => {
      const keys =
        request.kind === 'update-singleton'
          ? await this.#singletonKeys(collection, call, session)
          : await this.compiler.selectKeys({ ...call, session }, collection, request.selected, 'update');
      const isNew = request.kind === 'update-singleton' && keys.length === 0;
      // Without items, nothing else checks the fields.
      if (keys.length === 0 && !isNew) checkChanged(target, given);
      const hooks = keys.length > 0 || isNew ? this.payloadHooks(async () => session, call, target) : null;
      const data = hooks ? await hooks.item(collection, given, isNew ? 'create' : 'update', keys) : given;
      const context = withOperators(target.context, request, isNew ? 'all' : 'changes');
      const planned = await (isNew
        ? planCreate(collection, [data], context)
        : planUpdate(
            collection,
            keys.map((key) => ({ key, data })),
            context,
          ));
      if (isNew && request.ifMatch) throw preconditionFailed('The item does not exist yet');
      return this.executeIn(session, planned, call, null);
    });
  }

  /** The key of the only item, or none. The service looks for it: permissions apply to the update. */
  async #singletonKeys(collection: Collection, call: WriteCall, session: Session): Promise<readonly Key[]> {
    await lock(collection, session);
    const writer = { ...call.writer, caller: CLI_IDENTITY, inDatabase: seenBy(call.writer) };
    const first = { kind: 'query', query: { limit: 1 } } as const;
    return this.compiler.selectKeys({ ...call, writer, session }, collection, first, 'update');
  }

  async #delete(request: DeleteRequest, { collection, context }: WriteTarget, call: WriteCall): Promise<Buffer | null> {
    const { selected } = request;
    const { writer, client } = call;
    const rule = deletionRule({ collection, context });
    client.staged('plan');
    const hooks = WriteHooks.ofDelete(collection, context.model, this.services.hooks);
    const isApart = this.session || hooks.needTransaction || this.isChanged(request, context.model);
    const flat = isApart ? null : this.compiler.compileFlatDelete({ collection, rule, selected }, context, call);
    if (flat) return this.sendFlat(flat, call, collection);
    const deletion = deletionOf({ collection, context }, rule, selected, this.session !== null);
    const { leavesKept, leavesChanged } = deletion;
    const statement = this.compiler.compileDelete(deletion, context, call);
    const { text } = statement;
    client.statement(text);
    client.staged('compile');
    const work = async (session: Session): Promise<void> => {
      const select = () => this.compiler.selectItems({ ...call, session }, collection, selected, 'delete');
      const items = await select();
      const keys = items.map(({ key }) => key);
      await checkKeys(collection, keys);
      this.countRows(keys.length);
      await this.payloadHooks(async () => session, call, { collection, context })?.removed(collection, 'delete', keys);
      if (collection.distributed) await planForShard(collection, keys, session);
      const remove = async (removed: readonly Key[], tags: Tags): Promise<Buffer | null> => {
        const values = deletionParameters(statement, removed, writer.author, { writer, tags });
        const cell = await session.cell(text, values).catch((error: unknown) => {
          throw asDeleteFailure(error, collection);
        });
        await this.compiler.writeLog(session, [collection], call);
        return cell;
      };
      const deleted = keyMap(keys);
      await hooks.around({ ...this.hookContext(session, call), deleted }, async () => {
        if (leavesChanged) {
          const gone = keyMap(await deleteUnlocked(items, { session, collection, select, remove }));
          for (const key of deleted.keys()) if (!gone.has(key)) deleted.delete(key);
          return;
        }
        await remove(keys, call.tags);
        if (!leavesKept || !this.#isFollowed(collection.name, context.model)) return;
        for (const { key } of await select()) deleted.delete(JSON.stringify(key));
      });
    };
    await this.#transaction(call, collection, work, deletion.locks ? BEGIN : BEGIN_UNLOCKED);
    return null;
  }

  #isFollowed(name: string, model: Model): boolean {
    const { userHooks } = this.services;
    const collection = userHooks === null ? undefined : model.collections.get(name);
    return collection !== undefined && userHooks?.follow(collection) === true;
  }

  /** A new transaction, or the one that was joined. A new one takes the idempotency key first. */
  #transaction<Result>(
    call: WrittenBy & Partial<WriteCall>,
    collection: Collection,
    work: (session: Session) => Promise<Result>,
    begin = beginFor([collection]),
  ): Promise<Result> {
    const joined = this.session;
    const { database, callers } = this.services;
    if (joined) return runInScope(joined, callers, { ...call, collections: [collection] }, () => work(joined));
    const { idempotencyKey: key } = call;
    const run = async (session: Session): Promise<Result> => {
      if (key) await takeNewKey(key, this.limits, database, session);
      await session.become(writeSettings(callers, call, () => [collection]));
      return work(session);
    };
    return database.transaction(run, begin, turnOf(call));
  }

  /** Calls a function that may write, then reads what it returned. */
  call(call: WritingCall): Promise<Buffer | null> {
    return this.#retry(call, () => callFunction(call, this.session, this.services, this.limits));
  }

  /** All writes of `work` are one transaction if it makes them with the writes that it is given. */
  inOneTransaction<Result>(
    by: WrittenBy,
    work: (writes: Writes, session: Session) => Promise<Result>,
  ): Promise<Result> {
    const { database, callers } = this.services;
    const run = (attempt: number) => async (session: Session) => {
      await session.become(settingsFor(callers, () => 'secured', seenBy(by.writer), by.client));
      return work(this.join(session, { stack: [], attempt }), session);
    };
    return this.#retry(by, (_, attempt) => database.transaction(run(attempt), BEGIN, turnOf(by, true)));
  }

  /** The transaction that these writes have joined, for the calls of a program. */
  override scopeOf(session: Session, by: WrittenBy): TransactionScope {
    const { reads, mirror, policies } = this.services;
    const asError = (error: unknown): unknown => {
      const { caller, access } = by.writer;
      return reads.refusals.to(caller, asWriteError(error, mirror.model, access ?? policies.accessOf(caller)));
    };
    return { session, writes: this, reads, parseLimits: this.limits.parse, ...by, asError };
  }

  /** Runs the steps in order, in one transaction; answers the response. All of them together have the time of one statement. */
  async transact(steps: readonly TransactionStep[], given: WrittenBy, options: TransactionOptions): Promise<Buffer> {
    const by = await this.#conditionedBy(given);
    const { database, reads } = this.services;
    const { idempotencyLifetime } = this.limits;
    const { bodyOf, idempotencyKey: key } = options;
    const isWaiting = (processId: number): Promise<boolean> => waitsForLock(database, processId);
    return this.inOneTransaction(by, async (joined, session) => {
      const pipeline = new TransactionPipeline(session, reads, options.at, new CallerSlice(turnOf(by).caller));
      const run = async (): Promise<Buffer> => {
        const bodies = await pipeline.run(steps, {
          write: (request, place) => joined.#runStep(request, by, place, pipeline),
          call: (query) => joined.call({ ...by, query, idempotencyKey: null }),
        });
        return bodyOf(bodies);
      };
      try {
        const body = await session.within(database.transactionTimeout, isWaiting, () =>
          key ? answerOnce(key, { database, session, idempotencyLifetime }, run) : run(),
        );
        return body ?? bodyOf([]);
      } finally {
        pipeline.release();
      }
    });
  }

  /** Adds the write to the pipeline. One that needs something in between is carried out behind those that wait there. */
  async #runStep(
    request: WriteRequest,
    by: WrittenBy,
    { index, isReferenced, values }: StepPlace,
    pipeline: TransactionPipeline,
  ): Promise<void> {
    const { session } = pipeline;
    const call: WriteCall = {
      ...by,
      readBack: request.kind === 'delete' ? null : request.readBack,
      idempotencyKey: null,
      tags: tagsOf(request),
    };
    const target = this.restrict(request.collection, call.writer, this.services.mirror.model);
    const { model } = target.context;
    await checkDisclosure(values(model), pipeline.keys, { ...this.hookContext(session, call), ...target.context });
    const isChanged = this.isChanged(request, model);
    const early = isSelecting(request) || isChanged ? null : await planWrite(request, target);
    const isChecked = isReferenced && isIntercepted(target.collection, 'insert');
    const pipelined = early
      ? !isChecked && (await this.#pipelineWrite(early, call, session, isReferenced))
      : !isChanged && request.kind === 'delete' && this.#pipelineDelete(request.selected, target, call);
    if (pipelined) {
      pipeline.add(index, pipelined);
      return;
    }
    await pipeline.flush();
    pipeline.begin(index);
    if (isSelecting(request)) {
      pipeline.receive(index, await this.#writeSelected(request, target, call));
      return;
    }
    const planned = early ?? (await this.#planChanged(request, target, call, async () => session));
    pipeline.receive(index, await this.executeIn(session, planned, call, null));
    if (!isReferenced) return;
    const keys = planned.keys ?? parseWrittenKeys(await session.cell(WRITTEN_KEYS.text, []));
    const isLost = isChecked && !(await this.#areStored(planned, keys, call, session));
    pipeline.keys.set(index, isLost ? [] : shownKeys(planned, keys));
  }

  /** Whether all new items exist. A trigger may have left some of them out, or stored them elsewhere. */
  async #areStored(
    { plan: { collection } }: PlannedWrite,
    keys: readonly Key[],
    call: WriteCall,
    session: Session,
  ): Promise<boolean> {
    const shown = keys.map((key) => displayWrittenKey(collection, key));
    const query = parseCountOfKeys(collection.name, shown, this.limits.parse);
    const count = await countInSession(this.hookContext(session, call), query, { caller: CLI_IDENTITY });
    return count === keys.length;
  }

  /** The statements of the write, or null if something is done between them or there is nothing to write. */
  async #pipelineWrite(
    planned: PlannedWrite,
    call: WriteCall,
    session: Session,
    isReferenced: boolean,
  ): Promise<PipelinedWrite | null> {
    const { database, callers } = this.services;
    // Between its statements the service writes the log.
    if (callers?.mode === 'role') return null;
    await hashNewSecrets(planned, call.writer, (text) => session.query(database.qualified(text)));
    const hooks = WriteHooks.ofPlan(planned, this.services.hooks);
    if (suppliesKeys(planned) || hooks.needTransaction || isDistributed(planned)) return null;
    hooks.validate();
    const asFailure = (error: unknown): unknown => asWriteFailure(error, planned);
    const pipelined = this.compiler.compilePipelined(planned, call, {
      isReferenced,
      rows: rowsOf(planned),
      asFailure,
    });
    if (pipelined) this.countPlanned(planned);
    return pipelined;
  }

  /** The statement that deletes one item, or null for several items. */
  #pipelineDelete(selected: Selected, target: WriteTarget, call: WriteCall): PipelinedWrite | null {
    const { collection, context } = target;
    const rule = deletionRule(target);
    if (this.services.callers?.mode === 'role') return null;
    if (WriteHooks.ofDelete(collection, context.model, this.services.hooks).needTransaction) return null;
    const flat = this.compiler.compileFlatDelete({ collection, rule, selected }, context, call);
    if (!flat) return null;
    this.countRows(1);
    return pipelineFlat(flat, (error) => asDeleteFailure(error, collection));
  }

  /** Hashes the passwords of a request before the transaction in which it will be planned. */
  async prepare<Request extends WriteRequest>(request: Request, writer: Writer): Promise<Request> {
    if ('items' in request) return { ...request, items: await this.#prepareItems(request, request.items, writer) };
    if (!('data' in request)) return request;
    const [data = request.data] = await this.#prepareItems(request, [request.data], writer);
    return { ...request, data };
  }

  async #prepareItems(request: WriteRequest, items: readonly Input[], writer: Writer) {
    const { mirror, database } = this.services;
    if (!mirror.model.collections.has(request.collection)) return items;
    const { collection, context } = this.restrict(request.collection, writer, mirror.model);
    // An invalid query is refused before anything is done for it.
    if ('selected' in request) this.compiler.parseSelected(collection, request.selected);
    return preparePayloads(collection, items, context, (text) => database.rows(text));
  }

  isSingleton(name: string, caller: Identity): boolean {
    return isKnownSingleton(name, caller, this.services);
  }

  /** One transaction in which rows are written batch by batch. Whatever `work` throws undoes all of it. */
  async inImport<Result>(
    name: string,
    given: WrittenBy,
    { onConflict, mayRepeat }: { readonly onConflict: OnConflict | null; readonly mayRepeat: () => boolean },
    work: (transaction: ImportTransaction) => Promise<Result>,
  ): Promise<Result> {
    const by = await this.#conditionedBy(given);
    const attempt = (model: Model, number: number): Promise<Result> => {
      const call: WriteCall = { ...by, readBack: null, idempotencyKey: null, tags: null, attempt: number };
      const target = this.restrict(name, by.writer, model);
      const { collection } = target;
      const context = { ...target.context, maxRows: null };
      const { access } = context;
      const guard = access && new Guard(access, model);
      if (guard && !guard.covers('update', collection, [])) guard.grant('create', collection);
      by.client.staged('restrict');
      const isHooked = this.services.userHooks?.mayChange(collection, model) ?? false;
      return this.services.database.imports.use((session) => {
        const plan = async (rows: readonly Input[]): Promise<PlannedWrite> => {
          const hooks = isHooked ? this.payloadHooks(async () => session, call, { collection, context }) : null;
          const changed = hooks ? await hooks.rows(collection, rows, onConflict?.resolution === 'merge') : rows;
          return planImported(collection, changed, onConflict, context);
        };
        const write = async (planned: PlannedWrite, rows: number): Promise<number> => {
          const skipped = await this.inScope(session, planned, call, () =>
            this.writeIn(session, planned, call, 'count'),
          );
          // Nested items of the same collection cannot be distinguished from those of the file.
          return rowsOf(planned) === rows ? skipped : 0;
        };
        return session.transaction(async () => {
          await session.become(writeSettings(this.services.callers, by, () => [collection]));
          return work({ session, model, collection, access, plan, write, isHooked });
        });
      }, turnOf(by));
    };
    return noteCommit(
      this.services.consistency,
      retry(this.services.mirror, attempt, { asError: asImportError, mayRepeat }),
      by,
    );
  }

  /** Moves an item of a sorted collection to the position of another. */
  sort(name: string, item: unknown, to: unknown, by: WrittenBy): Promise<void> {
    const { writer } = by;
    return this.#retry(by, async (model) => {
      const { collection, context } = this.restrict(name, writer, model);
      if (context.access) new Guard(context.access, model).checkOrder(collection);
      checkKeyed(collection);
      const field = collection.sortField === null ? undefined : collection.fields.get(collection.sortField);
      if (!field?.column) throw invalidPayload(`The collection "${name}" has no sort field`);
      if (this.services.userHooks?.follow(collection))
        throw invalidPayload(`An extension has hooks for writes of "${name}": change "${field.name}" by PATCH`);
      const keys = [item, to].map((key) => shownKey(collection, key));
      if (keys.includes(null)) throw invalidPayload('"item" and "to" must be keys');
      const { text, parameters } = this.compiler.compileSort(collection, field, model, writer);
      await this.#transaction(by, collection, async (session) => {
        await lock(collection, session);
        await session.cell(text, bind(parameters, keys, writer.caller));
      });
    });
  }

  /** Writes that joined a transaction are retried with it. */
  #retry<Result>(by: WrittenBy, work: (model: Model, attempt: number) => Promise<Result>): Promise<Result> {
    const { mirror, reads, policies, database } = this.services;
    if (this.session) return work(mirror.model, this.hookStack.attempt);
    const { caller, access } = by.writer;
    const written = retry(mirror, work, {
      asError: (error, model) =>
        reads.refusals.to(caller, asWriteError(error, model, access ?? policies.accessOf(caller))),
      // Without the privilege, further attempts take the next numbers of the sequence.
      onCollision: ({ collection }) =>
        database
          .transaction((session) => advancePastTable(collection, session), BEGIN, turnOf(by))
          .catch((error: unknown) => {
            if (!isDenied(error)) throw error;
          }),
    });
    return noteCommit(this.services.consistency, written, by);
  }
}

function keyMap(keys: readonly Key[]): Map<string, Key> {
  return new Map(keys.map((key) => [JSON.stringify(key), key]));
}
