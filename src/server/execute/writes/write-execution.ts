/** Executes a planned write: its hooks, its statement and its read-back, in one round trip or in a transaction. */
import { randomUUID } from 'node:crypto';
import { forbidden } from '../../../base/errors.js';
import { parseOwnJson } from '../../../base/narrow.js';
import type { Collection, Model } from '../../../compiler/model/model.js';
import { servedCollection } from '../../../compiler/plan/read.js';
import type { WriteTarget } from '../../../compiler/plan/write/plan-request.js';
import { isDistributed } from '../../../compiler/plan/write/shard.js';
import { suppliesKeys } from '../../../compiler/plan/write/supplied-keys.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import { checkRows } from '../../../compiler/plan/write/write-rows.js';
import type { WriteRequest } from '../../../compiler/request/write.js';
import { collectionsOf, mayBeFlat, type WriteOption } from '../../../compiler/statements/write.js';
import { asVanished } from '../../postgres/pools/conflicts.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { runInScope, settingsFor, writeSettings } from '../caller-scope.js';
import { withKeysLeft } from '../distributed.js';
import type { HookCalls, TransactionScope } from '../hooks/joined-writes.js';
import type { PayloadHooks } from '../hooks/user-hooks.js';
import type { HookedWrite } from '../hooks/write-hook.js';
import { WriteHooks } from '../hooks/write-hooks.js';
import { cellOf } from '../reads/reads.js';
import { seenBy, turnOf, type Writer, type WrittenBy } from '../writer.js';
import {
  type FlatCall,
  flatBody,
  type WriteCall,
  type WriteCompiler,
  type WriteLimits,
  type WriteServices,
} from './compiled-write.js';
import { keepWrittenKeys, takeNewKey } from './idempotency.js';
import { hashNewSecrets } from './password-hashing.js';
import { advancePast } from './sequences.js';
import { asDeleteFailure, asWriteFailure, rowsOf } from './write-errors.js';

export const BEGIN = 'begin';
/** A row that another transaction changes meanwhile is an error, and the transaction is run again: rows need no lock. */
export const BEGIN_UNLOCKED = 'begin isolation level repeatable read';

/** Begins a transaction that changes or deletes items of the collections. */
export function beginFor(collections: readonly Collection[]): string {
  return collections.every(({ hasLockableRows }) => hasLockableRows) ? BEGIN : BEGIN_UNLOCKED;
}

/** The transaction that writes have joined, and the writes that opened it. */
interface Joined extends HookStack {
  readonly origin: WriteExecution;
  readonly session: Session;
}

export interface HookStack {
  /** Hooks of users that are running; null if none are called. */
  readonly stack: readonly string[] | null;
  /** The attempt of the transaction, from 1. */
  readonly attempt: number;
}

export abstract class WriteExecution {
  protected readonly accessListeners: (() => Promise<void>)[];
  /** The transaction that the writes joined, or null if each of them has its own. */
  protected readonly session: Session | null;
  protected readonly hookStack: HookStack;
  /** Rows that the joined transaction has written so far. */
  #rows = 0;

  constructor(
    protected readonly services: WriteServices,
    protected readonly limits: WriteLimits,
    protected readonly compiler: WriteCompiler,
    joined: Joined | null,
  ) {
    this.accessListeners = joined?.origin.accessListeners ?? [];
    this.session = joined?.session ?? null;
    this.hookStack = joined ?? { stack: [], attempt: 1 };
  }

  protected abstract join(session: Session, hooks: HookStack): WriteExecution;

  /** The transaction that these writes have joined, for the calls of a program or a hook. */
  abstract scopeOf(session: Session, by: WrittenBy): TransactionScope;

  /** How hooks of users take part in the write, or null if none are called. */
  protected callsOf(call: WrittenBy & Pick<WriteCall, 'attempt'>): HookCalls | null {
    const { stack, attempt: least } = this.hookStack;
    if (this.services.userHooks === null || stack === null) return null;
    const attempt = Math.max(least, call.attempt ?? 1);
    const scopeOf = (hook: string, session: Session): TransactionScope =>
      this.join(session, { stack: [...stack, hook], attempt }).scopeOf(session, call);
    return { attempt, running: stack, scopeOf };
  }

  /** The hooks that change payloads, in the transaction that `open` begins; null if none are called. */
  protected payloadHooks(
    open: () => Promise<Session>,
    call: WrittenBy & Pick<WriteCall, 'attempt'>,
    { context: { model, access, maxRows } }: WriteTarget,
  ): PayloadHooks | null {
    const calls = this.callsOf(call);
    const { writer, client } = call;
    const write = calls && { ...calls, writer, client, model, access, maxRows };
    return write && (this.services.userHooks?.before(write, open) ?? null);
  }

