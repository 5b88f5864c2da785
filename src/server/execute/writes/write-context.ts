/** The context that all functions of writes share: services, limits and statements, and the open transaction that the writes have joined. */
import { randomUUID } from 'node:crypto';
import type { Collection, Model } from '../../../compiler/model/model.js';
import { servedCollection } from '../../../compiler/plan/read.js';
import type { WriteTarget } from '../../../compiler/plan/write/plan-request.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import { checkRows } from '../../../compiler/plan/write/write-rows.js';
import type { WriteRequest } from '../../../compiler/request/write.js';
import { isDenied } from '../../postgres/pools/server-identity.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { runInScope, settingsFor, writeSettings } from '../caller-scope.js';
import { noteCommit } from '../consistency.js';
import type { HookCalls, JoinedWrites, TransactionScope } from '../hooks/joined-writes.js';
import type { PayloadHooks } from '../hooks/user-hooks.js';
import type { HookedWrite } from '../hooks/write-hook.js';
import { retry } from '../retry.js';
import type { RequestClient } from '../stages.js';
import { seenBy, turnOf, type Writer, type WrittenBy } from '../writer.js';
import type { WriteCall, WriteCompiler, WriteLimits, WriteServices } from './compiled-write.js';
import { takeNewKey } from './idempotency.js';
import { advancePastTable } from './sequences.js';
import { asWriteError } from './write-errors.js';

export const BEGIN = 'begin';
/** A row that another transaction changes meanwhile is an error, and the transaction is run again: rows need no lock. */
export const BEGIN_UNLOCKED = 'begin isolation level repeatable read';

/** Begins a transaction that changes or deletes items of the collections. */
export function beginFor(collections: readonly Collection[]): string {
  return collections.every(({ hasLockableRows }) => hasLockableRows) ? BEGIN : BEGIN_UNLOCKED;
}

interface HookStack {
  /** Hooks of users that are running; null if none are called. */
  readonly stack: readonly string[] | null;
  /** The attempt of the transaction, from 1. */
  readonly attempt: number;
}

export interface WriteContext {
  readonly services: WriteServices;
  readonly limits: WriteLimits;
  readonly compiler: WriteCompiler;
  readonly accessListeners: (() => Promise<void>)[];
  /** The transaction that the writes joined, or null if each of them has its own. */
  readonly session: Session | null;
  readonly hookStack: HookStack;
  /** Rows that the joined transaction has written so far. */
  rows: number;
  /** The writes of a context, for the calls of a program or a hook. */
  readonly writesOf: (context: WriteContext) => JoinedWrites;
}

/** The context of writes that join an open transaction. They share the statements of their origin. */
export function joinTransaction(context: WriteContext, session: Session, hookStack: HookStack): WriteContext {
  return { ...context, session, hookStack, rows: 0 };
}

/** The transaction that the writes of the context have joined, for the calls of a program or a hook. */
export function scopeOf(context: WriteContext, session: Session, by: WrittenBy): TransactionScope {
  const { reads } = context.services;
  const asError = (error: unknown): unknown => shownError(context, error, context.services.mirror.model, by);
  return { session, writes: context.writesOf(context), reads, parseLimits: context.limits.parse, ...by, asError };
}

/** The error of a write, as its caller may see it. */
function shownError({ services }: WriteContext, error: unknown, model: Model, { writer }: WrittenBy): unknown {
  const { caller, access } = writer;
  return services.reads.refusals.to(caller, asWriteError(error, model, access ?? services.policies.accessOf(caller)));
}

/** How hooks of users take part in the write, or null if none are called. */
function callsOf(context: WriteContext, call: WrittenBy & Pick<WriteCall, 'attempt'>): HookCalls | null {
  const { stack, attempt: least } = context.hookStack;
  if (context.services.userHooks === null || stack === null) return null;
  const attempt = Math.max(least, call.attempt ?? 1);
  return {
    attempt,
    running: stack,
    scopeOf: (hook, session) =>
      scopeOf(joinTransaction(context, session, { stack: [...stack, hook], attempt }), session, call),
  };
}

/** The hooks that change payloads, in the transaction that `open` begins; null if none are called. */
export function payloadHooks(
  context: WriteContext,
  open: () => Promise<Session>,
  call: WrittenBy & Pick<WriteCall, 'attempt'>,
  { context: { model, access, maxRows } }: WriteTarget,
): PayloadHooks | null {
  const calls = callsOf(context, call);
  const { writer, client } = call;
  const write = calls && { ...calls, writer, client, model, access, maxRows };
  return write && (context.services.userHooks?.before(write, open) ?? null);
}