  /** Whether hooks of users change the request. */
  protected isChanged(request: WriteRequest, model: Model): boolean {
    const { userHooks } = this.services;
    if (userHooks === null || this.hookStack.stack === null) return false;
    const collection = model.collections.get(request.collection);
    return collection !== undefined && userHooks.change(request, collection, model);
  }

  /** Calls back after a commit that may have changed permissions; the answer to the write waits for it. */
  onAccessChange(listener: () => Promise<void>): void {
    this.accessListeners.push(listener);
  }

  protected restrict(name: string, { caller, author, access }: Writer, model: Model): WriteTarget {
    const { transactionTimeout: timeout } = this.services.database;
    const context = {
      model,
      author,
      maxRows: this.limits.maxRows,
      ...(timeout === 0 ? {} : { until: performance.now() + timeout }),
      variables: { ...caller, now: new Date().toISOString() },
      newUuid: randomUUID,
      access: access ?? this.services.policies.accessOf(caller),
    };
    return { collection: servedCollection(model, name), context };
  }

  /** One round trip, unless something is done between the statements: for an `Idempotency-Key`, supplied keys, or a hook. */
  protected async execute(planned: PlannedWrite, call: WriteCall): Promise<Buffer | null> {
    const { database, reads } = this.services;
    await hashNewSecrets(planned, call.writer, (text) => database.rows(text));
    const hooks = WriteHooks.ofPlan(planned, this.services.hooks);
    hooks.validate();
    const begin = beginFor(planned.plan.nodes.flatMap(({ verb, collection }) => (verb === 'insert' ? [] : collection)));
    const isHooked = hooks.needTransaction || !mayBeFlat(planned);
    const flat = isHooked ? null : this.compiler.compileFlat(planned, call);
    if (flat) return this.sendFlat(flat, call);
    const isApart = isHooked || call.idempotencyKey || suppliesKeys(planned);
    const settings = writeSettings(this.services.callers, call, () => collectionsOf(planned));
    const written = isApart ? null : this.compiler.compileWrite(planned, call, null);
    const readBack = written && this.compiler.prepareReadBack(planned, call);
    if (!written || (readBack && settings === null && reads.settingsOf(readBack.read))) {
      // The role of the caller may not write to the table of idempotency keys.
      const isTaken = settings?.role ? call.idempotencyKey : null;
      const run = async (session: Session): Promise<Buffer | null> => {
        if (isTaken) await takeNewKey(isTaken, this.limits, database, session);
        await session.become(settings);
        return this.executeIn(session, planned, call, isTaken ? null : call.idempotencyKey);
      };
      return database.transaction(run, begin, turnOf(call));
    }
    call.client.staged('compile');
    const read = readBack && { ...reads.bind(readBack.read, readBack.statement), columns: 1 as const };
    const log = this.compiler.compileLog(collectionsOf(planned), call);
    const statements = [written, ...(log ? [log] : []), ...(read ? [read] : [])];
    const send = (session: Session): Promise<(Buffer | null)[]> =>
      reads.shapeStats.time(written, rowsOf(planned), () => session.runPipelined(statements, settings));
    const cells = await database.sessions
      .use(send, turnOf(call))
      .catch((error: unknown) => Promise.reject(asWriteFailure(error, planned)));
    return read ? (cells.at(-1) ?? null) : null;
  }

  /** The answer is the cell of the row that was written: empty if the caller may not read it. There is none if no row was written. */
  protected async sendFlat(
    { planned, statement, batchText, key, isRepeatable, rows }: FlatCall,
    call: WriteCall,
    deletedFrom: Collection | null = null,
  ): Promise<Buffer | null> {
    const { client, writer } = call;
    const { database, reads, callers, batcher } = this.services;
    client.staged('compile');
    const settings = settingsFor(callers, () => 'secured', seenBy(writer), client);
    const send = async (): Promise<Buffer | null> => {
      const turn = turnOf(call);
      // A batch of others could wait for the place that the write is in.
      if (batcher && batchText !== null && settings === null && !database.sessions.turns.isInside)
        return batcher.write({ statement, batchText, key, isRepeatable, caller: turn.caller });
      const [cell = null] = await database.sessions.use((session) => session.runPipelined([statement], settings), turn);
      return cell;
    };
    const body = await reads.shapeStats.time(statement, rows, send).catch((error: unknown) => {
      throw planned ? asWriteFailure(error, planned) : deletedFrom ? asDeleteFailure(error, deletedFrom) : error;
    });
    const vanished = body === null && planned ? asVanished(planned.plan, forbidden()) : null;
    if (vanished) throw vanished;
    return flatBody(body);
  }

  protected executeIn(
    session: Session,
    planned: PlannedWrite,
    call: WriteCall,
    option: WriteOption,
  ): Promise<Buffer | null> {
    return this.inScope(session, planned, call, () => this.#executeIn(session, planned, call, option));
  }

  /** The rows of a payload may belong to other tables than those that the transaction began with. */
  protected inScope<Result>(
    session: Session,
    planned: PlannedWrite,
    { writer, client }: WriteCall,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const collections = collectionsOf(planned);
    return runInScope(session, this.services.callers, { writer, client, collections }, work);
  }

  async #executeIn(
    session: Session,
    planned: PlannedWrite,
    call: WriteCall,
    option: WriteOption,
  ): Promise<Buffer | null> {
    if (this.session) this.countPlanned(planned);
    await this.writeIn(session, planned, call, option);
    const readBack = this.compiler.prepareReadBack(await withKeysLeft(planned, session), call);
    const body = readBack && (await this.services.reads.cellIn(session, readBack.read, readBack.statement));
    if (call.idempotencyKey) await keepWrittenKeys(call.idempotencyKey, planned.keys, this.services.database, session);
    return body;
  }

  /** Rows of all writes of a transaction count together. */
  protected countRows(rows: number): void {
    if (this.session) this.#rows += rows;
    checkRows(this.session ? this.#rows : rows, this.limits.maxRows);
  }

  protected countPlanned({ input }: PlannedWrite): void {
    this.countRows(input.nodes.reduce((sum, rows) => sum + rows.length, 0));
  }

  /** Writes with hooks. Answers the number of rows that triggers left out, if the option is to count them. */
  protected async writeIn(
    session: Session,
    given: PlannedWrite,
    call: WriteCall,
    option: WriteOption,
  ): Promise<number> {
    call.client.staged('plan');
    const { database, userHooks } = this.services;
    const planned = userHooks === null ? given : userHooks.keepingKeys(given);
    const isLimited = option !== 'count' && !call.writer.caller.administrator;
    const query = (text: string) => session.asService(() => session.query(database.qualified(text)));
    await hashNewSecrets(planned, call.writer, query, isLimited);
    const hooks = WriteHooks.ofPlan(planned, this.services.hooks);
    hooks.validate();
    return hooks.around(this.hookContext(session, call), () => this.#send(session, planned, call, option));
  }

  async #send(session: Session, planned: PlannedWrite, call: WriteCall, option: WriteOption): Promise<number> {
    const isNew = planned.plan.nodes.every(({ verb }) => verb === 'insert');
    const flat =
      option === 'count' && isNew && !planned.plan.keptKeys && !isDistributed(planned)
        ? this.compiler.compileFlat(planned, call)
        : null;
    const statement = flat?.statement ?? this.compiler.compileWrite(planned, call, option);
    if (!statement) return 0;
    call.client.staged('compile');
    try {
      if (isDistributed(planned)) await session.setPlanMode('force_custom_plan');
      const cell = await this.services.reads.shapeStats.time(statement, rowsOf(planned), () =>
        cellOf(statement, session),
      );
      // No trigger leaves out new rows of a flat write, and its statement advances the sequence.
      if (flat) return 0;
      await this.compiler.writeLog(session, collectionsOf(planned), call);
      const maxKeys = parseOwnJson<(string | null)[]>(String(cell));
      await session.asService(() => advancePast(planned, maxKeys, session));
      return option === 'count' ? rowsOf(planned) - Number(maxKeys.at(-1)) : 0;
    } catch (error) {
      throw asWriteFailure(error, planned);
    } finally {
      call.client.staged('execute');
    }
  }

  protected hookContext(session: Session, call: WriteCall): Omit<HookedWrite, 'model' | 'changes' | 'planned'> {
    const { writer, client } = call;
    const { database, reads } = this.services;
    const services = { database, reads, parseLimits: this.limits.parse, accessChanged: this.#accessChanged };
    return { writer, client, session, calls: this.callsOf(call), ...services };
  }

  readonly #accessChanged = async (): Promise<void> => {
    await Promise.all(this.accessListeners.map((listener) => listener()));
  };
}