/** The values that hooks of a write get. */
export function hookContext(
  context: WriteContext,
  session: Session,
  call: WriteCall,
): Omit<HookedWrite, 'model' | 'changes' | 'planned'> {
  const { writer, client } = call;
  const { services, limits, accessListeners } = context;
  const { database, reads } = services;
  const accessChanged = async (): Promise<void> => {
    await Promise.all(accessListeners.map((listener) => listener()));
  };
  const calls = callsOf(context, call);
  return { writer, client, session, calls, database, reads, parseLimits: limits.parse, accessChanged };
}

/** Whether hooks of users change the request. */
export function isChanged({ services, hookStack }: WriteContext, request: WriteRequest, model: Model): boolean {
  const { userHooks } = services;
  if (userHooks === null || hookStack.stack === null) return false;
  const collection = model.collections.get(request.collection);
  return collection !== undefined && userHooks.change(request, collection, model);
}

/** Whether hooks of users follow writes of the collection. */
export function isFollowed({ services: { userHooks } }: WriteContext, name: string, model: Model): boolean {
  const collection = userHooks === null ? undefined : model.collections.get(name);
  return collection !== undefined && userHooks?.follow(collection) === true;
}

/** The collection, and what the caller may write in it. */
export function restrict(context: WriteContext, name: string, writer: Writer, model: Model): WriteTarget {
  const { services, limits } = context;
  const { caller, author, access } = writer;
  const { transactionTimeout: timeout } = services.database;
  const planContext = {
    model,
    author,
    maxRows: limits.maxRows,
    ...(timeout === 0 ? {} : { until: performance.now() + timeout }),
    variables: { ...caller, now: new Date().toISOString() },
    newUuid: randomUUID,
    access: access ?? services.policies.accessOf(caller),
  };
  return { collection: servedCollection(model, name), context: planContext };
}

/** The writer with the conditions of `beforeRead`, which apply to the answer and to the items that a query selects. */
export async function conditioned(
  { services: { reads } }: WriteContext,
  writer: Writer,
  collection: string | null,
  client: RequestClient,
): Promise<Writer> {
  if (!reads.hasReadHooks) return writer;
  const caller = await reads.conditionedFor(collection, writer.caller, client);
  return caller === writer.caller ? writer : { ...writer, caller };
}

type Transacted = WrittenBy &
  Partial<WriteCall> & {
    readonly collection: Collection;
    /** The statement that begins the transaction. By default that of writes of the collection. */
    readonly begin?: string;
  };

/** Works in a new transaction, or in the one that was joined. A new one takes the idempotency key first. */
export function inTransaction<Result>(
  { session: joined, services, limits }: WriteContext,
  call: Transacted,
  work: (session: Session) => Promise<Result>,
): Promise<Result> {
  const { database, callers } = services;
  const { collection, idempotencyKey: key, begin = beginFor([collection]) } = call;
  if (joined) return runInScope(joined, callers, { ...call, collections: [collection] }, () => work(joined));
  const run = async (session: Session): Promise<Result> => {
    if (key) await takeNewKey(key, limits, database, session);
    await session.become(writeSettings(callers, call, () => [collection]));
    return work(session);
  };
  return database.transaction(run, begin, turnOf(call));
}

/** Runs the write again after a conflict. Writes that joined a transaction are retried with it. */
export function retryWrite<Result>(
  context: WriteContext,
  by: WrittenBy,
  work: (model: Model, attempt: number) => Promise<Result>,
): Promise<Result> {
  const { mirror, database, consistency } = context.services;
  if (context.session) return work(mirror.model, context.hookStack.attempt);
  const written = retry(mirror, work, {
    asError: (error, model) => shownError(context, error, model, by),
    // Without the privilege, further attempts take the next numbers of the sequence.
    onCollision: ({ collection }) =>
      database
        .transaction((session) => advancePastTable(collection, session), BEGIN, turnOf(by))
        .catch((error: unknown) => {
          if (!isDenied(error)) throw error;
        }),
  });
  return noteCommit(consistency, written, by);
}

/** All writes of `work` are one transaction if they are made in the context that it is given. */
export function inOneTransaction<Result>(
  context: WriteContext,
  by: WrittenBy,
  work: (joined: WriteContext, session: Session) => Promise<Result>,
): Promise<Result> {
  const { database, callers } = context.services;
  const run = (attempt: number) => async (session: Session) => {
    await session.become(settingsFor(callers, () => 'secured', seenBy(by.writer), by.client));
    return work(joinTransaction(context, session, { stack: [], attempt }), session);
  };
  return retryWrite(context, by, (_, attempt) => database.transaction(run(attempt), BEGIN, turnOf(by, true)));
}

/** Rows of all writes of a transaction count together. */
export function countRows(context: WriteContext, rows: number): void {
  if (context.session) context.rows += rows;
  checkRows(context.session ? context.rows : rows, context.limits.maxRows);
}

export function countPlanned(context: WriteContext, { input }: PlannedWrite): void {
  countRows(
    context,
    input.nodes.reduce((sum, rows) => sum + rows.length, 0),
  );
}
